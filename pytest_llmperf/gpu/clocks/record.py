"""Records of locked clocks: which process has locked which boards.

A lock outlives its process; the driver does not even know who asked for it. So it is written down before it is made
and struck out after it is undone. A record whose process has ended is stale: whoever finds it undoes the lock.

The records are in a folder of this user's. The next boot empties it; where it does not, a record tells by the boot's id
that the boards have forgotten the lock meanwhile. Whoever looks at records and then acts does so under one file lock,
so that of two who find a stale one only one acts.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pytest_llmperf.errors import GpuError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.gpu.clocks.control import BoardId, Clock

__all__ = ["LockRecord", "Owner", "RecordFolder"]

_PATTERN = "llmperf-clock-lock-*.json"


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one that was given the same id.

    Attributes:
        pid: Its id.
        started: When it started, in ticks of the kernel's clock since boot; -1 where that is not to be had.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Owner:
        """A process that runs."""
        found = _started(pid)
        return cls(pid, -1 if found is None else found)

    @property
    def alive(self) -> bool:
        """Whether it still runs. One that has ended and was not waited for does not."""
        started = _started(self.pid)
        return started is not None and self.started in (-1, started)


@dataclass(frozen=True)
class LockRecord:
    """A lock, as it is written down.

    Attributes:
        owner: Who has locked.
        boot: The id of the boot it was made in.
        boards: What is locked.
        clock: At what.
        control: Through whom, as :attr:`pytest_llmperf.gpu.clocks.control.ClockControl.name` says.
        left_over: Whether its process has tried to undo it and could not.
        token: Tells it from other locks of the same process.
    """

    owner: Owner
    boot: str
    boards: tuple[BoardId, ...]
    clock: Clock
    control: str
    left_over: bool = False
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    @classmethod
    def mine(cls, boards: tuple[BoardId, ...], clock: Clock, control: str) -> LockRecord:
        """Of this process."""
        return cls(Owner.of(os.getpid()), boot_id(), boards, clock, control)

    @property
    def name(self) -> str:
        """Of its file."""
        return _PATTERN.replace("*", f"{self.owner.pid}-{self.token}")

    @property
    def stale(self) -> bool:
        """Whether nobody will undo the lock any more."""
        return self.left_over or self.boot != boot_id() or not self.owner.alive

    def at(self, clock: Clock) -> LockRecord:
        """The same lock at another clock."""
        return replace(self, clock=clock)

    def left(self, boards: Iterable[BoardId]) -> LockRecord:
        """What remains of it when these boards could not be unlocked."""
        return replace(self, boards=tuple(boards), left_over=True)

    def __str__(self) -> str:
        names = ", ".join(map(str, self.boards))
        return f"{names} locked at {self.clock} by process {self.owner.pid}"


class RecordFolder:
    """Where the records of this user are.

    Args:
        folder: Another place than the usual one.

    Raises:
        GpuError: the folder cannot be made, or belongs to somebody else.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = _usual_folder() if folder is None else folder
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self._folder.stat().st_uid
        except OSError as error:
            raise GpuError(
                f"{self._folder}, where locked clocks are recorded, cannot be made: {error.strerror}.",
                remedy="Set XDG_RUNTIME_DIR or TMPDIR to a folder that can be written.",
            ) from None
        if owner != os.getuid():
            # In a folder that everybody can write to, anybody may have made one of this name first.
            raise GpuError(
                f"{self._folder}, where locked clocks are recorded, belongs to another user.",
                remedy=f"Remove it: sudo rm -r {self._folder}",
            )

    @property
    def folder(self) -> Path:
        """Its path."""
        return self._folder

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep all others from looking and acting meanwhile; the kernel gives it back when a process dies."""
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def write(self, record: LockRecord) -> None:
        """Write a record, or write it anew.

        Raises:
            GpuError: the folder cannot be written.
        """
        try:
            write_atomically(self._folder / record.name, json.dumps(asdict(record), indent=1) + "\n")
        except OSError as error:
            raise GpuError(
                f"The lock cannot be recorded in {self._folder}, so that nobody could undo it: {error.strerror}.",
                remedy="Make room there, or set XDG_RUNTIME_DIR to a folder that can be written.",
            ) from None

    def remove(self, record: LockRecord) -> None:
        """Strike a record out."""
        (self._folder / record.name).unlink(missing_ok=True)

    def all(self) -> list[LockRecord]:
        """All records that can be read."""
        found = (_parsed(path) for path in sorted(self._folder.glob(_PATTERN)))
        return [record for record in found if record is not None]


def boot_id() -> str:
    """The id of this boot; empty where the kernel does not tell."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _usual_folder() -> Path:
    name = f"llmperf-{os.getuid()}"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    usable = runtime.is_dir() and os.access(runtime, os.W_OK)
    return (runtime if usable else Path(tempfile.gettempdir())) / name


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; ``None`` when it does not run."""
    try:
        # The name, in parentheses, may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _parsed(path: Path) -> LockRecord | None:
    """A record from its file; ``None`` where that holds none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return LockRecord(
            owner=Owner(int(data["owner"]["pid"]), int(data["owner"]["started"])),
            boot=str(data["boot"]),
            boards=tuple(BoardId(int(b["index"]), str(b["uuid"]), str(b["name"])) for b in data["boards"]),
            clock=_clock(data["clock"]),
            control=str(data["control"]),
            left_over=bool(data["left_over"]),
            token=str(data["token"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _clock(data: Mapping[str, object]) -> Clock:
    sm, memory = (value if isinstance(value, int) else None for value in (data["sm_mhz"], data["memory_mhz"]))
    if sm is None and memory is None:
        raise ValueError("nothing is locked")
    return Clock(sm, memory)
