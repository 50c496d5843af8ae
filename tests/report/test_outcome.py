"""A run in one line, and what its tests have in common."""

import pytest

from pytest_llmperf.report.outcome import common_cause, verdict_line, without_cause

from .records import ENGINE, IMPROVED, INCONCLUSIVE, PASSED, REGRESSED, UNSTORED, record, results, verdict


def line(*tests):
    return verdict_line(results(*tests))[0]


def test_every_verdict_is_counted_and_the_worst_is_named():
    assert line(
        PASSED, INCONCLUSIVE, REGRESSED, UNSTORED, IMPROVED, PASSED | {"nodeid": "suites/test_x.py::test_b"}
    ) == (
        "6 tests: 1 regressed, 1 inconclusive, 1 without a baseline, 1 improved, 2 passed; "
        "worst: tpot of decode[16] +7.2 %"
    )


def test_where_nothing_regressed_the_largest_of_what_is_not_decided_is_named():
    more = record("suites/test_x.py::test_b", verdict("throughput", "inconclusive", -0.2))
    assert line(INCONCLUSIVE, more, PASSED).endswith("; worst: throughput of b -20.0 %")


def test_a_regression_from_the_anchor_says_so():
    assert line(record("f.py::t", verdict("tpot", "regressed", 0.2, against="anchor"))).endswith("+20.0 % (anchor)")


@pytest.mark.parametrize(
    ("tests", "said", "markup"),
    [
        ([PASSED], "1 test: 1 passed", {"bold": True, "green": True}),
        ([PASSED | {"outcome": "failed"}], "1 test: 1 failed for another reason", {"bold": True, "red": True}),
        ([record("t")], "1 test: 1 measured", {"bold": True}),
        ([record("t", engine=ENGINE | {"simulated": True})], "1 test: 1 simulated", {"bold": True}),
        ([record("t", worst="invalid", invalid="x")], "1 test: 1 invalid", {"bold": True, "red": True}),
        ([record("t", worst="not-applicable")], "1 test: 1 with nothing to gate", {"bold": True}),
        ([], "0 tests", {"bold": True}),
    ],
)
def test_runs_without_a_change(tests, said, markup):
    assert verdict_line(results(*tests)) == (said, markup)


def test_a_hostile_name_does_nothing():
    assert line(record("f.py::t\x1b[2J", verdict("tpot", "regressed", 0.2))).isprintable()


def told(*causes):
    return results(
        *(
            record(f"f.py::t{place}", verdict("tpot", "regressed", 0.2), explanation=cause)
            for place, cause in enumerate(causes)
        )
    )


def test_a_cause_is_common_where_all_that_tell_one_tell_the_same():
    beside, alone = ["Decode is slower; under test: a=1; b.", "Else."], ["Decode is slower.", "Under test: a=1; b."]
    assert common_cause(told(beside, alone, ["Decode is slower."])) == ("a=1; b", 2)
    assert common_cause(told(beside)) is None
    assert common_cause(told(beside, ["X; under test: c."])) is None
    assert common_cause(told([], [])) is None
    assert without_cause(beside, "a=1; b") == ["Decode is slower.", "Else."]
    assert without_cause(alone, "a=1; b") == ["Decode is slower."]
    assert without_cause(alone, "a=1") == alone


def test_a_test_that_the_end_of_the_run_cut_short_is_no_pass():
    text, markup = verdict_line(results(PASSED, record("t", outcome="unfinished")))
    assert text == "2 tests: 1 not finished, 1 passed"
    assert markup == {"bold": True, "red": True}
