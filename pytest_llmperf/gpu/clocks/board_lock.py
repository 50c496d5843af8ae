"""One lock of some boards, from the first board's to the last board's release: all of them or none.

What :class:`~pytest_llmperf.gpu.clocks.ClockLock` nests and changes is one of these. It is recorded before it is made
and watched as long as it stands. A process that was started by the one that holds the boards makes no lock of its own:
it *lives in* that one, changes its clock for a while, and puts it back. The record follows each change, so that whoever
undoes the lock knows what there is to undo, also when the process in between has died.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu.clocks.control import BoardId, Clock, ClockControl, lock_command
from pytest_llmperf.gpu.clocks.interrupts import uninterrupted
from pytest_llmperf.gpu.clocks.keeper import Keeper
from pytest_llmperf.gpu.clocks.record import LockRecord, RecordFolder
from pytest_llmperf.gpu.clocks.recovery import release_recorded, still_locked, unlock_all

__all__ = ["BoardsLock", "not_permitted"]


class _ReleasedError(GpuError):
    """The lock that this process lived in is no more."""


class BoardsLock:
    """One lock through one control.

    Args:
        control: Who sets the clocks.
        boards: Whose.
        records: Where the lock is recorded; ``None`` leaves it unrecorded and unwatched.
    """

    def __init__(self, control: ClockControl, boards: tuple[BoardId, ...], records: RecordFolder | None) -> None:
        self._control = control
        self._boards = boards
        self._records = records
        self._clock = Clock(None)
        self._record = LockRecord.mine((), self._clock, control.name)
        self._keeper: Keeper | None = None
        self._lent_at: Clock | None = None

    def make(self, clock: Clock) -> None:
        """Lock all boards or none.

        Raises:
            GpuPermissionError: this control may not.
            GpuError: a board refused, or another process holds it.
        """
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
            except GpuPermissionError:
                self._undo(locked)
                raise
            except GpuError as error:
                if self._undo(locked):
                    raise GpuError(f"{error.problem} {_none_locked(locked)}", remedy=error.remedy) from None
                raise
            except BaseException:
                self._undo(locked)
                raise

    def change(self, clock: Clock) -> None:
        """Hold another clock: all boards or none.

        Raises:
            GpuError: a board refused, or the process whose lock this is has released it.
        """
        # What is recorded may be more than the clock held: a change that failed and could not be taken back.
        before, back = self._record.clock, self._clock
        # Until all boards have changed, some may be locked in either way.
        either = Clock(
            before.sm_mhz if clock.sm_mhz is None else clock.sm_mhz,
            before.memory_mhz if clock.memory_mhz is None else clock.memory_mhz,
        )
        with _exclusive(self._records):
            if self._lent_at is not None and self._recorded() is None:
                raise _ReleasedError("The process that had locked the clock has released it meanwhile.")
            self._write(either)
            touched: list[BoardId] = []
            try:
                for board in self._boards:
                    touched.append(board)
                    self._move(board, before, clock)
            except BaseException:
                for board in touched:
                    self._move(board, either, back)
                self._write(back)
                raise
            self._clock = clock
            self._write(clock)

    @property
    def lent(self) -> bool:
        """Whether it is another process's, which this one lives in."""
        return self._lent_at is not None

    @contextmanager
    def free(self) -> Iterator[None]:
        """Unlock the boards within the block, and lock all of them again after it; not where it is lent.

        The record stays as it is: the boards are as much this process's as before, and whoever undoes the lock when
        this one has died unlocks them once more.

        Raises:
            GpuError: a board refused.
        """
        try:
            with uninterrupted(), _exclusive(self._records):
                recorded = self._record.clock
                for board in self._boards:
                    sm, memory = recorded.sm_mhz is not None, recorded.memory_mhz is not None
                    self._control.unlock(board, sm=sm, memory=memory)
            yield
        finally:
            if os.getpid() == self._record.owner.pid:  # a forked child has inherited the block, not the lock
                with uninterrupted(), _exclusive(self._records):
                    self._lock_again()

    def _lock_again(self) -> None:
        refusals = []
        for board in self._boards:
            try:
                self._control.lock(board, self._clock)
            except GpuError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def release(self) -> None:
        """Unlock every board, each once, and shout when one refuses; the lock of another process is put back."""
        if self._lent_at is not None:
            with suppress(_ReleasedError):
                self.change(self._lent_at)
            return
        with _exclusive(self._records):
            # A process that lived in this lock may have died before it put the clock back.
            self._record = self._recorded() or self._record
            self._undo(self._boards)

    def borrow(self, owner_pid: int, clock: Clock) -> bool:
        """Live in the lock of another process instead of making one.

        Args:
            owner_pid: The process that has locked.
            clock: At what, and what :meth:`release` puts back.

        Returns:
            Whether that process has locked all these boards through this control.
        """
        if self._records is None:
            return False
        for record in self._records.all():
            ours = {board.uuid for board in self._boards} <= {board.uuid for board in record.boards}
            if record.owner.pid == owner_pid and not record.stale and record.control == self._control.name and ours:
                self._record, self._clock, self._lent_at = record, clock, clock
                return True
        return False

    def _recorded(self) -> LockRecord | None:
        """The record as it stands now; ``None`` where there is none."""
        records = self._records.all() if self._records is not None else []
        return next((record for record in records if record.token == self._record.token), None)

    def _move(self, board: BoardId, before: Clock, after: Clock) -> None:
        self._control.lock(board, after)
        sm = before.sm_mhz is not None and after.sm_mhz is None
        memory = before.memory_mhz is not None and after.memory_mhz is None
        if sm or memory:
            self._control.unlock(board, sm=sm, memory=memory)

    def _write(self, clock: Clock) -> None:
        self._record = self._record.at(clock)
        if self._records is not None:
            self._records.write(self._record)

    def _undo(self, boards: Sequence[BoardId]) -> bool:
        """Unlock boards and strike the record out; whether all of them were unlocked."""
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
        return not refused


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


def _none_locked(released: Sequence[BoardId]) -> str:
    again = f": {', '.join(map(str, released))} had been, and was unlocked again" if released else ""
    return f"No board is locked{again}."


def not_permitted(boards: Sequence[BoardId], clock: Clock, refusals: Sequence[str]) -> GpuPermissionError:
    """The error of a user who may lock in none of the ways there are.

    Args:
        boards: That were to be locked.
        clock: At what.
        refusals: Why each way was refused.
    """
    commands = "; ".join(lock_command(board, clock) for board in boards)
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
