"""However a session with a locked clock ends, each board is unlocked once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pytest_llmperf.gpu.clocks.record import RecordFolder

BUSY = "[boards]\nload = 0.5\n"
WAITS = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("gpu_clock", [{clocks}], indirect=True)
def test_waits(gpu_clock):
    {body}
    pathlib.Path("begun").touch()
    time.sleep(600)
"""


@pytest.fixture
def boards(fake_nvml, monkeypatch, tmp_path):
    fake_nvml.scenario("two-h200", BUSY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return fake_nvml


@pytest.fixture
def begun(pytester, boards):
    """Starts a session in the middle of a test."""
    sessions = []

    def begun(*arguments, clocks="None", body="pass"):
        pytester.makepyfile(test_suite=WAITS.format(clocks=clocks, body=body))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        with Path("output").open("w") as output:
            session = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        sessions.append(session)
        assert eventually(Path("begun").exists), Path("output").read_text()
        return session

    yield begun
    for session in sessions:
        if session.returncode is None:
            session.kill()
            session.wait()


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def told(fake, board):
    return [
        "reset" if "Reset" in call.function else int(call.argument.split("-")[0])
        for call in fake.calls(board=board)
        if "LockedClocks" in call.function
    ]


def nothing_left(fake, *clocks):
    for board in (0, 1):
        assert told(fake, board) == [*clocks, "reset"]
        assert fake.locked(board) is None
    assert RecordFolder().all() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("clocks", "held"), [("None", [900]), ("1200", [900, 1200])])
def test_a_signal(begun, boards, number, clocks, held):
    session = begun("--gpu-clock=900", clocks=clocks)
    assert boards.locked(0) == (held[-1], held[-1])
    session.send_signal(number)
    assert session.wait(60) == pytest.ExitCode.INTERRUPTED
    nothing_left(boards, *held)


@pytest.mark.parametrize("option", [["--gpu-clock=900"], []])
def test_a_session_that_is_killed_outright_is_cleaned_up_after(begun, boards, option):
    session = begun(*option, clocks="None" if option else "900")
    session.kill()
    session.wait()
    killed_ns = time.monotonic_ns()
    assert eventually(lambda: not RecordFolder().all())
    nothing_left(boards, 900)
    assert within_a_second(boards, killed_ns)


def test_also_when_a_forked_child_keeps_its_pipes_open(begun, boards):
    session = begun("--gpu-clock=900", body="pathlib.Path('child').write_text(str(os.fork()))")
    child = psutil.Process(max(child.pid for child in psutil.Process(session.pid).children() if is_fork(child)))
    session.kill()
    session.wait()
    killed_ns = time.monotonic_ns()
    try:
        assert eventually(lambda: not RecordFolder().all())
        nothing_left(boards, 900)
        assert within_a_second(boards, killed_ns)
        assert child.is_running()
    finally:
        child.kill()
        child.wait()
    nothing_left(boards, 900)


def is_fork(process):
    return "pytest_llmperf.gpu.clocks.keeper" not in process.cmdline()


def within_a_second(fake, killed_ns):
    """By the call log; a machine that is busy gets more."""
    times = [call.at_ns for call in fake.calls("nvmlDeviceResetGpuLockedClocks")]
    return max(times) - killed_ns < 1_000_000_000 * (1 + os.getloadavg()[0])


@pytest.mark.parametrize("option", [["--gpu-clock=1200"], ["--gpu-clock=1200", "-n1"], []])
def test_the_next_start_reports_what_the_watchdog_could_not_undo(begun, boards, pytester, option):
    session = begun("--gpu-clock=900")
    (keeper,) = [child for child in psutil.Process(session.pid).children() if not is_fork(child)]
    keeper.kill()
    session.kill()
    session.wait()
    assert boards.locked(0) == boards.locked(1) == (900, 900)
    pytester.makepyfile(
        test_suite="""
        import pytest
        @pytest.mark.parametrize("gpu_clock", [1200], indirect=True)
        def test_one(gpu_clock): assert gpu_clock == 1200
        """
    )
    result = pytester.runpytest_subprocess(*option)
    result.assert_outcomes(passed=1, warnings=0 if option else 1)
    said = "\n".join(result.outlines)
    assert f"Left behind: GPU 0 (NVIDIA H200), GPU 1 (NVIDIA H200) locked at 900 MHz by process {session.pid}" in said
    for board in (0, 1):
        assert told(boards, board)[:3] == [900, "reset", 1200]
        assert told(boards, board).count("reset") == 2


def test_a_release_that_fails_is_shouted_with_the_command(boards, pytester):
    boards.set(1, error__nvmlDeviceResetGpuLockedClocks="UNKNOWN", error__nvmlDeviceResetMemoryLockedClocks="UNKNOWN")
    pytester.makepyfile(test_suite="def test_one(gpu_clock): assert gpu_clock == 900")
    result = pytester.runpytest_subprocess("--gpu-clock=900", "--gpu-memory-clock=2619")
    said = "\n".join(result.errlines)
    assert "STILL LOCKED at 900 MHz (memory 2619 MHz): GPU 1 (NVIDIA H200)" in said
    assert "sudo nvidia-smi -i 1 -rgc; sudo nvidia-smi -i 1 -rmc" in said
    assert "GPU 0" not in said
    assert boards.locked(0) is boards.locked_memory(0) is None
    assert boards.locked(1) == (900, 900)


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [
        ("def test_one(gpu_clock): assert 0\ndef test_two(gpu_clock): pass", [], 1),
        ("def test_one(gpu_clock): assert 0\ndef test_two(gpu_clock): pass", ["-x"], 1),
        ("def test_one(gpu_clock): raise KeyboardInterrupt", [], 2),
        ("def test_one(gpu_clock): raise SystemExit(3)", ["-x"], 1),
    ],
)
def test_both_clocks_are_given_back_once(boards, pytester, text, arguments, status):
    pytester.makepyfile(test_suite=text)
    result = pytester.runpytest_subprocess("--gpu-clock=900", "--gpu-memory-clock=2619", *arguments)
    assert result.ret == status
    for board in (0, 1):
        calls = [call.function for call in boards.calls(board=board) if "LockedClocks" in call.function]
        assert calls == [
            "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceSetMemoryLockedClocks",
            "nvmlDeviceResetMemoryLockedClocks", "nvmlDeviceResetGpuLockedClocks",
        ]  # fmt: skip
    assert RecordFolder().all() == []
