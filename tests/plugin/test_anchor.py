"""Many small steps, each of them accepted: the anchor adds them up."""

import json

import pytest

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.llmperf(tolerance="5%")
def test_decode(llmperf):
    llmperf.check(Workload(input_len=8, output_len=8))
"""
NOISE = "launch_noise=0.003,repeat_noise=0.002"
QUICK = ("-p", "tests.plugin.quick", "--benchmark-disable")


@pytest.fixture
def slower(suite):
    """Save, or gate, an engine so many times slower than the first."""
    suite.write(SUITE)

    def run(steps, *options):
        engine = f"sim:h200,{NOISE},seed={steps},slowdown={1.03**steps:.6f}"
        return suite.run(*QUICK, *options, engine=engine)

    return run


def verdicts(suite, against):
    (record,) = suite.records().values()
    return {v["metric"]: v["verdict"] for v in record["verdicts"] if v["against"] == against}


def test_ten_steps_of_three_percent_are_caught_though_each_is_within_the_tolerance(suite, slower):
    slower(0, "--llmperf-save").assert_outcomes(passed=1)
    caught = []
    gated = (1, 2, 3, 4, 5, 10)
    for step in range(1, 11):
        if step in gated:
            result = slower(step)
            assert "regressed" not in verdicts(suite, "baseline").values(), "3 % a step is within 5 %"
            if "regressed" in verdicts(suite, "anchor").values():
                caught.append(step)
                result.assert_outcomes(failed=1)
                result.stdout.fnmatch_lines(["*tpot: regressed: *"])
        slower(step, "--llmperf-save").assert_outcomes(passed=1)
    # The budget is twice the tolerance: 10 %, which four steps of 3 % have passed and three have not.
    assert caught in ([4, 5, 10], [5, 10])


def test_the_anchor_of_the_first_baseline_stays_until_one_is_pinned(suite, slower):
    from pytest_llmperf.__main__ import main

    slower(0, "--llmperf-save")
    slower(4, "--llmperf-save")
    (path,) = (suite.folder / "baselines").rglob("*.json")
    first = json.loads(path.read_text())["anchor"]["saved_at"]
    slower(5, "--llmperf-save")
    assert json.loads(path.read_text())["anchor"]["saved_at"] == first
    slower(5)
    assert verdicts(suite, "anchor")["tpot"] == "regressed"
    assert main(["baselines", str(suite.folder / "baselines"), "--pin"]) == 0
    slower(5).assert_outcomes(passed=1)
    assert verdicts(suite, "anchor") == {}


def test_a_save_says_what_is_accepted_with_it(suite, slower):
    slower(0, "--llmperf-save")
    assert not any("replaces" in warning for record in suite.records().values() for warning in record["warnings"])
    slower(1, "--llmperf-save")
    (record,) = suite.records().values()
    (said,) = (warning for warning in record["warnings"] if "replaces a baseline" in warning)
    assert "tpot +3." in said or "tpot +2." in said
