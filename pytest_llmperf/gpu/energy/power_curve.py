"""Power readings as a curve over time, and its integral: the energy of boards without a counter.

They lag: a reading is the mean before an update of the sensor and is read until the next one, so the curve is taken to
be late by the half of both. How long the sensor averages is not known: a half of its period is taken, which is right
within half a period for all that are known (10 of 20, 25 of 100, 100 of 100 ms). Of what happens between two updates an
integral knows nothing: how much neighbouring readings differ is its uncertainty.

A mean over a second (all there is on Ampere and newer without the driver's instantaneous field) is never used: its ends
would be smeared over a second, and nothing would say how much that matters. There is no energy then, and this reason.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from pytest_llmperf.gpu.energy import NOTHING_DRAWN, Joules, NoEnergy, Readings, ordered

__all__ = [
    "HOLE_S",
    "LONGEST_PERIOD_S",
    "area",
    "changes_of",
    "integrated",
    "period_s",
    "typical",
]

_NS = 1_000_000_000
#: Readings further apart leave a hole, seconds.
HOLE_S = 0.5
#: The longest period of a power sensor, seconds: assumed where none can be told.
LONGEST_PERIOD_S = 0.1
#: Fewer changes tell no period of the sensor.
_FEWEST_CHANGES = 4


def integrated(power: Readings, start_ns: int, end_ns: int) -> Joules | NoEnergy:
    """Energy from one moment to another by the power readings alone; see the module's head.

    Args:
        power: Time in ns and instantaneous power in watts.
        start_ns: Begin of the window.
        end_ns: Its end.
    """
    watts = ordered(power, statistics.fmean)
    within = [point for point in watts if start_ns <= point[0] <= end_ns]
    if len(within) < 2:
        below = sum(value < 0 for at, value in power if start_ns <= at <= end_ns)
        left_out = f" beside {below} below 0 W, which no board draws" if below else ""
        return NoEnergy(
            f"{len(within)} power readings fall into the window of {(end_ns - start_ns) / 1e6:.0f} ms{left_out}"
        )
    changes = changes_of(watts)
    period = period_s(changes)
    edges = [start_ns, *(at for at, _ in within), end_ns]
    if (hole := max(b - a for a, b in pairwise(edges)) / _NS) > max(HOLE_S, 2.5 * _typical_gap(within)):
        return NoEnergy(f"the power was not read for {hole:.1f} s of the window")
    if not any(watts for _, watts in within):
        return NoEnergy(NOTHING_DRAWN)
    seconds = (end_ns - start_ns) / _NS
    lag = 0.0 if period is None else 0.75 * period
    if period is not None and seconds < 2 * period:
        return NoEnergy(
            f"too short: the window of {seconds * 1e3:.0f} ms holds fewer than two updates of the power sensor, which "
            f"come every {period * 1e3:.0f} ms"
        )
    points = [((at - start_ns) / _NS - lag, w) for at, w in watts]
    value = area(points, 0.0, seconds, None)
    updates = max(1.0, seconds / (period or _typical_gap(within)))
    spread = math.sqrt(statistics.fmean((b - a) ** 2 for a, b in _neighbours(within, changes)) / 2)
    # The lag is known to an eighth of a period, which matters where power differs between the two ends.
    ends = abs(_value(points, seconds) - _value(points, 0.0)) * (period or 0.0) / 8
    return Joules(value, math.hypot(seconds * spread / math.sqrt(updates), ends), start_ns, end_ns, "integral")


def area(points: Sequence[tuple[float, float]], x: float, y: float, change: float | None) -> float:
    """Joules from ``x`` to ``y`` under points of power.

    Between two points power changes at once, at the share ``change`` of the way; or evenly (``None``). The outermost
    hold.
    """
    total = 0.0
    first, last = points[0], points[-1]
    if x < first[0]:
        total += (min(y, first[0]) - x) * first[1]
    if y > last[0]:
        total += (y - max(x, last[0])) * last[1]
    begin = max(0, bisect_right(points, (x, math.inf)) - 1)
    for (t0, w0), (t1, w1) in pairwise(points[begin:]):
        if t0 >= y:
            break
        low, high = max(x, t0), min(y, t1)
        if high <= low:
            continue
        if change is None:
            slope = (w1 - w0) / (t1 - t0)
            total += (high - low) * (w0 + slope * ((low + high) / 2 - t0))
        else:
            turn = min(max(t0 + change * (t1 - t0), low), high)
            total += (turn - low) * w0 + (high - turn) * w1
    return total


def _value(points: Sequence[tuple[float, float]], x: float) -> float:
    place = min(max(bisect_right(points, (x, math.inf)) - 1, 0), len(points) - 1)
    return points[place][1]


def changes_of(power: Readings) -> list[tuple[int, float]]:
    """Readings that differ from the one before."""
    return [later for earlier, later in pairwise(power) if earlier[1] != later[1]]


def period_s(changes: Readings) -> float | None:
    """Seconds between two updates of a power sensor, as far as it can be told."""
    if len(changes) < _FEWEST_CHANGES:
        return None
    found = _typical_gap(changes)
    # Power that seldom changes, without noise, tells nothing of how often it would be updated.
    return found if found < 1.5 * LONGEST_PERIOD_S else None


def _typical_gap(readings: Readings) -> float:
    # From the first of them on: seconds since a far origin have lost digits.
    return typical([(at - readings[0][0]) / _NS for at, _ in readings])


def typical(times: Sequence[float]) -> float:
    """The distance of two that follow each other."""
    return statistics.median(b - a for a, b in pairwise(times)) if len(times) > 1 else LONGEST_PERIOD_S


def _neighbours(within: Readings, changes: Readings) -> list[tuple[float, float]]:
    """Pairs of values that were read one after the other, each update of the sensor once."""
    updates = [value for at, value in changes if within[0][0] <= at <= within[-1][0]]
    return list(pairwise([within[0][1], *updates]) if updates else [(0.0, 0.0)])
