"""Simulated boards while something is measured: read afterwards, at the moments at which a sampler would have read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu import ActivityMeter, Reading, Unreadable
from pytest_llmperf.gpu.sampling.sampler import NOTHING, REASONS, BoardSamples
from pytest_llmperf.gpu.simulated.device import RESTED_NS, SimulatedDevice
from pytest_llmperf.gpu.simulated.history import Level

__all__ = ["SimulatedWatch"]

#: Seconds of virtual time from one reading to the next.
INTERVAL_S = 0.01
#: A span is not read more often than this, as long as each update of the power reading is seen twice.
_ENOUGH = 20_000
#: Slow quantities (temperature, memory, utilisation) are this many readings apart.
_SLOW_EVERY = 20
#: The counter is read so long before and after each of its steps, as a sampler does that knows when they come.
_ABOUT_NS = 1_000_000
#: Steps of the counter that are read before the span, so that the first lies outside of it.
_LEAD_STEPS = 2
#: Steps of the counter that are read of a span, but for those near its ends.
_MOST_TICKS = 10_000
_NEAR_ENDS = 100
#: Two clocks that differ by less are one.
_SAME_CLOCK_NS = 1000


class SimulatedWatch:
    """Samples simulated boards as :class:`~pytest_llmperf.gpu.sampling.watch.BoardWatch` samples real ones.

    Times are those of the engine that drives them. Nothing runs between begin and end, so nothing is disturbed. On the
    engine's event loop, where waiting costs nothing, a span begins at the same phase of the sensors and after the same
    rest whatever was measured before, and ends when the counters have stepped once more.

    Args:
        devices: The boards.
        interval_s: Seconds of virtual time from one reading to the next; more in a span of several minutes.
    """

    def __init__(self, devices: Sequence[SimulatedDevice], interval_s: float = INTERVAL_S) -> None:
        self._devices = tuple(devices)
        self._interval_ns = round(interval_s * NS_PER_S)
        self._begun: list[int] = []

    @property
    def uuids(self) -> tuple[str, ...]:
        """The boards, in the order in which their samples come."""
        return tuple(device.board.uuid for device in self._devices)

    async def begin(self) -> None:
        """Begin a span."""
        moments = [(device.timeline.now() // NS_PER_S + 1) * NS_PER_S + RESTED_NS for device in self._devices]
        for device, moment in zip(self._devices, moments, strict=True):
            await _reach(device, moment)
        self._begun = [device.keep(self) for device in self._devices]

    async def end(self) -> list[BoardSamples]:
        """End it; what was to be read in it and a little around it, board by board."""
        ended = [device.timeline.now() for device in self._devices]
        for device, moment in zip(self._devices, ended, strict=True):
            await _reach(device, moment + device.product.counter_period_ns + 2 * _ABOUT_NS)
        spans = zip(self._devices, self._begun, ended, strict=True)
        samples = [
            _Reader(device).read(begun, end, self._apart_ns(device, end - begun)) for device, begun, end in spans
        ]
        self.close()
        return samples

    def close(self) -> None:
        """Give up a span that was begun; it may be closed again."""
        for device in self._devices:
            device.release(self)

    def _apart_ns(self, device: SimulatedDevice, span_ns: int) -> int:
        most_ns = max(self._interval_ns, device.product.power_period_ns // 2)
        return min(max(self._interval_ns, span_ns // _ENOUGH), most_ns)


class _Reader:
    """One board, at the moments of its past that it is led through."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._timeline = device.timeline
        self._moment = 0
        self._device = device.as_of(lambda: self._moment)
        self._samples = BoardSamples(device.board.uuid, power_limit_w=device.board.power_limit_w)
        self._tick: int | None = None
        self._level: Level | None = None
        self._watts, self._clocks, self._reasons = NOTHING, (NOTHING, NOTHING), -1
        self._pulse: Reading[ActivityMeter] | None = None
        self._pulse_ns = 0

    def read(self, begun_ns: int, ended_ns: int, interval_ns: int) -> BoardSamples:
        start = begun_ns - _LEAD_STEPS * self._device.product.counter_period_ns
        now = self._timeline.now()
        for number, moment in enumerate(_steps(start, now, interval_ns)):
            self._fast(moment)
            if number % _SLOW_EVERY == 0 or moment == now:
                self._slow(moment)
        for tick in _some(self._device.counter_ticks(start, now)):
            self._counter(tick - _ABOUT_NS)
            self._counter(min(now, tick + _ABOUT_NS))
        self._over(begun_ns, ended_ns)
        return self._samples

    def _fast(self, moment: int) -> None:
        samples, device = self._samples, self._device
        self._moment = moment
        samples.at_ns.append(self._timeline.outside(moment))
        # Between two ticks of the sensor, and within one level of work, nothing that is read changes.
        tick, level = device.power_tick(moment), device.history.level(moment)
        if tick != self._tick:
            self._tick, self._watts = tick, samples.number("power", device.power_w())
        if level is not self._level:
            self._level = level
            self._clocks = (
                samples.number("sm_clock", device.sm_clock_mhz()),
                samples.number("memory_clock", device.memory_clock_mhz()),
            )
            self._reasons = _bits(device.clock_reasons())
        elif not level.busy:  # it may have become idle
            self._reasons = _bits(device.clock_reasons())
        samples.power_w.append(self._watts)
        samples.sm_clock_mhz.append(self._clocks[0])
        samples.memory_clock_mhz.append(self._clocks[1])
        samples.reasons.append(self._reasons)

    def _slow(self, moment: int) -> None:
        samples, device = self._samples, self._device
        self._moment = moment
        samples.slow_at_ns.append(self._timeline.outside(moment))
        samples.temperature_c.append(samples.number("temperature", device.temperature_c()))
        samples.memory_used.append(samples.number("memory_used", device.memory_used_bytes()))
        utilization = device.utilization()
        share = utilization if isinstance(utilization, Unreadable) else utilization.gpu
        samples.utilization.append(samples.number("utilization", share))
        outside = self._timeline.outside(moment)
        if self._pulse is None:
            self._pulse = device.activity_meter()
        elif not isinstance(self._pulse, Unreadable):
            samples.active(self._pulse_ns, outside, self._pulse.read())
        self._pulse_ns = outside

    def _counter(self, moment: int) -> None:
        self._moment = moment
        self._samples.counter_at_ns.append(self._timeline.outside(moment))
        self._samples.counter_j.append(self._samples.number("energy", self._device.energy_j()))

    def _over(self, begun_ns: int, ended_ns: int) -> None:
        """What the board counts itself, from the begin to the end."""
        samples, device = self._samples, self._device
        self._moment = begun_ns
        before = device.throttle_ns()
        meter = device.activity_meter()
        self._moment = ended_ns
        for cause, after in device.throttle_ns().items():
            earlier = before[cause]
            if not isinstance(after, Unreadable) and not isinstance(earlier, Unreadable):
                samples.throttle_ns[cause] = after - earlier
        activity = meter if isinstance(meter, Unreadable) else meter.read()
        if isinstance(activity, Unreadable):
            samples.refused["activity"] = activity.reason
            return
        for name in ("dram", "tensor", "sm"):
            setattr(samples, name, getattr(activity, name))


async def _reach(device: SimulatedDevice, moment_ns: int) -> None:
    """Wait for a moment of the board's life, if the running event loop lives on the clock that drives it."""
    loop = asyncio.get_running_loop()
    while (left := moment_ns - device.timeline.now()) > 0:
        if not device.timeline.driven or abs(loop.time() * NS_PER_S - device.now()) > _SAME_CLOCK_NS:
            return
        await asyncio.sleep(left / NS_PER_S)


def _steps(start: int, end: int, step: int) -> Iterator[int]:
    """From start to end, both included."""
    yield from range(start, end, step)
    yield end


def _some(ticks: range) -> Iterator[int]:
    """All of them, or of very many those near the ends and every so many between: windows end near the ends."""
    stride = max(1, len(ticks) // _MOST_TICKS)
    if stride == 1:
        yield from ticks
        return
    yield from ticks[:_NEAR_ENDS]
    yield from ticks[_NEAR_ENDS:-_NEAR_ENDS:stride]
    yield from ticks[-_NEAR_ENDS:]


def _bits(reasons: Reading[frozenset[str]]) -> int:
    if isinstance(reasons, Unreadable):
        return -1
    return sum(1 << bit for bit, name in enumerate(REASONS) if name in reasons)
