"""Measuring without a workload in a session: stored, gated, in the right order, and beside everything else."""

import json

import pytest

from pytest_llmperf import peaks
from pytest_llmperf.engines.spec import EngineChoice
from pytest_llmperf.engines.spec import build as real_build
from pytest_llmperf.gpu.energy.idle import SETTLE_S
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.plugin import calibration, session
from pytest_llmperf.results import Results
from tests import fake_cuda

from .servers import FakeServer

GAUGES = """
from pytest_llmperf import Workload

def test_decode(llmperf):
    llmperf.check(Workload(4, 4))

def test_floor(llmperf):
    run = llmperf.check_idle()
    assert run.metrics.bare_power.value < run.metrics.loaded_power.value

def test_machine(llmperf):
    llmperf.check_hardware()
"""
FLOOR = "def test_floor(llmperf): llmperf.check_idle()"
MACHINE = "def test_machine(llmperf): llmperf.check_hardware()"
SWEPT = """
import pytest

@pytest.mark.parametrize("gpu_clock", [900, 1200], indirect=True)
def test_floor(llmperf, gpu_clock):
    llmperf.check_idle()
"""


def values(record):
    return {name: metric["value"] for name, metric in record["metrics"].items()}


class TestOnSimulatedBoards:
    """The settings of the engine act on them, so that the gate can be watched."""

    @pytest.fixture(autouse=True)
    def _settled(self, monkeypatch):
        """Time is virtual here, and boards that are read without rest show what was before."""
        monkeypatch.setattr(calibration, "SETTLE_S", SETTLE_S)

    def test_are_stored_and_pass(self, suite):
        suite.write(GAUGES)
        suite.save("--llmperf-launches=3")
        suite.run().assert_outcomes(passed=3)
        floor, machine = suite.records()["test_floor"], suite.records()["test_machine"]
        assert floor["verdict"] == machine["verdict"] == "pass"
        assert values(floor) == {
            "bare_power": pytest.approx(79), "context_power": pytest.approx(110), "loaded_power": pytest.approx(125),
            "locked_power": None,
        }  # fmt: skip
        assert floor["metrics"]["locked_power"]["reason"] == "no clock is held (--gpu-clock holds one)"
        assert values(machine)["copy_bandwidth"] == pytest.approx(4.27e12)
        assert (machine["engine"]["kind"], machine["engine"]["simulated"]) == ("hardware", True)
        for record in (floor, machine):
            assert record["workload"] is record["requests"] is None
            assert record["conditions"] == {}
            assert record["tolerances"]
        Results.model_validate(json.loads(suite.results.read_text()))

    def test_hold_for_the_hardware_or_for_the_engine(self, suite):
        suite.write(GAUGES)
        suite.save("--llmperf-launches=3")
        found = {path.name: path.parts[-3] for path in (suite.folder / "baselines").rglob("*.json")}
        assert found == {
            "test_decode.json": "mistral-7b@unlocked",
            "test_floor.json": "mistral-7b@unlocked",
            "test_machine.json": "hardware@unlocked",
        }
        result = suite.run("--llmperf-model=tiny-llama")
        verdicts = {name: record["verdict"] for name, record in suite.records().items()}
        assert verdicts == {"test_machine": "pass", "test_floor": "incomparable", "test_decode": "incomparable"}
        assert result.ret == 1

    @pytest.mark.parametrize(
        ("engine", "floor", "machine"),
        [
            ("sim:h200,power_scale=1.2", "regressed", "pass"),
            ("sim:h200,slowdown=1.1", "pass", "regressed"),
            ("sim:h200,power_scale=0.8", "improved", "pass"),
        ],
    )
    def test_regress_where_a_setting_makes_them_worse(self, suite, engine, floor, machine):
        suite.write(f"{FLOOR}\n{MACHINE}")
        suite.save("--llmperf-launches=3")
        suite.run(engine=engine)
        records = suite.records()
        assert (records["test_floor"]["verdict"], records["test_machine"]["verdict"]) == (floor, machine)

    def test_say_what_moved_and_nothing_of_a_load(self, suite):
        suite.write(FLOOR)
        suite.save("--llmperf-launches=3")
        result = suite.run(engine="sim:h200,power_scale=1.2")
        (told,) = suite.records()["test_floor"]["explanation"]
        assert told == (
            "bare_power went from 79.00 W to 94.80 W; under test: power_scale=1.2 (not given in the baseline)."
        )
        result.stdout.fnmatch_lines(["test_floor: bare_power 94.80 W, context_power 132.0 W, loaded_power 150.0 W"])

    def test_are_noisy_where_they_are_told_to_be(self, suite):
        suite.write(f"{FLOOR}\n{MACHINE}")
        engine = "sim:h200,launch_noise=0.02,repeat_noise=0.01,seed=3"
        suite.run("--llmperf-save", "--llmperf-launches=3", engine=engine)
        found = suite.records()
        for test, metric in (("test_floor", "bare_power"), ("test_machine", "copy_bandwidth")):
            launches = [value for (value,) in found[test]["metrics"][metric]["launches"]]
            assert len(set(launches)) == 3
            assert max(launches) / min(launches) < 1.2
        suite.run("--llmperf-save", "--llmperf-launches=3", engine=engine)
        assert {name: record["metrics"] for name, record in suite.records().items()} == {
            name: record["metrics"] for name, record in found.items()
        }

    def test_come_before_the_first_engine_and_cost_no_start(self, suite):
        suite.write(GAUGES)
        result = suite.run("--llmperf-save", "--llmperf-launches=2")
        assert [test["nodeid"].partition("::")[2] for test in json.loads(suite.results.read_text())["tests"]] == [
            "test_machine", "test_floor", "test_decode",
        ]  # fmt: skip
        result.stdout.fnmatch_lines(["engine starts: 2"])

    def test_come_first_though_their_engines_are_others(self, suite):
        two = "import pytest\nfrom pytest_llmperf import Workload\n"
        two += "TWO = pytest.mark.llmperf(engine={'tensor_parallel_size': 2})\n"
        one = "def test_one(llmperf): llmperf.check(Workload(4, 4))\n"
        suite.write(f"{two}@TWO\n{MACHINE}\n@TWO\n{one.replace('one', 'two')}{one}{FLOOR}")
        result = suite.run("--llmperf-save", "--llmperf-launches=1")
        order = [test["nodeid"].partition("::")[2] for test in json.loads(suite.results.read_text())["tests"]]
        assert order == ["test_machine", "test_floor", "test_one", "test_two"]
        result.stdout.fnmatch_lines(["engine starts: 2"])

    def test_have_an_engine_closed_that_is_up(self, suite):
        suite.write("import helper\n" + GAUGES.replace("llmperf.check_idle()", "helper.idle(llmperf)"))
        suite.write("def idle(llmperf): return llmperf.check_idle()", name="helper")
        result = suite.run("--llmperf-save", "--llmperf-launches=1")
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["engine starts: 2"])
        assert values(suite.records()["test_floor"])["bare_power"] == pytest.approx(79)

    def test_change_nothing_of_what_is_measured_after_them(self, suite):
        suite.write(GAUGES)
        suite.run("--llmperf-save", "--llmperf-launches=1")
        after = suite.records()["test_decode"]
        suite.run("--llmperf-save", "--llmperf-launches=1", "-k", "decode")
        assert suite.records()["test_decode"]["metrics"] == after["metrics"]

    def test_at_held_clocks_share_what_needs_no_engine(self, suite, monkeypatch):
        shown = []
        monkeypatch.setattr(session.Progress, "show", lambda progress, text: shown.append(text))
        suite.write(SWEPT)
        result = suite.run("--llmperf-save", "--llmperf-launches=1")
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(["engine starts: 1"])
        found = [values(record) for record in suite.records().values()]
        assert [one["locked_power"] for one in found] == [pytest.approx(125)] * 2
        assert [record["clock"]["locked_mhz"] for record in suite.records().values()] == [900, 1200]
        # Before the lock, bare and context; then loaded and held at either clock.
        assert shown.count("measuring idle power") == 1 + 2 + 2 * 2

    def test_reach_less_at_a_lower_clock(self, suite):
        suite.write(MACHINE)
        suite.run("--llmperf-save", "--llmperf-launches=1", "--gpu-clock=990")
        (record,) = suite.records().values()
        full = peaks_of_full_clock()
        assert values(record)["matmul_flops"] == pytest.approx(full / 2)
        assert record["clock"]["locked_mhz"] == 990
        assert "at 990 MHz" in record["engine"]["args"]["method"]
        assert len(list((suite.folder / "baselines").glob("*/hardware@990mhz"))) == 1

    @pytest.mark.parametrize("arguments", [(), ("-k", "1200"), ("-n2",), ("--gpu-clock=1500",)])
    def test_the_machine_is_told_at_the_session_s_clock_and_the_gauge_at_its_own(self, suite, arguments):
        if "-n2" in arguments:
            pytest.importorskip("xdist")
        swept = "import pytest\n@pytest.mark.parametrize('gpu_clock', [{}], indirect=True)\n"
        suite.write(swept.format("990, 1200") + MACHINE.replace("(llmperf", "(gpu_clock, llmperf"))
        suite.run("--llmperf-save", "--llmperf-launches=1", *arguments)
        found = json.loads(suite.results.read_text())
        clock = 1500 if "--gpu-clock=1500" in arguments else 1980
        (told,) = found["environment"]["peaks"]
        full = peaks_of_full_clock()
        assert max(told["matmul_flops"].values()) == pytest.approx(full * clock / 1980)
        assert f"at {clock} MHz" in told["method"]
        assert found["tests"]
        for record in found["tests"]:
            assert values(record)["matmul_flops"] == pytest.approx(full * record["clock"]["locked_mhz"] / 1980)

    def test_of_several_boards_are_told_together(self, suite):
        marked = "import pytest\n@pytest.mark.llmperf(engine={'tensor_parallel_size': 2})\n"
        suite.write(f"{marked}{MACHINE}\n{marked}{FLOOR}")
        suite.run("--llmperf-save", "--llmperf-launches=1")
        records = suite.records()
        assert values(records["test_machine"])["peer_to_peer"] == pytest.approx(3e11)
        assert values(records["test_floor"])["bare_power"] == pytest.approx(2 * 79)
        assert records["test_machine"]["engine"]["tensor_parallel_size"] == 2

    def test_are_in_every_export(self, suite):
        suite.write(f"{FLOOR}\n{MACHINE}")
        suite.save("--llmperf-launches=3")
        suite.run("--junitxml=junit.xml", "--benchmark-json=ours.json")
        report = suite.folder / "report"
        assert "copy_bandwidth" in (report / "report.html").read_text()
        assert "test_machine" in (report / "summary.md").read_text()
        assert 'name="llmperf.copy_bandwidth.value" value="4.27e+12"' in (suite.folder / "junit.xml").read_text()
        (machine, floor) = json.loads((suite.folder / "ours.json").read_text())["benchmarks"]
        assert floor["extra_info"]["llmperf"]["bare_power"] == pytest.approx(79)
        assert len(machine["stats"]["data"]) == len(floor["stats"]["data"]) == 1
        assert floor["stats"]["min"] > 3  # seconds of virtual time
        assert not list((report / "traces").glob("*test_floor*"))

    def test_are_measured_by_workers_too(self, suite):
        pytest.importorskip("xdist")
        suite.write(GAUGES)
        suite.run("-n2", "--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=3)
        assert values(suite.records()["test_floor"])["bare_power"] == pytest.approx(79)

    def test_are_named_where_a_test_has_two(self, suite):
        twice = "def test_floor(llmperf):\n    llmperf.check_idle()\n    llmperf.check_idle(name='again')"
        suite.write(twice)
        suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=1)
        assert list(suite.records()) == ["test_floor", "test_floor#again"]
        suite.write(twice.replace("name='again'", ""))
        suite.run("--llmperf-save", "--llmperf-launches=2").stdout.fnmatch_lines(["*measures twice under one name*"])


