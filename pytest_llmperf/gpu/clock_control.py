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

__all__ = ["BoardId", "Clock", "ClockControl", "DeviceControl", "SudoControl", "undo_command"]

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
        sm_mhz: The SM clock in MHz.
        memory_mhz: The memory clock in MHz; ``None`` leaves it alone.
    """

    sm_mhz: int
    memory_mhz: int | None = None

    def __str__(self) -> str:
        return f"{self.sm_mhz} MHz" + (f" (memory {self.memory_mhz} MHz)" if self.memory_mhz is not None else "")


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
                its SM clock is free where the memory clock was what was refused.
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


def undo_command(board: BoardId, *, memory: bool = False) -> str:
    """What a user types to undo a lock."""
    commands = [f"sudo nvidia-smi -i {board.index} -rgc"]
    if memory:
        commands.append(f"sudo nvidia-smi -i {board.index} -rmc")
    return "; ".join(commands)


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
        device.lock_sm_clock(clock.sm_mhz)
        if clock.memory_mhz is not None:
            try:
                device.lock_memory_clock(clock.memory_mhz)
            except GpuError:
                device.unlock_sm_clock()
                raise

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
        self._smi(board, "-lgc", f"{clock.sm_mhz},{clock.sm_mhz}")
        if clock.memory_mhz is not None:
            try:
                self._smi(board, "-lmc", f"{clock.memory_mhz},{clock.memory_mhz}")
            except GpuError:
                self._smi(board, "-rgc")
                raise

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
