"""All splits of some launches through the gate."""

import json
import random
from pathlib import Path

import pytest

from pytest_llmperf.calibration.findings import WORSENINGS, calibrate
from pytest_llmperf.calibration.material import Gated, Material, material_of
from pytest_llmperf.calibration.splits import split
from pytest_llmperf.calibration.text import as_json, render
from pytest_llmperf.errors import ResultsError
from pytest_llmperf.results import Results


def material(sd, *, launches=8, tests=4, tolerance=0.03, seed=0):
    draw = random.Random(seed)
    gated = tuple(
        Gated(
            f"test_{test}", "one engine", metric, better, tolerance, tuple(draw.gauss(0, sd) for _ in range(launches))
        )
        for test in range(tests)
        for metric, better in (("tpot", "lower"), ("tpj", "higher"))
    )
    return Material(("engine",), True, launches, gated, ())


def found(sd, **given):
    of = material(sd, **given)
    return calibrate(of, split(of.launches, 5, at_most=8), at_most=8)


def shares(findings, name):
    return [getattr(one.outcome, name) for one in findings.detections if one.metric == "tpot"]


def test_a_calm_engine_passes_at_once_and_every_slowdown_beyond_the_tolerance_is_found():
    findings = found(0.0005)
    assert findings.false_alarms.hits == 0
    assert findings.false_alarms.trials == 56
    assert findings.test_launches == 1.0
    assert shares(findings, "passed") == [1, 1, 1, pytest.approx(0, abs=0.06), 0, 0, 0, 0]
    assert shares(findings, "regressed")[4:] == [1, 1, 1, 1]
    assert findings.below == ()


def test_noise_makes_it_undecided_and_never_wrong():
    findings = found(0.03)
    assert findings.false_alarms.hits == 0
    assert shares(findings, "inconclusive")[0] > 0.5
    assert findings.test_launches > 2
    assert {(test, metric) for test, metric, _ in findings.below} == {
        (f"test_{i}", metric) for i in range(4) for metric in ("tpot", "tpj")
    }
    assert all("below the noise" in sentence for *_, sentence in findings.below)


def test_more_slowdown_is_found_more_often_and_passes_less_often():
    findings = found(0.008)
    assert len(shares(findings, "passed")) == len(WORSENINGS)
    assert shares(findings, "regressed") == sorted(shares(findings, "regressed"))
    assert shares(findings, "passed") == sorted(shares(findings, "passed"), reverse=True)
    for outcome in (one.outcome for one in findings.detections):
        assert outcome.passed + outcome.inconclusive + outcome.regressed == pytest.approx(1)
        assert outcome.comparisons == 4 * 56


def test_launches_of_which_one_is_slow_give_false_alarms_that_are_counted():
    """All five of a baseline agree to the last digit: nothing of the noise can be known from them."""
    logs = (0.0, 0.00001, -0.00001, 0.00002, -0.00002, 0.2, 0.2, 0.2)
    gated = (Gated("test", "one engine", "tpot", "lower", 0.03, logs),)
    gated += (Gated("calm", "one engine", "tpot", "lower", 0.03, tuple(0.001 * (i % 3) for i in range(8))),)
    of = Material(("engine",), True, 8, gated, ())
    findings = calibrate(of, split(8, 5, at_most=8), at_most=8)
    assert findings.false_alarms.hits == 1  # of the one split that has the fast ones for its baseline


def test_noise_is_pooled_and_the_noisiest_test_named():
    calm = material(0.005, launches=10, tests=5)
    loud = tuple(x * 6 for x in calm.gated[0].logs)
    of = Material(("engine",), True, 10, (*calm.gated, Gated("loud", "one engine", "tpot", "lower", 0.03, loud)), ())
    findings = calibrate(of, split(10, 5, at_most=8, most=5), at_most=8)
    tpot = next(one for one in findings.noises if one.metric == "tpot")
    assert tpot.tests == 6
    assert tpot.noisiest[0][0] == "loud"
    assert tpot.noisiest[0][1] > 2 * tpot.noisiest[1][1]
    assert 0.002 < tpot.pooled < 0.02


