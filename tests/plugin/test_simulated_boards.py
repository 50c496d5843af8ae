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
