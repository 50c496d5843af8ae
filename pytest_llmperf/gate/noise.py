"""How much launches differ by themselves, estimated from the few there are.

The replicate is the launch. Requests and repeats of one launch share its memory layout, its clocks and its neighbours:
they agree better with each other than with the next launch, and however many there are they say nothing of it.

Of one test there are few launches, and their variance alone is nearly unknown: with three launches in the baseline
and one now, an interval at the levels in use is 9 standard deviations wide to either side, and more. So what the other
tests of the suite know of the same metric on the same engine is pooled: each test's variance is taken for a draw from a
scaled inverse chi-squared distribution, whose scale (the pooled variance) and degrees of freedom (how alike the tests
are) are fitted to the other tests by the moments of the logarithms of their variances [1]. The test's own variance and
the pooled one are then weighted by their degrees of freedom. A test that is clearly noisier than the others uses its
own alone.

Tests that were measured on the same engine starts share more than a distribution: what a start does to one of them it
may do to all, and then ten tests know no more of it than one. So the pool is never credited with more than
M n / (1 + (M - 1) r2) degrees of freedom for M tests of n each, where r2 is the mean squared correlation of their
launches: the variance of a mean of M equally correlated sample variances says so.

[1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004), section 6.2.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

__all__ = ["FLOOR", "Noise", "NoisePool", "Series", "squares"]

#: Standard deviations below this are not told from it: a hundred thousandth is below what any clock or sensor resolves.
FLOOR = 1e-5
#: So many other tests are needed to say how alike tests are.
_FEWEST = 3
#: A test is clearly noisier than the pool when chance alone would make it so in at most this share of cases.
_NOISIER = 0.01
#: Tests that move as one are worth a small part of a degree of freedom to each other, and no interval comes of that.
_LEAST = 1.0
#: More than this many degrees of freedom change no quantile.
_MANY = 1000.0


@dataclass(frozen=True)
class Series:
    """The launches of one test's baseline, for the pool.

    Attributes:
        test: Its id.
        run: Which run measured it, and from which engine start on; tests that agree in this shared their engine starts
            launch by launch. ``None`` if unknown.
        logs: Natural logarithm of the metric in each launch.
    """

    test: str
    run: str | None
    logs: tuple[float, ...]


@dataclass(frozen=True)
class Noise:
    """The spread between launches that a comparison was judged with; relative (of the logarithm).

    Attributes:
        sd: The standard deviation in use.
        df: Its degrees of freedom; 0 when nothing is known.
        own_sd: That of this test's launches, baseline and run, each about its own mean; ``None`` without two of either.
        own_df: Its degrees of freedom.
        pooled_sd: That of the other tests; ``None`` without a pool.
        pooled_df: What it is worth, in degrees of freedom.
        tests: How many other tests it stands on.
        source: ``"own"``, ``"pooled"`` (both, weighted), or ``"unknown"``.
    """

    sd: float
    df: float
    own_sd: float | None = None
    own_df: int = 0
    pooled_sd: float | None = None
    pooled_df: float = 0.0
    tests: int = 0
    source: str = "unknown"

    @classmethod
    def judged(
        cls, groups: Sequence[Sequence[float]], pooled_sd: float | None = None, pooled_df: float = 0.0, tests: int = 0
    ) -> Noise:
        """What is known of a test's noise.

        Args:
            groups: Logarithms of its launches: of the baseline, and of the run.
            pooled_sd: Of the other tests.
            pooled_df: What that is worth.
            tests: How many other tests there are.
        """
        own_df = sum(len(group) - 1 for group in groups if group)
        own = None
        if own_df > 0:
            own = max(FLOOR, math.sqrt(math.fsum(squares(group) for group in groups if group) / own_df))
        if pooled_sd is None or pooled_df < _LEAST:
            return cls(own or 0.0, own_df, own, own_df, pooled_sd, pooled_df, tests, "own" if own else "unknown")
        if own is None:
            return cls(pooled_sd, pooled_df, None, 0, pooled_sd, pooled_df, tests, "pooled")
        if _upper_f(own_df, pooled_df, (own / pooled_sd) ** 2) < _NOISIER:
            return cls(own, own_df, own, own_df, pooled_sd, pooled_df, tests, "own")
        df = own_df + pooled_df
        sd = math.sqrt((own_df * own**2 + pooled_df * pooled_sd**2) / df)
        return cls(sd, df, own, own_df, pooled_sd, pooled_df, tests, "pooled")


class NoisePool:
    """What the tests of a suite know together of one metric's noise on one engine.

    Args:
        series: The stored launches of each test.
    """

    def __init__(self, series: Sequence[Series] = ()) -> None:
        known = [one for one in series if len(one.logs) > 1 and all(map(math.isfinite, one.logs))]
        self._series = {one.test: one for one in known}
        self._fits: dict[str, tuple[float | None, float, int]] = {}
        self._correlation = _mean_squared_correlation(list(self._series.values()))

    def of(self, test: str, baseline: Sequence[float], current: Sequence[float]) -> Noise:
        """The noise that a comparison of this test is judged with.

        Args:
            test: Its id; its own series in the pool is left out.
            baseline: Logarithms of the baseline's launches.
            current: Those of the run's.
        """
        if test not in self._fits:
            others = [one for name, one in self._series.items() if name != test]
            self._fits[test] = (*_fit(others, self._correlation), len(others))
        sd, df, tests = self._fits[test]
        return Noise.judged((baseline, current), sd, df, tests)


def _fit(series: Sequence[Series], correlation: float) -> tuple[float | None, float]:
    """The pooled standard deviation and what it is worth in degrees of freedom; none of too few tests."""
    if len(series) < _FEWEST:
        return None, 0.0
    dfs = [len(one.logs) - 1 for one in series]
    # The logarithm of a sample variance is that of the true one, plus this bias, plus noise of known variance.
    logs = [
        2 * math.log(max(FLOOR, math.sqrt(squares(one.logs) / df))) - _digamma(df / 2) + math.log(df / 2)
        for one, df in zip(series, dfs, strict=True)
    ]
    mean = statistics.fmean(logs)
    between = squares(logs) / (len(logs) - 1) - statistics.fmean(_trigamma(df / 2) for df in dfs)
    alike = 2 * _trigamma_inverse(between) if between > 0 else math.inf
    variance = math.exp(mean if alike == math.inf else mean + _digamma(alike / 2) - math.log(alike / 2))
    # The test itself, left out here, shares the starts too: what the others know beyond it.
    count = len(series) + 1
    total = sum(dfs) * count / len(series)
    worth = total / (1 + (count - 1) * correlation) - total / count
    return max(FLOOR, math.sqrt(variance)), max(0.0, min(alike, worth, _MANY))


def squares(values: Sequence[float]) -> float:
    """The sum of the squared deviations from the mean; many times faster than the exact fractions of `statistics`."""
    mean = math.fsum(values) / len(values)
    return math.fsum((x - mean) ** 2 for x in values)


def _mean_squared_correlation(series: Sequence[Series]) -> float:
    """Of the launches of tests that shared their engine starts; 0 for tests of different runs."""
    directions = [_direction(one.logs) for one in series]
    squares = []
    for (one, a), (other, b) in combinations(zip(series, directions, strict=True), 2):
        if one.run is None or one.run != other.run or len(a) != len(b):
            squares.append(0.0)
            continue
        df = len(a) - 1
        if df < 2 or not any(a) or not any(b):
            squares.append(1.0)  # nothing tells them from tests that move as one
            continue
        r = sum(map(operator.mul, a, b))
        # Of independent launches the square is 1/df on average.
        squares.append((r * r - 1 / df) / (1 - 1 / df))
    return min(1.0, max(0.0, statistics.fmean(squares))) if squares else 0.0


def _direction(values: Sequence[float]) -> tuple[float, ...]:
    """The deviations from their mean, of length 1; of values that are all the same 0."""
    mean = math.fsum(values) / len(values)
    length = math.sqrt(squares(values))
    return tuple((x - mean) / length if length > FLOOR else 0.0 for x in values)


@lru_cache(maxsize=4096)
def _upper_f(df: float, other_df: float, ratio: float) -> float:
    from scipy.special import fdtrc

    return float(fdtrc(df, other_df, ratio))


@lru_cache(maxsize=1024)
def _digamma(x: float) -> float:
    from scipy.special import digamma

    return float(digamma(x))


@lru_cache(maxsize=1024)
def _trigamma(x: float) -> float:
    from scipy.special import polygamma

    return float(polygamma(1, x))


def _trigamma_inverse(y: float) -> float:
    """Find x with trigamma(x) = y > 0, by Newton's method on 1/trigamma, which is convex [1, appendix]."""
    from scipy.special import polygamma

    if y > 1e7:
        return 1 / math.sqrt(y)
    if y < 1e-6:
        return 1 / y
    x = 0.5 + 1 / y
    for _ in range(50):
        value = float(polygamma(1, x))
        step = value * (1 - value / y) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
