"""The verdicts, from the worst to the least."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PASSING", "SEVERITY", "worst"]

#: The verdict of a test is the worst of its metrics'.
SEVERITY = (
    "invalid",
    "regressed",
    "incomparable",
    "no-baseline",
    "inconclusive",
    "pass",
    "improved",
    "not-applicable",
)
#: The verdicts with which a gated metric lets its test pass.
PASSING = frozenset({"pass", "improved", "not-applicable"})


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; ``"no-baseline"`` of none, because nothing compared is never passed."""
    return min(verdicts, key=SEVERITY.index, default="no-baseline")
