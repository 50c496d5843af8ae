import pytest

from pytest_llmperf.report.page import overview
from pytest_llmperf.results import Finding

from ..records import ENGINE, IMPROVED, INCONCLUSIVE, PASSED, REGRESSED, UNSTORED, record, results, verdict

MEASURED = record("a.py::test_m")
CRASHED = record("a.py::test_c", verdict(), outcome="failed")


@pytest.mark.parametrize(
    ("tests", "tone", "text"),
    [
        ([], "plain", "No test measured anything."),
        ([PASSED], "good", "The one test is within tolerance."),
        ([PASSED, IMPROVED], "good", "All 2 tests are within tolerance, 1 improved."),
        ([PASSED, MEASURED], "good", "The one test that was gated is within tolerance."),
        ([MEASURED], "plain", "1 test measured; nothing was gated."),
        ([PASSED, REGRESSED], "bad", "1 of 2 tests regressed."),
        ([UNSTORED, REGRESSED], "bad", "1 of 2 tests regressed, 1 could not be judged."),
        ([INCONCLUSIVE, PASSED], "warn", "1 of 2 tests could not be judged."),
        ([CRASHED, PASSED], "bad", "1 of 2 tests failed for another reason than a verdict."),
    ],
)
def test_the_headline_says_how_it_stands(tests, tone, text):
    assert overview.headline(results(*tests).tests) == overview.Headline(tone, text)


def test_changes_begin_with_the_test_that_is_furthest_beyond_its_tolerance():
    worse = record("a.py::test_w", verdict("ttft", "regressed", 0.1), verdict("tpot", "regressed", 0.4))
    found = overview.changes(results(IMPROVED, REGRESSED, PASSED, INCONCLUSIVE, worse).tests)
    assert [one.test.nodeid.rpartition("::")[2] for one in found] == [
        "test_w", "test_decode[16]", "test_decode[4]", "test_decode[1]",
    ]  # fmt: skip
    assert (found[0].verdict.metric, found[0].others) == ("tpot", ["ttft"])
    assert (found[0].before, found[0].now, found[0].change) == ("4.000 ms", "5.600 ms", "+40.0 %")


def test_reasons_that_differ_in_figures_are_told_once():
    tests = [
        record(
            f"a.py::test_{n}",
            verdict("tpot", "regressed", 0.1),
            explanation=[f"Decode is {n}.0 % slower (from {n} s)."],
        )
        for n in (7, 8, 9)
    ]
    other = record("a.py::test_o", verdict("ttft", "regressed", 0.1), explanation=["Prefill is slower."])
    found = overview.reasons(overview.changes(results(*tests, other).tests))
    assert [(reason.text, reason.others) for reason in found] == [
        ("Decode is 7.0 % slower (from 7 s).", 2), ("Prefill is slower.", 0),
    ]  # fmt: skip


def test_what_was_measured_names_every_part():
    locked = record("a.py::test_l", engine=ENGINE | {"tensor_parallel_size": 2}, clock={"locked_mhz": 1200})
    facts = dict(overview.measured(results(PASSED, locked, dirty=True)))
    assert facts["Model"] == "mistral-7b (bfloat16)"
    assert facts["Board"] == "NVIDIA H200, 2x NVIDIA H200"
    assert facts["SM clock"] == "900 to 1200 MHz, locked at 2 clocks"
    assert facts["Started"] == "2026-01-01 12:00 UTC"
    assert facts["Commit"] == "0123456789 with uncommitted changes"


def test_simulated_figures_are_said_to_be_that():
    simulated = record("a.py::test_s", engine=ENGINE | {"simulated": True})
    assert overview.simulated(results(PASSED)) is None
    assert overview.simulated(results(simulated)) == "Simulated: the figures are computed, and are of no real board."
    assert "in 1 of 2 tests" in overview.simulated(results(simulated, PASSED))


def test_one_finding_of_each_kind_is_told_first():
    kinds = ["sweet_spot", "sweet_spot", "idle", "sweet_spot"]
    findings = [
        Finding(kind=kind, name=f"n{n}", title="t", sentences=["s"], columns=[], rows=[], marks=[], tests=[])
        for n, kind in enumerate(kinds)
    ]
    assert [finding.name for finding in overview.first_findings(findings)] == ["n0", "n2"]


CAPPED = "The clock ran free and gave way for 40% of the time: 9 of 300 samples throttled (power cap)."


def free(name, **fields):
    seen = {"median": 1500.0, "min": 1200.0, "max": 1980.0}
    return record(f"a.py::test_{name}", clock={"locked_mhz": None, "observed_mhz": seen}, **fields)


def test_a_free_clock_is_said_to_be_held_down_by_the_power_cap():
    tests = free("a", warnings=[CAPPED]), free("b")
    assert dict(overview.measured(results(*tests)))["SM clock"] == "free, held down by the power cap in 1 of 2 tests"
    assert dict(overview.measured(results(tests[1])))["SM clock"] == "free"
    mixed = dict(overview.measured(results(*tests, PASSED)))["SM clock"]
    assert mixed == "900 MHz, locked, and free, held down by the power cap in 1 of 3 tests"


def test_arguments_under_test_are_on_the_first_screen():
    treated = record("a.py::test_t", engine=ENGINE | {"treatment": {"compilation_config": {"fuse": False}}})
    bare = record("a.py::test_h", engine=ENGINE | {"kind": "hardware"})
    told = '{"compilation_config": {"fuse": false}}'
    assert dict(overview.measured(results(treated, bare)))["Arguments under test"] == told
    assert dict(overview.measured(results(treated, PASSED)))["Arguments under test"] == f"{told} in 1 of 2 tests"
    assert "Arguments under test" not in dict(overview.measured(results(PASSED)))


def test_of_many_sets_of_arguments_the_rest_is_counted():
    tests = [record(f"a.py::test_{n}", engine=ENGINE | {"treatment": {"seed": n}}) for n in range(4)]
    assert dict(overview.measured(results(*tests)))["Arguments under test"].endswith(
        '{"seed": 1} in 1 of 4 tests, 2 more'
    )
