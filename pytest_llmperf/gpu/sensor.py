"""What a board's sensors can tell, found by watching them.

How often the energy counter and the power reading move differs by generation and driver, and is documented for few.
Everything that is measured with them depends on it: where a window may be cut, how short it may be. So the sensors are
watched for a second before they are used, and what was found is kept with the results.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from pytest_llmperf.gpu import Device, Reading, Unreadable

__all__ = ["Gauge", "Sensor", "watch"]

_NS = 1_000_000_000
#: Fewer changes than this are no period.
_FEWEST_CHANGES = 4
#: Relative uncertainty that a window should allow.
_AIM = 0.01


@dataclass(frozen=True)
class Gauge:
    """How one sensor behaves.

    Attributes:
        period_s: Seconds between two changes of its value (median).
        read_s: Seconds that one reading takes (median).
    """

    period_s: float
    read_s: float


@dataclass(frozen=True)
class Sensor:
    """How a board's sensors behave.

    Attributes:
        counter: The energy counter.
        power: The power reading.
    """

    counter: Reading[Gauge]
    power: Reading[Gauge]

    def shortest_window_s(self, interval_s: float) -> float:
        """How long a window has to be for its energy to be known to 1 %, as far as its ends are concerned.

        Args:
            interval_s: Seconds between two reads of the counter while it is sampled.

        A step is known to within the distance of two reads (an even distribution: over the square root of 12), at both
        ends; and up to one period is lost at each end. Without a counter: a hundred power readings.
        """
        if isinstance(self.counter, Gauge):
            apart = max(interval_s, self.counter.read_s)
            return 2 * self.counter.period_s + apart * math.sqrt(2 / 12) / _AIM
        if isinstance(self.power, Gauge):
            return 100 * self.power.period_s
        return 0.0


def watch(device: Device, *, seconds: float = 1.0, now: Callable[[], int] = time.monotonic_ns) -> Sensor:
    """Watch a board's sensors.

    Args:
        device: The board.
        seconds: How long each of the two is watched at most.
        now: The time in ns.
    """
    return Sensor(
        counter=_watch("the energy counter", device.energy_j, seconds, now),
        power=_watch("the power reading", device.power_w, seconds, now),
    )


def _watch(name: str, read: Callable[[], Reading[float]], seconds: float, now: Callable[[], int]) -> Reading[Gauge]:
    changes: list[int] = []
    costs: list[int] = []
    start = before = now()
    last = read()
    while before - start < seconds * _NS:
        if isinstance(last, Unreadable):
            return last
        before = now()
        value = read()
        after = now()
        costs.append(after - before)
        if value != last:
            changes.append(after)
        last = value
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    if len(changes) < _FEWEST_CHANGES:
        return Unreadable(f"{name} changed {len(changes)} times in {seconds:g} s: its period cannot be told")
    return Gauge(statistics.median(gaps) / _NS, statistics.median(costs) / _NS)
