"""A histogram as Prometheus keeps it: how many values lie below each of its bounds, and their sum.

So a mean is exact. A quantile is interpolated within the bucket that it falls into, and known no better than that
bucket is wide. It is also held to the mean over (1 - q), which it cannot exceed, as a share of 1 - q of all values is
at least as large: that tells a queueing of microseconds from one of 0.3 s, where the first bucket ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["PARTS", "Histogram", "is_told", "merged"]

#: What Prometheus puts after a histogram's name.
PARTS = ("_bucket", "_sum", "_count")


@dataclass(frozen=True)
class Histogram:
    """Values by size.

    Attributes:
        below: How many values are at most as large as each bound; bounds ascend, the last is infinite.
        count: How many values there are.
        total: Their sum.
    """

    below: Mapping[float, float]
    count: float
    total: float

    def mean(self) -> float | None:
        """The mean; ``None`` without values."""
        return _finite(self.total / self.count) if self.count > 0 and self.total >= 0 else None

    def since(self, before: Histogram) -> Histogram:
        """What has come since an earlier reading of the same, at the bounds of both."""
        below = {bound: self.below[bound] - before.below[bound] for bound in self.below if bound in before.below}
        return Histogram(below, self.count - before.count, self.total - before.total)

    def quantile(self, q: float) -> float | None:
        """The value that a share ``q`` of all does not exceed; ``None`` without values or beyond the largest bound."""
        mean = self.mean()
        if mean is None:
            return None
        rank, lower, reached = q * self.count, 0.0, 0.0
        for bound, below in self.below.items():
            if below >= rank and below > reached:
                if math.isinf(bound):
                    return None
                upper = min(bound, mean / (1 - q))
                return _finite(lower + (max(upper, lower) - lower) * (rank - reached) / (below - reached))
            lower, reached = bound, max(reached, below)
        return None


def merged(series: Iterable[Mapping[str, float]]) -> Histogram | None:
    """One histogram of several, at the bounds that all of them have.

    Args:
        series: For each, the values by ``"_count"``, ``"_sum"`` and the bounds as Prometheus writes them.

    Returns:
        ``None`` when a part of one is missing or is no number.

    Raises:
        ValueError: a bound is no number.
    """
    buckets, count, total = [], 0.0, 0.0
    for parts in series:
        if "_sum" not in parts or "_count" not in parts:
            return None
        count, total = count + parts["_count"], total + parts["_sum"]
        bounds = {float(bound): value for bound, value in parts.items() if bound not in PARTS}
        buckets.append({**bounds, math.inf: parts["_count"]})
    shared = sorted(set.intersection(*(set(b) for b in buckets)))
    below = {bound: sum(b[bound] for b in buckets) for bound in shared}
    if not all(map(is_told, (count, total, *below.values()))) or any(map(math.isnan, below)):
        return None
    return Histogram(below, count, total)


def is_told(value: float) -> bool:
    """Whether a count or a time can be that much; what is not told is NaN."""
    return math.isfinite(value) and value >= 0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
