"""``check_max_rate``: a search in every launch, gated like any other figure."""

import pytest

SUITE = """
from pytest_llmperf import Workload

SERVED = Workload(256, 32, slo={"ttft": 0.2, "tpot": 0.012})

def test_rate(llmperf):
    run = llmperf.check_max_rate(SERVED, low=%s, high=%s, seconds=4, precision=0.1)
    assert run.metrics.max_rate.value is None or run.metrics.max_rate.value >= %s
"""


@pytest.fixture
def searched(suite):
    def run(*arguments, low=4, high=4096, engine="sim:h200"):
        suite.write(SUITE % (low, high, low))
        result = suite.run(*arguments, engine=engine)
        return result, suite.records().get("test_rate")

    return run


def test_a_search_is_saved_and_gated(searched):
    result, saved = searched("--llmperf-save", "--llmperf-launches=2")
    assert result.ret == 0
    result, record = searched()
    assert result.ret == 0
    assert [v["metric"] for v in record["verdicts"] if v["verdict"] != "not-applicable"] == ["max_rate"]
    assert record["metrics"]["max_rate"]["value"] == saved["metrics"]["max_rate"]["value"]
    assert "tpot" in {told["metric"] for told in record["advisory"]}
    result, record = searched(engine="sim:h200,slowdown=1.5")
    assert result.ret == 1
    assert record["verdict"] == "regressed"
    result.stdout.fnmatch_lines(["*max_rate: regressed: * 1/s in the baseline*"])
    assert record["advisory"] == []  # its other metrics are those at another rate


def test_every_launch_searches_and_the_trials_are_kept(searched):
    _, record = searched("--llmperf-save", "--llmperf-launches=3")
    trials = record["search"]["trials"]
    assert {trial["launch"] for trial in trials} == {0, 1, 2}
    assert len(record["metrics"]["max_rate"]["launches"]) == 3
    for launch in range(3):
        mine = [trial for trial in trials if trial["launch"] == launch]
        best = max(trial["rate"] for trial in mine if trial["met"])
        worst = min(trial["rate"] for trial in mine if not trial["met"])
        assert [best] == record["metrics"]["max_rate"]["launches"][launch]
        assert best < worst <= best * 1.1 * (1 + 1e-9)


def test_not_even_the_lowest_rate(searched):
    assert searched("--llmperf-save")[0].ret == 0
    result, record = searched(engine="sim:h200,slowdown=50")
    assert result.ret == 1
    assert record["metrics"]["max_rate"]["value"] is None
    assert "not even 4 requests/s" in record["metrics"]["max_rate"]["reason"]


def test_the_upper_end_is_said(searched):
    _, record = searched("--llmperf-save", high=8)
    assert record["metrics"]["max_rate"]["value"] == 8
    assert any("upper end of 8 requests/s" in warning for warning in record["warnings"])


def test_another_question_is_another_baseline(searched):
    searched("--llmperf-save")
    result, record = searched(low=2)
    assert result.ret == 1
    assert record["verdict"] == "incomparable"


def test_without_limits_there_is_nothing_to_search(suite):
    suite.write("""
from pytest_llmperf import Workload
def test_rate(llmperf):
    llmperf.check_max_rate(Workload(4, 4))
""")
    result = suite.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*needs limits to meet*"])


@pytest.mark.parametrize(
    "wrong", ["low=0", "low=2, high=1", "attainment=1.5", "precision=0", "seconds=-1", "low='a'", "high=float('nan')"]
)
def test_bounds_that_make_no_sense(suite, wrong):
    suite.write(f"""
from pytest_llmperf import Workload
def test_rate(llmperf):
    llmperf.check_max_rate(Workload(4, 4, slo={{"ttft": 1}}), {wrong})
""")
    assert suite.run().ret == 1
