"""One board through NVML: readings that never raise, and locks that do.

Two facts shape the power readings. ``nvmlDeviceGetPowerUsage`` means different things by generation: the power of some
tens of milliseconds up to Volta, Turing and the A100's chip, the mean of a whole second on every later one. Newer
drivers have both under numbers of their own (field 186 and 185), so these come first, and the old function stands in
only for what it is on that board. A field value carries its own return code beside that of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from pytest_llmperf.gpu.nvml.driver import Driver
from pytest_llmperf.gpu.nvml.faults import NvmlFaultWatch

__all__ = ["NvmlActivityMeter", "NvmlDevice"]

# Numbers of nvml.h; not all have a name in the oldest bindings that we work with.
_FIELD_POWER_MEAN = 185
_FIELD_POWER_INSTANT = 186
#: Nanoseconds by cause, in the order of THROTTLE_CAUSES.
_FIELDS_THROTTLE = (74, 75, 76, 269, 270, 271)
_CLOCK_SM = 1
_CLOCK_MEMORY = 2
_TEMPERATURE_GPU = 0
_THRESHOLD_SLOWDOWN = 1
_ECC_VOLATILE = 0
_ECC_CORRECTED, _ECC_UNCORRECTED = 0, 1
_GPM_SM, _GPM_TENSOR, _GPM_DRAM = 2, 5, 10
#: Which part of a field's value holds it, by the field's type.
_VALUE_PARTS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
#: By bit of the reasons for the current clock.
_REASONS = (
    "gpu_idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks",
    "board_limit",
    "reliability",
)


class NvmlDevice:
    """A board, open; keeps the contract of :class:`pytest_llmperf.gpu.Device`."""

    def __init__(self, driver: Driver, handle: Any, board: Board) -> None:
        self._driver = driver
        self._handle = handle
        self._board = board
        self._meters: list[NvmlActivityMeter] = []
        self._watches: list[NvmlFaultWatch] = []

    @property
    def board(self) -> Board:
        """What it is."""
        return self._board

    def close(self) -> None:
        """Close its meters and watches; the rest belongs to the session."""
        for meter in self._meters:
            meter.close()
        self._meters.clear()
        for watch in self._watches:
            watch.close()
        self._watches.clear()

    def energy_j(self) -> Reading[float]:
        """Joules since the driver was loaded; Volta and newer."""
        return _scaled(self._read("energy counter", "nvmlDeviceGetTotalEnergyConsumption"), 1000)

    def power_w(self) -> Reading[float]:
        """Watts over some tens of milliseconds."""
        field = self._fields("instantaneous power", _FIELD_POWER_INSTANT)[0]
        if isinstance(field, Unreadable) and not self._usage_is_a_mean():
            return _scaled(self._read("power", "nvmlDeviceGetPowerUsage"), 1000)
        return _scaled(field, 1000)

    def mean_power_w(self) -> Reading[float]:
        """Watts as a mean over the last second."""
        field = self._fields("mean power", _FIELD_POWER_MEAN)[0]
        if isinstance(field, Unreadable) and self._usage_is_a_mean():
            return _scaled(self._read("power", "nvmlDeviceGetPowerUsage"), 1000)
        return _scaled(field, 1000)

    def _usage_is_a_mean(self) -> bool:
        """Whether ``nvmlDeviceGetPowerUsage`` is: Ampere other than GA100, and newer; when in doubt it is."""
        capability = self._board.compute_capability
        return capability is None or (capability >= (8, 0) and capability != (8, 0))

    def sm_clock_mhz(self) -> Reading[int]:
        """The SM clock in MHz right now."""
        return self._read("SM clock", "nvmlDeviceGetClockInfo", _CLOCK_SM)

    def memory_clock_mhz(self) -> Reading[int]:
        """The memory clock in MHz right now."""
        return self._read("memory clock", "nvmlDeviceGetClockInfo", _CLOCK_MEMORY)

    def clock_reasons(self) -> Reading[frozenset[str]]:
        """Why the clock is what it is right now."""
        bits = self._read("reasons for the clock", "nvmlDeviceGetCurrentClocksEventReasons")
        if isinstance(bits, Unreadable):  # drivers before 535 know them by their former name
            bits = self._read("reasons for the clock", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return bits if isinstance(bits, Unreadable) else _reasons(bits)

    def throttle_ns(self) -> Mapping[str, Reading[int]]:
        """By cause the nanoseconds since the driver was loaded."""
        return dict(zip(THROTTLE_CAUSES, self._fields("throttle time", *_FIELDS_THROTTLE), strict=True))

    def temperature_c(self) -> Reading[int]:
        """The GPU's temperature in degrees Celsius."""
        degrees: Reading[int] = self._read("temperature", "nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
        if isinstance(degrees, Unreadable):  # its successor, which drivers after CUDA 13 know alone
            return self._read("temperature", "nvmlDeviceGetTemperatureV", _TEMPERATURE_GPU)
        return degrees

    def slowdown_temperature_c(self) -> Reading[int]:
        """The temperature in degrees Celsius at which the hardware slows down."""
        return self._read("slowdown temperature", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN)

    def utilization(self) -> Reading[Utilization]:
        """Of the last sampling period."""
        rates = self._read("utilisation", "nvmlDeviceGetUtilizationRates")
        return rates if isinstance(rates, Unreadable) else Utilization(rates.gpu / 100, rates.memory / 100)

    def memory_used_bytes(self) -> Reading[int]:
        """Bytes of its memory in use, whoever uses them."""
        info = self._read("memory in use", "nvmlDeviceGetMemoryInfo")
        return info if isinstance(info, Unreadable) else int(info.used)

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """Who computes on it."""
        found = self._read("processes", "nvmlDeviceGetComputeRunningProcesses")
        return found if isinstance(found, Unreadable) else tuple(GpuProcess(p.pid, p.usedGpuMemory) for p in found)

    def persistent(self) -> Reading[bool]:
        """Whether the driver stays loaded while nobody uses the board."""
        state = self._read("persistence mode", "nvmlDeviceGetPersistenceMode")
        return state if isinstance(state, Unreadable) else bool(state)

    def ecc_errors(self) -> Reading[EccErrors]:
        """Since the driver was loaded."""
        corrected, uncorrected = (
            self._read("ECC errors", "nvmlDeviceGetTotalEccErrors", kind, _ECC_VOLATILE)
            for kind in (_ECC_CORRECTED, _ECC_UNCORRECTED)
        )
        if isinstance(corrected, Unreadable):
            return corrected
        return uncorrected if isinstance(uncorrected, Unreadable) else EccErrors(corrected, uncorrected)

    def remapped_rows(self) -> Reading[RemappedRows]:
        """Over the board's life."""
        rows = self._read("remapped rows", "nvmlDeviceGetRemappedRows")
        if isinstance(rows, Unreadable):
            return rows
        correctable, uncorrectable, pending, failed = rows
        return RemappedRows(correctable, uncorrectable, bool(pending), bool(failed))

    def supported_memory_clocks_mhz(self) -> Reading[tuple[int, ...]]:
        """Memory clocks in MHz that it can be locked at, ascending."""
        clocks = self._read("supported memory clocks", "nvmlDeviceGetSupportedMemoryClocks")
        return clocks if isinstance(clocks, Unreadable) else tuple(sorted(clocks))

    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> Reading[tuple[int, ...]]:
        """SM clocks in MHz that it can be locked at, ascending.

        Args:
            memory_clock_mhz: The memory clock that they go with; the highest one unless told otherwise.
        """
        if memory_clock_mhz is None:
            memory = self.supported_memory_clocks_mhz()
            if isinstance(memory, Unreadable):
                return memory
            if not memory:
                return Unreadable("supported SM clocks: the driver lists no memory clock that they would go with")
            memory_clock_mhz = memory[-1]
        clocks = self._read("supported SM clocks", "nvmlDeviceGetSupportedGraphicsClocks", memory_clock_mhz)
        return clocks if isinstance(clocks, Unreadable) else tuple(sorted(clocks))

    def activity_meter(self) -> Reading[NvmlActivityMeter]:
        """A meter of its own, started; Hopper and newer."""
        support = self._read("performance counters (GPM)", "nvmlGpmQueryDeviceSupport")
        if isinstance(support, Unreadable):
            return support
        if not support.isSupportedDevice:
            return Unreadable("performance counters (GPM): this board has none that NVML reads")
        meter = NvmlActivityMeter(self._driver, self._handle, self._board)
        self._meters.append(meter)
        return meter

    def fault_watch(self) -> Reading[NvmlFaultWatch]:
        """A watch of its own for Xid errors, begun; Linux only."""
        watch = NvmlFaultWatch.begun(self._driver, self._handle)
        if not isinstance(watch, Unreadable):
            self._watches.append(watch)
        return watch

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the SM clock at ``mhz`` until it is unlocked or the driver is loaded again.

        Raises:
            GpuPermissionError: this user may not.
            GpuError: the driver refused.
        """
        what = f"lock the SM clock of GPU {self._board.index} at {mhz} MHz"
        self._act(what, "nvmlDeviceSetGpuLockedClocks", mhz, mhz)

    def unlock_sm_clock(self) -> None:
        """Let the SM clock run free.

        Raises:
            GpuError: the driver refused.
        """
        self._act(f"unlock the SM clock of GPU {self._board.index}", "nvmlDeviceResetGpuLockedClocks")

    def lock_memory_clock(self, mhz: int) -> None:
        """Hold the memory clock at ``mhz``; Ampere and newer.

        Raises:
            GpuPermissionError: this user may not.
            GpuError: the driver refused.
        """
        what = f"lock the memory clock of GPU {self._board.index} at {mhz} MHz"
        self._act(what, "nvmlDeviceSetMemoryLockedClocks", mhz, mhz)

    def unlock_memory_clock(self) -> None:
        """Let the memory clock run free.

        Raises:
            GpuError: the driver refused.
        """
        self._act(f"unlock the memory clock of GPU {self._board.index}", "nvmlDeviceResetMemoryLockedClocks")

    def _read(self, what: str, function: str, *arguments: Any) -> Reading[Any]:
        return self._driver.read(what, function, self._handle, *arguments)

    def _act(self, what: str, function: str, *arguments: Any) -> None:
        self._driver.act(what, function, self._handle, *arguments)

    def _fields(self, what: str, *numbers: int) -> list[Reading[Any]]:
        """The values of some fields, read in one call."""
        fields = self._read(what, "nvmlDeviceGetFieldValues", list(numbers))
        if isinstance(fields, Unreadable):
            return [fields] * len(numbers)
        return [self._field(what, number, field) for number, field in zip(numbers, fields, strict=True)]

    def _field(self, what: str, number: int, field: Any) -> Reading[Any]:
        words = self._driver.refusal(field.nvmlReturn)
        if words is None and not 0 <= field.valueType < len(_VALUE_PARTS):
            words = f"a value of the unknown type {field.valueType}"
        if words is not None:
            return Unreadable(f"{what}: {words} (field {number})")
        return getattr(field.value, _VALUE_PARTS[field.valueType])


class NvmlActivityMeter:
    """Two samples of the performance counters, taken in turn, and what happened between them."""

    def __init__(self, driver: Driver, handle: Any, board: Board) -> None:
        self._driver = driver
        self._handle = handle
        self._part = board.mig.gpu_instance if board.mig is not None else None
        self._buffers: list[Any] = []
        self._before = self._sample()

    def read(self) -> Reading[Activity]:
        """Since the meter was made or read last."""
        before, self._before = self._before, self._sample()
        for sample in (before, self._before):
            if isinstance(sample, Unreadable):
                return sample
        request = self._driver.bindings.c_nvmlGpmMetricsGet_t()
        request.version = self._driver.bindings.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = before, self._before
        wanted = (_GPM_SM, _GPM_TENSOR, _GPM_DRAM)
        request.numMetrics = len(wanted)
        for place, number in enumerate(wanted):
            request.metrics[place].metricId = number
        answer = self._driver.read("performance counters (GPM)", "nvmlGpmMetricsGet", request)
        self._free(before)
        if isinstance(answer, Unreadable):
            return answer
        return Activity(*(self._share(answer.metrics[place]) for place in range(len(wanted))))

    def close(self) -> None:
        """Give its memory back; it may be closed again."""
        while self._buffers:
            self._free(self._buffers[-1])
        self._before = Unreadable("performance counters (GPM): the meter is closed")

    def _share(self, metric: Any) -> Reading[float]:
        words = self._driver.refusal(metric.nvmlReturn)
        if words is not None:
            return Unreadable(f"performance counters (GPM): {words} (metric {metric.metricId})")
        return float(metric.value) / 100

    def _sample(self) -> Reading[Any]:
        buffer = self._driver.read("performance counters (GPM)", "nvmlGpmSampleAlloc")
        if isinstance(buffer, Unreadable):
            return buffer
        self._buffers.append(buffer)
        which = ("nvmlGpmSampleGet",) if self._part is None else ("nvmlGpmMigSampleGet", self._part)
        taken = self._driver.read("performance counters (GPM)", which[0], self._handle, *which[1:], buffer)
        if isinstance(taken, Unreadable):
            self._free(buffer)
            return taken
        return buffer

    def _free(self, buffer: Any) -> None:
        self._buffers.remove(buffer)
        self._driver.read("performance counters (GPM)", "nvmlGpmSampleFree", buffer)


def _scaled(reading: Reading[Any], divisor: int) -> Reading[float]:
    return reading if isinstance(reading, Unreadable) else float(reading) / divisor


def _reasons(bits: int) -> frozenset[str]:
    names = (*_REASONS, *(f"bit_{place}" for place in range(len(_REASONS), 64)))
    return frozenset(name for place, name in enumerate(names) if bits >> place & 1)
