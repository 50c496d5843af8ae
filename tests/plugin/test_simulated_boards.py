"""Sessions with a simulated engine: they hold and read its simulated board, and leave real ones alone."""

import json
from dataclasses import replace

import pytest

from pytest_llmperf.gpu.clocks.control import BoardId, Clock
from pytest_llmperf.gpu.clocks.record import LockRecord, Owner, RecordFolder

MEASURE = """
from pytest_llmperf import Workload

def test_one(llmperf):
    llmperf.measure(Workload(128, 64, batch=2))

def test_two(llmperf):
    llmperf.measure(Workload(4, 64))
"""
SWEEP = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("gpu_clock", [750, 907], indirect=True)
def test_swept(llmperf, gpu_clock, gpus):
    print("at", gpu_clock, gpus[0].name, gpus[0].simulated)
    llmperf.measure(Workload(64, 64))

def test_plain(llmperf, gpu_clock):
    print("plain at", gpu_clock)
    llmperf.measure(Workload(64, 64))
"""


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    """Runs a suite on a simulated engine, on a machine with two boards whose every call is logged."""
    fake_nvml.scenario("two-h200")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def run(text, *arguments, engine="sim:v100", method="runpytest_inprocess", untouched=True):
        pytester.makepyfile(test_suite=text)
        base = ("-s", "-p", "no:cacheprovider", "--llmperf-report=report", "--llmperf-launches=1")
        chosen = [f"--llmperf-engine={engine}"] if engine else []
        result = getattr(pytester, method)(*base, *chosen, *arguments)
        if untouched:
            assert fake_nvml.calls() == []
        return result

    return run


@pytest.fixture
def results(pytester):
    return lambda: json.loads((pytester.path / "report" / "results.json").read_text())


def records(found):
    return {record["nodeid"].partition("::")[2]: record for record in found["tests"]}


def value(found, test, metric):
    return records(found)[test]["metrics"][metric]["value"]


def test_the_sessions_clock_is_held_verified_and_shown(run, results):
    result = run(MEASURE, "--gpu-clock=903")
    result.assert_outcomes(passed=2)
    line = "gpu clock: 900 MHz locked (903 MHz asked for) on GPU 0 (simulated Tesla V100-SXM2-32GB)"
    result.stdout.fnmatch_lines([line])
    for record in records(results()).values():
        clock = record["clock"]
        assert (clock["requested_mhz"], clock["locked_mhz"]) == (903, 900)
        assert clock["observed_mhz"] == {"min": 900, "median": 900, "max": 900}
        assert clock["throttled_fraction"] == 0
        assert record["invalid"] is None
    (gpu,) = results()["environment"]["gpus"]
    assert (gpu["name"], gpu["uuid"], gpu["simulated"]) == ("Tesla V100-SXM2-32GB", "GPU-sim-v100-0", True)
    assert results()["environment"]["cuda"] is None
    assert RecordFolder().all() == []


def test_without_a_clock_the_board_is_read_too(run, results):
    run(MEASURE).assert_outcomes(passed=2)
    record = records(results())["test_one"]
    assert record["clock"]["requested_mhz"] is None
    assert 50 < record["metrics"]["power"]["value"] < 300
    assert record["metrics"]["sm_clock"]["value"] == 1530e6


def test_a_sweep_and_the_return_of_the_sessions_clock(run, results):
    result = run(SWEEP, "--gpu-clock=1200")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*at 750 Tesla V100-SXM2-32GB True*", "*at 907 *", "*plain at 1200*"])
    observed = {name: record["clock"]["observed_mhz"]["median"] for name, record in records(results()).items()}
    assert observed == {"test_swept[750]": 750, "test_swept[907]": 907, "test_plain": 1200}
    powers = [value(results(), name, "power") for name in observed]
    assert powers == sorted(powers)


def test_a_clock_alone_without_an_engine(run):
    text = """
def test(gpus, gpu_clock):
    assert [board.uuid for board in gpus] == ["GPU-sim-a100-0"]
    assert gpu_clock == 900
"""
    run(text, "--gpu-clock=899", engine="sim:a100").assert_outcomes(passed=1)


def test_a_block_of_code_has_no_energy_on_a_simulated_board(run):
    text = """
def test(power_sampler):
    with power_sampler() as p:
        pass
    assert p.energy_j is None
    assert "simulated" in p.reason
