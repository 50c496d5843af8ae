"""The machine and the repository that a run belongs to, as its record keeps them."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["cpu_name", "environment", "repository"]


def environment(boards: Iterable[Any], cuda: str | None) -> dict[str, Any]:
    """Python, platform, processor and boards.

    Args:
        boards: The GPUs in use, as :class:`pytest_llmperf.gpu.nvml.Board`.
        cuda: The CUDA version that the driver supports, or ``None`` without one.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cuda": cuda,
        "gpus": [
            {
                "index": board.index,
                "name": board.name,
                "uuid": board.uuid,
                "driver": board.driver,
                "power_limit_w": board.power_limit_w,
                "memory_bytes": board.memory_bytes,
                "simulated": board.simulated,
            }
            for board in boards
        ],
        "sensor": None,
    }


def cpu_name() -> str:
    """The processor's name with the number of cores that may be used: speed depends on both."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def repository(folder: Path) -> tuple[str | None, bool | None]:
    """The commit of the repository around ``folder`` and whether it has changes; ``None`` outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    return commit, bool(_git(folder, "status", "--porcelain"))


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
