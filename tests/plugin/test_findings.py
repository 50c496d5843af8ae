"""What a run's tests say together is in its results.json, whatever becomes of it."""

import json

import pytest

from pytest_llmperf import findings
from pytest_llmperf.__main__ import main

SWEEP = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.usefixtures("gpu_clock")
@pytest.mark.parametrize("gpu_clock", [750, 900, 1050, 1300], indirect=True)
def test_clock(llmperf):
    llmperf.measure(Workload(1, 16, batch=4))
"""


@pytest.fixture
def swept(suite):
    """A sweep of the simulated V100, and a way to read its findings."""
    suite.write(SWEEP)

    def findings_of():
        return {f["kind"]: f for f in json.loads(suite.results.read_text())["findings"]}

    def run():
        suite.run("--llmperf-model=mistral-7b", "--llmperf-launches=1", "--llmperf-repeats=1", engine="sim:v100")
        return findings_of()

    run.again = findings_of
    run.report = suite.results.parent
    return run


def test_a_sweep_of_the_clock_ends_in_a_recommendation(swept):
    spot = swept()["sweet_spot"]
    assert spot["sentences"][0].startswith("Lock at 900 MHz: -")
    assert [row[0] for row in spot["rows"]] == [750, 900, 1050, pytest.approx(1300, abs=8)]
    assert len(spot["tests"]) == 4


def test_the_report_command_finds_again_what_a_record_does_not_hold(swept, capsys):
    before = swept()
    path = swept.report / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "findings": []}))
    assert main(["report", str(swept.report)]) == 0
    assert swept.again() == before


def test_a_question_that_throws_loses_no_report(swept, monkeypatch):
    def broken(*_):
        raise RuntimeError("odd")

    monkeypatch.setattr(findings, "_QUESTIONS", tuple((kind, broken) for kind, _ in findings._QUESTIONS))
    found = swept()
    assert (swept.report / "report.html").exists()
    assert "RuntimeError: odd" in found["sweet_spot"]["sentences"][0]
