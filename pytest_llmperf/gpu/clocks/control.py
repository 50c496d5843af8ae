"""Who sets a board's clock: this process through the driver, or ``nvidia-smi`` through ``sudo``.

NVML wants root, or CAP_SYS_ADMIN, for it. A runner where only nvidia-smi may be run as root is common enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu import Device

__all__ = ["BoardId", "Clock", "ClockControl", "DeviceControl", "SudoControl", "lock_command", "undo_command"]

_TIMEOUT_S = 30


@dataclass(frozen=True)
class BoardId:
    """What a board is called by those who set its clock.

    Attributes:
        index: NVML's and nvidia-smi's.
        uuid: Of this very board.
        name: The product name.
    """

    index: int
    uuid: str
    name: str

    @classmethod
    def of(cls, device: Device) -> BoardId:
        """Of an open board."""
        return cls(device.board.index, device.board.uuid, device.board.name)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


@dataclass(frozen=True)
class Clock:
    """What to lock.

    Attributes:
        sm_mhz: The SM clock in MHz; ``None`` leaves it alone.
        memory_mhz: The memory clock in MHz; ``None`` leaves it alone.
    """

    sm_mhz: int | None
    memory_mhz: int | None = None

    def __str__(self) -> str:
        memory = f"memory {self.memory_mhz} MHz"
        if self.sm_mhz is None:
            return memory
        return f"{self.sm_mhz} MHz" + (f" ({memory})" if self.memory_mhz is not None else "")


class ClockControl(Protocol):
    """Sets clocks. A lock stays until it is undone, whoever lives or dies."""

    @property
    def name(self) -> str:
        """By which a record of the lock remembers it."""
        ...

    def lock(self, board: BoardId, clock: Clock) -> None:
        """Lock a board, or change what it is locked at.

        Raises:
            GpuPermissionError: this user may not.
            GpuError: the driver refused. Either way nothing of the board is locked then that was not before, and
                an SM clock that was to be locked is free where the memory clock was what was refused.
        """
        ...

    def unlock(self, board: BoardId, *, sm: bool = True, memory: bool = False) -> None:
        """Let the clocks of a board run free.

        Args:
            board: Which.
            sm: Whether its SM clock was locked.
            memory: Whether its memory clock was.

        Raises:
            GpuError: the driver refused.
        """
        ...


def lock_command(board: BoardId, clock: Clock) -> str:
    """What an administrator types to lock a board."""
    options = (("-lgc", clock.sm_mhz), ("-lmc", clock.memory_mhz))
    return "; ".join(f"sudo nvidia-smi -i {board.index} {o} {mhz},{mhz}" for o, mhz in options if mhz is not None)


def undo_command(board: BoardId, *, sm: bool = True, memory: bool = False) -> str:
    """What a user types to undo a lock."""
    options = (("-rgc", sm), ("-rmc", memory))
    return "; ".join(f"sudo nvidia-smi -i {board.index} {option}" for option, locked in options if locked)


class DeviceControl:
    """Sets clocks through open boards.

    Args:
        devices: The open boards by UUID.
    """

    name = "driver"

    def __init__(self, devices: Mapping[str, Device]) -> None:
        self._devices = devices

    def lock(self, board: BoardId, clock: Clock) -> None:
        """Lock a board, or change what it is locked at."""
        device = self._devices[board.uuid]
        if clock.sm_mhz is not None:
            device.lock_sm_clock(clock.sm_mhz)
        if clock.memory_mhz is not None:
            try:
                device.lock_memory_clock(clock.memory_mhz)
            except GpuError as error:
                if clock.sm_mhz is not None:
                    device.unlock_sm_clock()
                raise _no_memory_clock(board, clock.memory_mhz, error) from None

    def unlock(self, board: BoardId, *, sm: bool = True, memory: bool = False) -> None:
        """Let the clocks of a board run free."""
        device = self._devices.get(board.uuid)
        if device is None:
            raise GpuError(f"{board} is not there any more.")
        try:
            if memory:
                device.unlock_memory_clock()
        finally:
            if sm:
                device.unlock_sm_clock()


class SudoControl:
    """Sets clocks by ``sudo -n nvidia-smi``, which never asks for a password: it works or it does not."""

    name = "sudo"

    def lock(self, board: BoardId, clock: Clock) -> None:
        """Lock a board, or change what it is locked at."""
        self._check()
        if clock.sm_mhz is not None:
            self._smi(board, "-lgc", f"{clock.sm_mhz},{clock.sm_mhz}")
        if clock.memory_mhz is not None:
            try:
                self._smi(board, "-lmc", f"{clock.memory_mhz},{clock.memory_mhz}")
            except GpuError as error:
                if clock.sm_mhz is not None:
                    self._smi(board, "-rgc")
                raise _no_memory_clock(board, clock.memory_mhz, error) from None

    def unlock(self, board: BoardId, *, sm: bool = True, memory: bool = False) -> None:
        """Let the clocks of a board run free."""
        try:
            if memory:
                self._smi(board, "-rmc")
        finally:
            if sm:
                self._smi(board, "-rgc")

    def _check(self) -> None:
        for program in ("sudo", "nvidia-smi"):
            if shutil.which(program) is None:
                raise GpuPermissionError(f"There is no {program} here.")
        done = _run(["sudo", "-n", "-l", "nvidia-smi"])
        if done.returncode != 0:
            raise GpuPermissionError(f"`sudo -n nvidia-smi` is not permitted: {_words(done)}.")

    def _smi(self, board: BoardId, *arguments: str) -> None:
        command = ["sudo", "-n", "nvidia-smi", "-i", str(board.index), *arguments]
        done = _run(command)
        # For some refusals nvidia-smi prints "Treating as warning and moving on" and succeeds.
        if done.returncode != 0 or "treating as warning" in done.stdout.lower():
            denied = "password" in done.stderr.lower() or "permission" in (done.stdout + done.stderr).lower()
            raise (GpuPermissionError if denied else GpuError)(f"`{' '.join(command)}` failed: {_words(done)}.")


def _no_memory_clock(board: BoardId, mhz: int, error: GpuError) -> GpuError:
    """Why a board does not lock its memory clock, which is not even possible on all of them."""
    if isinstance(error, GpuPermissionError):
        return error
    return GpuError(
        f"{board} cannot hold its memory clock at {mhz} MHz. {error.problem}",
        remedy="Boards before Ampere cannot at all: leave --gpu-memory-clock out.",
    )


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
            # Ctrl-C on the terminal is not meant for it: half of the boards would stay as they are.
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))


def _words(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said when it failed, in one line."""
    said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    return said.rstrip(".")[:500] or f"exit status {done.returncode}"
