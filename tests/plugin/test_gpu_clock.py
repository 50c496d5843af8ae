"""The fixtures ``gpus`` and ``gpu_clock``, and the session's clock: locked once, given back once."""

import json

import pytest

from pytest_llmperf.gpu.clocks.record import RecordFolder

from .quick import QUICK
from .servers import FakeServer

SWEEP = """
import pytest

@pytest.mark.parametrize("gpu_clock", [900, 1207], indirect=True)
def test_swept(gpu_clock, gpus):
    print("in", [board.index for board in gpus], "at", gpu_clock)

def test_plain(gpu_clock):
    print("plain at", gpu_clock)
"""
MEASURE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("batch", [1, 2])
def test_one(llmperf, batch):
    llmperf.measure(Workload(4, 150, batch=batch))
"""
#: Boards with something to do; an idle one lowers its clock, whatever it is locked at.
BUSY = "[boards]\nload = 0.5\n"


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    """Runs a suite against a server on this machine, which has two busy boards."""
    fake_nvml.scenario("two-h200", BUSY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with FakeServer() as server:

        def run(text, *arguments, method="runpytest_inprocess", engine=None):
            pytester.makepyfile(test_suite=text)
            engine = engine or f"http://{server.address},calibrate=false"
            base = (
                "-s",
                "-p",
                "no:cacheprovider",
                *QUICK[method],
                f"--llmperf-engine={engine}",
                "--llmperf-report=report",
            )
            return getattr(pytester, method)(*base, *arguments)

        yield run


def record(pytester):
    (first, *_) = json.loads((pytester.path / "report" / "results.json").read_text())["tests"]
    return first


def told(fake):
    """What each board was told, in order."""
    return [
        (call.board, int(call.argument.split("-")[0]) if "Set" in call.function else "reset")
        for call in fake.calls()
        if call.function in ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks")
    ]


def test_a_sweep_without_a_clock_of_the_session(run, fake_nvml):
    result = run(SWEEP)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*in [[]0, 1[]] at 900*", "*in [[]0, 1[]] at 1200*", "*plain at None*"])
    resets = [(0, "reset"), (1, "reset")]
    assert told(fake_nvml) == [(0, 900), (1, 900), *resets, (0, 1200), (1, 1200), *resets]


def test_after_a_parameter_the_sessions_clock_returns(run, fake_nvml):
    result = run(SWEEP, "--gpu-clock=1500")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*plain at 1500*"])
    clocks = [entry for board, entry in told(fake_nvml) if board == 1]
    assert clocks == [1500, 900, 1500, 1200, 1500, "reset"]


def test_the_session_locks_once_and_says_so(run, fake_nvml):
    result = run(MEASURE, "--gpu-clock=903")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["gpu clock: 900 MHz locked (903 MHz asked for) on GPU 0 (NVIDIA H200), GPU 1*"])
    assert told(fake_nvml) == [(0, 900), (1, 900), (0, "reset"), (1, "reset")]
    assert RecordFolder().all() == []


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [
        ("def test_one(llmperf): assert 0\ndef test_two(llmperf): assert 0", ["-x"], 1),
        ("def test_one(llmperf): raise KeyboardInterrupt", [], 2),
        ("import pytest\ndef test_one(llmperf): pytest.exit('enough', returncode=3)", [], 3),
        ("def test_one(llmperf): pass\ndef test_two(nothing_of_this_name): pass", [], 1),
    ],
)
def test_however_the_session_ends_each_board_is_unlocked_once(run, fake_nvml, text, arguments, status):
    method = "runpytest_subprocess"  # an interrupt would end ours too
    assert run(text, "--gpu-clock=900", *arguments, method=method).ret == status
    assert told(fake_nvml) == [(0, 900), (1, 900), (0, "reset"), (1, "reset")]


def test_an_error_in_collection_locks_nothing(run, fake_nvml):
    assert run(f"{MEASURE}\nraise RuntimeError", "--gpu-clock=900").ret == 2
    assert told(fake_nvml) == []


def test_a_lock_of_the_tests_own_nests_in_the_sessions(run, fake_nvml):
    text = """
def test_one(gpu_clock, request):
    from pytest_llmperf.plugin.keys import BOARDS
    boards = request.config.stash[BOARDS]
    with boards.at(1200) as outer, boards.at(1500) as inner:
        assert (outer.locked_mhz, inner.locked_mhz, boards.clock.locked_mhz) == (1200, 1500, 1500)
    assert boards.clock.locked_mhz == 900
