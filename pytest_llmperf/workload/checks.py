"""Is it a number, a count, positive: refusals that name the field."""

from __future__ import annotations

import math
from typing import Any

from pytest_llmperf.errors import WorkloadError

__all__ = ["check_count", "check_positive", "is_number", "parses"]


def is_number(value: Any) -> bool:
    """A finite int or float; ``True`` is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float can hold
        return False


def parses(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_count(name: str, value: Any, *, least: int, optional: bool = False) -> None:
    """Refuse what is no whole number of at least ``least``, naming the field."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WorkloadError(f"{name} is a whole number of at least {least}, not {value!r}.")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no number above 0, naming the field; ``None`` is fine."""
    if value is not None and (not is_number(value) or value <= 0):
        raise WorkloadError(f"{name} is a number above 0, not {value!r}.")
