"""How wrong the gate may be, and how that is spread over comparisons and looks.

The errors are held by the union bound, which needs no assumption on how looks and metrics depend on each other:

- calling anything ``regressed`` in a run in which nothing changed, whatever the tolerances and the noise: at most
  :attr:`Rules.family_alpha` a run. Each of the run's comparisons gets an equal part (Bonferroni), so that every test
  can fail as soon as it is decided;
- calling anything ``regressed`` in the hardest case, a run in which every metric became worse by exactly its tolerance:
  at most :attr:`Rules.limit_alpha` a run, shared likewise. The other answer there is ``inconclusive``; a smaller error
  would miss more of what is well beyond the tolerance;
- calling a metric ``pass`` although it is worse than its tolerance: at most :attr:`Rules.pass_alpha` a metric. That all
  metrics pass is an intersection of claims, and needs no correction for their number;
- calling something ``improved`` although nothing is better, or not by its margin: as the first two.

A gate looks after 1, 2, 3, 4, 5, 6 and 8 launches and stops at the first look that decides. A pass may cost half of its
error at the first look, so that a clear one costs one launch. A regression may not be called there at all while further
launches are allowed: one launch can be an accident of that launch. Most of its error is kept for the last look.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILY_ALPHA", "LIMIT_ALPHA", "LOOKS", "PASS_ALPHA", "POWER", "Rules"]

#: Chance of any ``regressed`` in a run in which nothing changed, at most.
FAMILY_ALPHA = 0.01
#: Chance of any ``regressed`` in a run all of whose metrics became worse by exactly their tolerances, at most.
LIMIT_ALPHA = 0.2
#: Chance of a ``pass`` of a metric that is exactly at its tolerance, at most.
PASS_ALPHA = 0.05
#: With this probability the smallest detectable change is called.
POWER = 0.80
#: Launches after which the gate looks; afterwards every fourth.
LOOKS = (1, 2, 3, 4, 5, 6, 8)
_FURTHER = 4
#: Of the error, what the first look (for a pass) and the last (for a regression) may use.
_FIRST_PASS = 0.5
_LAST_REGRESSED = 0.9


@dataclass(frozen=True)
class Rules:
    """What one run's verdicts are drawn by.

    Attributes:
        gated: How many comparisons the run makes, counted when its tests were collected.
        looks: After how many launches the gate looks, ascending; the last is the most that a test may take.
        family_alpha: See the module.
        limit_alpha: See the module.
        pass_alpha: See the module.
        power: For the smallest detectable change.
    """

    gated: int = 1
    looks: tuple[int, ...] = (1,)
    family_alpha: float = FAMILY_ALPHA
    limit_alpha: float = LIMIT_ALPHA
    pass_alpha: float = PASS_ALPHA
    power: float = POWER

    @classmethod
    def of_run(cls, gated: int, launches: int) -> Rules:
        """The rules of a run with so many comparisons, whose tests may take so many launches."""
        looks = [look for look in LOOKS if look <= launches]
        looks += range(LOOKS[-1] + _FURTHER, launches + 1, _FURTHER)
        if looks[-1] < launches:
            looks.append(launches)
        return cls(gated=max(1, gated), looks=tuple(looks))

    @property
    def launches(self) -> int:
        """The most launches of a test."""
        return self.looks[-1]

    @property
    def alpha(self) -> float:
        """The error of calling one comparison ``regressed`` (or ``improved``) when nothing changed, over all looks."""
        return self.family_alpha / self.gated

    def seen(self, launches: int) -> int:
        """How many of so many launches the gate has looked at: it may be between two looks, or past the last."""
        return max(look for look in self.looks if look <= launches)

    def regressed_alphas(self, look: int) -> tuple[float, float]:
        """What a regression may use at a look of the error against no change and of that against the tolerance.

        Both are 0 where none may be called.
        """
        return self._parts(self._late(look))

    def passing_alpha(self, look: int) -> float:
        """The part of :attr:`pass_alpha` that a pass may use at a look."""
        return self.pass_alpha * self._early(look)

    def improved_alphas(self, look: int) -> tuple[float, float]:
        """What an improvement may use at a look, of the same two errors: it is found when a pass is."""
        return self._parts(self._early(look))

    def _parts(self, share: float) -> tuple[float, float]:
        return self.family_alpha / self.gated * share, self.limit_alpha / self.gated * share

    def _late(self, look: int) -> float:
        last = len(self.looks) - 1
        if last == 0:
            return 1.0
        if look == 0:
            return 0.0
        if last == 1:
            return 1.0
        return _LAST_REGRESSED if look == last else (1 - _LAST_REGRESSED) / (last - 1)

    def _early(self, look: int) -> float:
        further = len(self.looks) - 1
        if further == 0:
            return 1.0
        return _FIRST_PASS if look == 0 else (1 - _FIRST_PASS) / further
