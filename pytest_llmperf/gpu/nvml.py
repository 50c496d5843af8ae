"""What NVML tells of the boards, read through ``nvidia-ml-py``.

The driver library is loaded on first use and released at once: a session without a GPU pays one failed load.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Board", "boards", "cuda_version", "visible_boards"]


@dataclass(frozen=True)
class Board:
    """One GPU as NVML describes it; a field that the driver refuses is ``None``.

    Attributes:
        index: NVML's index (by PCI bus, which need not be CUDA's order).
        name: The product name, such as ``"NVIDIA H200"``.
        uuid: Of this very board.
        driver: The driver's version.
        power_limit_w: The enforced power limit in watts.
        memory_bytes: The board's memory in bytes.
    """

    index: int
    name: str
    uuid: str
    driver: str
    power_limit_w: float | None
    memory_bytes: int | None


def boards() -> list[Board]:
    """All boards of this machine in NVML's order; empty when there is no NVIDIA driver."""
    with _nvml() as nvml:
        if nvml is None:
            return []
        driver = str(nvml.nvmlSystemGetDriverVersion())
        return [_board(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]


def visible_boards() -> list[Board]:
    """The boards that this process may use: none when ``CUDA_VISIBLE_DEVICES`` hides them all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return []
    return boards()


def cuda_version() -> str | None:
    """The CUDA version that the driver supports, such as ``"13.0"``; ``None`` without a driver."""
    with _nvml() as nvml:
        if nvml is None:
            return None
        number = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        return f"{number // 1000}.{number % 1000 // 10}"


def _board(nvml: Any, index: int, driver: str) -> Board:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    limit_mw = _optional(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    memory = _optional(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Board(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        driver=driver,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        memory_bytes=memory,
    )


def _optional(nvml: Any, read: Any) -> Any:
    try:
        return read()
    except nvml.NVMLError:
        return None


@contextmanager
def _nvml() -> Iterator[Any | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
