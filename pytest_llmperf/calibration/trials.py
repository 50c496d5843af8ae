"""One comparison through the gate as a session puts it: look by look, until it is decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.gate import Better, Noise, NoisePool, Rules, decide

__all__ = ["Fate", "Trial", "fates", "of_test"]


@dataclass(frozen=True)
class Trial:
    """A comparison of which all launches are known beforehand.

    Attributes:
        test: The test's id, under which the pool may know it.
        better: Which direction is the better one.
        tolerance: Relative.
        baseline: Logarithms of the baseline's launch medians.
        current: Those of the run, in the order in which they are taken; as many as the last look sees.
    """

    test: str
    better: Better
    tolerance: float
    baseline: Sequence[float]
    current: Sequence[float]


@dataclass(frozen=True)
class Fate:
    """What became of a comparison that was followed up to its end.

    Attributes:
        verdict: ``"pass"``, ``"improved"``, ``"regressed"`` or ``"inconclusive"``.
        launches: How many the run took for it.
    """

    verdict: str
    launches: int


def fates(trial: Trial, pool: NoisePool, rules: Rules, worsenings: Sequence[float] = (0.0,)) -> list[Fate]:
    """What becomes of a comparison, once for each injected slowdown.

    Args:
        trial: The comparison.
        pool: Of its metric.
        rules: Of the run.
        worsenings: By what fraction the run's value is made worse: 0.05 multiplies a metric of which less is better by
            1.05, and divides one of which more is better.
    """
    # A factor on all launches of the run moves their mean and leaves their spread.
    noises: list[Noise] = []
    sign = 1 if trial.better == "lower" else -1
    found = []
    for worsening in worsenings:
        shift = sign * math.log1p(worsening)
        current = [value + shift for value in trial.current]
        for look, launches in enumerate(rules.looks):
            if look == len(noises):
                noises.append(pool.of(trial.test, trial.baseline, trial.current[:launches]))
            decision = decide(
                trial.baseline,
                current[:launches],
                better=trial.better,
                tolerance=trial.tolerance,
                noise=noises[look],
                rules=rules,
                look=look,
            )
            if decision.verdict != "inconclusive":
                break
        found.append(Fate(decision.verdict, launches))
    return found


def of_test(metrics: Sequence[Fate]) -> int:
    """How many launches a test takes: until all its metrics are decided, or one of them has regressed."""
    regressed = [one.launches for one in metrics if one.verdict == "regressed"]
    return min([max(one.launches for one in metrics), *regressed])