def test_the_text_fits_80_columns_and_says_what_the_interval_is_worth():
    text = render(found(0.03))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "Runs with a false regressed: 0 of 56 (0.0%; exact 95 % interval 0.0% to 6.4%)" in flat
    assert "as if the splits were independent" in flat
    assert "only 1 of them could be made without a launch in common" in flat
    assert "SIMULATED" in text


def test_the_json_is_strict_and_holds_the_same_figures():
    findings = found(0.008)
    record = json.loads(as_json(findings), parse_constant=pytest.fail)
    assert record["false_alarms"]["trials"] == 56
    assert record["false_alarms"]["interval"][1] == pytest.approx(findings.false_alarms.interval[1])
    assert record["splits"] == {
        "baseline_launches": 5, "run_launches": 3, "judged": 56, "possible": 56, "disjoint": 1,
    }  # fmt: skip
    assert [one["worsening"] for one in record["detection"] if one["metric"] == "tpot"] == list(WORSENINGS)


def record(name, launches=6, tolerances=None, invalid=None, values=None):
    values = values or [[1.0 + i / 100, 1.0, 1.2] for i in range(launches)]
    metric = {"unit": "s", "better": "lower", "value": 1.0, "percentiles": None, "launches": values, "reason": None}
    missing = {"unit": "s", "better": "lower", "value": None, "percentiles": None, "launches": [], "reason": "none"}
    engine = {
        "kind": "sim", "version": "sim:h200", "model": "m", "args": {}, "treatment": {}, "simulated": True,
        "device": "NVIDIA H200", "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto",
        "tensor_parallel_size": 1,
    }  # fmt: skip
    return {
        "nodeid": name, "verdict": "measured", "outcome": "passed", "workload": {}, "engine": engine, "clock": {},
        "metrics": {"tpot": metric, "ttft": missing}, "verdicts": [], "requests": None, "client_overhead": None,
        "tolerances": {"tpot": 0.03, "ttft": 0.5} if tolerances is None else tolerances,
        "warnings": [], "invalid": invalid,
    }  # fmt: skip


def results(*tests):
    run = {"id": "1", "started_at": "now", "command": "pytest", "commit": None, "dirty": None, "plugin_version": "1"}
    machine = {"python": "3", "platform": "p", "cpu": "c", "cuda": None, "gpus": [], "sensor": None}
    head = {"schema_version": 1, "run": run, "environment": machine}
    return Results.model_validate({**head, "tests": list(tests)})


def test_the_gated_metrics_with_values_are_the_material_and_a_launch_is_its_median():
    of = material_of(results(record("a"), record("b")), Path("report"))
    assert [(one.test, one.metric, one.tolerance) for one in of.gated] == [("a", "tpot", 0.03), ("b", "tpot", 0.03)]
    assert of.launches == 6
    assert of.gated[0].logs[0] == pytest.approx(0.0)
    assert of.gated[0].logs[5] == pytest.approx(0.048790, abs=1e-6)


def test_what_cannot_be_compared_is_left_out_and_named():
    of = material_of(
        results(
            record("good"), record("better"), record("shorter", launches=4), record("free", tolerances={}),
            record("bad", invalid="the clock was not held"), record("zero", values=[[0.0]] * 6),
        ),
        Path("report"),
    )  # fmt: skip
    assert of.tests == ["good", "better"]
    told = "\n".join(of.left_out)
    assert "free: nothing of it is gated" in told
    assert "bad: the clock was not held" in told
    assert "shorter: it has 4 launches, and most have 6" in told
    assert "zero: tpot has launches without a value above 0" in told


def test_a_report_without_anything_gated_is_an_error_that_names_it():
    with pytest.raises(ResultsError, match=r"report holds no test.*nothing of it is gated"):
        material_of(results(record("free", tolerances={})), Path("report"))
