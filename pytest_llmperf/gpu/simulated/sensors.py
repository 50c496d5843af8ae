"""The sensors of a simulated board.

Every reading is a pure function of what the board did and of the moment: reading changes nothing, and what is read late
equals what would have been read in time. That is what lets a watch read afterwards (:mod:`.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu import (
    THROTTLE_CAUSES,
    Activity,
    Board,
    EccErrors,
    FaultWatch,
    GpuProcess,
    Reading,
    RemappedRows,
    Unreadable,
    Utilization,
)
from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.gpu.simulated.product import Product

__all__ = ["SimulatedActivityMeter", "SimulatedSensors"]

#: What the counter shows at first: one that began at 0 would hide who takes its value for a difference.
_COUNTER_START_J = 100_000
#: Where the first tick of the sensors lies in their period: nothing that is simulated begins with one.
_PHASE = 0.37
#: How long reading anything but the counter takes. Real ones take a few microseconds; watching a sensor for a second
#: would then be half a million reads.
_READ_NS = 100_000
_MEAN_NS = NS_PER_S
#: NVML says 1/6 s to 1 s, depending on the product.
_UTILIZATION_NS = NS_PER_S // 6
_AMBIENT_C = 27
#: A board that has rested for so long says that it is idle: on an H200 not within 0.3 s.
_IDLE_NS = NS_PER_S
#: NVML tells power in milliwatts.
_LAST_DIGIT_W = 0.001
#: A share below this is rounding.
_NOTHING = 1e-9


class SimulatedSensors:
    """What can be read of a board at given moments.

    Args:
        board: What it is.
        product: What its sensors do.
        history: What it did.
        moment: The moment of a reading in ns of the board's life, given how many ns the reading takes.
    """

    def __init__(self, board: Board, product: Product, history: History, moment: Callable[[int], int]) -> None:
        self.product = product
        self.history = history
        self._board = board
        self._moment = moment
        power_ns = product.power_period_ns
        begins = (_phase(power_ns) - product.power_window_ns, power_ns)
        counter_ns = product.counter_period_ns
        #: Phase and period of the moments at which a reading of energy or power looks, each once.
        self._edges = sorted({(_phase(counter_ns), counter_ns), (_phase(power_ns), power_ns), begins})

    @property
    def board(self) -> Board:
        """What it is."""
        return self._board

    def _level_now(self) -> Level:
        return self.history.level(self._moment(_READ_NS))

    def energy_j(self) -> Reading[float]:
        """Joules: a counter of whole millijoules that steps with its period."""
        at = _tick(self._moment(self.product.counter_read_ns), self.product.counter_period_ns)
        return int((_COUNTER_START_J + self.history.integral("watts", at)) * 1000) / 1000

    def power_w(self) -> Reading[float]:
        """Watts over the window before the last tick; of a board at rest flickering by the last digit, as real ones do.

        Who watches the sensor of a board at rest then sees when it is updated.
        """
        at, window_ns = self.power_tick(self._moment(_READ_NS)), self.product.power_window_ns
        flickers = at // self.product.power_period_ns % 2 and self.history.share("busy", at - window_ns, at) < _NOTHING
        return self._mean_power(at, window_ns) + (_LAST_DIGIT_W if flickers else 0.0)

    def mean_power_w(self) -> Reading[float]:
        """Watts as a mean over the second before the last tick."""
        return self._mean_power(self.power_tick(self._moment(_READ_NS)), _MEAN_NS)

    def _mean_power(self, at: int, window_ns: int) -> float:
        return round(self.history.mean("watts", at - window_ns, at), 3)

    def power_tick(self, at_ns: int) -> int:
        """The moment of the board's life, in ns, at which the power reading of a moment was made; it holds since."""
        return _tick(at_ns, self.product.power_period_ns)

    def sm_clock_mhz(self) -> int:
        """The SM clock in MHz right now."""
        return self._level_now().sm_mhz

    def memory_clock_mhz(self) -> int:
        """The memory clock in MHz right now."""
        return self._level_now().memory_mhz

    def clock_reasons(self) -> Reading[frozenset[str]]:
        """The power cap, or none; idle when nothing has run for a second, as between two kernels it is not."""
        at = self._moment(_READ_NS)
        level = self.history.level(at)
        if level.busy:
            return frozenset({"sw_power_cap"} if level.capped else ())
        return frozenset({"gpu_idle"} if self.history.share("busy", at - _IDLE_NS, at) < _NOTHING else ())

    def throttle_ns(self) -> Mapping[str, Reading[int]]:
        """Nanoseconds by cause; nothing but the power cap throttles it."""
        capped = round(self.history.integral("capped", self._moment(_READ_NS)) * NS_PER_S)
        return {**dict.fromkeys(THROTTLE_CAUSES, 0), "sw_power_cap": capped}

    def temperature_c(self) -> Reading[int]:
        """What the power of the last second would heat it to; heat has no inertia here."""
        at = self._moment(_READ_NS)
        return round(_AMBIENT_C + self.product.heating_k_per_w * self.history.mean("watts", at - _MEAN_NS, at))

    def slowdown_temperature_c(self) -> Reading[int]:
        """The product's; nothing happens there."""
        return self.product.slowdown_c

    def utilization(self) -> Reading[Utilization]:
        """The share of the last sixth of a second in which something ran, and of the bandwidth that it used."""
        at = self._moment(_READ_NS)
        start = at - _UTILIZATION_NS
        return Utilization(self.history.share("busy", start, at), self.history.share("dram", start, at))

    def memory_used_bytes(self) -> Reading[int]:
        """Bytes of the driver and of what is loaded."""
        return self._level_now().memory_used

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """None."""
        return ()

    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> Reading[tuple[int, ...]]:
        """SM clocks in MHz that it can be locked at, ascending; the same for every memory clock that it has.

        Args:
            memory_clock_mhz: The memory clock that they go with; the highest one unless told otherwise.
        """
        if memory_clock_mhz is not None and memory_clock_mhz not in self.product.memory_clocks_mhz:
            return Unreadable(f"supported SM clocks: there is no memory clock of {memory_clock_mhz} MHz")
        return self.product.sm_clocks_mhz

    def supported_memory_clocks_mhz(self) -> Reading[tuple[int, ...]]:
        """Memory clocks in MHz that it can be locked at, ascending."""
        return self.product.memory_clocks_mhz

    def persistent(self) -> Reading[bool]:
        """It forgets nothing."""
        return True

    def ecc_errors(self) -> Reading[EccErrors]:
        """There is no memory that could fail."""
        return Unreadable("ECC errors: a simulated board has no memory", "absent")

    def remapped_rows(self) -> Reading[RemappedRows]:
        """There is no memory that could fail."""
        return Unreadable("remapped rows: a simulated board has no memory", "absent")

    def fault_watch(self) -> Reading[FaultWatch]:
        """There is no driver that could tell of faults."""
        return Unreadable("Xid errors: a simulated board has no driver", "absent")

    def activity_meter(self) -> Reading[SimulatedActivityMeter]:
        """A meter of its own, started, where the product has performance counters that NVML reads."""
        if not self.product.has_activity:
            return Unreadable("performance counters (GPM): this board has none that NVML reads")
        return SimulatedActivityMeter(self.history, lambda: self._moment(_READ_NS))

    def counter_ticks(self, start_ns: int, end_ns: int) -> range:
        """The moments of the board's life, in ns, at which the energy counter steps; from start up to the end."""
        period = self.product.counter_period_ns
        return range(_tick(start_ns - 1, period) + period, end_ns + 1, period)

    def next_edge(self, at_ns: int) -> int:
        """The first moment after one, in ns of the board's life, at which a reading of energy or power looks."""
        return min([at_ns - (at_ns - phase) % period + period for phase, period in self._edges])


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
        sm, tensor, dram = (self._history.share(name, before, self._before) for name in ("busy", "tensor", "dram"))
        return Activity(sm, tensor, dram)

    def close(self) -> None:
        """Nothing to give back; it may be closed again."""
        self._moment = None


def _tick(at_ns: int, period_ns: int) -> int:
    """The last tick of a sensor."""
    phase = _phase(period_ns)
    return (at_ns - phase) // period_ns * period_ns + phase


def _phase(period_ns: int) -> int:
    return round(_PHASE * period_ns)
