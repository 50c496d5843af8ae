"""What became of many runs' comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.gate.scenarios import METRICS
from pytest_llmperf.calibration.tally import Share
from pytest_llmperf.calibration.trials import Fate, of_test

__all__ = ["Mean", "Tallies", "Tally"]


@dataclass
class Mean:
    """A mean over runs, with its standard error: comparisons of one run depend on each other, runs do not.

    Attributes:
        runs: How many.
        total: The sum of the runs' values.
        squares: The sum of their squares.
    """

    runs: int = 0
    total: float = 0.0
    squares: float = 0.0

    def take(self, value: float) -> None:
        """One more run."""
        self.runs, self.total, self.squares = self.runs + 1, self.total + value, self.squares + value * value

    def merge(self, other: Mean) -> None:
        """The other's runs as well."""
        self.runs, self.total = self.runs + other.runs, self.total + other.total
        self.squares += other.squares

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.runs

    @property
    def error(self) -> float:
        """Its standard error."""
        variance = max(0.0, self.squares / self.runs - self.value**2)
        return math.sqrt(variance / max(1, self.runs - 1))


@dataclass
class Tally:
    """One contestant in one scenario at one worsening.

    Attributes:
        alarmed: Runs in which anything was called regressed.
        passed: Share of the comparisons that passed.
        inconclusive: Share that were never decided.
        regressed: Share called regressed.
        launches: Until a comparison was decided.
        test_launches: Until a test was.
    """

    alarmed: int = 0
    passed: Mean = field(default_factory=Mean)
    inconclusive: Mean = field(default_factory=Mean)
    regressed: Mean = field(default_factory=Mean)
    launches: Mean = field(default_factory=Mean)
    test_launches: Mean = field(default_factory=Mean)

    def take(self, run: Sequence[Fate]) -> None:
        """One more run's comparisons, test by test."""
        verdicts = [one.verdict for one in run]
        count = len(run)
        self.alarmed += "regressed" in verdicts
        self.regressed.take(verdicts.count("regressed") / count)
        self.inconclusive.take(verdicts.count("inconclusive") / count)
        self.passed.take((verdicts.count("pass") + verdicts.count("improved")) / count)
        self.launches.take(sum(one.launches for one in run) / count)
        tests = [run[i : i + METRICS] for i in range(0, count, METRICS)]
        self.test_launches.take(sum(map(of_test, tests)) / len(tests))

    def merge(self, other: Tally) -> None:
        """The other's runs as well."""
        self.alarmed += other.alarmed
        for name in ("passed", "inconclusive", "regressed", "launches", "test_launches"):
            getattr(self, name).merge(getattr(other, name))

    @property
    def alarms(self) -> Share:
        """Runs in which anything was called regressed, of all."""
        return Share(self.alarmed, self.passed.runs)


#: By contestant and worsening.
Tallies = dict[tuple[str, float], Tally]
