"""The boards: which are in use, what their sensors say, and the clock that they are held at.

A sensor that a board or its driver refuses is nothing unusual: half of NVML is not to be had on the one generation or
the other. So no reading raises. It is a :data:`Reading`: the value, or :class:`Unreadable` with the driver's words,
which end up as the reason of a quantity that is ``null``. What *changes* a board (locking a clock) does raise, a
:class:`~pytest_llmperf.errors.GpuError`: who asked for it must not go on without it.

:class:`Device` is the contract between the boards of one maker, or simulated ones, and everything that reads them.
Nothing here imports a driver's bindings; :mod:`pytest_llmperf.gpu.nvml` does, when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar

__all__ = [
    "THROTTLE_CAUSES",
    "Activity",
    "ActivityMeter",
    "Board",
    "Device",
    "EccErrors",
    "FaultWatch",
    "GpuProcess",
    "MigInstance",
    "Reading",
    "RemappedRows",
    "Unreadable",
    "Utilization",
    "value_or_none",
    "why_unreadable",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Unreadable:
    """What stands for a value that could not be read.

    Attributes:
        reason: Which reading, and why not, in the driver's words.
        cause: ``"absent"`` where this board or driver just does not have it, ``"lost"`` where the board does not answer
            any more, ``"busy"`` where somebody used it who should not have, ``"other"`` for what is surprising.
    """

    reason: str
    cause: Literal["absent", "lost", "busy", "other"] = field(default="other", compare=False)

    def __bool__(self) -> bool:
        # `if reading:` would treat a reading of 0 W and a refused one alike.
        raise TypeError("a reading has no truth value; ask isinstance(reading, Unreadable)")


#: A value, or why there is none.
Reading: TypeAlias = T | Unreadable


def value_or_none(reading: Reading[T]) -> T | None:
    """The value, or ``None`` where there is none."""
    return None if isinstance(reading, Unreadable) else reading


def why_unreadable(reading: Reading[object]) -> str | None:
    """Why there is no value; ``None`` where there is one."""
    return reading.reason if isinstance(reading, Unreadable) else None


@dataclass(frozen=True)
class MigInstance:
    """A part of a board that works like a board of its own (Multi-Instance GPU).

    Attributes:
        uuid: Such as ``"MIG-c7384736-a75d-5afc-978f-d2f1294409fd"``.
        gpu_instance: The id of its GPU instance: memory and the SMs that go with it.
        compute_instance: The id of its compute instance within that.
    """

    uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True)
class Board:
    """One GPU as its driver describes it; a field that the driver refuses is ``None``.

    Attributes:
        index: NVML's index, which is nvidia-smi's and need not be CUDA's.
        name: The product name, such as ``"NVIDIA H200"``.
        uuid: Of this very board.
        driver: The driver's version.
        power_limit_w: The enforced power limit in watts.
        memory_bytes: The board's memory in bytes.
        pci_bus_id: Such as ``"00000000:17:00.0"``.
        compute_capability: CUDA's, such as ``(9, 0)``.
        cores: How many CUDA cores it has.
        max_sm_clock_mhz: The highest SM clock in MHz.
        mig_mode: Whether it is cut into instances, so that CUDA uses these instead of the whole.
        mig_instances: In NVML's order.
        mig: Of these the one in use; the sensors and the clock are still those of the whole board.
        simulated: Whether it exists in software alone.
    """

    index: int
    name: str
    uuid: str
    driver: str
    power_limit_w: float | None
    memory_bytes: int | None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    cores: int | None = None
    max_sm_clock_mhz: int | None = None
    mig_mode: bool = False
    mig_instances: tuple[MigInstance, ...] = ()
    mig: MigInstance | None = None
    simulated: bool = False


@dataclass(frozen=True)
class Utilization:
    """The share of time in which some kernel ran; one that decodes alone shows nearly 1.

    Attributes:
        gpu: Of the last sampling period in which any kernel ran, 0 to 1.
        memory: In which the memory was read or written, 0 to 1.
    """

    gpu: float
    memory: float


@dataclass(frozen=True)
class GpuProcess:
    """A process with a compute context on a board.

    Attributes:
        pid: In the driver's own process namespace.
        memory_bytes: That it holds; ``None`` where the driver does not say.
    """

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class EccErrors:
    """Memory errors since the driver was loaded.

    Attributes:
        corrected: Put right by the error-correcting code.
        uncorrected: Not put right: some result may be wrong.
    """

    corrected: int
    uncorrected: int


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows that were replaced by spare ones.

    Attributes:
        correctable: Because of corrected errors.
        uncorrectable: Because of uncorrected ones.
        pending: Whether one waits for the next reset of the board.
        failed: Whether a replacement failed.
    """

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class Activity:
    """What a board did between two samples of its performance counters, each a share of the most it could do.

    Attributes:
        sm: Of the SMs, how many were busy, 0 to 1.
        tensor: Of the time, how much the tensor cores worked, 0 to 1.
        dram: Of the memory bandwidth, how much was used, 0 to 1.
    """

    sm: Reading[float]
    tensor: Reading[float]
    dram: Reading[float]


