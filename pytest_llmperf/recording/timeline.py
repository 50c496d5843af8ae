"""What the boards did over time in one launch, thinned to what a chart can show.

The whole window of the launch is cut into stretches, where its phases meet and evenly between, so that nothing of it is
left out, and a prefill is not blurred with the decode beside it. A stretch has the mean power, so that the joules stay
what they were, and the lowest clock, so that no dip is smoothed away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.clocks.check import THROTTLING
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.metrics.steps import is_single_batch, prefilled_ns
from pytest_llmperf.recording.curves import (
    Piece,
    climbed,
    held,
    joined_spans,
    lowest_of,
    mean_of,
    usual_hold_ns,
)
from pytest_llmperf.runner import Launch
from pytest_llmperf.trace import RepeatTrace

__all__ = ["timeline_record"]

#: Stretches at most: a chart has some pixels for each, and 200 tests fit into one page.
_STRETCHES = 120
#: Stretches of capping, and phases, at most.
_CAPPED, _PHASES = 20, 40
#: Of the window, so much before and after it is shown as well: what the boards came from, and what they fell back to.
_MARGIN = 1 / 20
_DIGITS = 4
_HZ_PER_MHZ = 1e6


class _Phase(NamedTuple):
    phase: str
    start_ns: int
    end_ns: int


def timeline_record(launch: Launch) -> dict[str, Any] | None:
    """The boards of a launch over its window; ``None`` when no board was read, or no request completed.

    Args:
        launch: With the samples of its boards.
    """
    spans = [span for repeat in launch.watched if (span := repeat.span) is not None]
    boards = [samples for samples in launch.samples if samples.at_ns]
    if not spans or not boards or len(boards) < len(launch.samples):
        return None
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    phases = _phases(launch.watched)
    turns = {start, end, *(phase.start_ns for phase in phases), *(phase.end_ns for phase in phases)}
    times = _Times.of(start, (end - start) * (1 + 2 * _MARGIN) / _STRETCHES)
    edges = _edges(boards, sorted(turns), times)
    if len(edges) < 2:
        return None
    capped = _capped(boards, edges)
    shown = sorted(sorted(capped or (), key=lambda c: c[0] - c[1])[:_CAPPED])
    return {
        "launch": launch.index,
        "seconds": [times.seconds(edge) for edge in edges[:-1]],
        "end": times.seconds(edges[-1]),
        "power": _rounded(_sums([mean_of(_power(board), edges) for board in boards])),
        "sm_clock": _rounded(
            None if mhz is None else mhz * _HZ_PER_MHZ
            for mhz in _least([lowest_of(held(board.at_ns, board.sm_clock_mhz), edges) for board in boards])
        ),
        "sm_activity": _activity(boards, edges),
        "capped": None
        if capped is None
        else [
            {"start": times.finely(begin), "end": times.finely(stop), "reason": reason} for begin, stop, reason in shown
        ],
        "capped_left_out": len(capped or ()) - len(shown),
        "phases": [
            {"phase": phase, "start": times.finely(begin), "end": times.finely(stop)} for phase, begin, stop in phases
        ],
        "reason": _reason(boards),
    }


class _Times(NamedTuple):
    """Moments in seconds from the first due request, as precisely as stretches are long."""

    origin_ns: int
    decimals: int

    @classmethod
    def of(cls, origin_ns: int, stretch_ns: float) -> _Times:
        """Decimals that tell a hundredth of a stretch."""
        return cls(origin_ns, max(0, 2 - math.floor(math.log10(max(stretch_ns, 1.0) / NS_PER_S))))

    def rounded(self, at_ns: int) -> int:
        """The moment that the seconds will tell."""
        step: int = 10 ** max(0, 9 - self.decimals)
        return self.origin_ns + round((at_ns - self.origin_ns) / step) * step

    def seconds(self, at_ns: int) -> float:
        """Of a moment at which stretches meet."""
        return round((at_ns - self.origin_ns) / NS_PER_S, self.decimals)

    def finely(self, at_ns: int) -> float:
        """Of any other: a prefill may be shorter than a stretch."""
        return round((at_ns - self.origin_ns) / NS_PER_S, self.decimals + 2)


def _edges(boards: Sequence[BoardSamples], turns: Sequence[int], times: _Times) -> list[int]:
    """Where stretches meet, as seconds tell it: where phases do, and evenly or, if few, at the readings between.

    Args:
        boards: With readings.
        turns: Begin and end of the window and of every phase, ascending.
        times: How moments are told.
    """
    start, end = turns[0], turns[-1]
    margin = round((end - start) * _MARGIN)
    first = max(start - margin, min(board.at_ns[0] for board in boards))
    last = min(end + margin, max(board.at_ns[-1] for board in boards))
    if last <= first:
        return []
    fixed = [first, *(turn for turn in turns if first < turn < last), last]
    seen = [at for at in max((board.at_ns for board in boards), key=len) if first < at < last]
    if len(seen) + len(fixed) <= _STRETCHES:
        edges = [*fixed, *seen]
    else:
        # One stretch more a piece than its share, at most: as many as there are left to give.
        share = (last - first) / (_STRETCHES - len(fixed) + 1)
        edges = [last]
        for begin, stop in pairwise(fixed):
            parts = math.ceil((stop - begin) / share)
            edges += [begin + (stop - begin) * part // parts for part in range(parts)]
    return sorted({times.rounded(edge) for edge in edges})


def _power(board: BoardSamples) -> list[Piece]:
    """By its power readings; of a board that gives none by its energy counter."""
    return held(board.at_ns, board.power_w) or climbed(board.counter_at_ns, board.counter_j)


def _activity(boards: Sequence[BoardSamples], edges: Sequence[int]) -> list[float | None] | None:
    told = [board.activity() for board in boards]
    if not all(told):
        return None
    sums = _sums([mean_of(pieces, edges) for pieces in told])
    return _rounded(None if total is None else total / len(boards) for total in sums)


def _reason(boards: Sequence[BoardSamples]) -> str | None:
    """Why something was not read over time."""
    told: dict[str, None] = {}
    for board in boards:
        if not _power(board):
            told[board.refused.get("power", "the power was not read")] = None
        if not held(board.at_ns, board.sm_clock_mhz):
            told[board.refused.get("sm_clock", "the SM clock was not read")] = None
        if not _tells_reasons(board):
            told[board.refused.get("clock_reasons", "what holds the clock down was not read")] = None
        if not board.activity():
            why = board.refused.get("activity") or board.refused.get("sm")
            told[why or "the SM activity was not read again and again"] = None
    return "; ".join(told) or None


def _tells_reasons(board: BoardSamples) -> bool:
    return any(bits >= 0 for bits in board.reasons)


def _capped(boards: Sequence[BoardSamples], edges: Sequence[int]) -> list[tuple[int, int, str]] | None:
    """When what took away from the clock of any board; what a chart cannot tell apart is joined.

    Returns:
        ``None`` where a board does not tell: that nothing was read is not that nothing held it down.
    """
    if not all(map(_tells_reasons, boards)):
        return None
    first, last = edges[0], edges[-1]
    found: list[tuple[int, int, str]] = []
    for bit, name in enumerate(REASONS):
        if name not in THROTTLING:
            continue
        spans = [
            (max(first, start), min(last, end))
            for board in boards
            for start, end in _with_bit(board, bit)
            if start < last and end > first
        ]
        found += [(start, end, name) for start, end in joined_spans(spans, (last - first) / _STRETCHES)]
    return found


def _with_bit(board: BoardSamples, bit: int) -> Iterator[tuple[int, int]]:
    """The spans between two readings of which the first has this reason."""
    longest = usual_hold_ns(board.at_ns)
    for (at, later), reasons in zip(pairwise(board.at_ns), board.reasons, strict=False):
        if reasons >= 0 and reasons >> bit & 1:
            yield at, min(later, at + longest)


def _phases(repeats: Sequence[RepeatTrace]) -> list[_Phase]:
    """Those of each repeat; of more than can be shown, neighbours are joined, to a phase if all are of one."""
    each = [phases for repeat in repeats if (phases := _of_repeat(repeat))]
    if sum(map(len, each)) <= _PHASES:
        return [phase for phases in each for phase in phases]
    together = -(-len(each) // _PHASES)
    return [_as_one(each[first : first + together]) for first in range(0, len(each), together)]


def _of_repeat(repeat: RepeatTrace) -> list[_Phase]:
    if repeat.span is None:
        return []
    due, last = repeat.span
    middle = prefilled_ns(repeat) if is_single_batch(repeat) else None
    if middle is None:
        return [_Phase("load", due, last)]
    phases = [_Phase("prefill", due, middle), _Phase("decode", middle, last)]
    return [phase for phase in phases if phase.end_ns > phase.start_ns]


def _as_one(repeats: Sequence[Sequence[_Phase]]) -> _Phase:
    phases = [phase for repeat in repeats for phase in repeat]
    kinds = {phase.phase for phase in phases}
    kind = kinds.pop() if len(kinds) == 1 else "load"
    return _Phase(kind, phases[0].start_ns, max(phase.end_ns for phase in phases))


def _sums(boards: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Stretch by stretch of all boards together; nothing where one of them has nothing."""
    stretches = zip(*boards, strict=True)
    return [None if None in values else math.fsum(v for v in values if v is not None) for values in stretches]


def _least(boards: Sequence[Sequence[float | None]]) -> list[float | None]:
    stretches = zip(*boards, strict=True)
    return [None if None in values else min(v for v in values if v is not None) for values in stretches]


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in values]
