"""The clock under pytest-xdist: the controller holds it once, and a worker's sweep borrows it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pytest_llmperf.gpu.clocks.record import RecordFolder

from .servers import FakeServer

pytest.importorskip("xdist")

BUSY = "[boards]\nload = 0.5\n"
SWEEP = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("gpu_clock", [900, 1400], indirect=True)
def test_swept(llmperf, gpu_clock):
    clock = llmperf.measure(Workload(4, 150)).record["clock"]
    assert clock["observed_mhz"] == {"min": gpu_clock, "median": gpu_clock, "max": gpu_clock}

@pytest.mark.parametrize("gpu_clock", [750, 800], indirect=True)
def test_without_an_engine(gpu_clock):
    assert gpu_clock in (750, 795)  # of two equally near ones the lower

def test_plain(llmperf):
    llmperf.measure(Workload(4, 150))
"""


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    """Runs a suite with two workers against a server on this machine, which has two busy boards."""
    fake_nvml.scenario("two-h200", BUSY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with FakeServer() as server:

        def run(text, *arguments, start=pytester.runpytest_subprocess):
            pytester.makepyfile(test_suite=text)
            pytester.makeini(f"[pytest]\nllmperf_engine = http://{server.address},calibrate=false\n")
            return start("-n2", "-p", "tests.plugin.quick", "-p", "no:cacheprovider", *arguments)

        yield run


PYTEST = (sys.executable, "-m", "pytest")


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def told(fake, board):
    """What a board was told, in order, by process."""
    calls = [call for call in fake.calls(board=board) if "LockedClocks" in call.function]
    return [
        (
            int(call.argument.split("-")[0])
            if "Set" in call.function
            else f"reset{'memory' * ('Memory' in call.function)}"
        )
        for call in calls
    ]


def test_a_sweep_borrows_the_sessions_clock_and_puts_it_back(run, fake_nvml):
    result = run(SWEEP, "--gpu-clock=1500")
    result.assert_outcomes(passed=5)
    for board in (0, 1):
        clocks = told(fake_nvml, board)
        assert clocks[0] == 1500
        assert clocks[-2:] == [1500, "reset"]
        assert clocks.count("reset") == 1
        assert clocks[2:-1:2] == [1500] * 4  # after each of the sweep, whoever made it
        assert sorted(clocks[1:-1:2]) == [750, 795, 900, 1395]
        assert fake_nvml.locked(board) is None
    assert RecordFolder().all() == []


def test_a_sweep_without_a_clock_of_the_session_takes_turns(run, fake_nvml):
    run(SWEEP).assert_outcomes(passed=5)
    for board in (0, 1):
        clocks = told(fake_nvml, board)
        assert clocks[1::2] == ["reset"] * 4
        assert sorted(clocks[::2]) == [750, 795, 900, 1395]
    assert RecordFolder().all() == []


def test_beside_a_memory_clock_of_the_session_the_sm_clock_runs_free_after_a_sweep(run, fake_nvml):
    run(SWEEP, "--gpu-memory-clock=2619").assert_outcomes(passed=5)
    for board in (0, 1):
        clocks = told(fake_nvml, board)
        assert clocks.count("reset") == 4
        assert clocks.count("resetmemory") == 1
        assert clocks[-1] == "resetmemory"
        assert fake_nvml.locked(board) is fake_nvml.locked_memory(board) is None


def test_an_ini_file_may_name_the_engine_and_the_clock_is_locked_all_the_same(run, fake_nvml):
    result = run("def test_one(gpu_clock): assert gpu_clock == 900", "--gpu-clock=903")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["gpu clock: 900 MHz locked (903 MHz asked for) on GPU 0*"])
    assert told(fake_nvml, 0) == [900, "reset"]


def test_a_clock_that_cannot_be_held_ends_the_session_before_any_worker_starts(run, fake_nvml):
    fake_nvml.scenario("v100")
    result = run(SWEEP, "--gpu-memory-clock=877")
    assert result.ret == 4
    assert any("GPU 0 (Tesla V100-SXM2-32GB) cannot hold its memory clock" in line for line in result.stderr.lines)
    assert told(fake_nvml, 0).count("reset") == 0


def test_a_worker_that_is_killed_in_a_sweep_leaves_nothing_behind(run, fake_nvml):
    text = """
import os, signal, pytest
@pytest.mark.parametrize("gpu_clock", [900], indirect=True)
def test_dies(gpu_clock): os.kill(os.getpid(), signal.SIGKILL)
def test_lives(gpu_clock): pass
"""
    result = run(text, "--gpu-memory-clock=2619")
    assert result.ret == 1
    for board in (0, 1):
        assert told(fake_nvml, board)[:2] == [2619, 900]
        assert sorted(map(str, told(fake_nvml, board)))[-2:] == ["reset", "resetmemory"]
        assert fake_nvml.locked(board) is fake_nvml.locked_memory(board) is None
    assert RecordFolder().all() == []


def test_an_interrupted_session_is_not_locked_again_by_a_worker_in_a_sweep(run, fake_nvml, pytester):
    text = """
import pathlib, time, pytest
@pytest.mark.parametrize("gpu_clock", [900], indirect=True)
def test_long(gpu_clock):
    pathlib.Path("begun").touch()
    time.sleep(600)
"""
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = run(text, "--gpu-clock=1500", start=lambda *given: pytester.popen([*PYTEST, *given], **nowhere))
    eventually((pytester.path / "begun").exists)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    assert all(eventually(lambda child=child: gone(child)) for child in children)
    for board in (0, 1):
        assert told(fake_nvml, board) == [1500, 900, "reset"]
        assert fake_nvml.locked(board) is None
    assert RecordFolder().all() == []