"""
    run(text, "--gpu-clock=900").assert_outcomes(passed=1)
    assert [entry for board, entry in told(fake_nvml) if board == 1] == [900, 1200, 1500, 1200, 900, "reset"]


def test_collecting_alone_locks_nothing(run, fake_nvml):
    assert run(MEASURE, "--gpu-clock=900", "--collect-only").ret == 0
    assert told(fake_nvml) == []


def test_only_visible_boards_are_locked(run, fake_nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    run(MEASURE, "--gpu-clock=900").assert_outcomes(passed=2)
    assert told(fake_nvml) == [(1, 900), (1, "reset")]


def test_expect_sets_nothing(run, fake_nvml):
    result = run(SWEEP, "--gpu-clock=1500", "--gpu-clock-mode=expect")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*in * at 900*", "*plain at 1500*"])
    assert told(fake_nvml) == []


def test_without_permission_the_exit_status_is_4_with_the_ways_out(run, fake_nvml, monkeypatch, tmp_path):
    fake_nvml.scenario("no-permission")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(MEASURE, "--gpu-clock=900")
    assert result.ret == 4
    lines = "\n".join(result.stdout.lines + result.stderr.lines)
    for words in ("CAP_SYS_ADMIN", "sudo -n nvidia-smi", "--gpu-clock-mode expect"):
        assert words in lines
    assert "Traceback" not in lines


def test_without_a_board_the_exit_status_is_4(run, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run(MEASURE, "--gpu-clock=900")
    assert result.ret == 4
    assert any("no GPU whose clock could be held" in line for line in result.stderr.lines + result.stdout.lines)


def test_under_xdist_the_clock_is_locked_and_given_back_once(run, fake_nvml):
    pytest.importorskip("xdist")
    result = run(
        MEASURE, "--gpu-clock=900", "-n2", "test_suite.py", "-k", "llmperf or one", method="runpytest_subprocess"
    )
    result.assert_outcomes(passed=2)
    assert told(fake_nvml) == [(0, 900), (1, 900), (0, "reset"), (1, "reset")]


@pytest.mark.parametrize("value", ["'fast'", "True", "0", "-5", "900.5"])
def test_a_parameter_that_is_no_clock_fails_its_test_in_words(run, fake_nvml, value):
    text = f"import pytest\n@pytest.mark.parametrize('gpu_clock', [{value}], indirect=True)\ndef test(gpu_clock): pass"
    result = run(text)
    result.assert_outcomes(errors=1)
    assert any("MHz, not" in line for line in result.stdout.lines)
    assert told(fake_nvml) == []


DIRECT = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("gpu_clock", [900])
def test_one(llmperf, gpu_clock):
    llmperf.measure(Workload(4, 150))
"""


def test_a_parameter_that_goes_past_the_fixture_fails_its_test_in_words(run, fake_nvml):
    for arguments in ([], ["--gpu-clock=1500"]):
        result = run(DIRECT, *arguments)
        result.assert_outcomes(failed=1)
        assert any("gpu_clock of test_suite.py::test_one[900] is 900" in line for line in result.outlines)
        assert any("indirect=True" in line for line in result.outlines)
    run(DIRECT, "--gpu-clock=900").assert_outcomes(passed=1)  # which is what it says


def test_without_a_driver_there_are_no_boards(run, fake_nvml):
    fake_nvml.scenario("two-h200", "[system]\nerror.nvmlInit = DRIVER_NOT_LOADED\nerror.nvmlInitWithFlags = UNKNOWN")
    run("def test(gpus, gpu_clock): assert (gpus, gpu_clock) == ((), None)").assert_outcomes(passed=1)


LONG = """
from pytest_llmperf import Workload

def test_one(llmperf):
    llmperf.check(Workload(4, 200))
"""


