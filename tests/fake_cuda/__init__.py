"""A CUDA driver that is not there: what a process needs to hold contexts, beside the fake boards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.fake_nvml.build import compiler

HERE = Path(__file__).resolve().parent
LIBRARY = "libcuda.so.1"


def build(folder: Path) -> Path:
    """Compile the library into a folder, which is what ``LD_LIBRARY_PATH`` has to name."""
    command = [compiler(), "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(HERE / "fake_cuda.c")], check=True)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """What makes a process that starts now find the library."""
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
