"""Holding the SM clock of all boards in use, and giving it back whatever happens.

A board that runs as fast as heat and power allow gives other figures at noon than at night. Locked at a clock that it
can always hold, it gives the same. But a lock belongs to the board, not to the process: it stays after the process has
ended, and the driver does not tell that there is one. Hence, in the order in which they apply:

- the block that holds the clock unlocks it when it is left, also by Ctrl-C, SIGTERM and SIGHUP, which wait meanwhile;
- at the end of the interpreter whatever is still locked is unlocked;
- when the process is killed outright, a watchdog does it (:mod:`pytest_llmperf.gpu.keeper`);
- when that is killed too, the next session finds the record (:mod:`pytest_llmperf.gpu.recovery`).

Each board is unlocked once. Boards are locked all or none. What an administrator had locked before is not brought back:
NVML cannot be asked what it was.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu import Device, Unreadable
from pytest_llmperf.gpu.clock_control import BoardId, Clock, ClockControl, DeviceControl, SudoControl
from pytest_llmperf.gpu.interrupts import as_interrupts, uninterrupted
from pytest_llmperf.gpu.keeper import Keeper
from pytest_llmperf.gpu.lock_record import LockRecord, RecordFolder
from pytest_llmperf.gpu.recovery import release_recorded, still_locked, unlock_all

__all__ = ["ClockHolder", "ClockLock", "ExpectedClock", "HeldClock", "clock_step", "common_clocks", "snap"]


def snap(mhz: int, supported: Sequence[int]) -> int:
    """The supported clock nearest to ``mhz``, of two equally near ones the lower.

    Args:
        mhz: The clock asked for, in MHz.
        supported: Clocks that can be locked, in MHz.

    Raises:
        GpuError: there is none.
    """
    if not supported:
        raise GpuError("There is no clock that all boards in use can be locked at.", remedy="Leave --gpu-clock out.")
    return min(supported, key=lambda clock: (abs(clock - mhz), clock))


def clock_step(mhz: int, supported: Sequence[int]) -> int:
    """The distance in MHz from a supported clock to its nearest neighbour; 0 without one."""
    return min((abs(clock - mhz) for clock in supported if clock != mhz), default=0)


def common_clocks(devices: Sequence[Device]) -> tuple[int, ...]:
    """SM clocks in MHz that all these boards can be locked at, ascending.

    Raises:
        GpuError: one does not say which it supports.
    """
    found = []
    for device in devices:
        clocks = device.supported_sm_clocks_mhz()
        if isinstance(clocks, Unreadable):
            raise GpuError(f"GPU {device.board.index} ({device.board.name}) does not say its clocks: {clocks.reason}.")
        found.append(set(clocks))
    return tuple(sorted(set.intersection(*found))) if found else ()


@dataclass(frozen=True)
class HeldClock:
    """A clock that was asked for, and what became of it.

    Attributes:
        requested_mhz: As asked for, in MHz.
        locked_mhz: The nearest that all boards in use support, in MHz.
        step_mhz: The distance to the next one they support, in MHz.
        expected: Whether somebody else has to have locked it.
    """

    requested_mhz: int
    locked_mhz: int
    step_mhz: int
    expected: bool

    def __str__(self) -> str:
        what = "expected, as locked by an administrator" if self.expected else "locked"
        asked = f" ({self.requested_mhz} MHz asked for)" if self.requested_mhz != self.locked_mhz else ""
        return f"{self.locked_mhz} MHz {what}{asked}"


class ClockHolder(Protocol):
    """Holds the clock of the boards in use for a block: a lock, or the expectation that somebody else has locked."""

    def hold(self, sm_mhz: int, memory_mhz: int | None = None) -> AbstractContextManager[None]:
        """At this clock within the block, and at the former one after it."""
        ...


class ExpectedClock:
    """Sets nothing: an administrator has locked the clock, and every measurement verifies that it is held."""

    @contextmanager
    def hold(self, sm_mhz: int, memory_mhz: int | None = None) -> Iterator[None]:  # noqa: ARG002  # the contract's names
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
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        controls: Sequence[ClockControl] | None = None,
        folder: Path | None = None,
        guarded: bool = True,
    ) -> None:
        self._boards = tuple(BoardId.of(device) for device in devices)
        default = (DeviceControl({device.board.uuid: device for device in devices}), SudoControl())
        self._controls = tuple(controls) if controls is not None else default
        self._folder = folder
        self._guarded = guarded
        self._held: list[Clock] = []
        self._lock: _Lock | None = None
        self._pid = os.getpid()

    @property
    def clock(self) -> Clock | None:
        """What is held right now; ``None`` when nothing is."""
        return self._held[-1] if self._held else None

    @contextmanager
    def hold(self, sm_mhz: int, memory_mhz: int | None = None) -> Iterator[None]:
        """Hold a clock within the block, and the former one, or none, after it.

        Args:
            sm_mhz: One that all boards support, in MHz.
            memory_mhz: The same for the memory clock; ``None`` leaves it alone.

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

    def _locked(self, clock: Clock) -> _Lock:
        records = RecordFolder(self._folder) if self._guarded else None
        refusals = []
        for control in self._controls:
            lock = _Lock(control, self._boards, records)
            try:
                lock.make(clock)
            except GpuPermissionError as error:
                refusals.append(error.problem)
            else:
                return lock
        raise _not_permitted(self._boards, clock, refusals)


