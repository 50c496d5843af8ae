"""What the best test could do with the same launches."""

from __future__ import annotations

import math

from scipy.stats import nct, norm
from scipy.stats import t as student

from benchmarks.gate.scenarios import BASELINE, LAUNCHES, TOLERANCE

__all__ = ["fewest", "passing", "power"]


def power(change: float, sd: float, alpha: float, df: float | None = None) -> float:
    """The probability that one look at all launches calls a change beyond the tolerance.

    Args:
        change: The true one, relative.
        sd: Between launches.
        alpha: The error of calling a change exactly as large as the tolerance.
        df: In how many degrees of freedom the noise is known; ``None`` where it is known for sure (Gauss's test, the
            most powerful there is).
    """
    shift = (math.log1p(change) - math.log1p(TOLERANCE)) / (sd * math.sqrt(1 / BASELINE + 1 / LAUNCHES))
    if df is None:
        return float(norm.sf(norm.isf(alpha) - shift))
    return float(nct.sf(student.isf(alpha, df), df, shift))


def passing(sd: float, alpha: float, df: float | None = None, launches: int = 1) -> float:
    """The probability that an unchanged engine passes with so many launches; arguments as those of :func:`power`."""
    shift = math.log1p(TOLERANCE) / (sd * math.sqrt(1 / BASELINE + 1 / launches))
    if df is None:
        return float(norm.sf(norm.isf(alpha) - shift))
    return float(nct.sf(student.isf(alpha, df), df, shift))


def fewest(sd: float, alpha: float) -> float:
    """A mean number of launches that no gate comes below on an unchanged engine, however it looks.

    By n launches no more have passed than the best test of n launches passes; and the mean is 1 and the sum, over n, of
    the shares that need more than n.
    """
    return 1 + sum(1 - passing(sd, alpha, launches=launches) for launches in range(1, LAUNCHES))
