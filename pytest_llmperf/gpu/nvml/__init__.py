"""NVML through ``nvidia-ml-py``: the boards of this machine, and those in use.

The driver library is loaded on first use and released at once: a session without a GPU pays one failed load.
:class:`Nvml` keeps it open for whoever reads more than names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import Board, MigInstance, Reading, Unreadable, value_or_none
from pytest_llmperf.gpu.nvml.device import NvmlDevice
from pytest_llmperf.gpu.nvml.driver import Driver
from pytest_llmperf.gpu.nvml.visible import Selection, select

__all__ = ["Board", "Nvml", "boards", "cuda_version", "visible_boards"]

_CLOCK_SM = 1


class Nvml:
    """NVML, open: a context manager; sessions may be nested and overlap, for the driver counts them.

    Raises:
        GpuError: on entering: there is no driver, or it does not work.
    """

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._devices: list[NvmlDevice] = []

    def open(self) -> None:
        """Begin the session.

        Raises:
            GpuError: there is no driver, or it does not work.
        """
        import pynvml

        driver = Driver(pynvml)
        driver.act("start", "nvmlInit")
        self._driver = driver

    def __enter__(self) -> Nvml:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; it may be closed again."""
        for device in self._devices:
            device.close()
        self._devices.clear()
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.read("end", "nvmlShutdown")

    def driver_version(self) -> Reading[str]:
        """The driver's version, such as ``"580.95.05"``."""
        return self._open().read("driver version", "nvmlSystemGetDriverVersion")

    def cuda_version(self) -> Reading[str]:
        """The CUDA version that the driver supports, such as ``"13.0"``."""
        number = self._open().read("CUDA version", "nvmlSystemGetCudaDriverVersion_v2")
        return number if isinstance(number, Unreadable) else f"{number // 1000}.{number % 1000 // 10}"

    def boards(self) -> list[Board]:
        """All boards of this machine in NVML's order.

        Raises:
            GpuError: a board is there and does not answer.
        """
        driver = self._open()
        version = self.driver_version()
        count = driver.act("count the boards", "nvmlDeviceGetCount")
        return [_board(driver, index, str(value_or_none(version) or "unknown")) for index in range(count)]

    def visible(self, environ: Mapping[str, str] = os.environ) -> Selection:
        """The boards that CUDA would use, in its order.

        Args:
            environ: Where ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are looked up.

        Raises:
            GpuError: a board is there and does not answer.
        """
        return select(self.boards(), environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER"))

    def device(self, board: Board) -> NvmlDevice:
        """Open a board; it is closed with this session.

        Raises:
            GpuError: it is gone.
        """
        driver = self._open()
        handle = driver.act(f"open GPU {board.index}", "nvmlDeviceGetHandleByUUID", board.uuid)
        device = NvmlDevice(driver, handle, board)
        self._devices.append(device)
        return device

    def _open(self) -> Driver:
        if self._driver is None:
            raise GpuError("The session with NVML is not open.")
        return self._driver


def boards() -> list[Board]:
    """All boards of this machine in NVML's order; empty when there is no NVIDIA driver.

    Raises:
        GpuError: a board is there and does not answer.
    """
    with _if_there_is_a_driver() as nvml:
        return [] if nvml is None else nvml.boards()


def visible_boards() -> list[Board]:
    """The boards that this process may use, in CUDA's order: none when ``CUDA_VISIBLE_DEVICES`` hides them all.

    Raises:
        GpuError: a board is there and does not answer.
    """
    with _if_there_is_a_driver() as nvml:
        return [] if nvml is None else list(nvml.visible().boards)


def cuda_version() -> str | None:
    """The CUDA version that the driver supports, such as ``"13.0"``; ``None`` without a driver."""
    with _if_there_is_a_driver() as nvml:
        return None if nvml is None else value_or_none(nvml.cuda_version())


@contextmanager
def _if_there_is_a_driver() -> Iterator[Nvml | None]:
    nvml = Nvml()
    try:
        nvml.open()
    except GpuError:
        yield None
        return
    with closing(nvml):
        yield nvml


def _board(driver: Driver, index: int, version: str) -> Board:
    handle = driver.act(f"open GPU {index}", "nvmlDeviceGetHandleByIndex", index)

    def optional(function: str, *arguments: Any) -> Any:
        return value_or_none(driver.read(function, function, handle, *arguments))

    limit_mw = optional("nvmlDeviceGetEnforcedPowerLimit")
    memory = optional("nvmlDeviceGetMemoryInfo")
    pci = optional("nvmlDeviceGetPciInfo")
    mode = optional("nvmlDeviceGetMigMode")
    board = Board(
        index=index,
        name=str(driver.act(f"name GPU {index}", "nvmlDeviceGetName", handle)),
        uuid=str(driver.act(f"identify GPU {index}", "nvmlDeviceGetUUID", handle)),
        driver=version,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        memory_bytes=None if memory is None else int(memory.total),
        pci_bus_id=None if pci is None else _text(pci.busId),
        compute_capability=optional("nvmlDeviceGetCudaComputeCapability"),
        cores=optional("nvmlDeviceGetNumGpuCores"),
        max_sm_clock_mhz=optional("nvmlDeviceGetMaxClockInfo", _CLOCK_SM),
        mig_mode=mode is not None and mode[0] == 1,
    )
    return replace(board, mig_instances=_instances(driver, handle)) if board.mig_mode else board


def _instances(driver: Driver, handle: Any) -> tuple[MigInstance, ...]:
    found = []
    for index in range(value_or_none(driver.read("count", "nvmlDeviceGetMaxMigDeviceCount", handle)) or 0):
        part = driver.read("instance", "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if isinstance(part, Unreadable):
            continue  # places for instances that were not made
        uuid = driver.act("identify a MIG instance", "nvmlDeviceGetUUID", part)
        ids = [
            value_or_none(driver.read("id", function, part))
            for function in ("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId")
        ]
        found.append(MigInstance(_text(uuid), *ids))
    return tuple(found)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
