"""Refusing numbers that no measurement can give."""

from __future__ import annotations

import math


def check_not_negative(**values: float) -> None:
    """Refuse what is no finite number of 0 or more, by its name."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number of 0 or more, not {value}")


def check_positive(**values: float) -> None:
    """Refuse what is no finite number above 0, by its name."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a number above 0, not {value}")
