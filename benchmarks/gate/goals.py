"""What the gate is held to."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gate.contestants import GATE
from benchmarks.gate.tallies import Tallies

__all__ = ["Goal", "goals"]


@dataclass(frozen=True)
class Goal:
    """What the gate is held to in a scenario.

    Attributes:
        what: In words.
        found: The figures.
        met: Whether they reach it.
    """

    what: str
    found: str
    met: bool


def goals(tallies: Tallies) -> list[Goal]:
    """What the gate should reach, and whether it does."""
    same, at_tolerance, slower = (tallies[GATE, worse] for worse in (0.0, 0.03, 0.05))
    alarms = same.alarms
    share, high = alarms.value or 0.0, alarms.interval[1]
    return [
        Goal(
            "false regressed in at most 1 % of runs, upper bound below 2 %",
            f"{alarms.hits} of {alarms.trials}, upper bound {high:.1%}",
            share <= 0.01 and high < 0.02,
        ),
        Goal(
            "95 % of an unchanged engine's metrics pass, 1.2 launches on average",
            f"{same.passed.value:.1%}, {same.launches.value:.2f}; a test {same.test_launches.value:.2f}",
            same.passed.value >= 0.95 and same.launches.value <= 1.2,
        ),
        Goal("+5 % passes in at most 1 %", f"{slower.passed.value:.2%}", slower.passed.value <= 0.01),
        Goal("+5 % is called regressed in 90 %", f"{slower.regressed.value:.1%}", slower.regressed.value >= 0.90),
        Goal("+3 % passes in at most 5 %", f"{at_tolerance.passed.value:.1%}", at_tolerance.passed.value <= 0.05),
    ]
