"""Through sudo: with a sudo and an nvidia-smi of our own in PATH."""

import os

import pytest

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu.clocks import ClockLock
from pytest_llmperf.gpu.clocks.control import BoardId, Clock, SudoControl, lock_command, undo_command
from pytest_llmperf.gpu.clocks.record import RecordFolder
from tests.gpu.devices import NO_PERMISSION, FakeDevice

BOARD = BoardId(3, "GPU-3", "NVIDIA H200")


class Programs:
    """What they were called with, and how they answer."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.log = folder / "log"
        self.sudo()
        self.smi()

    def sudo(self, allowed=True):
        refusal = "echo 'sudo: a password is required' >&2; exit 1"
        self._write("sudo", 'shift; [ "$1" = -l ] && exit 0; exec "$@"' if allowed else refusal)

    def smi(self, script="echo 'All done.'"):
        self._write("nvidia-smi", script)

    def _write(self, name, script):
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $@" >> {self.log}\n{script}\n')
        path.chmod(0o755)

    def calls(self, name):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    found = Programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:{os.environ['PATH']}")
    return found


def test_locks_and_unlocks_one_board(programs):
    SudoControl().lock(BOARD, Clock(1500))
    SudoControl().unlock(BOARD)
    assert programs.calls("sudo") == [
        "-n -l nvidia-smi",
        "-n nvidia-smi -i 3 -lgc 1500,1500",
        "-n nvidia-smi -i 3 -rgc",
    ]
    assert programs.calls("nvidia-smi") == ["-i 3 -lgc 1500,1500", "-i 3 -rgc"]


def test_the_memory_clock_has_commands_of_its_own(programs):
    SudoControl().lock(BOARD, Clock(1500, 2619))
    SudoControl().unlock(BOARD, memory=True)
    SudoControl().unlock(BOARD, sm=False, memory=True)
    assert programs.calls("nvidia-smi") == [
        "-i 3 -lgc 1500,1500", "-i 3 -lmc 2619,2619", "-i 3 -rmc", "-i 3 -rgc", "-i 3 -rmc",
    ]  # fmt: skip
    assert undo_command(BOARD, memory=True) == "sudo nvidia-smi -i 3 -rgc; sudo nvidia-smi -i 3 -rmc"


def test_the_memory_clock_alone(programs):
    SudoControl().lock(BOARD, Clock(None, 2619))
    SudoControl().unlock(BOARD, sm=False, memory=True)
    assert programs.calls("nvidia-smi") == ["-i 3 -lmc 2619,2619", "-i 3 -rmc"]
    assert lock_command(BOARD, Clock(None, 2619)) == "sudo nvidia-smi -i 3 -lmc 2619,2619"
    assert lock_command(BOARD, Clock(900)) == "sudo nvidia-smi -i 3 -lgc 900,900"
    assert undo_command(BOARD, sm=False, memory=True) == "sudo nvidia-smi -i 3 -rmc"


def test_a_password_is_never_asked_for(programs):
    programs.sudo(allowed=False)
    with pytest.raises(GpuPermissionError, match="a password is required"):
        SudoControl().lock(BOARD, Clock(1500))
    assert programs.calls("nvidia-smi") == []


@pytest.mark.parametrize("missing", ["sudo", "nvidia-smi"])
def test_a_program_that_is_not_there_is_no_permission(programs, monkeypatch, missing):
    (programs.folder / missing).unlink()
    monkeypatch.setenv("PATH", str(programs.folder))
    with pytest.raises(GpuPermissionError, match=f"no {missing} here"):
        SudoControl().lock(BOARD, Clock(1500))


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Locked clocks are not supported for GPU 00000000:10:00.0.'; echo 'Treating as warning and moving on.'",
        "echo 'is not supported' >&2; exit 3",
    ],
)
def test_a_refusal_is_an_error_also_where_nvidia_smi_takes_it_for_a_warning(programs, script):
    programs.smi(script)
    with pytest.raises(GpuError, match="not supported") as caught:
        SudoControl().lock(BOARD, Clock(1500))
    assert not isinstance(caught.value, GpuPermissionError)


def test_a_refused_memory_clock_leaves_the_board_as_it_was(programs):
    programs.smi('case "$*" in *-lmc*) echo no; exit 3;; esac')
    with pytest.raises(GpuError, match="-lmc"):
        SudoControl().lock(BOARD, Clock(1500, 2619))
    assert programs.calls("nvidia-smi")[-1] == "-i 3 -rgc"


def test_where_the_driver_lacks_permission_sudo_is_tried_by_itself(programs, tmp_path):
    device = FakeDevice(3, [], refuses={"lock": NO_PERMISSION, "unlock": NO_PERMISSION})
    with ClockLock([device], folder=tmp_path / "records").hold(1500):
        (record,) = RecordFolder(tmp_path / "records").all()
        assert record.control == "sudo"
    assert programs.calls("nvidia-smi") == ["-i 3 -lgc 1500,1500", "-i 3 -rgc"]


def test_where_neither_may_both_say_why(programs, tmp_path):
    programs.sudo(allowed=False)
    device = FakeDevice(3, [], refuses={"lock": NO_PERMISSION})
    with pytest.raises(GpuPermissionError, match=r"Insufficient Permissions.*a password is required"):
        ClockLock([device], folder=tmp_path / "records")._enter(Clock(1500))
