"""The fixture ``fake_nvml``: boards that are not there, for this process and for those that it starts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fake_nvml.build import LIBRARY, build, compiler

SCENARIOS = Path(__file__).resolve().parent / "scenarios"


@dataclass(frozen=True)
class Call:
    """One line of the call log; ``board`` and ``argument`` are ``None`` where a call has none."""

    at_ns: int
    pid: int
    function: str
    board: int | None
    argument: str | None
    result: str


@dataclass
class FakeNvml:
    """A scenario, the state that outlives processes, and the environment in which pynvml finds them.

    Attributes:
        folder: Of this test: ``scenario.ini`` and ``state/`` are in it.
        library: The folder of the compiled library.
    """

    folder: Path
    library: Path
    _set: dict[int, dict[str, object]] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def path(self) -> Path:
        return self.folder / "scenario.ini"

    def scenario(self, base: str = "h200", extra: str = "") -> None:
        """Writes the scenario that the next ``nvmlInit`` of a process reads.

        Args:
            base: A shipped scenario's name, or a whole scenario (with a section in it).
            extra: Added at the end; a section that is opened again goes on, ``[boards]`` means all of them.
        """
        text = base if "[" in base else (SCENARIOS / f"{base}.ini").read_text()
        _replace(self.path, f"{text}\n{extra}\n")

    def environment(self) -> dict[str, str]:
        """What makes a subprocess's pynvml load this library and read this scenario."""
        others = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        folders = [str(self.library), *(other for other in others if other and other != str(self.library))]
        return {
            "FAKE_NVML_SCENARIO": str(self.path),
            "FAKE_NVML_STATE": str(self.state),
            "LD_LIBRARY_PATH": ":".join(folders),
        }

    def set(self, index: int, **keys: object) -> None:
        """Sets keys of a board while it runs, beside those set before; ``None`` takes one back.

        ``set(0, temperature=90, error__nvmlDeviceGetPowerUsage="GPU_IS_LOST")``: two underscores stand for a dot.
        """
        board = self._set.setdefault(index, {})
        for key, value in keys.items():
            name = key.replace("__", ".")
            board.pop(name, None)
            if value is not None:
                board[name] = value
        _replace(self.state / f"set.{index}", "".join(f"{key} = {value}\n" for key, value in board.items()))

    def load(self, index: int, load: float) -> None:
        """How busy the board is from now on, 0 to 1; no change is lost, however seldom somebody reads."""
        with (self.state / f"load.{index}").open("a") as file:
            file.write(f"{time.monotonic_ns()} {load}\n")

    def xid(self, index: int, code: int) -> None:
        """An Xid error occurs now."""
        events = f"{self._set.get(index, {}).get('xid', '')} {self.elapsed():.6f}:{code}"
        self.set(index, xid=events.strip())

    def elapsed(self) -> float:
        """Seconds since the boards' start stamp, which is made now if no process has made it yet."""
        start = self.state / "start"
        if not start.exists():
            _replace(start, f"{time.monotonic_ns()}\n")
        return (time.monotonic_ns() - int(start.read_text())) / 1e9

    def locked(self, index: int) -> tuple[int, int] | None:
        """The lowest and highest SM clock in MHz that the board is locked to."""
        return _pair(self.state / f"gpu_lock.{index}")

    def locked_memory(self, index: int) -> tuple[int, int] | None:
        return _pair(self.state / f"memory_lock.{index}")

    def calls(self, function: str | None = None, board: int | None = None) -> list[Call]:
        """The calls so far, of all processes; those of a function whose name begins so, those of one board."""
        log = self.state / "calls.log"
        calls = [_call(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [
            call
            for call in calls
            if call.function.startswith(function or "") and (board is None or call.board == board)
        ]

    def forget_calls(self) -> None:
        """Empties the call log."""
        (self.state / "calls.log").write_text("")

    def python(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs Python code in a process of its own that sees the boards."""
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | self.environment() | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def _replace(path: Path, text: str) -> None:
    made = path.with_name(f"{path.name}.new")
    made.write_text(text)
    made.replace(path)


def _pair(path: Path) -> tuple[int, int] | None:
    try:
        low, high = map(int, path.read_text().split())
    except FileNotFoundError:
        return None
    return low, high


def _call(line: str) -> Call:
    at_ns, pid, function, board, argument, result = line.split(" ")
    return Call(
        int(at_ns),
        int(pid),
        function,
        None if board == "-" else int(board),
        None if argument == "-" else argument,
        result,
    )


@pytest.fixture(scope="session")
def fake_nvml_library() -> Path:
    """The folder that holds the compiled library."""
    if compiler() is None:
        pytest.skip("There is no C compiler to build the fake driver library: apt-get install gcc")
    return build()


@pytest.fixture
def fake_nvml(tmp_path: Path, fake_nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """One H200 that is not there, until the test writes another scenario.

    The dynamic linker has read ``LD_LIBRARY_PATH`` long ago, so in this process pynvml is handed the library; a
    process that the test starts finds it by itself.
    """
    import pynvml

    fake = FakeNvml(tmp_path / "fake-nvml", fake_nvml_library)
    fake.state.mkdir(parents=True)
    fake.scenario()
    for name, value in fake.environment().items():
        monkeypatch.setenv(name, value)
    library = ctypes.CDLL(str(fake_nvml_library / LIBRARY))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield fake
    # The next test's boards are opened by the first nvmlInit: one without its nvmlShutdown must not keep these open.
    while library.nvmlShutdown() == pynvml.NVML_SUCCESS:
        continue
