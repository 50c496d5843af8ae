"""Shares with exact intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Share", "clopper_pearson"]

#: Of the intervals, two-sided.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """How many of so many.

    Attributes:
        hits: Those that were counted.
        trials: Of all these.
    """

    hits: int
    trials: int

    @classmethod
    def of(cls, seen: Iterable[bool]) -> Share:
        """Count what is true."""
        flags = list(seen)
        return cls(sum(flags), len(flags))

    @property
    def value(self) -> float | None:
        """The share; ``None`` of nothing."""
        return self.hits / self.trials if self.trials else None

    @property
    def interval(self) -> tuple[float, float]:
        """Of the probability behind it, if the trials are independent; see :func:`clopper_pearson`."""
        return clopper_pearson(self.hits, self.trials)


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a probability, from independent trials.

    C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 26 (1934): all probabilities that neither so many nor so few hits make improbable.

    Args:
        hits: How often it happened.
        trials: How often it could have.
        confidence: Two-sided: each end is missed with half of the rest.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high