"""
    run(text).assert_outcomes(passed=1)


def test_an_expected_clock_that_nobody_locked(run, results):
    assert run(MEASURE, "--gpu-clock=900", "--gpu-clock-mode=expect").ret == 1
    assert "samples at 1530 MHz" in records(results())["test_one"]["invalid"]


def test_a_clock_that_the_power_limit_takes_away_is_invalid(run, results):
    text = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.check(Workload(4096, 4, batch=8))"
    assert run(text, "--gpu-clock=1980", engine="sim:h200").ret == 1
    record = records(results())["test_one"]
    assert "power cap" in record["invalid"]
    assert record["clock"]["observed_mhz"]["min"] < 1980
    assert record["clock"]["throttled_fraction"] > 0


def test_under_xdist_each_worker_has_its_own_board(run, results):
    pytest.importorskip("xdist")
    result = run(MEASURE, "--gpu-clock=900", "-n2", method="runpytest_subprocess")
    result.assert_outcomes(passed=2)
    assert [gpu["uuid"] for gpu in results()["environment"]["gpus"]] == ["GPU-sim-v100-0"]
    for record in records(results()).values():
        assert record["clock"]["observed_mhz"] == {"min": 900, "median": 900, "max": 900}


def test_the_engine_of_the_ini_file_counts_as_asked_for(run, results, pytester):
    pytester.makeini("[pytest]\nllmperf_engine = sim:h100,power_scale=1.2")
    run(MEASURE, engine=None).assert_outcomes(passed=2)
    assert results()["environment"]["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"


def test_power_scale_scales_power(run, results):
    found = []
    for engine in ("sim:h200", "sim:h200,power_scale=1.1"):
        run(MEASURE, engine=engine).assert_outcomes(passed=2)
        found.append(results())
    plain, scaled = found
    assert value(scaled, "test_two", "power") == pytest.approx(1.1 * value(plain, "test_two", "power"), rel=1e-3)
    assert value(scaled, "test_two", "tpot") == value(plain, "test_two", "tpot")


def test_one_seed_gives_the_same_energy_again(run, results):
    engine = "sim:h200,seed=3,launch_noise=0.01,repeat_noise=0.01"
    found = []
    for _ in range(2):
        run(MEASURE, engine=engine).assert_outcomes(passed=2)
        found.append({name: record["metrics"] for name, record in records(results()).items()})
    assert found[0] == found[1]


def test_more_power_is_a_regression_of_energy_alone(run, results):
    text = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.check(Workload(64, 256))"
    assert run(text, "--llmperf-save", "--llmperf-launches=2", engine="sim:h200").ret == 0
    assert run(text, engine="sim:h200").ret == 0
    assert run(text, engine="sim:h200,power_scale=1.3").ret == 1
    verdicts = {v["metric"]: v["verdict"] for v in records(results())["test_one"]["verdicts"]}
    assert (verdicts["tpj"], verdicts["tpot"]) == ("regressed", "pass")


def test_a_stale_lock_of_a_real_board_is_left_alone(run):
    board = BoardId(0, "GPU-1", "NVIDIA H200")
    stale = replace(LockRecord.mine((board,), Clock(900), "driver"), owner=Owner(2**22 + 1, 5))
    RecordFolder().write(stale)
    run(MEASURE, "--gpu-clock=900").assert_outcomes(passed=2)
    assert RecordFolder().all() == [stale]


@pytest.mark.parametrize("ci", [False, True])
def test_auto_never_falls_back_to_a_simulation_under_a_clock_or_in_ci(run, fake_nvml, monkeypatch, ci):
    fake_nvml.scenario("two-h200", "[system]\nerror.nvmlInit = DRIVER_NOT_LOADED\nerror.nvmlInitWithFlags = UNKNOWN")
    monkeypatch.setattr("pytest_llmperf.engines.spec.vllm_platform", lambda: None)
    if ci:
        monkeypatch.setenv("CI", "true")
    result = run(MEASURE, *([] if ci else ["--gpu-clock=900"]), engine="auto", untouched=False)
    assert result.ret == 4
    assert any("nothing else may stand in for it" in line for line in result.stderr.lines + result.stdout.lines)


def test_where_auto_falls_back_the_board_is_simulated_too(run, fake_nvml, monkeypatch, results):
    fake_nvml.scenario("two-h200", "[system]\nerror.nvmlInit = DRIVER_NOT_LOADED\nerror.nvmlInitWithFlags = UNKNOWN")
    monkeypatch.setattr("pytest_llmperf.engines.spec.vllm_platform", lambda: None)
    run(SWEEP.replace("907", "900"), engine=None, untouched=False).assert_outcomes(passed=3)
    assert [gpu["uuid"] for gpu in results()["environment"]["gpus"]] == ["GPU-sim-h200-0"]
    assert records(results())["test_swept[900]"]["clock"]["observed_mhz"]["max"] == 900


PARALLEL = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.llmperf(engine={"tensor_parallel_size": 1})
def test_one(llmperf, gpus):
    assert len(gpus) == 2
    llmperf.measure(Workload(64, 64, batch=2))

@pytest.mark.llmperf(engine={"tensor_parallel_size": 2})
def test_two(llmperf, gpus):
    assert [gpu.index for gpu in gpus] == [0, 1]
    llmperf.measure(Workload(64, 64, batch=2))
"""


