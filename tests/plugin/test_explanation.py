"""What moved with a regression, through the whole plugin on a simulated engine."""

import json
import xml.etree.ElementTree as ET

import pytest

from pytest_llmperf import baselines
from pytest_llmperf.__main__ import main
from pytest_llmperf.conditions import CONDITIONS
from pytest_llmperf.measurement import Measurement

ONE = """
from pytest_llmperf import Workload
def test_one(llmperf):
    llmperf.check(Workload(input_len=64, output_len=64, batch=4))
"""
SAVE = ("--llmperf-save", "--llmperf-launches=2")


@pytest.fixture
def saved(suite):
    """A suite of one test with a baseline of two launches."""
    suite.write(ONE)
    suite.run(*SAVE).assert_outcomes(passed=1)
    return suite


def baseline(suite):
    (path,) = (suite.folder / "baselines").rglob("*.json")
    return path, json.loads(path.read_text())


def test_a_baseline_holds_its_conditions_launch_by_launch(saved):
    _, stored = baseline(saved)
    assert stored["conditions"]["sm_clock"] == [1.98e9, 1.98e9]
    assert len(stored["conditions"]["decode_time"]) == 2
    assert "preemptions" not in stored["conditions"]  # a server's alone
    assert [board["uuid"] for board in stored["provenance"]["boards"]] == ["GPU-sim-h200-0"]


def test_a_slower_engine_is_explained_by_what_is_under_test(saved):
    result = saved.run("--junitxml=junit.xml", engine="sim:h200,slowdown=1.2")
    record = saved.records()["test_one"]
    first = record["explanation"][0]
    assert first.startswith("Decode is 20.0 % slower (from ")
    assert first.endswith("; under test: slowdown=1.2 (not given in the baseline).")
    assert record["explanation"][-1].startswith("As in the baseline: clocks, throttling, temperature")
    assert first in " ".join(" ".join(result.stdout.lines).split())
    (failure,) = ET.parse(saved.folder / "junit.xml").getroot().iter("failure")
    assert first in " ".join(failure.text.split())
    assert first in (saved.folder / "report/report.html").read_text().replace("&#39;", "'")


def test_the_record_alone_holds_both_sides_of_every_condition(saved):
    saved.run(engine="sim:h200,slowdown=1.2")
    record = saved.records()["test_one"]
    assert record["conditions"].keys() == CONDITIONS.keys()
    _, stored = baseline(saved)
    for name, condition in record["conditions"].items():
        assert condition["baseline_launches"] == stored["conditions"].get(name, [])
        assert (condition["value"] is None) == (condition["reason"] is not None), name
    assert record["baseline_provenance"].items() >= stored["provenance"].items()
    assert record["provenance"]["treatment"] == {"slowdown": 1.2}


def test_a_lower_clock_is_seen_beside_a_slower_decode(suite, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # As if nobody knew that it was locked: the clock is part of what a baseline holds for.
    monkeypatch.setattr(Measurement, "clock", property(lambda _: None))
    suite.write(ONE)
    suite.run(*SAVE, "--gpu-clock=1500").assert_outcomes(passed=1)
    suite.run("--gpu-clock=1005").assert_outcomes(failed=1)
    first, *others = suite.records()["test_one"]["explanation"]
    assert first.startswith("Decode is ")
    assert first.endswith(
        "; with it the SM clock was 33.0 % lower (1.005 GHz, 1.500 GHz in the baseline), held back by neither the "
        "power cap nor heat."
    )
    assert not any(text.startswith("Under test") for text in others)


def test_more_power_is_told_as_energy(saved):
    saved.run(engine="sim:h200,power_scale=1.2").assert_outcomes(failed=1)
    first = saved.records()["test_one"]["explanation"][0]
    assert first.startswith("Energy a token is 20.0 % higher: power 20.0 % higher, time as in the baseline; under test")


def test_a_pass_is_not_explained(saved):
    saved.run().assert_outcomes(passed=1)
    record = saved.records()["test_one"]
    assert record["explanation"] == []
    assert record["conditions"]["sm_clock"]["baseline"] == 1.98e9


def test_a_test_that_gates_nothing_holds_its_conditions(suite):
    suite.write(ONE.replace("check", "measure"))
    suite.run().assert_outcomes(passed=1)
    record = suite.records()["test_one"]
    assert record["conditions"]["decode_time"]["value"] > 0
    assert record["conditions"]["decode_time"]["baseline"] is None
    assert record["provenance"] is None


def test_a_phase_measurement_and_a_search_have_conditions_too(suite):
    suite.write(
        """
from pytest_llmperf import Workload
def test_phases(llmperf):
    llmperf.check_phases(Workload(64, 16, batch=2))
def test_rate(llmperf):
    llmperf.check_max_rate(Workload(64, 16, slo={"ttft": 0.1}), low=4, high=64, seconds=1)
"""
    )
    suite.run(*SAVE).assert_outcomes(passed=2)
    suite.run(engine="sim:h200,slowdown=1.5")
    assert suite.records()["test_phases"]["explanation"][0].startswith("Decode is 50.0 % slower")
    assert suite.records()["test_rate"]["conditions"]["batch_occupancy"]["baseline"] > 0


def test_the_commands_read_what_a_run_has_written(saved, capsys):
    saved.run("--llmperf-report=before")
    saved.run(engine="sim:h200,slowdown=1.2")
    capsys.readouterr()
    report = saved.folder / "report"
    assert main(["explain", str(report), "--json"]) == 0
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    assert [one["derived"]["verdict"] for one in test["verdicts"] if one["metric"] == "tpot"] == ["regressed"]
    assert main(["explain", str(report)]) == 0
    assert "Decode is 20.0 % slower" in capsys.readouterr().out
    assert main(["compare", str(saved.folder / "before"), str(report)]) == 0
    out = capsys.readouterr().out
    assert "Different: slowdown=1.2 (not given in A)" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_hostile_arguments_are_text_in_the_paragraph_and_the_page(saved):
    path, _ = baseline(saved)
    stored = baselines.load(path)
    hostile = {**stored.provenance, "treatment": {"<img src=x>": "\x1b[2J"}}
    baselines.store(path, stored.model_copy(update={"provenance": hostile}))
    result = saved.run(engine="sim:h200,slowdown=1.2")
    assert not any("\x1b" in line for line in result.stdout.lines)
    page = (saved.folder / "report/report.html").read_text()
    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page