def peaks_of_full_clock():
    from pytest_llmperf.gpu.simulated import SimulatedBoards

    return max(SimulatedBoards("h200").peaks()[0].matmul_flops.values())


#: What the first board of the scenario draws, which is the engine's.
BARE, LOADED = 79, 46


@pytest.fixture
def local(pytester, fake_nvml, monkeypatch, tmp_path):
    """Runs a suite as if a server with two fake boards were an engine that the session starts and ends."""
    fake_nvml.scenario("two-h200", "[boards]\nclocked_w = 80\n")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name, value in fake_cuda.environment(fake_cuda.build(tmp_path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAKE_CUDA_GPUS", "2")
    monkeypatch.setattr(session, "choose", lambda *_, **__: EngineChoice("vllm", "cuda", {}, "as asked"))
    measured = [DevicePeaks("NVIDIA H200", 4e12, 5e10, 4e10, {"1": 3e11}, {"bfloat16": 8e14})] * 2
    monkeypatch.setattr(peaks, "in_own_process", lambda on_gpu: measured)

    def tenants(text):
        for index in (0, 1):
            fake_nvml.set(index, processes=text)

    with FakeServer() as server:
        url = f"http://{server.address}"

        def build(spec, **rest):
            tenants("500:9000")
            engine = real_build(session.specify(EngineChoice(url, "url", {"calibrate": False}, "as asked", url=url),
                                                None, {}), **rest)  # fmt: skip
            close = engine.close

            async def emptied():
                tenants("")
                await close()

            engine.close = emptied
            return engine

        monkeypatch.setattr(session, "build", build)

        def run(text, *arguments):
            pytester.makepyfile(test_suite=text)
            result = pytester.runpytest("-p", "no:cacheprovider", "--llmperf-report=report", *arguments)
            return result, json.loads((pytester.path / "report" / "results.json").read_text())

        run.tenants = tenants
        tenants("")
        yield run


def near(watts):
    return pytest.approx(watts, rel=0.06)


class TestOnBoards:
    """Through the real nvidia-ml-py, on a fake driver library and a fake CUDA."""

    def test_every_rung(self, local, pytester):
        result, found = local(FLOOR, "--llmperf-save", "--llmperf-launches=2", "--gpu-clock=900")
        result.assert_outcomes(passed=1)
        (record,) = found["tests"]
        held = BARE + LOADED + 80 * (900 - 345) / (1980 - 345)
        assert values(record) == {
            "bare_power": near(BARE), "context_power": near(BARE + LOADED), "loaded_power": near(BARE + LOADED),
            "locked_power": near(held),
        }  # fmt: skip
        assert record["clock"]["locked_mhz"] == 900
        idle = found["environment"]["sensor"]["idle"]
        assert idle["context_w"] == near(2 * (BARE + LOADED))
        assert "context" not in idle["reasons"]
        (path,) = (pytester.path / "baselines").rglob("*.json")
        stored = json.loads(path.read_text())
        ((boards, kept),) = stored["boards"].items()
        assert boards == "GPU-fa4e0000-0000-4000-8000-000000000000"
        assert kept["metrics"]["bare_power"]["value"] == near(BARE)
        assert stored["metrics"] == {}

    def test_who_is_on_a_board_that_should_be_empty_makes_it_invalid(self, local, monkeypatch):
        local.tenants("4711:100")
        monkeypatch.setenv("FAKE_CUDA_INIT", "100")
        result, found = local(FLOOR, "--llmperf-save", "--llmperf-launches=1")
        result.assert_outcomes(failed=1)
        (record,) = found["tests"]
        assert record["verdict"] == "invalid"
        assert record["invalid"].startswith("bare: another process computed on GPU 0: PID 4711")
        # What cannot be had is no fault.
        assert "context" not in record["invalid"]
        reason = record["metrics"]["context_power"]["reason"]
        assert reason == "no CUDA context could be made: cuInit: CUDA_ERROR_NO_DEVICE"

    def test_the_hardware_is_told_without_an_engine(self, local):
        result, found = local(MACHINE, "--llmperf-save", "--llmperf-launches=1")
        result.assert_outcomes(passed=1)
        (record,) = found["tests"]
        assert values(record) == {
            "copy_bandwidth": 4e12, "host_to_device": 5e10, "device_to_host": 4e10, "peer_to_peer": 3e11,
            "matmul_flops": 8e14,
        }  # fmt: skip
        assert found["environment"]["peaks"][0]["copy_bandwidth"] == 4e12

    def test_somebody_on_a_board_makes_the_hardware_invalid(self, local):
        local.tenants("4711:100")
        _, found = local(MACHINE, "--llmperf-save", "--llmperf-launches=1")
        assert "PID 4711" in found["tests"][0]["invalid"]


class TestWithoutBoards:
    """There is nothing to read, or nothing that is ours."""

    @pytest.fixture
    def processor(self, monkeypatch):
        monkeypatch.setattr(session, "visible_boards", list)
        monkeypatch.setattr(session, "choose", lambda *_, **__: EngineChoice("vllm", "cpu", {}, "as asked"))
        monkeypatch.setattr(peaks, "in_own_process", lambda on_gpu: [DevicePeaks("a CPU", 4e10, method="copies")])

    def test_there_is_no_floor(self, suite, processor):
        suite.write(FLOOR)
        result = suite.run("-rs", "--llmperf-save", engine="vllm")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["*There is no idle power to measure: the engine is vllm on the processor, and*"])

    def test_a_processor_has_its_copy_which_gates_where_it_is_named(self, suite, processor, monkeypatch):
        suite.write(MACHINE)
        suite.run("--llmperf-save", "--llmperf-launches=3", engine="vllm").assert_outcomes(passed=1)
        (record,) = suite.records().values()
        assert values(record)["copy_bandwidth"] == 4e10
        assert record["metrics"]["host_to_device"]["reason"] == "a processor's memory is the host's own"
        monkeypatch.setattr(peaks, "in_own_process", lambda on_gpu: [DevicePeaks("a CPU", 1e10, method="copies")])
        assert suite.run(engine="vllm").ret == 0
        (record,) = suite.records().values()
        assert (record["verdict"], record["tolerances"]) == ("measured", {})
        (advisory,) = record["advisory"]
        assert (advisory["metric"], advisory["change"]) == ("copy_bandwidth", pytest.approx(-0.75))
        suite.write(f"import pytest\n@pytest.mark.llmperf(tolerance={{'copy_bandwidth': '20%'}})\n{MACHINE}")
        suite.run(engine="vllm").assert_outcomes(failed=1)
        (record,) = suite.records().values()
        assert record["verdict"] == "regressed"

    @pytest.mark.parametrize("text", [FLOOR, MACHINE])
    def test_of_a_server_elsewhere_nothing_is_measured(self, suite, text):
        suite.write(text)
        result = suite.run("-rs", "--llmperf-save", engine="http://192.0.2.1:8000")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["*the server's * are not this machine's*"])

    def test_beside_a_server_on_this_machine_it_is_its_processor_and_that_is_said(self, suite, processor, monkeypatch):
        local = EngineChoice("http://127.0.0.1:9", "url", {}, "as asked", url="http://127.0.0.1:9")
        monkeypatch.setattr(session, "choose", lambda *_, **__: local)
        suite.write(MACHINE)
        suite.run("--llmperf-save", "--llmperf-launches=1", engine="http://127.0.0.1:9").assert_outcomes(passed=1)
        (record,) = suite.records().values()
        assert record["engine"]["device"] == "a CPU"
        warning, *_ = record["warnings"]
        assert warning.startswith("What was measured is this machine's processor")

    def test_a_machine_that_could_not_be_measured_fails_in_words(self, suite, processor, monkeypatch):
        from pytest_llmperf.errors import HardwareError

        def broken(on_gpu):
            raise HardwareError("The peaks could not be measured: no numpy.")

        monkeypatch.setattr(peaks, "in_own_process", broken)
        suite.write(MACHINE)
        result = suite.run("--llmperf-save", engine="vllm")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*The peaks could not be measured: no numpy.*"])
