"""Which clock is the best one, and which are certainly worse, as launches scatter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        clocks: How many were swept: the best is chosen among them, and each is held against it.
        candidates: Indices of those that are not certainly worse than the best.
        known: Whether it is known how launches vary: not of one launch a clock, unless it is known to be exact.
    """

    best: int
    below: int | None
    above: int | None
    spread: float
    freedom: int
    clocks: int
    candidates: tuple[int, ...] = ()
    known: bool = True

    def is_worse(self, one: Swept, than: Swept) -> bool:
        """Whether a clock brings certainly fewer tokens per joule than another.

        Certainly is to 95 % of all such statements about a sweep together, so that choosing the best of many clocks
        costs no confidence (Hsu's multiple comparisons with the best, by Bonferroni's bound), by Student's distribution
        with the spread of all clocks. Without any noise it is any difference; with noise that is not known it is none.
        """
        if not self.known:
            return False
        if not self.freedom or not one.launches or not than.launches:
            return one.yields < than.yields
        distance = _mean_log(than) - _mean_log(one)
        error = self.spread * math.sqrt(1 / len(one.launches) + 1 / len(than.launches))
        return distance > student(1 - (1 - _CONFIDENCE) / max(1, self.clocks - 1), self.freedom) * error


def optimum_of(swept: Sequence[Swept], *, exact: bool = False) -> Optimum:
    """The best clock, and those that are not certainly worse, bounded on either side by the nearest one that is.

    Between these bounds the optimum lies.

    Args:
        swept: By rising clock; at least one.
        exact: Whether launches are known not to vary, however few they are.
    """
    best = max(range(len(swept)), key=lambda i: (swept[i].yields, -i))
    spread, freedom = pooled_spread([one.launches for one in swept])
    known = exact or freedom > 0
    found = Optimum(best, None, None, spread, freedom if spread > _NO_SPREAD else 0, len(swept), (), known)
    candidates = tuple(i for i, one in enumerate(swept) if i == best or not found.is_worse(one, swept[best]))
    below, above = candidates[0] - 1, candidates[-1] + 1
    return replace(
        found,
        below=None if below < 0 else below,
        above=None if above == len(swept) else above,
        candidates=candidates,
    )


def _mean_log(one: Swept) -> float:
    return statistics.fmean(math.log(value) for value in one.launches)
