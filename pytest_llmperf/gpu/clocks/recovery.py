"""Undoing locks: the same steps for the process that locked, its watchdog, and whoever finds a stale record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import Board, Device
from pytest_llmperf.gpu.clocks.control import BoardId, ClockControl, DeviceControl, SudoControl, undo_command
from pytest_llmperf.gpu.clocks.record import LockRecord, RecordFolder, boot_id

__all__ = ["Recovered", "release_recorded", "release_stale", "unlock_all"]


@dataclass(frozen=True)
class Recovered:
    """What became of a stale lock.

    Attributes:
        record: The lock.
        still_locked: By board why it could not be undone.
    """

    record: LockRecord
    still_locked: Mapping[BoardId, str]

    def __str__(self) -> str:
        found = f"Left behind: {self.record}, which did not unlock"
        if not self.still_locked:
            return f"{found}; unlocked now."
        return f"{found}. {still_locked(self.record, self.still_locked)}"


def still_locked(record: LockRecord, refused: Mapping[BoardId, str]) -> str:
    """What to shout when a lock could not be undone: which boards, why, and the commands that undo it."""
    boards = ", ".join(map(str, refused))
    commands = "; ".join(undo_command(board, **_locked(record)) for board in refused)
    whys = " ".join(dict.fromkeys(refused.values()))
    return f"STILL LOCKED at {record.clock}: {boards}. {whys} Undo it with: {commands}"


def unlock_all(control: ClockControl, record: LockRecord) -> dict[BoardId, str]:
    """Let every board of a lock run free, each asked once.

    Returns:
        By board why it is still locked.
    """
    refused = {}
    for board in record.boards:
        try:
            control.unlock(board, **_locked(record))
        except GpuError as error:
            refused[board] = str(error)
    return refused


def _locked(record: LockRecord) -> dict[str, bool]:
    """Which clocks of its boards a record says are locked."""
    return {"sm": record.clock.sm_mhz is not None, "memory": record.clock.memory_mhz is not None}


def release_recorded(records: RecordFolder, record: LockRecord) -> Recovered:
    """Undo a lock from its record and strike it out; boards that refuse stay in it. Within ``records.exclusive()``."""
    if record.boot != boot_id():
        records.remove(record)  # the boards have forgotten it with the reboot
        return Recovered(record, {})
    try:
        with _control(record) as control:
            refused = unlock_all(control, record)
    except GpuError as error:
        refused = dict.fromkeys(record.boards, str(error))
    if refused:
        records.write(record.left(refused))
    else:
        records.remove(record)
    return Recovered(record, refused)


def release_stale(records: RecordFolder | None = None) -> list[Recovered]:
    """Undo all locks whose process has ended; those of a living one are left alone.

    Args:
        records: Where to look; the usual place unless told otherwise.

    Raises:
        GpuError: the records cannot be used.
    """
    records = RecordFolder() if records is None else records
    if not any(record.stale for record in records.all()):
        return []  # the usual case, without a trace
    with records.exclusive():
        return [release_recorded(records, record) for record in records.all() if record.stale]


@contextmanager
def _control(record: LockRecord) -> Iterator[ClockControl]:
    if record.control == SudoControl.name:
        yield SudoControl()
        return
    from pytest_llmperf.gpu.nvml import Nvml

    with Nvml() as nvml:
        devices: dict[str, Device] = {}
        for board in record.boards:
            with suppress(GpuError):  # it is gone: unlocking it says so
                devices[board.uuid] = nvml.device(Board(board.index, board.name, board.uuid, "", None, None))
        yield DeviceControl(devices)
