"""Peaks measured on this machine: how fast memory can be copied and matrices multiplied at best.

A data sheet promises what no kernel reaches, and says nothing about a processor's memory. A copy is the simplest
kernel that is bound by memory alone (STREAM's definition: bytes read and written together, over the best time of
several), a large square matrix product the simplest that is bound by computing.

Measuring takes a device's memory and, on a GPU, a CUDA context. So it is done in a process of its own, which
gives both back when it ends: ``python -m pytest_llmperf peaks``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.errors import HardwareError
from pytest_llmperf.machine import cpu_name

__all__ = ["GPU_BYTES", "MATRIX", "DevicePeaks", "cpu_peaks", "gpu_peaks", "hardware_of", "in_own_process"]

_ROUNDS = 10
#: Bytes that a GPU copies: large against any cache, small against any memory.
GPU_BYTES = 2 << 30
_CPU_BYTES_A_CORE = 128 << 20
_CPU_BYTES_AT_MOST = 4 << 30
_TRANSFER_BYTES = 256 << 20
#: Rows and columns of the matrices that it multiplies.
MATRIX = 8192


@dataclass(frozen=True)
class DevicePeaks:
    """What one device reached at best.

    Attributes:
        device: The product name.
        copy_bandwidth: Of a copy within its memory, read and written together, B/s.
        host_to_device: From pinned host memory, B/s; ``None`` for a CPU.
        device_to_host: To pinned host memory, B/s; ``None`` for a CPU.
        peer_to_peer: To each other GPU by its index, B/s.
        matmul_flops: Of a square matrix product by dtype, FLOP/s.
        method: How it was measured, with sizes and rounds.
    """

    device: str
    copy_bandwidth: float
    host_to_device: float | None = None
    device_to_host: float | None = None
    peer_to_peer: dict[str, float] = field(default_factory=dict)
    matmul_flops: dict[str, float] = field(default_factory=dict)
    method: str = ""


def cpu_peaks() -> DevicePeaks:
    """A copy by all usable cores at once, through numpy.

    Raises:
        HardwareError: numpy is not installed.
    """
    try:
        import numpy as np
    except ImportError:
        raise HardwareError(
            "The memory bandwidth of this CPU cannot be measured: numpy is not installed.",
            remedy="Install it with: pip install numpy",
        ) from None
    cores = len(os.sched_getaffinity(0))
    size = min(_CPU_BYTES_A_CORE, _CPU_BYTES_AT_MOST // cores)
    source = [np.ones(size // 8) for _ in range(cores)]
    target = [np.empty_like(part) for part in source]
    moved = 2 * sum(part.nbytes for part in source)
    with ThreadPoolExecutor(cores) as pool:

        def copy() -> None:
            # numpy lets go of the interpreter's lock while it copies.
            list(pool.map(np.copyto, target, source))

        seconds = _best(copy)
    method = f"numpy copy of {moved // 2 >> 20} MiB by {cores} threads, best of {_ROUNDS}; bytes read + written"
    return DevicePeaks(cpu_name(), moved / seconds, method=method)


def gpu_peaks() -> list[DevicePeaks]:
    """Copies and matrix products on every visible GPU, through PyTorch.

    Raises:
        HardwareError: PyTorch is not installed or sees no GPU.
    """
    try:
        import torch
    except ImportError:
        raise HardwareError(
            "The peaks of the GPUs cannot be measured: PyTorch is not installed.",
            remedy="Install it with: pip install 'pytest-llmperf[vllm]'",
        ) from None
    if not torch.cuda.is_available():
        raise HardwareError("PyTorch sees no GPU.", remedy="Check nvidia-smi and CUDA_VISIBLE_DEVICES.")
    return [_one_gpu(torch, index) for index in range(torch.cuda.device_count())]


def _one_gpu(torch: Any, index: int) -> DevicePeaks:
    here = torch.device("cuda", index)

    def best(work: Callable[[], Any]) -> float:
        def once() -> None:
            work()
            torch.cuda.synchronize(here)

        return _best(once)

    with torch.cuda.device(here):
        source = torch.ones(GPU_BYTES, dtype=torch.uint8, device=here)
        target = torch.empty_like(source)
        copy = 2 * GPU_BYTES / best(lambda: target.copy_(source))
        host = torch.empty(_TRANSFER_BYTES, dtype=torch.uint8, pin_memory=True)
        part = target[:_TRANSFER_BYTES]
        down = _TRANSFER_BYTES / best(lambda: part.copy_(host, non_blocking=True))
        up = _TRANSFER_BYTES / best(lambda: host.copy_(part, non_blocking=True))
        peers = {}
        for other in range(torch.cuda.device_count()):
            if other != index:
                there = torch.empty(_TRANSFER_BYTES, dtype=torch.uint8, device=torch.device("cuda", other))
                peers[str(other)] = _TRANSFER_BYTES / best(lambda there=there: there.copy_(part, non_blocking=True))  # type: ignore[misc]
        flops = {}
        for name in ("float16", "bfloat16"):
            # Random numbers: a board that is limited by its power multiplies zeros faster.
            left, right = (torch.randn(MATRIX, MATRIX, device=here, dtype=getattr(torch, name)) for _ in range(2))
            flops[name] = 2 * MATRIX**3 / best(lambda left=left, right=right: left @ right)  # type: ignore[misc]
    method = (
        f"PyTorch {torch.__version__}: copy of {GPU_BYTES >> 20} MiB (bytes read + written), transfers of "
        f"{_TRANSFER_BYTES >> 20} MiB, {MATRIX}^3 products of random numbers; best of {_ROUNDS}"
    )
    return DevicePeaks(torch.cuda.get_device_name(here), copy, down, up, peers, flops, method)


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs, after one that does not count."""
    work()
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def hardware_of(peaks: DevicePeaks) -> Hardware:
    """The peaks of hardware that no data sheet describes; its FLOPs stay unknown unless they were measured."""
    return Hardware(
        name=peaks.device,
        flops=dict(peaks.matmul_flops),
        peak_bandwidth=peaks.copy_bandwidth,
        memory_bytes=None,
        power_limit_w=None,
        sm_clock_hz=None,
        source=f"measured: {peaks.method}",
    )


def in_own_process(*, on_gpu: bool) -> list[DevicePeaks]:
    """Measure in a process that gives the memory back when it ends.

    Raises:
        HardwareError: it failed; with its last words.
    """
    command = [sys.executable, "-m", "pytest_llmperf", "peaks", "--json", *([] if on_gpu else ["--cpu"])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HardwareError(f"The peaks could not be measured: {error}.") from None
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise HardwareError(f"The peaks could not be measured: {words[-1] if words else 'no message'}")
    return [DevicePeaks(**record) for record in json.loads(done.stdout)]


def as_json(peaks: list[DevicePeaks]) -> str:
    """What :func:`in_own_process` reads."""
    return json.dumps([asdict(one) for one in peaks], indent=1, allow_nan=False)
