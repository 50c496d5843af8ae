"""``pytest suites/ --gpu-clock 900`` on boards that are not there, from the clocks they support to the last unlock."""

import json
import shutil
from pathlib import Path

import pytest

from tests.fake_nvml.busy import busy_while, prefill

from .servers import FakeServer

SUITES = Path(__file__).parents[2] / "suites"


class Suites:
    """The shipped suites in a folder of their own, and a server on two boards that are busy while it answers."""

    def __init__(self, pytester, fake):
        self.path = pytester.path
        self.fake = fake
        self._pytester = pytester
        self.server = FakeServer(self._answer)
        #: By how many requests of decoding came: what happens then.
        self.events = {}
        self._decodes = 0
        shutil.copytree(SUITES, self.path / "suites", ignore=shutil.ignore_patterns("__pycache__"))
        # What is compared here is not how fast this machine is.
        pytester.makeini("[pytest]\nllmperf_tolerance = 1000000%\n")

    def _answer(self, number):
        request = self.server.requests[number]
        prefill(request)
        if request["max_tokens"] > 1:
            self._decodes += 1
            self.events.get(self._decodes, lambda: None)()

    def busy(self):
        in_flight = lambda: len(self.server.requests) - self.server.answered  # noqa: E731  # an argument's name
        return busy_while(in_flight, *(self.fake.state / f"load.{board}" for board in (0, 1)))

    def run(self, *arguments, select="test_prefill[1] or test_decode[4]", clock=("--gpu-clock", "900")):
        return self._pytester.runpytest_subprocess(
            "suites/test_phases.py", *clock, "-m", "sweep or not sweep", "-k", select,
            "-p", "no:cacheprovider", "-p", "tests.plugin.quick",
            f"--llmperf-engine=http://{self.server.address},calibrate=false", "--llmperf-report=report",
            "--llmperf-repeats=2", *arguments,
        )  # fmt: skip

    def tests(self):
        tests = json.loads((self.path / "report" / "results.json").read_text())["tests"]
        return {test["nodeid"].partition("::")[2]: test for test in tests}


@pytest.fixture
def suites(pytester, fake_nvml, monkeypatch, tmp_path):
    fake_nvml.scenario("two-h200")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    suites = Suites(pytester, fake_nvml)
    with suites.server, suites.busy():
        yield suites


def test_lock_measure_unlock_and_gate(suites):
    saved = suites.run("--llmperf-save", "--llmperf-launches=2")
    saved.assert_outcomes(passed=2, deselected=20)
    saved.stdout.fnmatch_lines(["gpu clock: 900 MHz locked on GPU 0 (NVIDIA H200), GPU 1 (NVIDIA H200)"])
    for test in suites.tests().values():
        assert test["verdict"] == "measured"
        assert (test["clock"]["requested_mhz"], test["clock"]["locked_mhz"]) == (900, 900)
        assert test["clock"]["observed_mhz"] == {"min": 900, "median": 900, "max": 900}
        assert test["clock"]["throttled_fraction"] == 0
        assert test["clock"]["memory_mhz"] is None
    assert_life_of_a_lock(suites.fake)

    suites.fake.forget_calls()
    suites.run().assert_outcomes(passed=2, deselected=20)
    assert {test["verdict"] for test in suites.tests().values()} <= {"pass", "improved"}
    assert_life_of_a_lock(suites.fake)


