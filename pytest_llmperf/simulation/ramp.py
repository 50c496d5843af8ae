"""Steps one right after the other that grow evenly, done in one go.

While the same sequences decode, each step reads as many bytes more than the one before as they have got tokens. So its
time, and what it uses of the board in that time, grow in a straight line, and sums over many steps follow from the
first and the last of them. Whether that is so is looked at, not taken for granted: in the middle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from pytest_llmperf.simulation.steps import Pace

__all__ = ["Course", "Line", "Ramp", "evenly", "foresee", "tokens_ns"]

_NS_PER_S = 1_000_000_000
#: How far the middle may lie from the line between both ends, of its value: rounding does that.
_STRAIGHT = 1e-12


class Line(NamedTuple):
    """A quantity of each step that grows from step to step by the same.

    Attributes:
        first: Of the first step.
        growth: From each step to the next.
    """

    first: float
    growth: float

    def at(self, step: int) -> float:
        """Of the step so many after the first."""
        return self.first + step * self.growth

    def total(self, steps: int, share: float = 0.0) -> float:
        """Of the first so many steps, and of a share of the one after them."""
        return (steps + share) * self.first + (steps * (steps - 1) / 2 + share * steps) * self.growth


class Ramp(NamedTuple):
    """Steps that follow one another without a pause.

    Attributes:
        pace: Of the step so many after the first, at an SM and a memory clock in MHz.
        steps: How many there are.
        stretch: A factor on their time.
        launch_ns: How long the host takes to launch each: one that took less would end before its successor is there.
    """

    pace: Callable[[int, float, float], Pace]
    steps: int
    stretch: float
    launch_ns: int


@dataclass(frozen=True, slots=True)
class Course:
    """How a ramp goes at given clocks.

    Attributes:
        start_ns: When the first step begins.
        lasts_ns: How long each takes.
        ends_ns: When each ends.
        busy: Nanoseconds of each step in which a kernel runs.
        memory: Nanoseconds of the peak bandwidth that each uses.
        compute: Nanoseconds of the FLOPs that the SM clock allows that each uses.
        stretch: The factor on their time.
    """

    start_ns: int
    lasts_ns: list[int]
    ends_ns: list[int]
    busy: Line
    memory: Line
    compute: Line
    stretch: float = 1.0

    def step_at(self, at_ns: int) -> int:
        """Which step is under way at a moment, or begins there."""
        return bisect_right(self.ends_ns, at_ns)

    def used(self, at_ns: int) -> tuple[float, float, float]:
        """What has been used of each up to a moment within it, every step using what it uses evenly."""
        step = bisect_right(self.ends_ns, at_ns)
        share = 1 - (self.ends_ns[step] - at_ns) / self.lasts_ns[step] if step < len(self.ends_ns) else 0.0
        return self.busy.total(step, share), self.memory.total(step, share), self.compute.total(step, share)

    def shares(self, step: int) -> tuple[float, float, float]:
        """What a step would use of each over its time, if nothing stretched it."""
        lasts, stretch = self.lasts_ns[step], self.stretch
        busy = self.busy.at(step) * max(1.0, stretch)  # a kernel runs no longer than its step takes
        return busy / lasts, self.memory.at(step) * stretch / lasts, self.compute.at(step) * stretch / lasts


def foresee(ramp: Ramp, start_ns: int, until_ns: int, sm_mhz: float, memory_mhz: float) -> Course | None:
    """How a ramp goes at given clocks.

    Args:
        ramp: The steps.
        start_ns: When the first begins.
        until_ns: Steps that begin after the first end past that time are left out.
        sm_mhz: The SM clock in MHz.
        memory_mhz: The memory clock in MHz.

    Returns:
        Its course; ``None`` where the steps do not grow evenly, or the GPU would have to wait for launches.
    """
    first = _used(ramp.pace(0, sm_mhz, memory_mhz))
    alone_ns = round(first[0] * ramp.stretch)
    if alone_ns < max(ramp.launch_ns, 1):
        return None
    count = min(ramp.steps, max(0, until_ns - start_ns) // alone_ns + 2)
    last = count - 1
    lines = _lines(first, _used(ramp.pace(last, sm_mhz, memory_mhz)), last)
    if last > 1 and not _straight(lines, _used(ramp.pace(last // 2, sm_mhz, memory_mhz)), last // 2):
        return None
    busy, memory, compute = lines
    if busy.growth < 0:
        return None
    begin, growth = busy.first * ramp.stretch, busy.growth * ramp.stretch
    lasts = [round(begin + growth * step) for step in range(count)]
    ends = list(accumulate(lasts, initial=start_ns))
    del ends[0]
    # A kernel never runs for longer than its step takes.
    running = min(1.0, ramp.stretch)
    return Course(
        start_ns, lasts, ends, Line(busy.first * running, busy.growth * running), memory, compute, ramp.stretch
    )


def tokens_ns(thread_ns: int, launch_ns: int, ends_ns: list[int]) -> list[int]:
    """When tokens come out of steps that end at these times, each after the launch of another."""
    outs: list[int] = []
    for place, end_ns in enumerate(ends_ns):
        thread_ns += launch_ns
        if thread_ns <= end_ns:  # from here on too: no step takes less than a launch
            return outs + ends_ns[place:]
        outs.append(thread_ns)
    return outs


def evenly(loads: Callable[[int], tuple[int, int]], count: int) -> tuple[int, Callable[[int], tuple[int, int]]]:
    """For how many steps the loads grow in a straight line, and the load of the one so many after the first.

    Each load is a sum of functions of the context that bend downwards only, where a sliding window is full. Where the
    middle lies on the line between both ends, so does everything.
    """
    while count > 2:
        count -= 1 - count % 2
        first, middle, last = loads(1), loads((1 + count) // 2), loads(count)
        if all(a + c == 2 * b for a, b, c in zip(first, middle, last, strict=True)):
            growth = (last[0] - first[0]) // (count - 1), (last[1] - first[1]) // (count - 1)
            return count, partial(_grown, first, growth)
        count //= 2
    return count, lambda ahead: loads(ahead + 1)


def _grown(first: tuple[int, int], growth: tuple[int, int], ahead: int) -> tuple[int, int]:
    return first[0] + ahead * growth[0], first[1] + ahead * growth[1]


def _used(pace: Pace) -> tuple[float, float, float]:
    """Nanoseconds of time, bandwidth and FLOPs that a step takes."""
    busy = pace.seconds * _NS_PER_S
    return busy, pace.memory * busy, pace.compute * busy


def _lines(first: tuple[float, ...], last: tuple[float, ...], steps: int) -> list[Line]:
    return [Line(a, (b - a) / steps if steps else 0.0) for a, b in zip(first, last, strict=True)]


def _straight(lines: list[Line], found: tuple[float, ...], step: int) -> bool:
    return all(abs(line.at(step) - value) <= _STRAIGHT * value for line, value in zip(lines, found, strict=True))
