"""What a board's sensors can tell, found by watching them.

How often the energy counter and the power reading move differs by generation and driver, and is documented for few.
Everything that is measured with them depends on it: where a window may be cut, how short it may be. So the sensors are
watched for a second before they are used, and what was found is kept with the results.

A watch is disturbed by whatever else the machine does: a read that comes late sees a change late, and a power that has
not changed shows no step. So a change is used only where the reads around it were close, and the period is the one of
which the distances between changes are whole multiples, not their mean.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pytest_llmperf.gpu import Device, Reading, Unreadable
from pytest_llmperf.gpu.energy import Step, steps

__all__ = ["COUNTER_INTERVAL_S", "SURVEY_S", "Gauge", "Sensor", "survey", "watch"]

#: Seconds from one read of the counter to the next while boards are sampled.
COUNTER_INTERVAL_S = 0.02
#: Seconds that sensors are watched: a dozen steps of the slowest counter known (100 ms).
SURVEY_S = 1.2
_NS = 1_000_000_000
#: Seconds between two reads of a watch: close against a period of 20 ms, and the processor stays free for others.
_PAUSE_S = 0.001
#: Fewer changes than this are no period.
_FEWEST_CHANGES = 4
#: A change is used if the reads around it are no further apart than this many usual ones, or than this share of the
#: usual distance of two changes.
_LATE_READS, _LATE_SHARE = 4, 0.25
#: How far, in periods, a distance of two changes may be from a whole number of periods.
_SLACK = 0.25
#: The share of distances that have to be whole multiples, and the share that has to be a single period.
_FITTING, _SINGLE = 0.8, 0.2
#: A counter without a step for this many periods has stopped.
_SILENCE = 3
#: Relative uncertainty that a window should allow.
_AIM = 0.01
#: How well a step in which a window ends is divided, relative to its period.
_DIVIDED = 0.1


@dataclass(frozen=True)
class Gauge:
    """How one sensor behaves.

    Attributes:
        period_s: Seconds between two changes of its value.
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

    def shortest_window_s(self, interval_s: float = COUNTER_INTERVAL_S) -> float:
        """How long a window has to be for its energy to be known to 1 %, as far as its ends are concerned.

        At each end a step of the counter is divided by the power readings, to about a tenth of its period, and its
        moment is known to within the distance of two reads (an even distribution: over the square root of 12). Without
        a counter: a hundred power readings. Without either it is infinite: no window is long enough.

        Args:
            interval_s: Seconds between two reads of the counter while it is sampled.
        """
        if isinstance(self.counter, Gauge):
            apart = max(interval_s, self.counter.read_s)
            return math.sqrt(2) * math.hypot(_DIVIDED * self.counter.period_s, apart / math.sqrt(12)) / _AIM
        if isinstance(self.power, Gauge):
            return 100 * self.power.period_s
        return math.inf

    def to_json(self, interval_s: float = COUNTER_INTERVAL_S) -> dict[str, Any]:
        """For the record: period and cost of each, or the reason; the shortest window in seconds, ``None`` without."""
        shortest = self.shortest_window_s(interval_s)
        return {
            "counter": _json(self.counter),
            "power": _json(self.power),
            "shortest_window_s": shortest if math.isfinite(shortest) else None,
        }


def _json(gauge: Reading[Gauge]) -> dict[str, Any]:
    return {"reason": gauge.reason} if isinstance(gauge, Unreadable) else asdict(gauge)


def survey(devices: Sequence[Device], *, seconds: float = SURVEY_S) -> dict[str, Sensor]:
    """Watch the sensors of several boards at once.

    Each board has a thread. The driver's calls let other threads run, so that a counter of 4.5 ms delays its own board
    only; one loop over eight boards would come round every 36 ms, too seldom for steps of 20 ms.

    Args:
        devices: The boards, open.
        seconds: How long, however many there are.

    Returns:
        By the board's UUID.
    """
    if not devices:
        return {}
    with ThreadPoolExecutor(len(devices)) as threads:
        sensors = threads.map(lambda device: watch(device, seconds=seconds), devices)
        return {device.board.uuid: sensor for device, sensor in zip(devices, sensors, strict=True)}


