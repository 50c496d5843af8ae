"""A lock through the real bindings, and every way in which the process that made it may end."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu.clocks.control import BoardId, Clock
from pytest_llmperf.gpu.clocks.record import LockRecord, Owner, RecordFolder
from pytest_llmperf.gpu.clocks.recovery import release_stale

UUIDS = ("GPU-fa4e0000-0000-4000-8000-000000000000", "GPU-fa4e0000-0000-4000-8000-000000000001")
LOCKER = """
import os, signal, sys, time
from pytest_llmperf.gpu.clocks import ClockLock
from pytest_llmperf.gpu.nvml import Nvml
with Nvml() as nvml:
    devices = [nvml.device(board) for board in nvml.visible().boards]
    lock = ClockLock(devices)
    with lock.hold(1500):
        print("locked", flush=True)
        {body}
"""
FOREVER = "time.sleep(600)"


@pytest.fixture
def boards(fake_nvml, tmp_path, monkeypatch):
    """Two boards, and records in a folder of the test's own."""
    fake_nvml.scenario("two-h200")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return fake_nvml


@pytest.fixture
def start(boards):
    """Starts a process that holds the clock while it runs a body, and returns when it is locked."""
    started = []

    def start(body, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", LOCKER.format(body=body)],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == "locked\n", process.communicate()[1]
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            process.communicate()


def keeper_of(process):
    """The watchdog, once it has become itself."""

    def found():
        children = psutil.Process(process.pid).children()
        return [child for child in children if "pytest_llmperf.gpu.clocks.keeper" in child.cmdline()]

    (keeper,) = eventually(found)
    return keeper


def ignores(process, number):
    """Whether a process ignores a signal, as the kernel has it."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    return mask >> (number - 1) & 1 == 1


def resets(fake):
    return [call.board for call in fake.calls("nvmlDeviceResetGpuLockedClocks")]


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def gone(process):
    return eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def left_nothing(fake, keeper):
    """Each board unlocked once, no record, no watchdog."""
    assert sorted(resets(fake)) == [0, 1]
    assert fake.locked(0) is fake.locked(1) is None
    assert RecordFolder().all() == []
    assert gone(keeper)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("raise RuntimeError('a failing test')", 1),
        ("sys.exit(3)", 3),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)", -signal.SIGINT),
        ("lock.close(); sys.exit(0)", 0),
        ("Left = type(lock).hold(lock, 900); Left.__enter__(); sys.exit(0)", 0),
    ],
)
def test_a_process_that_ends_by_itself(boards, start, body, status):
    process = start(body)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert sorted(resets(boards)) == [0, 1]
    assert boards.locked(0) is boards.locked(1) is None
    assert RecordFolder().all() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_asked_to_end(boards, start, number):
    process = start(FOREVER)
    keeper = keeper_of(process)
    assert boards.locked(0) == boards.locked(1) == (1500, 1500)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    left_nothing(boards, keeper)


def test_a_process_that_is_killed_outright(boards, start):
    process = start(FOREVER)
    keeper = keeper_of(process)
    process.kill()
    process.communicate(timeout=60)
    assert eventually(lambda: not RecordFolder().all())
    left_nothing(boards, keeper)


def test_freed_boards_are_still_held_for_others_and_undone_when_their_process_is_killed(boards, start):
    process = start("with lock.free(): time.sleep(600)")
    keeper = keeper_of(process)
    assert eventually(lambda: boards.locked(0) is boards.locked(1) is None)
    second = boards.python(LOCKER.format(body="pass"))
    assert f"locked at 1500 MHz by process {process.pid}, which still runs" in second.stderr
    process.kill()
    process.communicate(timeout=60)
    assert eventually(lambda: not RecordFolder().all())
    assert gone(keeper)
    assert sorted(resets(boards)) == [0, 0, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_asked_to_end_while_its_boards_are_freed(boards, start, number):
    process = start("with lock.free(): time.sleep(600)")
    keeper = keeper_of(process)
    assert eventually(lambda: len(resets(boards)) == 2)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert boards.locked(0) is boards.locked(1) is None
    assert RecordFolder().all() == []
    assert gone(keeper)


def test_a_process_that_is_killed_while_its_forked_child_keeps_everything_open(boards, start):
    # The parent alone says who its child is: two lines in one pipe may come as one.
    process = start("child = os.fork(); child and print(child, flush=True); time.sleep(600)")
    keeper = keeper_of(process)
    child = psutil.Process(int(process.stdout.readline()))
    process.kill()
    assert eventually(lambda: not RecordFolder().all())
    left_nothing(boards, keeper)
    assert child.is_running()
    child.terminate()  # which it dies of, as if there were no lock
    assert gone(child)
    assert sorted(resets(boards)) == [0, 1]


def test_a_watchdog_that_is_asked_to_end_stays(boards, start):
    process = start(FOREVER)
    keeper = keeper_of(process)
    assert eventually(lambda: ignores(keeper, signal.SIGHUP))  # the last of them
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        keeper.send_signal(number)
    process.kill()
    process.communicate(timeout=60)
    assert eventually(lambda: not RecordFolder().all())
    left_nothing(boards, keeper)


def test_when_the_watchdog_is_killed_too_the_next_start_finds_the_lock(boards, start):
    process = start(FOREVER)
    keeper = keeper_of(process)
    keeper.kill()
    process.kill()
    process.communicate(timeout=60)
    assert gone(keeper)
    assert boards.locked(0) == (1500, 1500)
    assert resets(boards) == []
    (found,) = release_stale()
    assert f"by process {process.pid}" in str(found)
    assert "1500 MHz" in str(found)
    assert str(found).endswith("unlocked now.")
    left_nothing(boards, keeper)
    assert release_stale() == []


def test_the_next_lock_reports_and_undoes_a_stale_one_by_itself(boards, start):
    process = start(FOREVER)
    keeper = keeper_of(process)
    keeper.kill()
    process.kill()
    process.communicate(timeout=60)
    second = start("pass")
    _, said = second.communicate(timeout=60)
    assert f"Left behind: GPU 0 (NVIDIA H200), GPU 1 (NVIDIA H200) locked at 1500 MHz by process {process.pid}" in said
    assert sorted(resets(boards)) == [0, 0, 1, 1]
    assert RecordFolder().all() == []


def test_the_lock_of_a_living_process_is_left_alone(boards, start):
    process = start(FOREVER)
    try:
        assert release_stale() == []
        second = boards.python(LOCKER.format(body="pass"))
        assert second.returncode == 1
        assert f"by process {process.pid}, which still runs" in second.stderr
        assert resets(boards) == []
        assert boards.locked(0) == (1500, 1500)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_only_the_visible_board_is_locked(boards, start):
    process = start("pass", CUDA_VISIBLE_DEVICES="1")
    process.communicate(timeout=60)
    assert resets(boards) == [1]
    assert {call.board for call in boards.calls("nvmlDeviceSetGpuLockedClocks")} == {1}


def test_the_second_board_refuses(boards):
    boards.scenario("two-h200", "[board 1]\nerror.nvmlDeviceSetGpuLockedClocks = NOT_SUPPORTED")
    done = boards.python(LOCKER.format(body="pass"))
    assert "GpuError" in done.stderr
    assert "locked" not in done.stdout
    assert resets(boards) == [0]
    assert RecordFolder().all() == []


def test_without_permission(boards, tmp_path):
    boards.scenario("no-permission")
    done = boards.python(LOCKER.format(body="pass"), PATH=str(tmp_path))
    for words in ("Insufficient Permissions", "CAP_SYS_ADMIN", "no sudo here", "--gpu-clock-mode expect"):
        assert words in done.stderr
    assert boards.locked(0) is None
    assert resets(boards) == []
    assert RecordFolder().all() == []


def test_a_release_that_the_driver_refuses_is_shouted_and_tried_again_at_the_next_start(boards, start):
    process = start(FOREVER)
    boards.set(0, error__nvmlDeviceResetGpuLockedClocks="UNKNOWN")
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert "STILL LOCKED at 1500 MHz: GPU 0 (NVIDIA H200)" in said
    assert "sudo nvidia-smi -i 0 -rgc" in said
    assert sorted(resets(boards)) == [0, 1]
    (refused,) = release_stale()
    assert "STILL LOCKED" in str(refused)
    boards.set(0, error__nvmlDeviceResetGpuLockedClocks=None)
    (done,) = release_stale()
    assert [board.index for board in done.record.boards] == [0]
    assert str(done).endswith("unlocked now.")
    assert boards.locked(0) is None


class TestRecords:
    board = BoardId(0, UUIDS[0], "NVIDIA H200")

    def test_a_process_id_that_was_given_out_again_is_nobody(self):
        me = Owner.of(os.getpid())
        assert me.alive
        assert not replace(me, started=me.started - 1).alive
        assert not Owner(2**22 + 1, 5).alive

    def test_of_another_boot_only_the_record_is_left(self, boards):
        records = RecordFolder()
        records.write(replace(LockRecord.mine((self.board,), Clock(1500), "driver"), boot="another"))
        (found,) = release_stale()
        assert found.still_locked == {}
        assert RecordFolder().all() == []
        assert boards.calls() == []

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "null", '{"owner": 3}', '{"owner": {"pid": "x", "started": 1}}', "\0"]
    )
    def test_what_cannot_be_read_is_no_record(self, boards, text):
        records = RecordFolder()
        (records.folder / "llmperf-clock-lock-1-aa.json").write_text(text)
        assert records.all() == []
        assert release_stale() == []

    @pytest.mark.parametrize("clock", [Clock(1500, 2619), Clock(1500), Clock(None, 2619)])
    def test_is_what_was_written(self, boards, clock):
        record = LockRecord.mine((self.board,), clock, "sudo")
        records = RecordFolder()
        records.write(record)
        assert records.all() == [record]
        assert json.loads((records.folder / record.name).read_text())["owner"]["pid"] == os.getpid()

    def test_a_board_that_is_gone_is_still_locked_for_all_we_know(self, boards):
        gone = BoardId(7, "GPU-gone", "NVIDIA H200")
        dead = Owner(2**22 + 1, 5)
        RecordFolder().write(replace(LockRecord.mine((gone,), Clock(1500), "driver"), owner=dead))
        (found,) = release_stale()
        assert "GPU 7 (NVIDIA H200) is not there any more" in str(found)

    def test_without_a_driver_nothing_is_struck_out(self, boards):
        boards.scenario(
            "two-h200", "[system]\nerror.nvmlInit = DRIVER_NOT_LOADED\nerror.nvmlInitWithFlags = DRIVER_NOT_LOADED"
        )
        dead = Owner(2**22 + 1, 5)
        RecordFolder().write(replace(LockRecord.mine((self.board,), Clock(1500), "driver"), owner=dead))
        (found,) = release_stale()
        assert "Driver Not Loaded" in str(found)
        assert len(RecordFolder().all()) == 1

    def test_a_folder_of_somebody_else_is_not_trusted(self, tmp_path, monkeypatch):
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        with pytest.raises(GpuError, match="another user"):
            RecordFolder(tmp_path)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(GpuError, match="file/records"):
            RecordFolder(tmp_path / "file" / "records")

    def test_without_a_runtime_folder_they_are_among_the_temporary_files(self, tmp_path, monkeypatch):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert RecordFolder().folder == tmp_path / f"llmperf-{os.getuid()}"
