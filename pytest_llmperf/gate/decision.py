"""One look: the launches of a baseline and of a run, and what they say at the error allowed.

With b and c the logarithms of the launch medians, signed so that more is worse,

    d = mean(c) - mean(b),   se = s sqrt(1/n_c + 1/n_b),   limit = log(1 + tolerance)

where s is the noise between launches. ``regressed``: the lower bound of d passes the limit, and 0 at the smaller error
that is allowed when nothing changed. ``pass``: the upper bound lies below the limit; that nothing became worse is
shown, not assumed. ``improved``: a pass whose upper bound, at the error of an improvement, lies below -limit, and below
0 at the smaller one. Else ``inconclusive``. With one launch now the interval is the prediction interval of a launch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pytest_llmperf.gate.noise import Noise
from pytest_llmperf.gate.rules import Rules

__all__ = ["Better", "Decision", "decide", "logs", "quantile", "standard_error"]

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Decision:
    """What the launches say at one look.

    Attributes:
        verdict: ``"pass"``, ``"regressed"``, ``"improved"`` or ``"inconclusive"``.
        worse: d: the estimated change on the log scale; more is worse.
        lower: Its lower bound: what a regression is called by, or a bound as wide as the upper one at a look where none
            may be called; ``-inf`` when the noise is unknown.
        upper: Its upper bound: what a pass is called by.
        look: Which look it was, from 0.
    """

    verdict: str
    worse: float
    lower: float
    upper: float
    look: int


def logs(launches: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The logarithm of each launch's median."""
    return tuple(math.log(statistics.median(launch)) for launch in launches)


def standard_error(sd: float, current: int, baseline: int) -> float:
    """Of the difference of two means of launches."""
    return sd * math.sqrt(1 / current + 1 / baseline)


@lru_cache(maxsize=65536)
def quantile(alpha: float, df: float) -> float:
    """The point that Student's t exceeds with probability ``alpha``; infinite without any degree of freedom."""
    if df <= 0:
        return math.inf
    from scipy.special import stdtrit

    return -float(stdtrit(df, alpha))


def decide(
    baseline: Sequence[float],
    current: Sequence[float],
    *,
    better: Better,
    tolerance: float,
    noise: Noise,
    rules: Rules,
    look: int,
) -> Decision:
    """Judge a run's launches against a baseline's.

    Args:
        baseline: Logarithms of the launch medians.
        current: The run's.
        better: Which direction is the better one.
        tolerance: Relative, such as 0.05.
        noise: Between launches.
        rules: The errors that are allowed.
        look: Which of the looks this is.
    """
    sign = 1 if better == "lower" else -1
    worse = sign * (statistics.fmean(current) - statistics.fmean(baseline))
    limit = math.log1p(tolerance)
    if noise.df <= 0:
        return Decision("inconclusive", worse, -math.inf, math.inf, look)
    error = standard_error(noise.sd, len(current), len(baseline))
    passing, (unchanged, at_limit) = rules.passing_alpha(look), rules.regressed_alphas(look)
    upper = worse + quantile(passing, noise.df) * error
    lower = worse - quantile(at_limit or passing, noise.df) * error
    if at_limit and lower > limit and worse > quantile(unchanged, noise.df) * error:
        verdict = "regressed"
    elif upper < limit:
        unchanged, at_limit = rules.improved_alphas(look)
        far_better = -worse > max(limit + quantile(at_limit, noise.df) * error, quantile(unchanged, noise.df) * error)
        verdict = "improved" if far_better else "pass"
    else:
        verdict = "inconclusive"
    return Decision(verdict, worse, lower, upper, look)
