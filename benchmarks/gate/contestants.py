"""Who judges the samples: this gate, and what else is in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytest_benchmark.utils import parse_compare_fail
from scipy.stats import mannwhitneyu

from benchmarks.gate.scenarios import LAUNCHES, METRICS, TESTS, TOLERANCE, Array
from pytest_llmperf.calibration.trials import Fate, Trial, fates
from pytest_llmperf.gate import NoisePool, Rules, Series

__all__ = ["CONTESTANTS", "GATE", "Judge"]

#: From the baseline's and the run's values, and by how much the latter are made worse, to what becomes of each
#: comparison: one list a worsening.
Judge = Callable[[Array, Array, Sequence[float]], list[list[Fate]]]

GATE = "this gate"
ONCE, ALL = 1, LAUNCHES


def gate(baseline: Array, current: Array, worsenings: Sequence[float]) -> list[list[Fate]]:
    """Look by look, with the noise pooled over the tests."""
    before, after = (np.log(np.median(values, axis=-1)).tolist() for values in (baseline, current))
    rules = Rules.of_run(TESTS * METRICS, LAUNCHES)
    pools = [
        NoisePool([Series(str(test), "saved", tuple(before[test * METRICS + metric])) for test in range(TESTS)])
        for metric in range(METRICS)
    ]
    found = [
        fates(
            Trial(str(number // METRICS), "lower", TOLERANCE, before[number], after[number]),
            pools[number % METRICS], rules, worsenings,
        )
        for number in range(TESTS * METRICS)
    ]  # fmt: skip
    return [list(row) for row in zip(*found, strict=True)]


def threshold(baseline: Array, current: Array, worsenings: Sequence[float]) -> list[list[Fate]]:
    """The median of one launch against that of the baseline."""
    before = np.median(np.median(baseline, axis=-1), axis=-1)
    after = np.median(current[:, 0], axis=-1)
    return [_verdicts(after * (1 + worse) / before - 1 > TOLERANCE, ONCE) for worse in worsenings]


def pytest_benchmark(field: str, launches: int) -> Judge:
    """Its own check, on the rounds of so many launches together: ``--benchmark-compare-fail=FIELD:3%``."""
    statistic: Any = {"median": np.median, "mean": np.mean}[field]
    check = parse_compare_fail(f"{field}:{TOLERANCE:.0%}")

    def judge(baseline: Array, current: Array, worsenings: Sequence[float]) -> list[list[Fate]]:
        before = statistic(_pooled(baseline), axis=-1).tolist()
        after = statistic(_pooled(current[:, :launches]), axis=-1).tolist()
        return [
            _verdicts(
                [
                    bool(check.fails({field: now * (1 + worse)}, {field: then}))
                    for now, then in zip(after, before, strict=True)
                ],
                launches,
            )
            for worse in worsenings
        ]

    return judge


def mann_whitney(alpha: float) -> Judge:
    """The U test on the repeats of all launches together, one-sided: whether the run is slower at all."""

    def judge(baseline: Array, current: Array, worsenings: Sequence[float]) -> list[list[Fate]]:
        before, after = _pooled(baseline), _pooled(current)
        return [
            _verdicts(
                mannwhitneyu(
                    after * (1 + worse), before, alternative="greater", method="asymptotic", axis=-1
                ).pvalue < alpha,
                ALL,
            )
            for worse in worsenings
        ]  # fmt: skip

    return judge


CONTESTANTS: dict[str, Judge] = {
    GATE: gate,
    "3 % on one launch's median": threshold,
    "pytest-benchmark median:3%, 1 launch": pytest_benchmark("median", ONCE),
    "pytest-benchmark median:3%, 8 launches": pytest_benchmark("median", ALL),
    "pytest-benchmark mean:3%, 1 launch": pytest_benchmark("mean", ONCE),
    "pytest-benchmark mean:3%, 8 launches": pytest_benchmark("mean", ALL),
    "Mann-Whitney U, 0.05, 8 launches": mann_whitney(0.05),
    "Mann-Whitney U, 0.05/40, 8 launches": mann_whitney(0.05 / 40),
}


def _pooled(values: Array) -> Array:
    return values.reshape(len(values), -1)


def _verdicts(regressed: Any, launches: int) -> list[Fate]:
    return [Fate("regressed" if one else "pass", launches) for one in regressed]