class TestSeveral:
    def test_an_engine_has_a_board_for_each_part_and_its_energy_is_theirs(self, run, results):
        run(PARALLEL, engine="sim:h200").assert_outcomes(passed=2)
        found = results()
        assert [gpu["uuid"] for gpu in found["environment"]["gpus"]] == ["GPU-sim-h200-0", "GPU-sim-h200-1"]
        assert [gpu["index"] for gpu in found["environment"]["gpus"]] == [0, 1]
        assert set(found["environment"]["sensor"]["boards"]) == {"GPU-sim-h200-0", "GPU-sim-h200-1"}
        one, two = (value(found, name, "power") for name in ("test_one", "test_two"))
        assert 1.3 * one < two < 2 * one
        used = [value(found, name, "memory_used") for name in ("test_one", "test_two")]
        assert used[1] == pytest.approx(2 * used[0], rel=0.01)
        assert [records(found)[name]["invalid"] for name in ("test_one", "test_two")] == [None, None]

    def test_the_idle_floor_is_that_of_the_boards_in_use(self, run, results):
        run(PARALLEL, engine="sim:h200").assert_outcomes(passed=2)
        idle = results()["environment"]["sensor"]["idle"]
        (other,) = idle["others"].values()
        first, second = "GPU-sim-h200-0", "GPU-sim-h200-1"
        loaded, bare = idle["boards_w"][first]["loaded"], idle["boards_w"][first]["bare"]
        assert loaded > bare
        assert idle["boards_w"][second]["loaded"] == pytest.approx(bare)
        assert other["boards_w"][second]["loaded"] == pytest.approx(loaded)
        for name, boards in (("test_one", 1), ("test_two", 2)):
            gross, net = (1 / value(results(), name, metric) for metric in ("tpj", "net_tpj"))
            floor = (gross - net) * value(results(), name, "throughput")
            assert floor == pytest.approx(boards * loaded, rel=0.01)

    def test_a_test_measures_the_same_whatever_boards_the_others_need(self, run, results):
        run(PARALLEL, engine="sim:h200")
        beside = records(results())["test_one"]
        alone, _, _ = PARALLEL.replace("== 2", "== 1").rpartition("@pytest.mark")
        run(alone, engine="sim:h200").assert_outcomes(passed=1)
        assert records(results())["test_one"]["metrics"] == beside["metrics"]

    def test_the_clock_is_held_on_all_of_them(self, run, results):
        result = run(PARALLEL, "--gpu-clock=900", engine="sim:h200")
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(["gpu clock: 900 MHz locked on GPU 0 (simulated NVIDIA H200), GPU 1 (simulated *"])
        for record in records(results()).values():
            assert record["clock"]["observed_mhz"] == {"min": 900, "median": 900, "max": 900}
            assert record["invalid"] is None

    def test_energy_is_stored_as_that_of_these_boards(self, run, pytester):
        run(
            PARALLEL.replace("measure", "check"),
            "--llmperf-save",
            "--llmperf-baselines=base",
            "-k",
            "test_two",
            engine="sim:h200",
        )
        stored = [json.loads(path.read_text()) for path in (pytester.path / "base").rglob("*.json")]
        assert {board for one in stored for board in one["boards"]} == {"GPU-sim-h200-0+GPU-sim-h200-1"}

    def test_more_than_there_are_fails_the_test_that_asks_for_them(self, run, results):
        result = run(
            PARALLEL.replace('": 2}', '": 16}').replace("== 2", "== 1").replace("[0, 1]", "[0]"), engine="sim:h200"
        )
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(
            ["*has 8 GPUs, and 16 are asked for. Give tensor_parallel_size a value of at most 8.*"]
        )
        assert len(results()["environment"]["gpus"]) == 1

    def test_under_xdist_the_record_knows_all_of_them(self, run, results):
        pytest.importorskip("xdist")
        run(PARALLEL, "-n2", engine="sim:h200", method="runpytest_subprocess").assert_outcomes(passed=2)
        uuids = [gpu["uuid"] for gpu in results()["environment"]["gpus"]]
        assert uuids == ["GPU-sim-h200-0", "GPU-sim-h200-1"]
