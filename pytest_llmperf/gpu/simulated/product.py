"""A simulated product as its driver tells it: whole nanoseconds, whole MHz, bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.simulation.board import BoardModel

__all__ = ["Product"]


@dataclass(frozen=True)
class Product:
    """What a board of it says of itself, and how its sensors behave.

    Attributes:
        model: Where all of it comes from.
        name: As its driver gives it.
        compute_capability: CUDA's.
        memory_bytes: Of its memory, as its driver gives it.
        power_limit_w: The data sheet's default limit.
        sm_clocks_mhz: That it can be locked at, ascending; at the last it runs free.
        memory_clocks_mhz: Likewise; a single one cannot be locked.
        idle_mhz: The SM clock while nothing is loaded, unless it is locked.
        counter_period_ns: From one step of the energy counter to the next.
        power_period_ns: From one change of the power reading to the next.
        power_window_ns: What a power reading is the mean of.
        counter_read_ns: How long reading the counter takes.
        heating_k_per_w: Steady temperature above ambient for each watt.
        slowdown_c: Where the hardware would slow down; it does not.
        has_activity: Whether NVML reads its performance counters.
    """

    model: BoardModel
    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    power_limit_w: float
    sm_clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    idle_mhz: int
    counter_period_ns: int
    power_period_ns: int
    power_window_ns: int
    counter_read_ns: int
    heating_k_per_w: float
    slowdown_c: int
    has_activity: bool

    @classmethod
    def named(cls, key: str) -> Product:
        """The product of a board's file.

        Args:
            key: One of :data:`pytest_llmperf.simulation.board.BOARDS`.

        Raises:
            HardwareError: There is no such file, or what stands in it is not complete.
        """
        return _product(BoardModel.named(key))

    @property
    def max_sm_clock_mhz(self) -> int:
        """The highest SM clock in MHz, at which it runs free."""
        return self.sm_clocks_mhz[-1]

    @property
    def max_memory_clock_mhz(self) -> int:
        """The highest memory clock in MHz."""
        return self.memory_clocks_mhz[-1]


def _product(model: BoardModel) -> Product:
    what, sensors, limit = model.product, model.sensors, model.hardware.power_limit_w
    assert limit is not None
    return Product(
        model=model,
        name=what.name,
        compute_capability=what.compute_capability,
        memory_bytes=what.memory_bytes,
        power_limit_w=limit,
        sm_clocks_mhz=what.supported_sm_clocks_mhz,
        memory_clocks_mhz=what.memory_clocks_mhz,
        idle_mhz=what.idle_sm_clock_mhz,
        counter_period_ns=_ns(sensors.counter_period_s),
        power_period_ns=_ns(sensors.power_period_s),
        power_window_ns=_ns(sensors.power_window_s),
        counter_read_ns=_ns(sensors.counter_read_s),
        heating_k_per_w=sensors.heating_k_per_w,
        slowdown_c=round(sensors.slowdown_c),
        has_activity=sensors.has_activity,
    )


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
