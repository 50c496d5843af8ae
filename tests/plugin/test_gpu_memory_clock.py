"""``--gpu-memory-clock``: alone or beside the SM clock, snapped, verified, and refused in words where it cannot be."""

import json

import pytest

from pytest_llmperf.gpu.clocks.record import RecordFolder

from .servers import FakeServer

BUSY = "[boards]\nload = 0.5\n"
MEASURE = """
import pytest
from pytest_llmperf import Workload

def test_one(llmperf):
    llmperf.measure(Workload(4, 200))
"""
SWEEP = """
import pytest

@pytest.mark.parametrize("gpu_clock", [900], indirect=True)
def test_swept(gpu_clock):
    assert gpu_clock == 900

def test_plain(gpu_clock):
    assert gpu_clock is None
"""


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    fake_nvml.scenario("two-h200", BUSY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with FakeServer() as server:

        def run(text, *arguments):
            pytester.makepyfile(test_suite=text)
            engine = f"--llmperf-engine=http://{server.address},calibrate=false"
            return pytester.runpytest_inprocess("-p", "no:cacheprovider", engine, "--llmperf-report=report", *arguments)

        yield run


def told(fake, board=0):
    """What a board was told, in order: ``m`` before what concerns its memory clock."""
    return [
        ("m" if "Memory" in call.function else "") + ((call.argument or "").split("-")[0] or "reset")
        for call in fake.calls(board=board)
        if "LockedClocks" in call.function
    ]


def clock(pytester):
    (test,) = json.loads((pytester.path / "report" / "results.json").read_text())["tests"]
    return test["clock"], test["invalid"]


def test_alone_it_is_snapped_said_held_and_given_back(run, fake_nvml, pytester):
    result = run(MEASURE, "--gpu-memory-clock=2700")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["gpu clock: memory 2619 MHz locked (2700 MHz asked for) on GPU 0 *, GPU 1 *"])
    for board in (0, 1):
        assert told(fake_nvml, board) == ["m2619", "mreset"]
    found, invalid = clock(pytester)
    assert invalid is None
    assert found["memory_mhz"]["observed"] == {"min": 2619, "median": 2619, "max": 2619}
    assert (found["memory_mhz"]["requested"], found["memory_mhz"]["locked"]) == (2700, 2619)
    assert (found["requested_mhz"], found["locked_mhz"]) == (None, None)
    assert found["observed_mhz"]["max"] == 1980
    assert RecordFolder().all() == []


def test_a_sweep_of_the_sm_clock_keeps_it(run, fake_nvml):
    run(SWEEP, "--gpu-memory-clock=1593").assert_outcomes(passed=2)
    assert told(fake_nvml)[:2] == ["m1593", "900"]
    assert told(fake_nvml)[-2:] == ["reset", "mreset"]
    assert told(fake_nvml).count("mreset") == 1


def test_the_sm_clocks_are_those_that_go_with_it(run, fake_nvml):
    run(MEASURE, "--gpu-clock=900", "--gpu-memory-clock=1593").assert_outcomes(passed=1)
    asked = [call.argument for call in fake_nvml.calls("nvmlDeviceGetSupportedGraphicsClocks")]
    assert set(asked) == {"1593"}


@pytest.mark.parametrize("arguments", [[], ["--gpu-clock=900"]])
def test_a_board_that_cannot_ends_the_session_with_status_4_by_name(run, fake_nvml, arguments):
    fake_nvml.scenario("v100")
    result = run(MEASURE, "--gpu-memory-clock=877", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "\n".join(result.outlines + result.errlines)
    assert "GPU 0 (Tesla V100-SXM2-32GB) cannot hold its memory clock at 877 MHz" in said
    assert "Not Supported (nvmlDeviceSetMemoryLockedClocks)" in said
    assert "leave --gpu-memory-clock out" in said
    assert "Traceback" not in said
    assert told(fake_nvml) == (["900", "m877", "reset"] if arguments else ["m877"])
    assert RecordFolder().all() == []


def test_when_the_second_board_cannot_the_first_is_released(run, fake_nvml):
    fake_nvml.scenario("two-h200", BUSY + "[board 1]\nerror.nvmlDeviceSetMemoryLockedClocks = NOT_SUPPORTED\n")
    result = run(MEASURE, "--gpu-clock=900", "--gpu-memory-clock=2619")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any("GPU 1 (NVIDIA H200) cannot hold" in line and "No board is locked" in line for line in result.errlines)
    assert told(fake_nvml, 0) == ["900", "m2619", "mreset", "reset"]
    assert told(fake_nvml, 1) == ["900", "m2619", "reset"]


def test_a_board_that_lists_no_memory_clocks_is_named(run, fake_nvml):
    fake_nvml.scenario("two-h200", BUSY + "[board 1]\nerror.nvmlDeviceGetSupportedMemoryClocks = NOT_SUPPORTED\n")
    result = run(MEASURE, "--gpu-memory-clock=2619")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any("GPU 1 (NVIDIA H200) does not say its clocks" in line for line in result.errlines)
    assert told(fake_nvml) == []


def test_without_permission_the_ways_out_name_the_commands_of_both_clocks(run, fake_nvml, monkeypatch, tmp_path):
    fake_nvml.scenario("no-permission")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(MEASURE, "--gpu-clock=900", "--gpu-memory-clock=2619")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "\n".join(result.errlines)
    assert "sudo nvidia-smi -i 0 -lgc 900,900; sudo nvidia-smi -i 0 -lmc 2619,2619" in said
    assert "--gpu-clock-mode expect" in said


@pytest.mark.parametrize("mhz", ["0", "-5"])
def test_a_frequency_is_above_0(run, fake_nvml, mhz):
    result = run(MEASURE, f"--gpu-memory-clock={mhz}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any(f"--gpu-memory-clock is a frequency in MHz, not {mhz}" in line for line in result.errlines)


class TestExpected:
    ARGUMENTS = ("--gpu-memory-clock=2619", "--gpu-clock-mode=expect")

    def test_what_an_administrator_locked_is_verified_and_left(self, run, fake_nvml, pytester):
        for board in (0, 1):
            (fake_nvml.state / f"memory_lock.{board}").write_text("2619 2619\n")
        result = run(MEASURE, *self.ARGUMENTS)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            ["gpu clock: memory 2619 MHz expected: an administrator has to have locked it on GPU 0*"]
        )
        assert clock(pytester)[1] is None
        assert told(fake_nvml) == []
        assert fake_nvml.locked_memory(0) == (2619, 2619)

    def test_what_is_not_there_makes_the_test_invalid(self, run, fake_nvml, pytester):
        run(MEASURE, *self.ARGUMENTS).assert_outcomes(failed=1)
        found, invalid = clock(pytester)
        assert "the memory clock was held at 2619 MHz is refuted" in invalid
        assert invalid.endswith("if nobody has locked it: sudo nvidia-smi -lmc 2619,2619")
        assert found["memory_mhz"]["observed"]["max"] == 3201
        assert told(fake_nvml) == []


def test_a_memory_clock_that_cannot_be_read_proves_nothing(run, fake_nvml, pytester):
    # One function reads both clocks.
    fake_nvml.scenario("two-h200", BUSY + "[boards]\nerror.nvmlDeviceGetClockInfo = UNKNOWN\n")
    run(MEASURE, "--gpu-memory-clock=2619").assert_outcomes(failed=1)
    found, invalid = clock(pytester)
    assert "the memory clock was held at 2619 MHz is refuted or unproven: none of" in invalid
    assert found["memory_mhz"]["observed"] is None
