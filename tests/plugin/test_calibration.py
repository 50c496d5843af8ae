"""What a session finds out about its boards: before the first engine, and when one waits with its model loaded."""

import json

import pytest

from pytest_llmperf import peaks
from pytest_llmperf.engines.spec import EngineChoice
from pytest_llmperf.engines.spec import build as real_build
from pytest_llmperf.gpu.sampling.watch import BoardWatch
from pytest_llmperf.plugin import session

from .quick import QUICK
from .servers import FakeServer

SUITE = """
import pytest
from pytest_llmperf import Workload

def test_one(llmperf):
    llmperf.measure(Workload(4, 4))

def test_two(llmperf):
    llmperf.measure(Workload(4, 5))
"""
SWEEP = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("gpu_clock", [900, 1800], indirect=True)
def test_swept(gpu_clock, llmperf):
    llmperf.measure(Workload(4, 4))
"""
#: What both boards of the scenario draw on each rung, 54 W between any two.
BARE, LOADED = 79 + 82, 2 * 46
HELD = {mhz: BARE + LOADED + 2 * 80 * (mhz - 345) / (1980 - 345) for mhz in (900, 1800)}
UUIDS = ["GPU-fa4e0000-0000-4000-8000-000000000000", "GPU-fa4e0000-0000-4000-8000-000000000001"]


TWO_ENGINES = SUITE.replace("def test_two", "@pytest.mark.llmperf(engine={'tensor_parallel_size': 2})\ndef test_two")
#: What ``_as_if_local`` does, in every process of a run.
LOCAL = """
from pytest_llmperf import peaks
from pytest_llmperf.engines.spec import EngineChoice, build as real_build
from pytest_llmperf.plugin import session

def build(spec, **rest):
    choice = EngineChoice("{url}", "url", {{"calibrate": False}}, "as asked", url="{url}")
    return real_build(session.specify(choice, None, {{}}), **rest)

