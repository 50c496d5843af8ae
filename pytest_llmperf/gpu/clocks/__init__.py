"""Holding the SM and memory clocks of all boards in use, and giving them back whatever happens.

A board that runs as fast as heat and power allow gives other figures at noon than at night. Locked at a clock that it
can always hold, it gives the same. But a lock belongs to the board, not to the process: it stays after the process has
ended, and the driver does not tell that there is one. Hence, in the order in which they apply:

- the block that holds the clock unlocks it when it is left, also by Ctrl-C, SIGTERM and SIGHUP, which wait meanwhile;
- at the end of the interpreter whatever is still locked is unlocked;
- when the process is killed outright, a watchdog does it (:mod:`pytest_llmperf.gpu.clocks.keeper`);
- when that is killed too, the next session finds the record (:mod:`pytest_llmperf.gpu.clocks.recovery`).

Each board is unlocked once. Boards are locked all or none. What an administrator had locked before is not brought back:
NVML cannot be asked what it was.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu import Device, Reading, Unreadable
from pytest_llmperf.gpu.clocks.board_lock import BoardsLock, not_permitted
from pytest_llmperf.gpu.clocks.control import BoardId, Clock, ClockControl, DeviceControl, SudoControl
from pytest_llmperf.gpu.clocks.interrupts import as_interrupts, uninterrupted
from pytest_llmperf.gpu.clocks.record import RecordFolder

__all__ = [
    "ClockLock",
    "ExpectedClock",
    "HeldClock",
    "SnappedClock",
    "clock_step",
    "common_clocks",
    "common_memory_clocks",
    "snap",
]


def snap(mhz: int, supported: Sequence[int]) -> int:
    """The supported clock nearest to ``mhz``, of two equally near ones the lower.

    Args:
        mhz: The clock asked for, in MHz.
        supported: Clocks that can be locked, in MHz.

    Raises:
        GpuError: there is none.
    """
    if not supported:
        raise GpuError(
            "There is no clock that all boards in use can be locked at.",
            remedy="Leave --gpu-clock and --gpu-memory-clock out.",
        )
    return min(supported, key=lambda clock: (abs(clock - mhz), clock))


def clock_step(mhz: int, supported: Sequence[int]) -> int:
    """The distance in MHz from a supported clock to its nearest neighbour; 0 without one."""
    return min((abs(clock - mhz) for clock in supported if clock != mhz), default=0)


def common_clocks(devices: Sequence[Device], memory_mhz: int | None = None) -> tuple[int, ...]:
    """SM clocks in MHz that all these boards can be locked at, ascending.

    Args:
        devices: The boards.
        memory_mhz: The memory clock that they go with; ``None`` for the highest.

    Raises:
        GpuError: one does not say which it supports.
    """
    return _common(devices, [device.supported_sm_clocks_mhz(memory_mhz) for device in devices])


def common_memory_clocks(devices: Sequence[Device]) -> tuple[int, ...]:
    """Memory clocks in MHz that all these boards can be locked at, ascending.

    Raises:
        GpuError: one does not say which it supports.
    """
    return _common(devices, [device.supported_memory_clocks_mhz() for device in devices])


def _common(devices: Sequence[Device], supported: Sequence[Reading[tuple[int, ...]]]) -> tuple[int, ...]:
    found = []
    for device, clocks in zip(devices, supported, strict=True):
        if isinstance(clocks, Unreadable):
            raise GpuError(f"GPU {device.board.index} ({device.board.name}) does not say its clocks: {clocks.reason}.")
        found.append(set(clocks))
    return tuple(sorted(set.intersection(*found))) if found else ()


@dataclass(frozen=True)
class SnappedClock:
    """A clock that was asked for, and the one that the boards can do.

    Attributes:
        requested_mhz: As asked for, in MHz.
        locked_mhz: The nearest that all boards in use support, in MHz.
        step_mhz: The distance to the next one they support, in MHz.
    """

    requested_mhz: int
    locked_mhz: int
    step_mhz: int

    @classmethod
    def nearest(cls, mhz: int, supported: Sequence[int]) -> SnappedClock:
        """To the one asked for.

        Raises:
            GpuError: none is supported.
        """
        found = snap(mhz, supported)
        return cls(mhz, found, clock_step(found, supported))


@dataclass(frozen=True)
class HeldClock:
    """The clocks that were asked for, and what became of them.

    Attributes:
        sm: The SM clock; ``None`` when it runs free.
        memory: The memory clock; ``None`` when it runs free.
        expected: Whether somebody else has to have locked them.
    """

    sm: SnappedClock | None
    memory: SnappedClock | None = None
    expected: bool = False

    @property
    def requested_mhz(self) -> int | None:
        """The SM clock as asked for, in MHz."""
        return None if self.sm is None else self.sm.requested_mhz

    @property
    def locked_mhz(self) -> int | None:
        """The SM clock that the boards are held at, in MHz."""
        return None if self.sm is None else self.sm.locked_mhz

    @property
    def memory_mhz(self) -> int | None:
        """The memory clock that the boards are held at, in MHz."""
        return None if self.memory is None else self.memory.locked_mhz

    @property
    def key(self) -> str:
        """Equal exactly when the boards are held alike: ``900``, ``900+memory2619``, ``memory2619``."""
        parts = (("", self.locked_mhz), ("memory", self.memory_mhz))
        return "+".join(f"{name}{mhz}" for name, mhz in parts if mhz is not None)

    def __str__(self) -> str:
        what = "expected" if self.expected else "locked"
        parts = []
        for name, clock in (("", self.sm), ("memory ", self.memory)):
            if clock is not None:
                asked = f" ({clock.requested_mhz} MHz asked for)" if clock.requested_mhz != clock.locked_mhz else ""
                parts.append(f"{name}{clock.locked_mhz} MHz {what}{asked}")
        return ", ".join(parts) + (": an administrator has to have locked it" if self.expected else "")


class ExpectedClock:
    """Sets nothing: an administrator has locked the clock, and every measurement verifies that it is held."""

    @contextmanager
    def hold(self, sm_mhz: int | None, memory_mhz: int | None = None) -> Iterator[None]:  # noqa: ARG002  # as a lock has them
        """Nothing is done, nor undone."""
        yield


class ClockLock:
    """Locks the clocks of some boards; blocks that hold one may be nested, and the last to end unlocks.

    Args:
        devices: The boards, open; they must stay open as long as something is held.
        controls: Who may set their clocks, tried in turn where the one before lacks permission. Through the driver,
            then through ``sudo``, unless told otherwise.
        folder: Where the lock is recorded; ``None`` for the usual place.
        guarded: Whether to record the lock and to have it watched: not for simulated boards.
        within: The process that started this one and may hold the boards for both, and its clock: then that lock is
            changed and put back, and never undone from here.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        controls: Sequence[ClockControl] | None = None,
        folder: Path | None = None,
        guarded: bool = True,
        within: tuple[int, Clock] | None = None,
    ) -> None:
        self._boards = tuple(BoardId.of(device) for device in devices)
        default = (DeviceControl({device.board.uuid: device for device in devices}), SudoControl())
        self._controls = tuple(controls) if controls is not None else default
        self._folder = folder
        self._guarded = guarded
        self._within = within
        self._held: list[Clock] = []
        self._lock: BoardsLock | None = None
        self._pid = os.getpid()

    @property
    def clock(self) -> Clock | None:
        """What is held right now; ``None`` when nothing is."""
        return self._held[-1] if self._held else None

    @contextmanager
    def hold(self, sm_mhz: int | None, memory_mhz: int | None = None) -> Iterator[None]:
        """Hold a clock within the block, and the former one, or none, after it.

        Args:
            sm_mhz: One that all boards support, in MHz; ``None`` lets it run free.
            memory_mhz: The same for the memory clock.

        Raises:
            GpuPermissionError: this user may lock in none of the ways there are; the message names them.
            GpuError: a board refused, or another process holds it; nothing is locked, or what was before.
        """
        depth = len(self._held)
        with as_interrupts(signal.SIGTERM, signal.SIGHUP):
            try:
                with uninterrupted():
                    self._enter(Clock(sm_mhz, memory_mhz))
                yield
            finally:
                with uninterrupted():
                    self._return_to(depth)

    @property
    def own(self) -> bool:
        """Whether something is held, and by a lock that this process has made."""
        return self._lock is not None and not self._lock.lent

    @contextmanager
    def free(self) -> Iterator[None]:
        """Let the clocks run free within a block that holds them; after it they are held as before.

        Nobody else can lock the boards meanwhile. Nothing may be held within the block.

        Raises:
            GpuError: a board refused.
        """
        assert self._lock is not None, "nothing is held"
        assert not self._lock.lent, "another process holds it"
        with as_interrupts(signal.SIGTERM, signal.SIGHUP), self._lock.free():
            yield

    def close(self) -> None:
        """Unlock whatever is held, in the process that locked it; it may be closed again."""
        with uninterrupted():
            self._return_to(0)

    def _enter(self, clock: Clock) -> None:
        if self._lock is None:
            self._lock = self._locked(clock)
            atexit.register(self.close)
        else:
            self._lock.change(clock)
        self._held.append(clock)

    def _return_to(self, depth: int) -> None:
        if len(self._held) <= depth:
            return
        if os.getpid() != self._pid:
            self._held.clear()  # a forked child has inherited the block, not the lock
            return
        del self._held[depth:]
        if self._held:
            assert self._lock is not None
            self._lock.change(self._held[-1])
            return
        lock, self._lock = self._lock, None
        atexit.unregister(self.close)
        if lock is not None:
            lock.release()

    def _locked(self, clock: Clock) -> BoardsLock:
        records = RecordFolder(self._folder) if self._guarded else None
        locks = [BoardsLock(control, self._boards, records) for control in self._controls]
        lent = next((lock for lock in locks if self._within is not None and lock.borrow(*self._within)), None)
        if lent is not None:
            lent.change(clock)
            return lent
        refusals = []
        for lock in locks:
            try:
                lock.make(clock)
            except GpuPermissionError as error:
                refusals.append(error.problem)
            else:
                return lock
        raise not_permitted(self._boards, clock, refusals)
