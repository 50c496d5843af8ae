"""The energy of an exact window: from one moment to another, wherever the energy counter steps.

What is known. The counter tells the joules from any of its steps to any other without error (but for the sensor's
gain). A window begins and ends between steps, and what is open is only how the joules of these two intervals, up to
100 ms each, divide at the window's ends. The power readings say how: each is the mean of some 10 to 100 ms before the
sensor's last update, so the one of the update before an interval and the one at its end hold what power was at either
side. Where they differ power changed in between, and the interval's joules say when: many joules, early; few, late.

What is assumed. That a change takes anything from no time at all (a step, which is taken as the estimate) to a whole
period of the sensor (a ramp): the distance of the two over the square root of 3 is the uncertainty, that of an even
distribution between them. Joules that neither can explain are of a burst that began and ended between two readings. It
lies anywhere: they are spread evenly, and of joules ``r`` that fall before the share ``u`` of an interval with the
probability ``u``, the standard deviation is ``r`` times the root of ``u (1 - u)``. A change may also bring an
overshoot that no reading saw (a prefill before its decode): a fifth of the room that is left to power within such
bounds is added, which covers simulated work of that kind as often as a standard uncertainty should. Last, a step's own
moment is known to the distance of the two reads that it lies between.

None of it grows with the window, so a longer window is known better. One without any step inside is refused, because
all of its energy would be assumed, and so is one whose ends are worth more than 20 ms of its mean power (or 0.3 % of
its energy): 4 % of half a second, 1 % of 2 s.

What is not covered. A load that alternates (at 10 to 40 Hz) faster than the power sensor is updated aliases: its
readings look like some slower or flatter course of power, and changes are looked for in these. Windows of some seconds
on the fake driver library were off by up to 2 % at 40 Hz and 6.6 % at 10 Hz, and the stated uncertainty was 1.6 to 1.8
times too small there.

Without a usable counter the power readings are integrated instead, see :mod:`pytest_llmperf.gpu.energy.power_curve`.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter

from pytest_llmperf.gpu.energy import FELL, Joules, NoEnergy, Readings, Step, localised, ordered, plausible, steps
from pytest_llmperf.gpu.energy.power_curve import (
    HOLE_S,
    LONGEST_PERIOD_S,
    area,
    changes_of,
    integrated,
    period_s,
    typical,
)

__all__ = ["across"]

_NS = 1_000_000_000
#: A counter whose value holds for so many of its periods stands still.
_STANDSTILL = 3.5
#: Power between two readings may pass both by this part of their difference, and come back.
_OVERSHOOT = 0.5
#: What of the room for any other course of power within an interval is its standard uncertainty.
_ROOM = 0.2
#: The most that the uncertainty of a counted energy may be: the joules of this time, or this part, whichever is more.
_WORST_S, _WORST = 0.02, 0.003
#: And of any energy.
_WORST_EVER = 0.05
#: Positions of a change within a period that are tried.
_TRIED = 32


def across(
    counter: Readings,
    power: Readings,
    start_ns: int,
    end_ns: int,
    *,
    worst: float | None = None,
    limit_w: float | None = None,
) -> Joules | NoEnergy:
    """Energy of a board from one moment to another.

    Args:
        counter: Time in ns and value of the energy counter in joules; from a few of its steps before the window to the
            first after it. Readings may come unordered and doubled; those that are no number are left out.
        power: Time in ns and instantaneous power in watts, likewise.
        start_ns: Begin of the window.
        end_ns: Its end.
        worst: The largest standard uncertainty that the energy may have, relative; see the head for the usual one.
        limit_w: The board's power limit in watts; ``None`` where it is not known.

    Returns:
        The joules with their standard uncertainty (the sensor's gain, about 5 % a board, is no part of it); or why
        there are none: the counter fell or jumped, the window is shorter than its steps, its ends are not known well
        enough, or nothing was read.
    """
    if end_ns <= start_ns:
        return NoEnergy("too short: the window ends where it begins")
    found = _trimmed(ordered(counter, max), start_ns, end_ns)
    if isinstance(found, NoEnergy):
        return found
    watts = ordered(power, statistics.fmean)
    counted = _counted(found, watts, start_ns, end_ns)
    if not isinstance(counted, str):
        return _good_enough(plausible(counted, limit_w), worst)
    integral = _good_enough(plausible(integrated(power, start_ns, end_ns), limit_w), worst)
    if isinstance(integral, NoEnergy):
        return NoEnergy(f"{counted}; {integral.reason}")
    return replace(integral, notes=(f"{counted[0].upper()}{counted[1:]}: the power readings were integrated.",))


def _good_enough(energy: Joules | NoEnergy, worst: float | None) -> Joules | NoEnergy:
    if isinstance(energy, NoEnergy):
        return energy
    if energy.value <= 0:
        what = "the energy counter counted" if energy.source == "counter" else "the power readings are worth"
        return NoEnergy(f"{what} 0 J in {energy.seconds:.2f} s, which cannot be")
    if worst is None:
        worst = _WORST_EVER
        if energy.source == "counter":
            worst = min(_WORST_EVER, max(_WORST, _WORST_S / energy.seconds))
    if energy.error <= worst * energy.value:
        return energy
    return NoEnergy(
        f"too short: power changes so much that the energy of {energy.seconds:.2f} s is known to "
        f"{energy.error / energy.value:.1%} only (standard uncertainty; {worst:.1%} is asked for)"
    )


def _counted(counter: Readings, power: Readings, start_ns: int, end_ns: int) -> Joules | NoEnergy | str:
    """By the counter; a string tells why not, where the integral may stand in."""
    if not counter:
        return "there is no energy counter"
    ticks = localised(steps(counter))
    if (still := _standstill(counter, ticks, start_ns, end_ns)) is not None:
        return still
    inside = [tick for tick in ticks if start_ns < tick.at_ns <= end_ns]
    if not inside:
        return NoEnergy(
            f"too short: the energy counter does not step within the window of {(end_ns - start_ns) / 1e6:.0f} ms"
        )
    counter_covers = ticks[0].at_ns <= start_ns and end_ns <= ticks[-1].at_ns
    power_covers = bool(power) and power[0][0] <= start_ns and end_ns <= power[-1][0]
    if not counter_covers and not power_covers:
        return NoEnergy("the boards were not read from before the window until after it")
    curve = _Curve(ticks, power, start_ns)
    begin, end = curve.at(start_ns), curve.at(end_ns)
    error = math.hypot(begin.error, end.error)
    return Joules(end.joules - begin.joules, error, start_ns, end_ns, "counter")


@dataclass(frozen=True)
class _Known:
    """Joules since the first step, and their standard uncertainty."""

    joules: float
    error: float


class _Curve:
    """Joules over time, from steps of the counter and what power says of the time between two of them."""

    def __init__(self, ticks: Sequence[Step], power: Readings, zero_ns: int) -> None:
        self._zero = zero_ns
        self._ticks = ticks
        self._times = [(tick.at_ns - zero_ns) / _NS for tick in ticks]
        self._power = [((at - zero_ns) / _NS, watts) for at, watts in power]
        changes = changes_of(power)
        self._period = period_s(changes) or min(LONGEST_PERIOD_S, typical(self._times))
        self._own = [
            ((a + b) / 2, (two.value - one.value) / (b - a))
            for (a, one), (b, two) in pairwise(zip(self._times, ticks, strict=True))
        ]

    def at(self, at_ns: int) -> _Known:
        x = (at_ns - self._zero) / _NS
        place = bisect_right(self._times, x)
        if place == 0:
            return self._beyond(0, x)
        if place == len(self._times):
            return self._beyond(-1, x)
        one, two = self._ticks[place - 1], self._ticks[place]
        a, b = self._times[place - 1], self._times[place]
        joules, u = two.value - one.value, (x - a) / (b - a)
        knots = self._knots(a, b)
        ramp = area(knots, a, x, None) + (joules - area(knots, a, b, None)) * u
        change, rest = _change(knots, a, b, joules)
        step = min(max(area(knots, a, x, change) + rest * u, 0.0), joules)
        timing = joules / (b - a) * math.hypot((1 - u) * one.error_s, u * two.error_s)
        other = _ROOM * _room(knots, x - a, b - x, joules)
        error = math.hypot((step - ramp) / math.sqrt(3), other, rest * math.sqrt(u * (1 - u)), timing)
        return _Known(one.value - self._ticks[0].value + step, error)

    def _beyond(self, place: int, x: float) -> _Known:
        """Before the first step or after the last: from there on by power alone."""
        tick, at = self._ticks[place], self._times[place]
        low, high = min(at, x), max(at, x)
        knots = self._knots(low, high)
        early, late = area(knots, low, high, 0.0), area(knots, low, high, 1.0)
        joules = (early + late) / 2
        seen = [watts for at, watts in self._power if low - self._period <= at <= high + self._period]
        # Nothing was counted here: power between two readings may have been anything that was read about here.
        spread = (max(seen) - min(seen)) * (high - low) / math.sqrt(12) if seen else joules
        error = math.hypot(spread, joules / (high - low or 1.0) * tick.error_s)
        return _Known(tick.value - self._ticks[0].value + math.copysign(joules, x - at), error)

    def _knots(self, a: float, b: float) -> list[tuple[float, float]]:
        """What power was when the sensor was updated; where that was not read, what the counter says it was."""
        period = self._period
        first = max(0, bisect_left(self._power, (a - 2 * period,)) - 1)
        near = self._power[first : bisect_right(self._power, (b + 2 * period,)) + 1]
        if not any(a - period <= at <= b + period for at, _ in near):
            return self._own or near or [(a, 0.0)]
        knots = [near[0]]
        for (t0, w0), (t1, w1) in pairwise(near):
            if w1 != w0:
                update = (t0 + t1) / 2
                if update - period > knots[-1][0]:
                    knots.append((update - period, w0))
                knots.append((update, w1))
        if near[-1][0] > knots[-1][0]:
            knots.append(near[-1])
        return knots


def _change(knots: Sequence[tuple[float, float]], a: float, b: float, joules: float) -> tuple[float, float]:
    """Where between two updates power changed, 0 to 1, so that an interval has its joules; and what is left of them."""
    rests = [joules - area(knots, a, b, n / _TRIED) for n in range(_TRIED + 1)]
    for n, (r0, r1) in enumerate(pairwise(rests)):
        if r0 * r1 <= 0 and r0 != r1:
            return (n + r0 / (r0 - r1)) / _TRIED, 0.0
    n = min(range(_TRIED + 1), key=lambda n: abs(rests[n]))
    return n / _TRIED, rests[n]


def _room(knots: Sequence[tuple[float, float]], before: float, after: float, joules: float) -> float:
    """How far apart the least and the most joules are that may have been used before a moment in an interval.

    Args:
        knots: Power about the interval.
        before: Seconds from its begin to the moment.
        after: Seconds from there to its end.
        joules: Of the interval.
    """
    least, most = min(watts for _, watts in knots), max(watts for _, watts in knots)
    least, most = max(0.0, least - _OVERSHOOT * (most - least)), most + _OVERSHOOT * (most - least)
    high = min(most * before, joules - least * after)
    low = max(least * before, joules - most * after)
    return max(0.0, high - low)


def _trimmed(
    counter: Sequence[tuple[int, float]], start_ns: int, end_ns: int
) -> Sequence[tuple[int, float]] | NoEnergy:
    """The readings about a window, between two falls of the counter; a fall within it leaves none."""
    first, last = 0, len(counter)
    for place, ((t0, c0), (t1, c1)) in enumerate(pairwise(counter), start=1):
        if c1 < c0:
            if t1 <= start_ns:
                first = place
            elif t0 >= end_ns:
                last = place
                break
            else:
                return NoEnergy(FELL)
    return counter[first:last]


def _standstill(counter: Readings, ticks: Sequence[Step], start_ns: int, end_ns: int) -> str | None:
    """Words for a counter that stood still while it was read."""
    if len(ticks) < 2:
        held = (counter[-1][0] - counter[0][0]) / _NS
        return f"the energy counter did not move for {held:.1f} s" if held > HOLE_S else None
    period = typical([(tick.at_ns - ticks[0].at_ns) / _NS for tick in ticks])
    for _, same in groupby(counter, key=itemgetter(1)):
        times = [at for at, _ in same]
        held = (min(times[-1], end_ns) - max(times[0], start_ns)) / _NS
        if held > _STANDSTILL * period:
            return f"the energy counter, which moves every {period * 1e3:.0f} ms, stood still for {held:.1f} s"
    return None
