"""Which clock is the best one, and which are certainly worse, as launches scatter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.fits import pooled_spread, student
from pytest_llmperf.findings.points import Point

__all__ = ["Optimum", "Swept", "optimum_of"]

#: Of the statement that a clock is worse than the best one.
_CONFIDENCE = 0.95
#: Launches that differ by less are equal: a simulation without noise.
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Swept:
    """One clock.

    Attributes:
        point: What was measured at it.
        yields: Tokens per joule: of the prompt where prefill alone ran, else of the output.
        launches: That of each launch.
    """

    point: Point
    yields: float
    launches: tuple[float, ...]

    @property
    def clock(self) -> float:
        """MHz; of a clock that was held."""
        assert self.point.axes.clock is not None
        return self.point.axes.clock


@dataclass(frozen=True)
class Optimum:
    """The best clock of a sweep.

    Attributes:
        best: Its index.
        below: That of the nearest lower clock that is certainly worse; ``None`` where the sweep holds none.
        above: That of the nearest higher one; likewise.
        spread: Standard deviation of the logarithms between launches of one clock.
        freedom: Its degrees of freedom; 0 where launches tell no noise.
    """

    best: int
    below: int | None
    above: int | None
    spread: float
    freedom: int

    def is_worse(self, one: Swept, than: Swept) -> bool:
        """Whether a clock brings certainly fewer tokens per joule than another.

        Certainly is to 95 %, by Student's distribution with the spread of all clocks; without any noise it is any
        difference.
        """
        if not self.freedom or not one.launches or not than.launches:
            return one.yields < than.yields
        distance = _mean_log(than) - _mean_log(one)
        error = self.spread * math.sqrt(1 / len(one.launches) + 1 / len(than.launches))
        return distance > student(_CONFIDENCE, self.freedom) * error


def optimum_of(swept: Sequence[Swept]) -> Optimum:
    """The best clock, bounded on either side by the nearest one that is certainly worse.

    Between these the optimum lies, if tokens per joule rise and then fall.

    Args:
        swept: By rising clock; at least one.
    """
    best = max(range(len(swept)), key=lambda i: (swept[i].yields, -i))
    spread, freedom = pooled_spread([one.launches for one in swept])
    found = Optimum(best, None, None, spread, freedom if spread > _NO_SPREAD else 0)
    worse = [i for i, one in enumerate(swept) if i != best and found.is_worse(one, swept[best])]
    below, above = [i for i in worse if i < best], [i for i in worse if i > best]
    return Optimum(best, max(below, default=None), min(above, default=None), spread, found.freedom)


def _mean_log(one: Swept) -> float:
    return statistics.fmean(math.log(value) for value in one.launches)