class _Lock:
    """One lock, from the first board's to the last board's release, through one control."""

    def __init__(self, control: ClockControl, boards: tuple[BoardId, ...], records: RecordFolder | None) -> None:
        self._control = control
        self._boards = boards
        self._records = records
        self._clock = Clock(0)
        self._record = LockRecord.mine((), self._clock, control.name)
        self._keeper: Keeper | None = None

    def make(self, clock: Clock) -> None:
        """Lock all boards or none."""
        self._clock = clock
        self._record = LockRecord.mine(self._boards, clock, self._control.name)
        with _exclusive(self._records):
            locked: list[BoardId] = []
            if self._records is not None:
                _make_way(self._records, self._record)
            try:
                if self._records is not None:
                    self._records.write(self._record)
                    self._keeper = Keeper(self._records.folder)
                for board in self._boards:
                    self._control.lock(board, clock)
                    locked.append(board)
            except BaseException:
                self._undo(locked)
                raise

    def change(self, clock: Clock) -> None:
        """Hold another clock: all boards or none."""
        before = self._clock
        # Until all boards have changed, the memory clock of some may be locked.
        memory = before.memory_mhz if clock.memory_mhz is None else clock.memory_mhz
        with _exclusive(self._records):
            self._write(Clock(clock.sm_mhz, memory))
            touched: list[BoardId] = []
            try:
                for board in self._boards:
                    touched.append(board)
                    self._move(board, before, clock)
            except BaseException:
                for board in touched:
                    self._move(board, clock, before)
                self._write(before)
                raise
            self._clock = clock
            self._write(clock)

    def release(self) -> None:
        """Unlock every board, each once, and shout when one refuses."""
        with _exclusive(self._records):
            self._undo(self._boards)

    def _move(self, board: BoardId, before: Clock, after: Clock) -> None:
        self._control.lock(board, after)
        if before.memory_mhz is not None and after.memory_mhz is None:
            self._control.unlock(board, sm=False, memory=True)

    def _write(self, clock: Clock) -> None:
        self._record = self._record.at(clock)
        if self._records is not None:
            self._records.write(self._record)

    def _undo(self, boards: Sequence[BoardId]) -> None:
        refused = unlock_all(self._control, replace(self._record, boards=tuple(boards)))
        if self._records is not None and refused:
            with suppress(GpuError):  # the record as it was is as good: it is stale when we have ended
                self._records.write(self._record.left(refused))
        elif self._records is not None:
            self._records.remove(self._record)
        if self._keeper is not None:
            self._keeper.dismiss()
        if refused:
            _shout(still_locked(self._record, refused))


def _make_way(records: RecordFolder, wanted: LockRecord) -> None:
    """Undo stale locks of others, and refuse to touch boards that a living process holds.

    Raises:
        GpuError: one does.
    """
    for record in records.all():
        if record.stale:
            _warn(str(release_recorded(records, record)))
        elif {board.uuid for board in record.boards} & {board.uuid for board in wanted.boards}:
            remedy = f"Wait until it has ended, or end it with: kill {record.owner.pid}"
            if record.owner == wanted.owner:
                remedy = "That is this very process: nest the blocks of one ClockLock."
            problem = f"The clock cannot be locked at {wanted.clock}: {record}, which still runs."
            raise GpuError(problem, remedy=remedy)


def _not_permitted(boards: Sequence[BoardId], clock: Clock, refusals: Sequence[str]) -> GpuPermissionError:
    commands = "; ".join(f"sudo nvidia-smi -i {b.index} -lgc {clock.sm_mhz},{clock.sm_mhz}" for b in boards)
    return GpuPermissionError(
        f"This user may not lock the clock at {clock}. {' '.join(refusals)}",
        remedy="Three ways out: run as root or with the capability CAP_SYS_ADMIN; or allow `sudo -n nvidia-smi`, which "
        "asks no password, by a line such as `USER ALL=(root) NOPASSWD: /usr/bin/nvidia-smi` in /etc/sudoers.d/; or "
        f"have an administrator lock it ({commands}) and run with --gpu-clock-mode expect.",
    )


def _shout(text: str) -> None:
    print(f"llmperf: {text}", file=sys.stderr, flush=True)
    _warn(text)


def _warn(text: str) -> None:
    warnings.warn(f"llmperf: {text}", stacklevel=2)


@contextmanager
def _exclusive(records: RecordFolder | None) -> Iterator[None]:
    if records is None:
        yield
        return
    with records.exclusive():
        yield
