"""What a condition is: its entry in the registry, and its values over the launches of a test."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from pytest_llmperf.metrics import Missing
from pytest_llmperf.runner import Launch

__all__ = ["Condition", "Observed"]


@dataclass(frozen=True)
class Condition:
    """One circumstance of a launch, or one part of its latency.

    Attributes:
        name: As in records and baselines.
        unit: SI, or ``"°C"``; the unit 1 is a share or a count.
        formula: In words and symbols, with what it is read from.
        of_launch: The one number of a launch, or why there is none.
    """

    name: str
    unit: str
    formula: str
    of_launch: Callable[[Launch], float | Missing]


@dataclass(frozen=True)
class Observed:
    """A condition over the launches of a test.

    Attributes:
        unit: The condition's.
        launches: One number a launch; empty when one of them has none.
        reason: Why there are none.
    """

    unit: str
    launches: tuple[float, ...]
    reason: str | None = None

    @property
    def value(self) -> float | None:
        """Median over the launches."""
        return statistics.median(self.launches) if self.launches else None
