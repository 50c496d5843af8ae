"""Joules from what a board's sensors say: pure functions of readings.

A board's energy counter does not run, it steps: every 20 to 100 ms the driver adds what was used since the last step.
The difference of two reads taken anywhere is therefore wrong by up to one step's energy at each end: for a window of
half a second on a counter of 100 ms that is 40 %. Between two steps that were seen the energy is known. A step lies
between two reads; how far these are apart is how well its moment is known. Where power hardly changes, as on an idle
board, a window is therefore cut at the first and the last step within it (:func:`by_counter`). A measurement must not
be cut: a prefill more or less would fall out of it. How its two ends are filled says
:mod:`pytest_llmperf.gpu.energy.exact_window`.

Beside it stands the integral of the power readings (trapezoid, the outermost readings held to the window's ends), which
is all there is on boards without a counter. The two share a sensor: that they agree says that neither was read wrongly,
not that the sensor is right. Its gain is known to about 5 % a board and is the same on one board: it cancels when a
board is compared with itself, and is no part of the uncertainty given here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeAlias

__all__ = [
    "DISAGREEMENT",
    "FELL",
    "NOTHING_DRAWN",
    "Joules",
    "NoEnergy",
    "Readings",
    "Step",
    "by_counter",
    "by_integral",
    "disagreement",
    "localised",
    "ordered",
    "plausible",
    "steps",
    "total",
]

#: Relative difference of counter and integral above which a reader should know.
DISAGREEMENT = 0.05
#: Why a counter that fell tells nothing.
FELL = "the energy counter fell: the driver was reloaded"
#: Why a power sensor that says nothing but 0 tells nothing.
NOTHING_DRAWN = "the power sensor says 0 W, which no board draws"
#: A mean power of so many times the board's limit was not drawn, but read wrongly.
_BEYOND_LIMIT = 2.0
#: A step between two reads so close (ns) is well enough known, however much closer others are.
_CLOSE_NS = 5_000_000
#: A step's moment is compared with those of so many steps on either side.
_ABOUT = 3
_NS = 1_000_000_000

#: Times in ns and what was read then.
Readings: TypeAlias = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class NoEnergy:
    """No figure, and why."""

    reason: str


@dataclass(frozen=True)
class Joules:
    """An energy.

    Attributes:
        value: Joules.
        error: Standard uncertainty in joules: of the window's ends, of the integration; not of the sensor's gain.
        start_ns: From when it was counted.
        end_ns: Until when.
        source: ``"counter"`` or ``"integral"``.
        notes: What a reader should know of it, in sentences.
    """

    value: float
    error: float
    start_ns: int
    end_ns: int
    source: str
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.end_ns - self.start_ns) / _NS

    @property
    def watts(self) -> float:
        """Mean power over the window."""
        return self.value / self.seconds


@dataclass(frozen=True)
class Step:
    """One step of a counter.

    Attributes:
        after_ns: The last read that showed the old value.
        until_ns: The first read that showed the new one.
        value: The new value, joules.
    """

    after_ns: int
    until_ns: int
    value: float

    @property
    def at_ns(self) -> int:
        """The middle of what is known."""
        return (self.after_ns + self.until_ns) // 2

    @property
    def error_s(self) -> float:
        """Standard uncertainty of ``at_ns``, seconds: of an even distribution between the two reads."""
        return (self.until_ns - self.after_ns) / _NS / math.sqrt(12)


def ordered(readings: Readings, merged: Callable[[Iterable[float]], float]) -> list[tuple[int, float]]:
    """By time, one a moment; what is no number, or below zero, was not read."""
    numbers = sorted((at, value) for at, value in readings if math.isfinite(value) and value >= 0)
    return [(at, merged([value for _, value in same])) for at, same in groupby(numbers, key=itemgetter(0))]


def steps(readings: Sequence[tuple[int, float]]) -> list[Step]:
    """The steps of a counter among its readings.

    Args:
        readings: Time in ns and value in joules, ascending in time.
    """
    return [Step(t0, t1, c1) for (t0, c0), (t1, c1) in pairwise(readings) if c1 != c0]


def localised(found: Sequence[Step]) -> list[Step]:
    """Of the steps those whose moments are known well, compared with the steps about them.

    A counter that is read in pairs about an expected step has such steps, and between them changes that may be of one
    step or of several. Where none is known well, all stand.
    """
    widths = [step.until_ns - step.after_ns for step in found]

    def best(place: int) -> int:
        return min(widths[max(0, place - _ABOUT) : place + _ABOUT + 1])

    return [step for n, step in enumerate(found) if widths[n] <= max(2 * best(n), _CLOSE_NS)]


def by_counter(readings: Sequence[tuple[int, float]], start_ns: int, end_ns: int) -> Joules | NoEnergy:
    """Energy between the first and the last step of the counter within a window.

    Args:
        readings: Time in ns and value in joules, from a little before the window to a little after. They may come
            unordered and doubled; those that are no number are left out.
        start_ns: Begin of the window.
        end_ns: Its end.
    """
    readings = ordered(readings, max)
    if any(later < earlier for (_, earlier), (_, later) in pairwise(readings)):
        return NoEnergy(FELL)
    within = [step for step in localised(steps(readings)) if start_ns <= step.after_ns and step.until_ns <= end_ns]
    if len(within) < 2:
        return NoEnergy(
            f"too short: the window of {(end_ns - start_ns) / 1e6:.0f} ms holds {len(within)} steps of the energy "
            "counter"
        )
    first, last = within[0], within[-1]
    value = last.value - first.value
    seconds = (last.at_ns - first.at_ns) / _NS
    error = value / seconds * math.hypot(first.error_s, last.error_s)
    return Joules(value, error, first.at_ns, last.at_ns, "counter")


def by_integral(readings: Sequence[tuple[int, float]], start_ns: int, end_ns: int) -> Joules | NoEnergy:
    """The trapezoid over power readings, the outermost readings held to the window's ends.

    Args:
        readings: Time in ns and power in watts, likewise; those outside of the window are not used.
        start_ns: Begin of the window.
        end_ns: Its end.
    """
    within = [(at, watts) for at, watts in ordered(readings, statistics.fmean) if start_ns <= at <= end_ns]
    if not within or end_ns <= start_ns:
        return NoEnergy("too short: no power reading falls into the window")
    if not any(watts for _, watts in within):
        return NoEnergy(NOTHING_DRAWN)
    held = [(start_ns, within[0][1]), *within, (end_ns, within[-1][1])]
    value = _trapezoid(held)
    # Every second reading left out: what the result owes to how densely the power was read.
    coarse = _trapezoid([held[0], *held[1:-1:2], held[-1]])
    return Joules(value, abs(value - coarse) / 3, start_ns, end_ns, "integral")


def plausible(energy: Joules | NoEnergy, limit_w: float | None) -> Joules | NoEnergy:
    """The energy, unless its mean power is far above what the board can draw: a counter that jumped.

    Args:
        energy: Of one board.
        limit_w: The board's power limit in watts; ``None`` where it is not known.
    """
    if isinstance(energy, NoEnergy) or not limit_w or energy.watts <= _BEYOND_LIMIT * limit_w:
        return energy
    told = "the energy counter says" if energy.source == "counter" else "the power readings say"
    return NoEnergy(f"{told} {energy.watts:.2g} W, and the board's limit is {limit_w:g} W")


def _trapezoid(points: Sequence[tuple[int, float]]) -> float:
    return sum((p0 + p1) / 2 * (t1 - t0) / _NS for (t0, p0), (t1, p1) in pairwise(points))


def total(parts: Sequence[Joules | NoEnergy]) -> Joules | NoEnergy:
    """The energy of several boards over (nearly) one window; one board without a figure leaves the sum without one.

    Boards step at different moments. Each energy is scaled to the window that all have in common by its mean power,
    which is what a steady load allows.
    """
    missing = next((part for part in parts if isinstance(part, NoEnergy)), None)
    if missing is not None:
        return missing
    known = [part for part in parts if isinstance(part, Joules)]
    if not known:
        return NoEnergy("no board was read")
    start, end = max(p.start_ns for p in known), min(p.end_ns for p in known)
    if end <= start:
        return NoEnergy("too short: the boards' windows do not overlap")
    share = [(end - start) / (p.end_ns - p.start_ns) for p in known]
    value = sum(p.value * s for p, s in zip(known, share, strict=True))
    error = math.hypot(*(p.error * s for p, s in zip(known, share, strict=True)))
    sources = {p.source for p in known}
    return Joules(value, error, start, end, sources.pop() if len(sources) == 1 else "mixed")


def disagreement(counter: Joules, integral: Joules) -> float:
    """Relative difference of the mean powers: integral over counter, minus one."""
    return integral.watts / counter.watts - 1 if counter.watts > 0 else math.inf
