"""Which launches are the baseline, and which the run."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import combinations

from pytest_llmperf.errors import OptionError

__all__ = ["Splits", "split"]

#: More splits than this say nothing new: they overlap more and more.
MOST = 300


@dataclass(frozen=True)
class Splits:
    """Ways to divide launches.

    Attributes:
        launches: How many there are.
        baseline: How many of them a baseline takes.
        run: How many a run may take at most.
        baselines: The launches of each split's baseline, ascending from 0; the run takes the others in their order.
    """

    launches: int
    baseline: int
    run: int
    baselines: tuple[tuple[int, ...], ...]

    @property
    def possible(self) -> int:
        """How many ways there are."""
        return math.comb(self.launches, self.baseline)

    @property
    def disjoint(self) -> int:
        """How many splits could be made that share no launch."""
        return self.launches // (self.baseline + self.run)

    def runs(self, baseline: tuple[int, ...]) -> tuple[int, ...]:
        """The launches that a run against this baseline takes, in their order."""
        return tuple(i for i in range(self.launches) if i not in baseline)[: self.run]


def split(launches: int, baseline: int, *, at_most: int, most: int = MOST, seed: int = 0) -> Splits:
    """Divide launches in every way, or in a sample of them.

    Args:
        launches: How many there are.
        baseline: How many of them a baseline takes.
        at_most: How many a run may take.
        most: Of more ways than this, so many are drawn.
        seed: Of that draw.

    Raises:
        OptionError: no launch is left for the run.
    """
    if not 0 < baseline < launches:
        raise OptionError(
            f"{launches} launches cannot be divided into a baseline of {baseline} and a run.",
            remedy=f"Measure at least {baseline + 1} (--launches), or take fewer with --baseline-launches.",
        )
    if math.comb(launches, baseline) <= most:
        chosen = list(combinations(range(launches), baseline))
    else:
        draw = random.Random(seed)
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < most:
            drawn.add(tuple(sorted(draw.sample(range(launches), baseline))))
        chosen = sorted(drawn)
    return Splits(launches, baseline, min(at_most, launches - baseline), tuple(chosen))
