"""Is it a number, a count, positive: refusals that name the field."""

from __future__ import annotations

import math
from typing import Any

from pytest_llmperf.errors import WorkloadError

__all__ = ["check_count", "check_positive", "is_number", "parses"]


_MOST = 2**64
_SMALLEST, _LARGEST = 1e-6, 1e9


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
    """Refuse what is no whole number from ``least`` to 2^64, naming the field."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        shown = repr(value) if not isinstance(value, int) or abs(value) <= _MOST else "one beyond 2^64"
        raise WorkloadError(f"{name} is a whole number of at least {least}, not {shown}.")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no number from 1e-6 to 1e9, naming the field; ``None`` is fine."""
    if value is None:
        return
    if not is_number(value) or value <= 0:
        raise WorkloadError(f"{name} is a number above 0, not {value!r}.")
    if not _SMALLEST <= value <= _LARGEST:
        raise WorkloadError(f"{name} is a number from {_SMALLEST:g} to {_LARGEST:g}, not {value!r}.")
