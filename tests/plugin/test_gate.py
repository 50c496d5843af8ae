"""Saving baselines and gating against them, through the whole plugin."""

import json
import xml.etree.ElementTree as ET

import pytest

from pytest_llmperf.baselines import baseline_path, load, store

ONE = """
from pytest_llmperf import Workload
def test_one(llmperf):
    run = llmperf.check(Workload(input_len=64, output_len=16, batch=4))
    assert run.metrics.tpot.value {limit}
"""


def one(suite, limit="> 0"):
    suite.write(ONE.format(limit=limit))


def stored(suite):
    return list((suite.folder / "baselines").rglob("*.json"))


def test_an_unchanged_engine_passes(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=1)
    result = suite.run()
    result.assert_outcomes(passed=1)
    record = suite.records()["test_one"]
    assert record["verdict"] == "pass"
    assert {v["metric"]: v["verdict"] for v in record["verdicts"]}["tpot"] == "pass"


def test_a_slower_engine_fails_with_one_readable_paragraph(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    result = suite.run("--junitxml=junit.xml", engine="sim:h200,slowdown=1.2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "regressed tpot *: test_suite.py::test_one",
            "  tpot: regressed: * in the baseline, * now: +20.0 %*",
            "    *tolerance 5.0 %, * against 2, lower is better",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    failures = list(ET.parse(suite.folder / "junit.xml").getroot().iter("failure"))
    assert len(failures) == 1
    assert "regressed" in failures[0].get("message")


def test_a_faster_engine_passes_and_the_baseline_stays(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    before = stored(suite)[0].read_text()
    suite.run(engine="sim:h200,slowdown=0.5").assert_outcomes(passed=1)
    assert suite.records()["test_one"]["verdict"] == "improved"
    assert stored(suite)[0].read_text() == before


def test_without_a_baseline_the_test_fails_and_says_what_to_run(suite):
    one(suite)
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*no-baseline: none is stored in *", "    pytest --llmperf-engine=sim:h200 * --llmperf-save"]
    )


def test_another_board_is_incomparable_and_the_field_is_named(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    result = suite.run(engine="sim:a100")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*incomparable*hardware: 'NVIDIA H200' in the baseline, 'NVIDIA A100*"])


def test_another_workload_is_incomparable(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    suite.write(ONE.format(limit="> 0").replace("batch=4", "batch=5"))
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*incomparable*workload: *"])


def test_the_treatment_is_compared_and_never_part_of_the_identity(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    suite.run(engine="sim:h200,seed=7,launch_noise=0.001").assert_outcomes(passed=1)


def test_saving_does_not_gate_and_takes_five_launches(suite):
    one(suite)
    suite.run("--llmperf-save").assert_outcomes(passed=1)
    result = suite.run("--llmperf-save", engine="sim:h200,slowdown=2")
    result.assert_outcomes(passed=1)
    baseline = json.loads(stored(suite)[0].read_text())
    assert len(baseline["metrics"]["tpot"]["launches"]) == 5
    assert suite.records()["test_one"]["verdict"] == "measured"


def test_a_test_that_fails_its_own_assertion_stores_nothing(suite):
    one(suite, limit="< 0")
    suite.run("--llmperf-save").assert_outcomes(failed=1)
    assert stored(suite) == []
    assert suite.records()["test_one"]["outcome"] == "failed"


def test_saving_one_test_leaves_the_others_baselines_alone(suite):
    suite.write(ONE.format(limit="> 0") + ONE.format(limit="> 0").replace("test_one", "test_two"))
    suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=2)
    before = {p: p.read_text() for p in stored(suite)}
    suite.run("--llmperf-save", "--llmperf-launches=2", "-k", "test_two", engine="sim:h200,slowdown=2")
    changed = [p for p, text in before.items() if p.read_text() != text]
    assert [p.name for p in changed] == ["test_two.json"]


def test_an_own_assertion_that_fails_after_a_pass_is_seen_in_the_results(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    one(suite, limit="< 0")
    result = suite.run()
    result.assert_outcomes(failed=1)
    record = suite.records()["test_one"]
    assert (record["verdict"], record["outcome"]) == ("pass", "failed")
    result.stdout.fnmatch_lines(["*pass, but failed"])


def test_tolerances_come_from_the_ini_file_and_the_marker_merges_over_them(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    slower = "sim:h200,slowdown=1.2"
    suite.run("-o", "llmperf_tolerance=50%", engine=slower).assert_outcomes(passed=1)
    suite.write("import pytest\npytestmark = pytest.mark.llmperf(tolerance={'tpot': '3%'})\n" + ONE.format(limit="> 0"))
    result = suite.run("-o", "llmperf_tolerance=50%", engine=slower)
    result.assert_outcomes(failed=1)
    verdicts = {v["metric"]: v["verdict"] for v in suite.records()["test_one"]["verdicts"]}
    assert (verdicts["tpot"], verdicts["ttft"]) == ("regressed", "pass")


def test_one_output_token_has_no_tpot_and_that_gates_nothing(suite):
    suite.write("from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.check(Workload(64, 1))")
    suite.run("--llmperf-save", "--llmperf-launches=2")
    suite.run().assert_outcomes(passed=1)
    verdicts = {v["metric"]: v["verdict"] for v in suite.records()["test_one"]["verdicts"]}
    assert (verdicts["tpot"], verdicts["ttft"]) == ("not-applicable", "pass")


def test_a_gate_that_compares_nothing_does_not_pass(suite, monkeypatch):
    monkeypatch.setattr("pytest_llmperf.options.GATED", ("tpot",))
    suite.write("from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.check(Workload(64, 1))")
    suite.run("--llmperf-save", "--llmperf-launches=2")
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*compares nothing does not pass*"])


@pytest.mark.parametrize("damage", ["[]", "null", "{", '{"schema_version": 1}', ""])
def test_a_damaged_baseline_fails_the_test_and_names_the_file(suite, damage):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    stored(suite)[0].write_text(damage)
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_one.json is unusable*"])


def test_a_simulated_baseline_is_never_found_for_a_real_board(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    baseline = json.loads(stored(suite)[0].read_text())
    assert baseline["identity"]["simulated"] is True
    assert "simulated" in str(stored(suite)[0].parent)


def test_a_measured_baseline_is_none_for_a_simulation(suite):
    one(suite)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    path = stored(suite)[0]
    found = load(path)
    real = found.model_copy(update={"identity": found.identity.model_copy(update={"simulated": False})})
    store(baseline_path(suite.folder / "baselines", real.identity, "test_suite.py::test_one"), real)
    path.unlink()
    suite.run().assert_outcomes(failed=1)
    assert suite.records()["test_one"]["verdict"] == "no-baseline"
