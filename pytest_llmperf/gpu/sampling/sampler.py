"""Reading the boards while something else is measured, from a process of its own.

A read of the energy counter takes milliseconds inside the driver, and a thread of the measuring process would take
turns with it. A process costs neither; what it does to the boards themselves is measured, not assumed (see the
benchmark). It sleeps between rounds, reads the counter about its steps (see
:mod:`pytest_llmperf.gpu.sampling.counter_reads`), and keeps everything in memory until it is asked.

It has watched a few steps of the counter before it says that it reads, and goes on until one more was seen after it was
told to stop: so there are steps on either side of a window that begins after the one and ends before the other.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any

from pytest_llmperf.gpu import Activity, ActivityMeter, Device, Reading, Unreadable
from pytest_llmperf.gpu.sampling.counter_reads import CounterReads

__all__ = ["NOTHING", "REASONS", "BoardSamples", "Collect", "Peek", "Sampling", "Start", "main"]

_NS = 1_000_000_000

#: What stands in the arrays for a value that was not read.
NOTHING = float("nan")
#: The bits of :attr:`BoardSamples.reasons`, from the lowest.
REASONS = (
    "gpu_idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks", "board_limit", "reliability", "thermal",
)  # fmt: skip
#: Slow quantities (temperature, memory, its clock, utilisation) are this many rounds apart.
_SLOW_EVERY = 20
#: As long as a round may take, ns.
_ROUND_NS = 2_000_000
#: After so many reads of the performance counters it is known whether they fit into rounds; else they are given up.
_PULSES_TRIED = 5
#: How long to wait for one more step of the counters (or one more power reading) at the end, in seconds.
_AFTERWARDS_S = 0.25
#: How long to look for the counters' steps at the beginning, in seconds.
_LONGEST_LEAD_S = 1.0


@dataclass
class BoardSamples:
    """What was read of one board; arrays of one kind are equally long.

    Attributes:
        uuid: Of the board.
        at_ns: When power, clock and reasons were read.
        power_w: Instantaneous power.
        sm_clock_mhz: SM clock.
        memory_clock_mhz: Memory clock; :data:`NOTHING` in most rounds unless it has to be seen to hold.
        reasons: Clock reasons as bits of :data:`REASONS`; -1 where they were not read.
        counter_at_ns: When the energy counter was read (middle of the read).
        counter_j: Its value.
        slow_at_ns: When the following were read.
        temperature_c: GPU temperature.
        memory_used: Bytes.
        utilization: 0 to 1.
        activity_since_ns: From when each mean of the performance counters was taken, where the board has any.
        activity_at_ns: Until when.
        sm_active: That mean of the SM activity, 0 to 1.
        throttle_ns: By cause, how much the board's throttle-time counters grew while it was sampled.
        dram: Mean DRAM bandwidth utilisation over the time sampled, 0 to 1.
        tensor: Mean activity of the tensor cores, likewise.
        sm: Mean SM activity, likewise.
        refused: Why a quantity was not read, by its name.
        power_limit_w: The power limit when sampling began; ``None`` where the board does not tell it.
    """

    uuid: str
    at_ns: array[int] = field(default_factory=lambda: array("q"))
    power_w: array[float] = field(default_factory=lambda: array("d"))
    sm_clock_mhz: array[float] = field(default_factory=lambda: array("d"))
    memory_clock_mhz: array[float] = field(default_factory=lambda: array("d"))
    reasons: array[int] = field(default_factory=lambda: array("q"))
    counter_at_ns: array[int] = field(default_factory=lambda: array("q"))
    counter_j: array[float] = field(default_factory=lambda: array("d"))
    slow_at_ns: array[int] = field(default_factory=lambda: array("q"))
    temperature_c: array[float] = field(default_factory=lambda: array("d"))
    memory_used: array[float] = field(default_factory=lambda: array("d"))
    utilization: array[float] = field(default_factory=lambda: array("d"))
    activity_since_ns: array[int] = field(default_factory=lambda: array("q"))
    activity_at_ns: array[int] = field(default_factory=lambda: array("q"))
    sm_active: array[float] = field(default_factory=lambda: array("d"))
    throttle_ns: dict[str, int] = field(default_factory=dict)
    dram: float | None = None
    tensor: float | None = None
    sm: float | None = None
    refused: dict[str, str] = field(default_factory=dict)
    power_limit_w: float | None = None

    def power(self) -> list[tuple[int, float]]:
        """Time and power of every reading there is."""
        return [(at, watts) for at, watts in zip(self.at_ns, self.power_w, strict=True) if watts == watts]

    def counter(self) -> list[tuple[int, float]]:
        """Time and value of every reading of the energy counter."""
        return list(zip(self.counter_at_ns, self.counter_j, strict=True))

    def number(self, name: str, reading: Reading[float] | Reading[int]) -> float:
        """A reading as the arrays hold it; a refusal is noted once."""
        if isinstance(reading, Unreadable):
            self.refused.setdefault(name, reading.reason)
            return NOTHING
        return float(reading)

    def activity(self) -> list[tuple[int, int, float]]:
        """From when until when the SMs had which mean activity, look by look."""
        return list(zip(self.activity_since_ns, self.activity_at_ns, self.sm_active, strict=True))

    def active(self, since_ns: int, at_ns: int, activity: Reading[Activity]) -> None:
        """Keep a look at the performance counters; a refusal is noted once."""
        sm = self.number("sm", activity if isinstance(activity, Unreadable) else activity.sm)
        if sm == sm and at_ns > since_ns:
            self.activity_since_ns.append(since_ns)
            self.activity_at_ns.append(at_ns)
            self.sm_active.append(sm)


class _Board:
    """One board while it is sampled."""

    def __init__(self, device: Device, memory_clock: bool) -> None:
        self._device = device
        self._memory_clock = memory_clock
        self.samples = BoardSamples(device.board.uuid, power_limit_w=device.board.power_limit_w)
        self._reads = CounterReads(time.monotonic_ns())
        self._throttled: Mapping[str, Reading[int]] = {}
        self._meter: ActivityMeter | None = None
        #: Beside the meter from begin to end one from look to look: means of unequal spans do not add up.
        self._pulse: ActivityMeter | None = None
        self._pulses = self._pulses_ns = self._pulse_ns = 0

    def begin(self) -> None:
        """From now on what the board did counts, for what it counts itself."""
        self._throttled = self._device.throttle_ns()
        meter = self._device.activity_meter()
        if isinstance(meter, Unreadable):
            self.samples.refused["activity"] = meter.reason
            return
        self._meter = meter
        if not isinstance(pulse := self._device.activity_meter(), Unreadable):
            self._pulse = pulse
            self._pulse_ns = time.monotonic_ns()

    def read(self, round_number: int) -> None:
        device, samples = self._device, self.samples
        samples.at_ns.append(time.monotonic_ns())
        samples.power_w.append(samples.number("power", device.power_w()))
        samples.sm_clock_mhz.append(samples.number("sm_clock", device.sm_clock_mhz()))
        slow = round_number % _SLOW_EVERY == 0
        memory = samples.number("memory_clock", device.memory_clock_mhz()) if slow or self._memory_clock else NOTHING
        samples.memory_clock_mhz.append(memory)
        samples.reasons.append(self._reasons(device.clock_reasons()))
        if slow:
            self._read_slow()

    @property
    def counter_due_ns(self) -> int | None:
        """When the energy counter is to be read; ``None``: never."""
        return None if "energy" in self.samples.refused else self._reads.due_ns

    def about_to_read(self, now_ns: int) -> bool:
        """Whether the counter has to be read in the time that a round may take."""
        return self._reads.pressing and 0 < self._reads.due_ns - now_ns < _ROUND_NS

    @property
    def settled(self) -> bool:
        """Whether it is known when the counter steps, as far as that can be."""
        return "energy" in self.samples.refused or self._reads.settled

    def read_counter_if_due(self) -> None:
        samples, due = self.samples, self.counter_due_ns
        if due is None or due > time.monotonic_ns():
            return
        before = time.monotonic_ns()
        value = samples.number("energy", self._device.energy_j())
        after = time.monotonic_ns()
        if value == value:
            samples.counter_at_ns.append((before + after) // 2)
            samples.counter_j.append(value)
            self._reads.took(before, after, value)

    def stepped_since(self, at_ns: int) -> bool:
        """Whether a step of the counter was seen after a moment, or none will be."""
        return "energy" in self.samples.refused or self._reads.last_step_ns > at_ns

    def _read_slow(self) -> None:
        device, samples = self._device, self.samples
        samples.slow_at_ns.append(time.monotonic_ns())
        samples.temperature_c.append(samples.number("temperature", device.temperature_c()))
        samples.memory_used.append(samples.number("memory_used", device.memory_used_bytes()))
        utilization = device.utilization()
        share = utilization if isinstance(utilization, Unreadable) else utilization.gpu
        samples.utilization.append(samples.number("utilization", share))
        if self._pulse is not None:
            self._read_pulse(self._pulse)

    def _read_pulse(self, pulse: ActivityMeter) -> None:
        before = time.monotonic_ns()
        activity = pulse.read()
        after = time.monotonic_ns()
        self.samples.active(self._pulse_ns, after, activity)
        self._pulse_ns = after
        self._pulses_ns += after - before
        self._pulses += 1
        # The first read may be slow, and a single one late; the counter must not wait for it in every round.
        if self._pulses == _PULSES_TRIED and self._pulses_ns > _PULSES_TRIED * _ROUND_NS:
            pulse.close()
            self._pulse = None

    def _reasons(self, reading: Reading[frozenset[str]]) -> int:
        if isinstance(reading, Unreadable):
            self.samples.refused.setdefault("clock_reasons", reading.reason)
            return -1
        return sum(1 << bit for bit, name in enumerate(REASONS) if name in reading)

    def end(self) -> None:
        """Until now."""
        after = self._device.throttle_ns()
        for cause, before in self._throttled.items():
            now = after.get(cause, Unreadable("it is not read any more"))
            if not isinstance(before, Unreadable) and not isinstance(now, Unreadable):
                self.samples.throttle_ns[cause] = now - before
            elif isinstance(now, Unreadable):
                self.samples.refused.setdefault(f"throttle time: {cause}", now.reason)
        if self._meter is not None:
            activity = self._meter.read()
            if isinstance(activity, Unreadable):
                self.samples.refused["activity"] = activity.reason
            else:
                for name in ("dram", "tensor", "sm"):
                    value = self.samples.number(name, getattr(activity, name))
                    setattr(self.samples, name, value if value == value else None)
            self._meter.close()
        if self._pulse is not None:
            self._read_pulse(self._pulse)
            self._pulse.close()
            self._pulse = None


@dataclass(frozen=True)
class Start:
    """Begin to read these boards, by their UUIDs, every ``interval_s`` seconds.

    With ``memory_clock`` the memory clock as often as the SM clock, else seldom.
    """

    uuids: tuple[str, ...]
    interval_s: float
    memory_clock: bool = False


@dataclass(frozen=True)
class Peek:
    """Hand over what was read so far, as soon as the counters have stepped once more; and go on."""


@dataclass(frozen=True)
class Collect:
    """Hand over what was read, as soon as the counters have stepped once more; and stop."""


class Sampling:
    """Boards while they are sampled.

    Args:
        devices: Open boards.
        interval_s: Seconds from round to round; a round that takes longer is followed by the next at once.
        memory_clock: Whether to read the memory clock in every round.
    """

    def __init__(self, devices: Sequence[Device], interval_s: float, *, memory_clock: bool = False) -> None:
        self._boards = [_Board(device, memory_clock) for device in devices]
        self._interval = round(interval_s * _NS)
        self._round = 0
        self._due = time.monotonic_ns()

    def settle(self) -> None:
        """Read until it is known when the counters step."""
        since = time.monotonic_ns()
        self.run(lambda wait_s: all(b.settled for b in self._boards) or _slept(wait_s, since, _LONGEST_LEAD_S))
        for board in self._boards:
            board.begin()

    def run(self, stopped: Callable[[float], bool]) -> None:
        """Read until told to stop; may be called again.

        Args:
            stopped: Waits for up to so many seconds, and tells whether to stop.
        """
        while True:
            for board in self._boards:
                board.read_counter_if_due()
            now = time.monotonic_ns()
            # A round can wait for a counter's read, which cannot wait; but not for ever.
            waits = now - self._due < self._interval and any(board.about_to_read(now) for board in self._boards)
            if now >= self._due and not waits:
                for board in self._boards:
                    board.read(self._round)
                self._round += 1
                self._due = max(self._due + self._interval, time.monotonic_ns())
            due = [at for board in self._boards if (at := board.counter_due_ns) is not None]
            wait = min(due if waits else [*due, self._due]) - time.monotonic_ns()
            if stopped(max(0.0, wait / _NS)):
                return

    def so_far(self) -> list[BoardSamples]:
        """What was read, once the counters have stepped after this moment."""
        now = time.monotonic_ns()
        self.run(lambda wait_s: all(b.stepped_since(now) for b in self._boards) or _slept(wait_s, now, _AFTERWARDS_S))
        for board in self._boards:
            board.read(_SLOW_EVERY)  # everything once more, so that the last window has an end
        return [board.samples for board in self._boards]

    def finish(self) -> list[BoardSamples]:
        """All that was read until this moment, and the next step of the counters; ends it."""
        for board in self._boards:
            board.end()
        return self.so_far()


def _slept(wait_s: float, since_ns: int, limit_s: float) -> bool:
    time.sleep(wait_s)
    return time.monotonic_ns() - since_ns > limit_s * _NS


def _be_woken_in_time() -> None:
    """Where the real-time class is allowed (root, CAP_SYS_NICE), a busy engine beside it makes no read come late."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main(descriptor: int) -> None:
    """Obey orders until the other end of the pipe is gone."""
    from pytest_llmperf.gpu.nvml import Nvml

    pipe: Pipe[Any, Any] = Pipe(descriptor)
    _be_woken_in_time()
    with suppress(EOFError, OSError), Nvml() as nvml:
        while True:
            order: Start = pipe.recv()
            known = {board.uuid: board for board in nvml.boards()}
            if missing := [uuid for uuid in order.uuids if uuid not in known]:
                pipe.send(f"there is no board {missing[0]}")
                continue
            devices = [nvml.device(known[uuid]) for uuid in order.uuids]
            sampling = Sampling(devices, order.interval_s, memory_clock=order.memory_clock)
            sampling.settle()
            pipe.send("started")
            sampling.run(pipe.poll)
            while isinstance(pipe.recv(), Peek):
                pipe.send(sampling.so_far())
                sampling.run(pipe.poll)
            pipe.send(sampling.finish())
