"""Readings of boards as values over time, and what they come to stretch by stretch.

A reading holds from its moment until the next one, and not for ever: where the readings stop for longer than they
usually do, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.energy import localised, ordered, steps
from pytest_llmperf.gpu.energy.power_curve import HOLE_S, typical

__all__ = ["Piece", "climbed", "held", "joined_spans", "lowest_of", "mean_of", "usual_hold_ns"]

#: From when until when, in ns, something had which value.
Piece: TypeAlias = tuple[int, int, float]

#: Readings further apart than so many usual distances leave a hole.
_LATE = 2.5


def usual_hold_ns(at_ns: Sequence[int]) -> int:
    """For how long a reading is taken to hold at most, where the next one does not end it."""
    gap = typical([(at - at_ns[0]) / NS_PER_S for at in at_ns]) if len(at_ns) > 1 else 0.0
    return round(max(HOLE_S, _LATE * gap) * NS_PER_S)


def held(at_ns: Sequence[int], values: Sequence[float]) -> list[Piece]:
    """Readings, each until the next; NaN is none.

    Args:
        at_ns: When each was read, ascending.
        values: What was read.
    """
    if not at_ns:
        return []
    longest = usual_hold_ns(at_ns)
    ends = [min(later, at + longest) for at, later in pairwise(at_ns)]
    ends.append(at_ns[-1] + (at_ns[-1] - at_ns[-2] if len(at_ns) > 1 else 0))
    return [(at, end, value) for at, end, value in zip(at_ns, ends, values, strict=True) if value == value and end > at]


def climbed(at_ns: Sequence[int], counter: Sequence[float]) -> list[Piece]:
    """The rate of a counter that steps, per second, from one step to the next; nothing of one that fell.

    Args:
        at_ns: When it was read, ascending.
        counter: What it said.
    """
    read = ordered(list(zip(at_ns, counter, strict=True)), max)
    if any(later < earlier for (_, earlier), (_, later) in pairwise(read)):
        return []
    return [
        (a.at_ns, b.at_ns, (b.value - a.value) / ((b.at_ns - a.at_ns) / NS_PER_S))
        for a, b in pairwise(localised(steps(read)))
        if b.at_ns > a.at_ns
    ]


def mean_of(pieces: Iterable[Piece], edges: Sequence[int]) -> list[float | None]:
    """The mean of each stretch over the part of it that is known; ``None`` where nothing is.

    Args:
        pieces: In the order of time; they do not overlap.
        edges: Where the stretches meet, in ns, ascending.
    """
    count = len(edges) - 1
    total, known = [0.0] * count, [0] * count
    place = 0
    for start, end, value in pieces:
        while place < count and edges[place + 1] <= start:
            place += 1
        here = place
        while here < count and edges[here] < end:
            lasts = min(end, edges[here + 1]) - max(start, edges[here])
            if lasts > 0:
                total[here] += value * lasts
                known[here] += lasts
            here += 1
    return [amount / lasts if lasts else None for amount, lasts in zip(total, known, strict=True)]


def lowest_of(pieces: Iterable[Piece], edges: Sequence[int]) -> list[float | None]:
    """The lowest value that began in each stretch or, where none did, that held in it; ``None`` where nothing did.

    Args:
        pieces: In the order of time; they do not overlap.
        edges: Where the stretches meet, in ns, ascending.
    """
    count = len(edges) - 1
    begun: list[float | None] = [None] * count
    holding: list[float | None] = [None] * count
    place = 0
    for start, end, value in pieces:
        while place < count and edges[place + 1] <= start:
            place += 1
        here = place
        while here < count and edges[here] < end:
            found = begun if edges[here] <= start else holding
            before = found[here]
            found[here] = value if before is None else min(before, value)
            here += 1
    return [one if one is not None else other for one, other in zip(begun, holding, strict=True)]


def joined_spans(spans: Iterable[tuple[int, int]], apart: float) -> list[tuple[int, int]]:
    """Spans in the order of time, those that are no further apart joined into one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= apart:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
