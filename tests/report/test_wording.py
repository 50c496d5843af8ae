"""What terminal, page and summary say in the same words."""

import pytest

from pytest_llmperf.report.wording import acceptance, badness, by_kind, evidence, judged, plural, worst_regression
from pytest_llmperf.results import VerdictRecord

from .records import GATE, IMPROVED, PASSED, metric, record, results, verdict


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(1, "launch", "1 launch"), (2, "launch", "2 launches"), (0, "test", "0 tests"), (2, "more test", "2 more tests")],
)
def test_counts(count, noun, said):
    assert plural(count, noun) == said


def of(**fields):
    return VerdictRecord.model_validate(verdict(**fields))


def test_worse_is_more_time_and_less_throughput():
    assert badness(of(change=0.05), "lower") == pytest.approx(1)
    assert badness(of(change=1 / 1.05 - 1), "higher") == pytest.approx(1)
    assert badness(of(change=0.05), "higher") == pytest.approx(-1)
    assert badness(of(change=None), "lower") == 0


def test_the_worst_of_metrics_that_are_better_in_other_directions():
    slower = record("a", verdict("tpot", "regressed", 0.07))
    less = record("b", verdict("throughput", "regressed", -0.2))
    assert worst_regression(results(slower, less).tests)[0].nodeid == "b"
    assert worst_regression(results(PASSED).tests) is None


def test_a_tolerance_of_what_is_better_when_higher_is_a_ratio():
    assert evidence(of(change=-0.2, interval=None, launches=0), "higher") == "-20.0 %, tolerance 5.0 % (down to -4.8 %)"


def test_one_launch_against_several_is_said_to_be_a_prediction():
    assert evidence(of(launches=1, prediction=True), "lower").endswith("1 launch against 5 (prediction interval)")


@pytest.mark.parametrize(("alpha", "runs"), [(0.01, 100), (0.05, 20), (1 / 3, 3), (0.03, 33)])
def test_an_error_rate_is_said_as_runs_and_never_better_than_it_is(alpha, runs):
    assert f"in at most 1 run of {runs};" in judged(results(PASSED, gate=GATE | {"family_alpha": alpha}))


def test_launches_are_counted_by_test():
    one = record("t", metrics={"tpot": metric("tpot", 0.1), "mbu": metric("mbu")})
    nothing = record("u", metrics={})
    assert "launches used 2.0 on average" in judged(results(PASSED, one, nothing, gate=GATE))
    assert judged(results(one, nothing, gate=GATE)) is None, "nothing was compared"
    assert judged(results(PASSED)) is None


def test_kinds_differ_in_more_than_figures():
    texts = ["4 of 5 are late", "3 of 12 are late", "others are not"]
    assert by_kind((t, t) for t in texts) == [("4 of 5 are late", 1), ("others are not", 0)]


def test_few_improvements_are_accepted_by_name_and_many_by_the_whole_run():
    many = [IMPROVED | {"nodeid": f"t.py::test_{n}"} for n in range(6)]
    told, command = acceptance(results(*many[:2], PASSED))
    assert "measure these tests again" in told
    assert command == "pytest t.py::test_0 t.py::test_1 --llmperf-engine vllm --llmperf-save"
    told, command = acceptance(results(*many))
    assert "measure all tests of this run again" in told
    assert command == "pytest suites/ --llmperf-engine vllm --llmperf-save"
    assert acceptance(results(PASSED)) is None
