"""Compiles the fake driver library with the system's compiler, once for each state of its source.

``python tests/fake_nvml/build.py`` prints the folder that holds ``libnvidia-ml.so.1``, for ``LD_LIBRARY_PATH``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}")


def compiler() -> str | None:
    """The system's C compiler; ``None`` when there is none."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "cc", "gcc", "clang"))), None)


def build() -> Path:
    """The folder that holds the library: compiled when its source, its flags or the compiler's name have changed.

    Raises:
        RuntimeError: There is no compiler, or it refuses the source; the message holds what it said.
    """
    cc = compiler()
    if cc is None:
        raise RuntimeError("There is no C compiler to build the fake driver library: apt-get install gcc")
    folder = _cache() / _digest(cc)
    if not (folder / LIBRARY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(cc, folder / LIBRARY)
    return folder


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path(tempfile.gettempdir()) / f"cache-{os.getuid()}") / "llmperf-fake-nvml"


def _digest(cc: str) -> str:
    digest = hashlib.sha256(repr((cc, FLAGS)).encode())
    for path in sorted(HERE.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(cc: str, library: Path) -> None:
    # Several processes may build at once: each makes its own, and the last rename wins with the same bytes.
    made = library.with_name(f"{library.name}.{os.getpid()}")
    command = [cc, *FLAGS, "-o", str(made), *map(str, sorted(HERE.glob("*.c"))), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        made.unlink(missing_ok=True)
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    made.replace(library)


if __name__ == "__main__":
    print(build())
