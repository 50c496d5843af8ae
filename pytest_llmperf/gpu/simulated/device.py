"""A board that exists in software alone: its engine tells it what it does, and its sensors show it as a product's do.

Every reading is a pure function of what the board did and of the moment: reading changes nothing, and what was read
late equals what would have been read in time. That is what lets a watch read afterwards (:mod:`.watch`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import (
    THROTTLE_CAUSES,
    Activity,
    Board,
    EccErrors,
    GpuProcess,
    Reading,
    RemappedRows,
    Unreadable,
    Utilization,
)
from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.gpu.simulated.products import PRODUCTS
from pytest_llmperf.gpu.simulated.timeline import Timeline

__all__ = ["SimulatedActivityMeter", "SimulatedDevice"]

#: What was used before the board was first looked at: a counter that began at 0 would hide who takes it for a difference.
_COUNTER_START_J = 100_000
#: Bytes that the driver takes for itself.
_RESERVED_BYTES = 640 * 2**20
#: Where the first tick of the sensors lies in their period: nothing that is simulated begins with one.
_PHASE = 0.37
#: How long reading anything but the counter takes. Real ones take a few microseconds; watching a sensor for a second
#: would then be half a million reads.
_READ_NS = 100_000
_MEAN_NS = NS_PER_S
#: NVML says 1/6 s to 1 s, depending on the product.
_UTILIZATION_NS = NS_PER_S // 6
_AMBIENT_C = 27


class SimulatedDevice:
    """Keeps the contract of :class:`pytest_llmperf.gpu.Device`.

    Args:
        product: A key of :data:`~pytest_llmperf.gpu.simulated.products.PRODUCTS`.
        index: Of the board.
        power_scale: A factor on its power.
    """

    def __init__(self, product: str, index: int = 0, *, power_scale: float = 1.0) -> None:
        self.product = PRODUCTS[product]
        self.timeline = Timeline()
        self._board = Board(
            index=index,
            name=self.product.name,
            uuid=f"GPU-sim-{product}-{index}",
            driver="simulated",
            power_limit_w=self.product.power_limit_w,
            memory_bytes=self.product.memory_bytes,
            compute_capability=self.product.compute_capability,
            max_sm_clock_mhz=self.product.max_sm_clock_mhz,
            simulated=True,
        )
        self._power_scale = power_scale
        self._locked_sm: int | None = None
        self._locked_memory: int | None = None
        self._loaded_bytes: int | None = None
        #: The span that was told last: its end, and the shares of bandwidth and FLOPs.
        self._span: tuple[int, float, float] = (0, 0.0, 0.0)
        self._past: Callable[[], int] | None = None
        self._watched: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.history = History(self.timeline.now(), self._resting())

    @property
    def board(self) -> Board:
        """What it is."""
        return self._board

    # What an engine tells it.

    @property
    def max_sm_clock_mhz(self) -> int:
        """The SM clock in MHz at which it runs free."""
        return self.product.max_sm_clock_mhz

    @property
    def max_memory_clock_mhz(self) -> int:
        """The memory clock in MHz at which it runs free."""
        return self.product.max_memory_clock_mhz

    def attach(self, now: Callable[[], int], *, power_scale: float = 1.0) -> None:
        """An engine opens: from now on its clock is the board's.

        Args:
            now: The engine's time in ns.
            power_scale: A factor on the power.
        """
        self.timeline.attach(now)
        present = self.timeline.now()
        self.history.forget(min([present - 2 * _MEAN_NS, *self._watched.values()]))
        self._power_scale = power_scale
        self._span = (present, 0.0, 0.0)
        self._state_changed()

    def detach(self) -> None:
        """The engine has closed; whatever it foretold does not happen."""
        present = self.timeline.now()
        self._span = (present, 0.0, 0.0)
        self._state_changed()
        self.timeline.detach()

    def load(self, size: int) -> None:
        """A model takes so many bytes of the memory."""
        self._loaded_bytes = size
        self._state_changed()

    def unload(self) -> None:
        """Nothing is loaded any more."""
        self._loaded_bytes = None
        self._state_changed()

    def occupy(self, start_ns: int, end_ns: int, *, memory: float, compute: float) -> None:
        """The engine works in this span, which may lie ahead; spans come in the order of time.

        Args:
            start_ns: In the engine's time.
            end_ns: Likewise.
            memory: Share of the peak bandwidth that is used, 0 to 1.
            compute: Share of the FLOPs that are used, of those which the present clock allows, 0 to 1.

        Raises:
            ValueError: it begins before the end of the last one.
        """
        start, end = self.timeline.inside(start_ns), self.timeline.inside(end_ns)
        self.history.change(start, self._working(memory, compute))
        self.history.change(end, self._resting())
        self._span = (end, memory, compute)

    def _state_changed(self) -> None:
        """What was foretold for a work that is under way goes on in the new state."""
        present = self.timeline.now()
        end, memory, compute = self._span
        self.history.cut(present)
        if end > present:
            self.history.change(present, self._working(memory, compute))
            self.history.change(end, self._resting())
        else:
            self.history.change(present, self._resting())

    def _resting(self) -> Level:
        loaded = self._loaded_bytes is not None
        free = self.product.max_sm_clock_mhz if loaded else self.product.idle_mhz
        clock = self._locked_sm or free
        return self._level(clock, self._power_scale * self.product.watts(clock, loaded=loaded))

    def _working(self, memory: float, compute: float) -> Level:
        asked = self._locked_sm or self.product.max_sm_clock_mhz
        loaded = self._loaded_bytes is not None
        watts = self._power_scale * self.product.watts(asked, loaded=loaded, memory=memory, compute=compute)
        limit = self.product.power_limit_w
        if watts <= limit:
            return self._level(asked, watts, busy=True, dram=memory, tensor=compute)
        # The clock is shown to give way; that the work then takes longer is not simulated yet.
        clock = self.product.clock_within(
            limit / self._power_scale, asked, loaded=loaded, memory=memory, compute=compute
        )
        return self._level(clock, limit, busy=True, capped=True, dram=memory, tensor=compute)

    def _level(self, sm_mhz: int, watts: float, **activity: Any) -> Level:
        memory_mhz = self._locked_memory or self.product.max_memory_clock_mhz
        return Level(watts, sm_mhz, memory_mhz, _RESERVED_BYTES + (self._loaded_bytes or 0), **activity)

    # Its time.

    def now(self) -> int:
        """The present in nanoseconds of the clock that drives it, or drove it last."""
        return self.timeline.outside(self.timeline.now())

    def wait(self, seconds: float) -> None:
        """Let time pass, where no engine does."""
        self.timeline.spend(round(seconds * NS_PER_S))

    def as_of(self, moment: Callable[[], int]) -> SimulatedDevice:
        """The same board at other moments of its life, to be read only.

        Args:
            moment: The moment of each reading, in ns of the board's life.
        """
        past = copy.copy(self)
        past._past = moment
        return past

    def keep(self, watcher: object) -> int:
        """Forget nothing from now on until :meth:`release`; the present in ns of the board's life."""
        self._watched[watcher] = present = self.timeline.now()
        return present

    def release(self, watcher: object) -> None:
        """Nobody will ask for it any more."""
        self._watched.pop(watcher, None)

    def _moment(self, cost_ns: int = _READ_NS) -> int:
        return self.timeline.spend(cost_ns) if self._past is None else self._past()

    def _level_now(self) -> Level:
        return self.history.level(self._moment())

    # Its sensors.

    def energy_j(self) -> Reading[float]:
        """Joules: a counter of whole millijoules that steps with its period."""
        at = _tick(self._moment(self.product.counter_read_ns), self.product.counter_period_ns)
        return int((_COUNTER_START_J + self.history.integral("watts", at)) * 1000) / 1000

    def power_w(self) -> Reading[float]:
        """Watts over the window before the last tick."""
        return self._mean_power(self.product.power_window_ns)

    def mean_power_w(self) -> Reading[float]:
        """Watts as a mean over the second before the last tick."""
        return self._mean_power(_MEAN_NS)

    def _mean_power(self, window_ns: int) -> float:
        at = _tick(self._moment(), self.product.power_period_ns)
        return round(self.history.mean("watts", at - window_ns, at), 3)

    def sm_clock_mhz(self) -> int:
        """The SM clock in MHz right now."""
        return self._level_now().sm_mhz

    def memory_clock_mhz(self) -> int:
        """The memory clock in MHz right now."""
        return self._level_now().memory_mhz

    def clock_reasons(self) -> Reading[frozenset[str]]:
        """Idle, or the power cap, or none."""
        level = self._level_now()
        if not level.busy:
            return frozenset({"gpu_idle"})
        return frozenset({"sw_power_cap"} if level.capped else ())

    def throttle_ns(self) -> Mapping[str, Reading[int]]:
        """Nanoseconds by cause; nothing but the power cap throttles it."""
        capped = round(self.history.integral("capped", self._moment()) * NS_PER_S)
        return {**dict.fromkeys(THROTTLE_CAUSES, 0), "sw_power_cap": capped}

    def temperature_c(self) -> Reading[int]:
        """What the power of the last second would heat it to; heat has no inertia here."""
        at = self._moment()
        return round(_AMBIENT_C + self.product.heating_k_per_w * self.history.mean("watts", at - _MEAN_NS, at))

    def slowdown_temperature_c(self) -> Reading[int]:
        """The product's; nothing happens there."""
        return self.product.slowdown_c

    def utilization(self) -> Reading[Utilization]:
        """The share of the last sixth of a second in which something ran, and of the bandwidth that it used."""
        at = self._moment()
        start = at - _UTILIZATION_NS
        return Utilization(self.history.mean("busy", start, at), self.history.mean("dram", start, at))

    def memory_used_bytes(self) -> Reading[int]:
        """Bytes of the driver and of what is loaded."""
        return self._level_now().memory_used

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """None."""
        return ()

    def supported_sm_clocks_mhz(self) -> Reading[tuple[int, ...]]:
        """SM clocks in MHz that it can be locked at, ascending."""
        return self.product.sm_clocks_mhz

    def supported_memory_clocks_mhz(self) -> Reading[tuple[int, ...]]:
        """Memory clocks in MHz that it can be locked at, ascending."""
        return self.product.memory_clocks_mhz

    def persistent(self) -> Reading[bool]:
        """It forgets nothing."""
        return True

    def ecc_errors(self) -> Reading[EccErrors]:
        """There is no memory that could fail."""
        return Unreadable("ECC errors: a simulated board has no memory")

    def remapped_rows(self) -> Reading[RemappedRows]:
        """There is no memory that could fail."""
        return Unreadable("remapped rows: a simulated board has no memory")

    def activity_meter(self) -> Reading[SimulatedActivityMeter]:
        """A meter of its own, started, where the product has performance counters that NVML reads."""
        if not self.product.has_activity:
            return Unreadable("performance counters (GPM): this board has none that NVML reads")
        return SimulatedActivityMeter(self.history, self._moment)

    # Its clocks.

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the SM clock.

        Raises:
            GpuError: the board does not support this one.
        """
        self._check("SM", mhz, self.product.sm_clocks_mhz)
        self._locked_sm = mhz
        self._state_changed()

    def unlock_sm_clock(self) -> None:
        """Let the SM clock run free."""
        self._locked_sm = None
        self._state_changed()

    def lock_memory_clock(self, mhz: int) -> None:
        """Hold the memory clock.

        Raises:
            GpuError: the board does not support this one, or has no other.
        """
        if len(self.product.memory_clocks_mhz) == 1:
            raise GpuError(f"The memory clock of the simulated {self._board.name} cannot be locked: it has but one.")
        self._check("memory", mhz, self.product.memory_clocks_mhz)
        self._locked_memory = mhz
        self._state_changed()

    def unlock_memory_clock(self) -> None:
        """Let the memory clock run free."""
        self._locked_memory = None
        self._state_changed()

    def _check(self, what: str, mhz: int, supported: tuple[int, ...]) -> None:
        if mhz not in supported:
            raise GpuError(
                f"The simulated {self._board.name} has no {what} clock of {mhz} MHz.",
                remedy=f"It has {len(supported)} from {supported[0]} to {supported[-1]} MHz.",
            )


class SimulatedActivityMeter:
    """What a board did between two looks."""

    def __init__(self, history: History, moment: Callable[[], int]) -> None:
        self._history = history
        self._moment: Callable[[], int] | None = moment
        self._before = moment()

    def read(self) -> Reading[Activity]:
        """Since the meter was made or read last."""
        if self._moment is None:
            return Unreadable("performance counters (GPM): the meter is closed")
        before, self._before = self._before, self._moment()
        if self._before <= before:
            return Unreadable("performance counters (GPM): no time has passed since the last sample")
        sm, tensor, dram = (self._history.mean(name, before, self._before) for name in ("busy", "tensor", "dram"))
        return Activity(sm, tensor, dram)

    def close(self) -> None:
        """Nothing to give back; it may be closed again."""
        self._moment = None


def _tick(at_ns: int, period_ns: int) -> int:
    """The last tick of a sensor."""
    phase = round(_PHASE * period_ns)
    return (at_ns - phase) // period_ns * period_ns + phase