def assert_life_of_a_lock(fake):
    """In the order of the call log: clocks asked for, both boards locked, sampled, unlocked once, and nothing after."""
    calls = fake.calls()
    for board in (0, 1):
        at = {}
        for number, call in enumerate(calls):
            if call.board == board:
                at.setdefault(call.function, []).append((number, call))
        ((locked, lock),) = at["nvmlDeviceSetGpuLockedClocks"]
        ((unlocked, _),) = at["nvmlDeviceResetGpuLockedClocks"]
        assert lock.argument == "900-900"
        assert at["nvmlDeviceGetSupportedGraphicsClocks"][0][0] < locked < unlocked
        sampler = {call.pid for call in calls if call.function == "nvmlDeviceGetClockInfo"} - {lock.pid}
        for function, needed in (("nvmlDeviceGetClockInfo", 20), ("nvmlDeviceGetFieldValues", 4)):
            # Before the lock it was seen what the boards draw without it.
            sampled = [number for number, call in at[function] if call.pid in sampler]
            assert len([number for number in sampled if number > locked]) >= needed
            assert sampled[-1] < unlocked
        assert fake.locked(board) is None
        assert "nvmlDeviceSetMemoryLockedClocks" not in at


def test_both_clocks_and_the_baseline_of_one_is_not_that_of_the_other(suites):
    both = ("--gpu-clock", "900", "--gpu-memory-clock", "2600")
    decode = "test_decode[4]"
    saved = suites.run("--llmperf-save", "--llmperf-launches=2", select=decode, clock=both)
    saved.assert_outcomes(passed=1, deselected=21)
    saved.stdout.fnmatch_lines(["gpu clock: 900 MHz locked, memory 2619 MHz locked (2600 MHz asked for) on GPU 0*"])
    (test,) = suites.tests().values()
    assert test["clock"]["memory_mhz"] == {
        "requested": 2600, "locked": 2619, "observed": {"min": 2619, "median": 2619, "max": 2619},
    }  # fmt: skip
    (baseline,) = suites.path.glob("baselines/*/*/*/*/*.json")
    assert "@900mhz-memory2619mhz" in str(baseline)
    suites.run(select=decode, clock=both).assert_outcomes(passed=1, deselected=21)
    assert suites.run(select=decode).ret == 1
    (test,) = suites.tests().values()
    assert test["verdict"] == "incomparable"
    assert "memory_clock_mhz: 2619 in the baseline, None now" in json.dumps(test)
    assert [suites.fake.locked_memory(board) for board in (0, 1)] == [None, None]
    assert [call.board for call in suites.fake.calls("nvmlDeviceResetMemoryLockedClocks")] == [0, 1] * 2


@pytest.mark.parametrize(
    ("board", "keys", "words"),
    [
        (1, {"drift": 600}, "samples at 600 MHz"),
        (0, {"throttle": "power_cap"}, "power cap"),
        (0, {"throttle": "hw_thermal", "throttled_mhz": 1980}, "thermal slowdown by the hardware"),
    ],
)
def test_what_happens_in_the_middle_makes_it_invalid(suites, board, keys, words):
    # A warm-up and two repeats of 4 requests each: within the second repeat.
    suites.events[10] = lambda: suites.fake.set(board, **keys)
    assert suites.run(select="test_decode[4]").ret == 1
    (test,) = suites.tests().values()
    assert test["verdict"] == "invalid"
    assert "the SM clock was held at 900 MHz is refuted" in test["invalid"]
    assert words in test["invalid"]
    assert test["clock"]["observed_mhz"]["max"] == 900
    assert [suites.fake.locked(board) for board in (0, 1)] == [None, None]


def test_a_memory_clock_that_somebody_else_takes_back_in_the_middle_makes_it_invalid(suites):
    suites.events[10] = (suites.fake.state / "memory_lock.1").unlink
    assert suites.run(select="test_decode[4]", clock=("--gpu-memory-clock", "1593")).ret == 1
    (test,) = suites.tests().values()
    assert "the memory clock was held at 1593 MHz is refuted" in test["invalid"]
    assert "samples at 3201 MHz" in test["invalid"]
    assert test["clock"]["memory_mhz"]["observed"]["min"] == 1593
    assert test["clock"]["locked_mhz"] is None
    assert (
        suites.fake.calls("nvmlDeviceSetGpuLockedClocks") == suites.fake.calls("nvmlDeviceResetGpuLockedClocks") == []
    )
    assert [call.board for call in suites.fake.calls("nvmlDeviceResetMemoryLockedClocks")] == [0, 1]