def watch(
    device: Device,
    *,
    seconds: float = SURVEY_S,
    now: Callable[[], int] = time.monotonic_ns,
    pause: Callable[[float], None] = time.sleep,
) -> Sensor:
    """Watch a board's sensors.

    Args:
        device: The board.
        seconds: How long.
        now: The time in ns.
        pause: Waits for so many seconds.
    """
    counter, power = _Trail("the energy counter", device.energy_j), _Trail("the power reading", device.power_w)
    end = now() + round(seconds * _NS)
    while now() < end:
        counter.read(now)
        power.read(now)
        pause(_PAUSE_S)
    return Sensor(_counter_gauge(counter, seconds), _gauge(power, seconds))


class _Trail:
    """What one sensor has shown so far."""

    def __init__(self, name: str, reading: Callable[[], Reading[float]]) -> None:
        self.name = name
        self.readings: list[tuple[int, float]] = []
        self.costs: list[int] = []
        self.refusals: list[Unreadable] = []
        self._reading = reading

    def read(self, now: Callable[[], int]) -> None:
        before = now()
        value = self._reading()
        after = now()
        if isinstance(value, Unreadable):
            self.refusals.append(value)
        elif math.isfinite(value):
            self.readings.append(((before + after) // 2, value))
            self.costs.append(after - before)


def _counter_gauge(trail: _Trail, seconds: float) -> Reading[Gauge]:
    """A counter has to rise at every tick, and to go on doing so."""
    if any(later < earlier for (_, earlier), (_, later) in pairwise(trail.readings)):
        return Unreadable(f"{trail.name} fell while it was watched: was the driver loaded again?")
    gauge = _gauge(trail, seconds)
    if isinstance(gauge, Unreadable):
        return gauge
    silence = (trail.readings[-1][0] - steps(trail.readings)[-1].until_ns) / _NS
    if silence > _SILENCE * gauge.period_s:
        return Unreadable(f"{trail.name} stopped: it moved every {gauge.period_s:.2g} s, then not for {silence:.2g} s")
    return gauge


def _gauge(trail: _Trail, seconds: float) -> Reading[Gauge]:
    if len(trail.refusals) > len(trail.readings):
        return trail.refusals[-1]
    seen = steps(trail.readings)
    clear = _clear(seen, trail.readings)
    if len(clear) < _FEWEST_CHANGES:
        return Unreadable(f"{trail.name} changed {len(seen)} times in {seconds:g} s: its period cannot be told")
    period = _period([later.at_ns - earlier.at_ns for earlier, later in pairwise(clear)])
    if period is None:
        return Unreadable(f"{trail.name} changed {len(seen)} times in {seconds:g} s, at no regular distance")
    return Gauge(period / _NS, statistics.median(trail.costs) / _NS)


def _clear(seen: Sequence[Step], readings: Sequence[tuple[int, float]]) -> list[Step]:
    """The changes of which is known well when they were."""
    if len(seen) < 2:
        return list(seen)
    usual_read = statistics.median(later - earlier for (earlier, _), (later, _) in pairwise(readings))
    usual_gap = statistics.median(later.at_ns - earlier.at_ns for earlier, later in pairwise(seen))
    most = max(_LATE_READS * usual_read, _LATE_SHARE * usual_gap)
    return [step for step in seen if step.until_ns - step.after_ns <= most]


def _period(gaps: Sequence[int]) -> float | None:
    """The time of which nearly all distances are whole multiples, and a fair share the very time.

    That share keeps a single change that was seen late from halving the period.
    """
    for shortest in sorted(gaps):
        single = [gap for gap in gaps if abs(gap - shortest) <= _SLACK * shortest]
        if len(single) < max(2, _SINGLE * len(gaps)):
            continue
        usual = statistics.median(single)
        fitting = [(gap, count) for gap in gaps if (count := round(gap / usual)) and _near(gap, count * usual, usual)]
        if len(fitting) >= _FITTING * len(gaps):
            # Neighbouring distances share an end, so that the errors in their sum cancel.
            return sum(gap for gap, _ in fitting) / sum(count for _, count in fitting)
    return None


def _near(gap: float, multiple: float, period: float) -> bool:
    return abs(gap - multiple) <= _SLACK * period
