"""What stands below the table."""

import pytest

from pytest_llmperf.report.notices import concerns, measurement, of_run, other_metrics, repeated_advice
from pytest_llmperf.runner.clock import _gave_way

from .records import metric, record, results, verdict

CAPPED = "{} of 300 samples throttled (power cap)", "throttled by the board's own account (power cap 820 ms)"


def capped(name, *fractions, causes=CAPPED, phase=""):
    told = [phase + text for fraction in fractions for text in _gave_way(fraction, causes)]
    return record(f"f.py::{name}", warnings=told)


def test_power_capping_is_one_line_a_run():
    tests = [capped("a", 0.33), capped("b", 0.07, 0.12), capped("c", 1.0, phase="half output: "), record("f.py::d")]
    assert of_run(results(*tests))[1:] == [
        "power cap: the clock ran free and gave way in 3 of 4 tests, for 12 to 100 % (median 33 %) of the time"
    ]
    assert concerns(results(*tests)) == []


def test_power_capping_of_one_test():
    assert of_run(results(capped("a", 0.5)))[1:] == [
        "power cap: the clock ran free and gave way in the test, for 50 % of the time"
    ]


def of_launches(*launches, count=1):
    return [
        record(f"f.py::t{launches}{n}", metrics={"tpot": metric("tpot") | {"launches": launches}}) for n in range(count)
    ]


def test_how_often_things_were_measured_is_told_the_commonest_first():
    tests = [*of_launches([1.0]), *of_launches([1.0, 2.0], count=3), *of_launches([1.0, 2.0], [1.0, 2.0], count=2)]
    assert of_run(results(*tests)) == [
        "how often: 1 launch of 2 repeats in 3 of 6 tests, 2 launches of 2 repeats in 2, 1 launch of 1 repeat in 1"
    ]
    more = [*tests, *of_launches([1.0], [2.0], [3.0])]
    assert of_run(results(*more))[0].endswith("1 launch of 1 repeat in 1, other numbers in 1")


def test_of_a_run_without_figures_nothing_is_said():
    assert of_run(results(record("f.py::a", metrics={}))) == []


@pytest.mark.parametrize("causes", [("9 of 300 samples throttled (power cap, thermal slowdown)",), ("9 samples lost",)])
def test_a_clock_that_gave_way_to_something_else_is_a_warning(causes):
    run = results(capped("a", 0.5, causes=causes), capped("b", 0.4, causes=causes))
    assert of_run(run) == ["how often: 3 launches of 1 repeat a test"]
    (told,) = concerns(run)
    assert told.startswith("a: The clock ran free and gave way for 50% of the time: ")
    assert told.endswith("(and 1 more of this kind)")


def test_warnings_of_one_kind_are_one_line():
    tests = [
        record("f.py::a", warnings=["5% of the energy window lie between the repeats.", "Other words altogether."]),
        record("f.py::b", warnings=["prefill: 9.5% of the energy window lie between the repeats."]),
    ]
    assert concerns(results(*tests)) == [
        "a: 5% of the energy window lie between the repeats. (and 1 more of this kind)",
        "a: Other words altogether.",
    ]


def test_of_many_kinds_the_report_has_the_rest():
    tests = [record("f.py::a", warnings=[f"{word} is wrong." for word in "abcdefg"])]
    assert concerns(results(*tests))[5:] == ["warnings of 2 more kinds are in the report"]


def test_one_advice_on_two_metrics_is_one_line():
    advised = [verdict(name, "inconclusive", 0.1, advice="Launch again.") for name in ("ttft", "tpot")]
    echo = verdict("mbu", "inconclusive", 1 / 1.1 - 1, advice="Launch again.")
    assert concerns(results(record("f.py::a", *advised, echo))) == ["ttft, tpot of a: Launch again."]


def test_figures_that_no_column_shows_are_told():
    idle = {
        name: metric("tpj", value) | {"unit": "W"} for name, value in (("bare_power", 75.0), ("loaded_power", 118.0))
    }
    idle["locked_power"] = metric("tpj", reason="no clock is held") | {"unit": "W"}
    assert other_metrics(results(record("f.py::test_idle", metrics=idle), record("f.py::t"))) == [
        "test_idle: bare_power 75.00 W, loaded_power 118.0 W"
    ]
    assert other_metrics(results(record("f.py::test_idle", metrics=idle)), told={"f.py::test_idle"}) == []


def served(goodput, completed, *, failed=0, **workload):
    rates = {"goodput": goodput, "request_throughput": completed}
    metrics = {name: metric("throughput", value) | {"unit": "1/s"} for name, value in rates.items()}
    requests = {
        "sent": 40, "completed": 40 - failed, "failed": failed, "first_error": None, "output_tokens": 1,
        "token_source": "server",
    }  # fmt: skip
    offered = {"rate": 2.0, "requests": 20, "arrival": "poisson", **workload}
    return results(record("f.py::test_open_loop", metrics=metrics, requests=requests, workload=offered))


def test_goodput_is_told_beside_the_requests_that_ended_and_never_as_more_than_was_offered():
    assert measurement(served(2.598, 2.598)) == [
        "test_open_loop: 100.0% of requests within every limit: goodput 2.598 of 2.598 requests/s that ended in the "
        "window (20 arrivals drawn at 2/s)",
        "how often: 1 launch of 1 repeat a test",
    ]
    (said, _) = measurement(served(0.5, 2.0, failed=3, arrival="constant"))
    assert "25.0% of requests within every limit: goodput 0.500 of 2.000 requests/s" in said
    assert said.endswith(" that ended in the window, 3 of 40 requests failed (20 arrivals at 2/s)")


def test_advice_is_repeated_where_several_tests_have_it_in_the_same_words():
    def advised(name, text):
        return record(f"f.py::{name}", verdict("tpot", "inconclusive", 0.05, advice=text))

    same = [advised(name, "Launch again.") for name in "ab"]
    assert repeated_advice(results(*same, advised("c", "Store another baseline."))) == {"Launch again."}
    assert repeated_advice(results(advised("a", "Take 5 launches."), advised("b", "Take 6 launches."))) == frozenset()