def test_a_clock_that_held_stands_in_the_record_and_in_the_baselines_identity(run, pytester):
    assert run(LONG, "--gpu-clock=903", "--llmperf-save", "--llmperf-launches=1").ret == 0
    clock = record(pytester)["clock"]
    assert (clock["requested_mhz"], clock["locked_mhz"]) == (903, 900)
    assert clock["observed_mhz"] == {"min": 900, "median": 900, "max": 900}
    assert clock["throttled_fraction"] == 0
    (path,) = pytester.path.glob("baselines/*/*/*/*.json")
    assert "@900" in str(path)
    assert run(LONG).ret == 1  # at another clock there is none to compare with
    assert record(pytester)["verdict"] in ("no-baseline", "incomparable")


def test_a_clock_that_did_not_hold_makes_the_measurement_invalid(run, fake_nvml, pytester):
    fake_nvml.scenario("two-h200", BUSY + "[board 1]\ndrift = 0:300\n")
    assert run(LONG, "--gpu-clock=900").ret == 1
    found = record(pytester)
    assert found["verdict"] == "invalid"
    assert "900 MHz" in found["invalid"]
    assert found["clock"]["observed_mhz"]["min"] < 900


def test_a_clock_that_was_expected_and_is_not_there(run, pytester):
    result = run(LONG, "--gpu-clock=900", "--gpu-clock-mode=expect")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpu clock: 900 MHz expected: an administrator has to have locked it on GPU 0*"])
    assert "900 MHz" in record(pytester)["invalid"]
    assert "sudo nvidia-smi -lgc 900,900" in record(pytester)["invalid"]


def test_a_power_cap_makes_a_requested_clock_invalid(run, fake_nvml, pytester):
    fake_nvml.scenario("two-h200", BUSY + "[board 0]\nthrottle = 0:power_cap\n")
    assert run(LONG, "--gpu-clock=900").ret == 1
    assert "power cap" in record(pytester)["invalid"]


def test_an_idle_board_proves_nothing(run, fake_nvml, pytester):
    fake_nvml.scenario("two-h200", "[boards]\nload = 0\n")
    assert run(LONG, "--gpu-clock=900").ret == 1
    assert "refuted or unproven" in record(pytester)["invalid"]


def test_when_no_sample_can_be_read_there_is_a_reason_and_no_figure(run, fake_nvml, pytester):
    fake_nvml.scenario("two-h200", BUSY + "[board 1]\nerror.nvmlDeviceGetClockInfo = NOT_SUPPORTED\n")
    assert run(LONG, "--gpu-clock=900").ret == 1
    assert "samples could be read (SM clock: Not Supported" in record(pytester)["invalid"]
    fake_nvml.scenario("two-h200", BUSY + "[boards]\nerror.nvmlDeviceGetClockInfo = GPU_IS_LOST\n")
    assert run(LONG, "--gpu-clock=900").ret == 1
    assert "GPU is lost" in record(pytester)["invalid"]
    assert record(pytester)["clock"]["observed_mhz"] is None


def test_when_the_second_board_refuses_the_first_is_released_and_that_is_said(run, fake_nvml):
    fake_nvml.scenario("two-h200", BUSY + "[board 1]\nerror.nvmlDeviceSetGpuLockedClocks = NOT_SUPPORTED\n")
    result = run(MEASURE, "--gpu-clock=900")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "\n".join(result.outlines + result.errlines)
    assert "does not lock the SM clock of GPU 1 at 900 MHz: Not Supported" in said
    assert "No board is locked: GPU 0 (NVIDIA H200) had been, and was unlocked again." in said
    assert told(fake_nvml) == [(0, 900), (1, 900), (0, "reset")]
    assert fake_nvml.locked(0) is fake_nvml.locked(1) is None
    assert RecordFolder().all() == []


def test_an_engine_that_runs_elsewhere_has_no_clock_to_hold(run, monkeypatch):
    monkeypatch.setattr("pytest_llmperf.engines.openai.address.Address.is_loopback", False)
    result = run(MEASURE, "--gpu-clock=900")
    assert result.ret != 0
    assert any("the engine runs on" in line for line in result.stdout.lines)


def test_tests_of_one_clock_come_together(run):
    text = """
import pytest

@pytest.mark.parametrize("gpu_clock", [900, 1200], indirect=True)
@pytest.mark.parametrize("what", ["a", "b"])
def test_one(what, gpu_clock, llmperf): pass
"""
    result = run(text, "--collect-only", "-q")
    names = [line.partition("::")[2] for line in result.stdout.lines if "::" in line]
    assert names == [f"test_one[{what}-{clock}]" for clock in (900, 1200) for what in "ab"]