session.build = build
session.choose = lambda *_, **__: EngineChoice("vllm", "cuda", {{}}, "as asked")
peaks.in_own_process = lambda on_gpu: []
"""


def near(watts):
    return pytest.approx(watts, rel=0.06)


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    """Runs a suite against a server on this machine, whose two boards are idle."""
    fake_nvml.scenario("two-h200", "[boards]\nprocesses = 500:9000\nclocked_w = 80\n")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with FakeServer() as server:

        def run(text, *arguments, method="runpytest_inprocess", cuda=False):
            pytester.makepyfile(test_suite=text)
            url = f"http://{server.address}"
            if cuda and method == "runpytest_inprocess":
                _as_if_local(monkeypatch, url, fake_nvml)
            elif cuda:
                pytester.makeconftest(LOCAL.format(url=url))
            base = (
                *QUICK[method],
                "-p",
                "no:cacheprovider",
                f"--llmperf-engine={url},calibrate=false",
                "--llmperf-report=report",
            )
            result = getattr(pytester, method)(*base, *arguments)
            found = json.loads((pytester.path / "report" / "results.json").read_text())
            return result, found["environment"]

        yield run


def _as_if_local(monkeypatch, url, fake_nvml):
    """The server as an engine that the session starts: its process is on the boards from its start on."""
    fake_nvml.set(0, processes="")
    fake_nvml.set(1, processes="")

    def build(spec, **rest):
        for index in (0, 1):
            fake_nvml.set(index, processes="500:9000")
        choice = EngineChoice(url, "url", {"calibrate": False}, "as asked", url=url)
        return real_build(session.specify(choice, None, {}), **rest)

    monkeypatch.setattr(session, "build", build)
    monkeypatch.setattr(session, "choose", lambda *_, **__: EngineChoice("vllm", "cuda", {}, "as asked"))
    monkeypatch.setattr(peaks, "in_own_process", lambda on_gpu: [peaks.DevicePeaks("NVIDIA H200", 4e12)])


def test_a_server_that_was_there_has_a_loaded_rung_and_no_bare_one(run, fake_nvml):
    result, environment = run(SUITE)
    result.assert_outcomes(passed=2)
    boards, idle = environment["sensor"]["boards"], environment["sensor"]["idle"]
    assert list(boards) == UUIDS
    for board in boards.values():
        assert board["counter"]["period_s"] == pytest.approx(0.1, rel=0.2)
        assert board["shortest_window_s"] == pytest.approx(1.63, rel=0.1)
    assert idle["loaded_w"] == near(BARE + LOADED)
    assert idle["boards_w"][UUIDS[1]]["loaded"] == near(82 + 46)
    assert (idle["bare_w"], idle["held_w"]) == (None, {})
    assert "was there before" in idle["reasons"]["bare"]
    assert list(idle["reasons"]) == ["bare", "context"]


def test_the_floor_of_a_server_that_was_there_has_its_loaded_rung_alone(run, pytester):
    result, _ = run("def test_floor(llmperf): llmperf.check_idle()", "--llmperf-save", "--llmperf-launches=1")
    result.assert_outcomes(passed=1)
    (test,) = json.loads((pytester.path / "report" / "results.json").read_text())["tests"]
    rungs = {name: one["value"] or one["reason"] for name, one in test["metrics"].items()}
    before = "the server was there before the session, with its model loaded"
    held = "no clock is held (--gpu-clock holds one)"
    loaded = near(BARE + LOADED)
    assert rungs == {"bare_power": before, "context_power": before, "loaded_power": loaded, "locked_power": held}


def test_an_engine_of_the_sessions_own_is_seen_without_and_with_its_model(run):
    result, environment = run(SUITE, cuda=True)
    result.assert_outcomes(passed=2)
    idle = environment["sensor"]["idle"]
    assert (idle["bare_w"], idle["loaded_w"]) == (near(BARE), near(BARE + LOADED))
    assert idle["bare_at_mhz"] is None
    assert idle["reasons"] == {"context": "only check_idle measures it"}
    assert environment["peaks"][0]["copy_bandwidth"] == 4e12


def test_the_bare_rung_comes_before_the_lock(run, fake_nvml):
    _, environment = run(SUITE, "--gpu-clock=900", cuda=True)
    idle = environment["sensor"]["idle"]
    assert (idle["bare_w"], idle["bare_at_mhz"]) == (near(BARE), None)
    assert idle["held_w"] == {"900": near(HELD[900])}
    # With the model loaded the clock is let go of for as long as that takes, and held again.
    assert idle["loaded_w"] == near(BARE + LOADED)
    assert idle["reasons"] == {"context": "only check_idle measures it"}
    locks = [call.at_ns for call in fake_nvml.calls("nvmlDeviceSetGpuLockedClocks")]
    reads = [call.at_ns for call in fake_nvml.calls("nvmlDeviceGetTotalEnergyConsumption")]
    assert len(locks) == 4
    assert fake_nvml.locked(0) is fake_nvml.locked(1) is None
    assert sum(at < locks[0] for at in reads) > 50


def test_a_clock_that_others_hold_was_held_for_the_bare_rung_too(run, fake_nvml):
    for index in (0, 1):
        (fake_nvml.state / f"gpu_lock.{index}").write_text("900 900\n")
    _, environment = run(SUITE, "--gpu-clock=900", "--gpu-clock-mode=expect", cuda=True)
    idle = environment["sensor"]["idle"]
    assert (idle["bare_w"], idle["bare_at_mhz"]) == (near(HELD[900] - LOADED), 900)
    assert idle["reasons"].pop("context") == "only check_idle measures it"
    assert idle["reasons"] == {"loaded": "an administrator holds the clock"}


def test_a_sweep_has_a_rung_for_each_clock(run, fake_nvml):
    _, environment = run(SWEEP + SUITE)
    idle = environment["sensor"]["idle"]
    assert idle["held_w"] == {str(mhz): near(watts) for mhz, watts in HELD.items()}
    assert idle["loaded_w"] == near(BARE + LOADED)
    assert list(idle["reasons"]) == ["bare", "context"]


def test_boards_on_which_others_work_have_no_idle_power(run, fake_nvml, monkeypatch):
    shown = []
    monkeypatch.setattr(session.Progress, "show", lambda progress, text: shown.append(text))
    fake_nvml.set(1, load=0.5)
    five = "import pytest\nfrom pytest_llmperf import Workload\n@pytest.mark.parametrize('batch', [1, 2, 3, 4, 5])\n"
    result, environment = run(f"{five}def test(llmperf, batch): llmperf.measure(Workload(4, 4, batch=batch))")
    result.assert_outcomes(passed=5)
    assert shown.count("measuring idle power") == 3  # then given up
    idle = environment["sensor"]["idle"]
    assert idle["loaded_w"] is None
    assert idle["reasons"]["loaded"].startswith("the board was busy")


def test_a_board_that_was_busy_for_a_moment_is_tried_again(run, fake_nvml, monkeypatch):
    tried, measure = [], session.measure_launch

    def then_idle(*arguments, **rest):
        tried.append(fake_nvml.set(1, load=0))
        return measure(*arguments, **rest)

    fake_nvml.set(1, load=0.5)
    monkeypatch.setattr(session, "measure_launch", then_idle)
    _, environment = run(SUITE)
    assert environment["sensor"]["idle"]["loaded_w"] == near(BARE + LOADED)
    assert len(tried) == 2


@pytest.mark.parametrize("step", ["begin", "end"])
def test_boards_that_cannot_be_sampled_cost_their_figures_and_no_measurement(run, monkeypatch, pytester, step):
    from pytest_llmperf.errors import EngineError

    async def fail(watch):
        watch.close()
        raise EngineError("The sampler ended.")

    monkeypatch.setattr(BoardWatch, step, fail)
    result, environment = run(SUITE)
    result.assert_outcomes(passed=2)
    assert environment["sensor"]["idle"]["reasons"]["loaded"] == "The sampler ended."
    (first, _) = json.loads((pytester.path / "report" / "results.json").read_text())["tests"]
    assert first["metrics"]["tpj"]["reason"] == "The sampler ended."
    assert "The boards could not be read: The sampler ended." in first["warnings"]
    # A clock that was asked for has to be seen to hold.
    run(SUITE, "--gpu-clock=900")[0].assert_outcomes(failed=2)


def test_the_progress_line_says_what_is_measured(run, monkeypatch):
    shown = []
    monkeypatch.setattr(session.Progress, "show", lambda progress, text: shown.append(text))
    run(SUITE)
    assert shown.index("watching the boards' sensors") < shown.index("measuring idle power")
    assert shown.count("measuring idle power") == shown.count("watching the boards' sensors") == 1


def test_what_workers_found_is_in_the_one_report(run):
    pytest.importorskip("xdist")
    result, environment = run(SWEEP, "-n2", method="runpytest_subprocess")
    result.assert_outcomes(passed=0, failed=2)  # idle boards cannot prove their clock
    assert list(environment["sensor"]["boards"]) == UUIDS
    held = environment["sensor"]["idle"]["held_w"]
    assert held == {str(mhz): near(watts) for mhz, watts in HELD.items()}


@pytest.mark.parametrize(("text", "arguments", "freed"), [(SUITE, ["--gpu-clock=900"], False), (SWEEP, [], True)])
def test_a_worker_frees_the_clock_only_where_it_has_locked_it(run, fake_nvml, text, arguments, freed):
    pytest.importorskip("xdist")
    result, environment = run(text, "-n2", *arguments, method="runpytest_subprocess", cuda=True)
    result.assert_outcomes(failed=2)  # idle boards cannot prove their clock
    assert not any("nothing is held" in line for line in result.outlines)
    idle = environment["sensor"]["idle"]
    assert idle["held_w"]["900"] == near(HELD[900])
    assert idle["loaded_w"] == (near(BARE + LOADED) if freed else None)
    assert idle["reasons"].get("loaded") == (None if freed else "the run's controller holds the clock")
    assert fake_nvml.locked(0) is fake_nvml.locked(1) is None


def test_each_engine_has_its_own_rungs(run, monkeypatch):
    shown = []
    monkeypatch.setattr(session.Progress, "show", lambda progress, text: shown.append(text))
    _, environment = run(TWO_ENGINES, "--gpu-clock=900", cuda=True)
    idle = environment["sensor"]["idle"]
    ((key, other),) = idle.pop("others").items()
    assert "tensor_parallel_size" in key
    for one in (idle, other):
        assert (one["bare_w"], one["bare_at_mhz"]) == (near(BARE), None)
        assert one["loaded_w"] == near(BARE + LOADED)
        assert one["held_w"] == {"900": near(HELD[900])}
    assert other["bare_w"] == idle["bare_w"]
    assert other["loaded_w"] != idle["loaded_w"]
    assert shown.count("measuring idle power") == 5


@pytest.mark.parametrize(
    ("arguments", "key"),
    [(["--gpu-memory-clock=2619"], "memory2619"), (["--gpu-memory-clock=2619", "--gpu-clock=900"], "900+memory2619")],
)
def test_a_memory_clock_that_is_held_has_a_rung_of_its_own(run, pytester, arguments, key):
    _, environment = run(SUITE, *arguments)
    idle = environment["sensor"]["idle"]
    assert list(idle["held_w"]) == [key]
    assert idle["loaded_w"] == near(BARE + LOADED)
    assert idle["loaded_w"] != idle["held_w"][key] > 0


@pytest.mark.parametrize("visible", ["", "none"])
def test_without_boards_nothing_is_measured(run, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(peaks, "in_own_process", lambda on_gpu: [peaks.DevicePeaks("a CPU", 1e10)])
    _, environment = run(SUITE)
    assert environment["sensor"] is None
    assert environment["peaks"][0]["device"] == "a CPU"