#: The causes of throttling that a board keeps a time for, each also the name of a reason for the current clock.
THROTTLE_CAUSES = (
    "sw_power_cap",
    "thermal",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)


class ActivityMeter(Protocol):
    """Measures a board's :class:`Activity` between two calls. Who asked for it closes it."""

    def read(self) -> Reading[Activity]:
        """Since the meter was made or read last."""
        ...

    def close(self) -> None:
        """Give its memory back; it may be closed again."""
        ...


class FaultWatch(Protocol):
    """Collects the faults that a board reports. Who asked for it closes it."""

    def read(self) -> Reading[list[int]]:
        """Their numbers (NVIDIA's Xid), in order, since the watch was made or read last."""
        ...

    def close(self) -> None:
        """Stop to watch; it may be closed again."""
        ...


class Device(Protocol):
    """An open board. Who opened it closes the session that it came from; reading afterwards is ``Unreadable``."""

    @property
    def board(self) -> Board:
        """What it is."""
        ...

    def energy_j(self) -> Reading[float]:
        """Joules since the driver was loaded: a counter that moves in steps; take differences of far ends only."""
        ...

    def power_w(self) -> Reading[float]:
        """Watts right now (over some tens of milliseconds); never a mean over a second."""
        ...

    def mean_power_w(self) -> Reading[float]:
        """Watts as a mean over the last second."""
        ...

    def sm_clock_mhz(self) -> Reading[int]:
        """The SM clock in MHz right now."""
        ...

    def memory_clock_mhz(self) -> Reading[int]:
        """The memory clock in MHz right now."""
        ...

    def clock_reasons(self) -> Reading[frozenset[str]]:
        """Why the clock is what it is right now; ``"gpu_idle"`` and ``"applications_clocks"`` are no throttling."""
        ...

    def throttle_ns(self) -> Mapping[str, Reading[int]]:
        """For each of :data:`THROTTLE_CAUSES` the nanoseconds since the driver was loaded."""
        ...

    def temperature_c(self) -> Reading[int]:
        """The GPU's temperature in degrees Celsius."""
        ...

    def slowdown_temperature_c(self) -> Reading[int]:
        """The temperature in degrees Celsius at which the hardware slows down."""
        ...

    def utilization(self) -> Reading[Utilization]:
        """Of the last sampling period."""
        ...

    def memory_used_bytes(self) -> Reading[int]:
        """Bytes of its memory in use, whoever uses them."""
        ...

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """Who computes on it."""
        ...

    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> Reading[tuple[int, ...]]:
        """SM clocks in MHz that it can be locked at, ascending.

        Args:
            memory_clock_mhz: The memory clock that they go with; ``None`` for the highest.
        """
        ...

    def supported_memory_clocks_mhz(self) -> Reading[tuple[int, ...]]:
        """Memory clocks in MHz that it can be locked at, ascending."""
        ...

    def persistent(self) -> Reading[bool]:
        """Whether the driver stays loaded while nobody uses the board; else it forgets its counters and clocks."""
        ...

    def ecc_errors(self) -> Reading[EccErrors]:
        """Since the driver was loaded."""
        ...

    def remapped_rows(self) -> Reading[RemappedRows]:
        """Over the board's life."""
        ...

    def activity_meter(self) -> Reading[ActivityMeter]:
        """A meter of its own, started."""
        ...

    def fault_watch(self) -> Reading[FaultWatch]:
        """A watch of its own, begun."""
        ...

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the SM clock at ``mhz`` until it is unlocked or the driver is loaded again, whoever lives or dies.

        Raises:
            GpuPermissionError: this user may not.
            GpuError: the driver refused.
        """
        ...

    def unlock_sm_clock(self) -> None:
        """Let the SM clock run free.

        Raises:
            GpuError: the driver refused.
        """
        ...

    def lock_memory_clock(self, mhz: int) -> None:
        """Hold the memory clock at ``mhz``; as :meth:`lock_sm_clock`.

        Raises:
            GpuError: the driver refused, or this board cannot.
        """
        ...

    def unlock_memory_clock(self) -> None:
        """Let the memory clock run free.

        Raises:
            GpuError: the driver refused.
        """
        ...
