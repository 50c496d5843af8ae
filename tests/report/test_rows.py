"""The table of tests: what is kept, and what is cut, where the terminal is narrow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.report.cells import abridged, before_parameters, labels, verdict_cell
from pytest_llmperf.report.rows import rows, told_in_rows, without_columns

from .records import ENGINE, INCONCLUSIVE, PASSED, REGRESSED, UNSTORED, metric, record, results, verdict


def head_and_lines(*records, width=80):
    head, *lines = [line for line, _ in rows(results(*records), width)]
    return head, lines


def titles(*records, width=80):
    return head_and_lines(*records, width=width)[0].split()[1:-1]


def with_power(test):
    power = metric("tpj", 400.0, 401.0, 399.0) | {"unit": "W", "better": "lower"}
    return test | {"metrics": test["metrics"] | {"power": power}}


def test_energy_does_not_vanish_because_a_verdict_is_long():
    long = record("test_x.py::test_end_to_end[16]", verdict("token_agreement", "regressed", -0.2))
    assert titles(long, REGRESSED) == ["TTFT", "TPOT", "tokens/s", "tokens/J"]
    assert titles(long, REGRESSED, width=60) == ["TPOT", "tokens/J"]


def test_spare_columns_are_there_where_nothing_is_cut_for_them():
    test = with_power(record("test_x.py::test_end_to_end_of_something[16]"))
    assert titles(test) == ["TTFT", "TPOT", "tokens/s", "tokens/J"]
    assert titles(test, width=200) == ["TTFT", "TPOT", "latency", "tokens/s", "power", "tokens/J"]


def test_what_decided_a_verdict_is_shown_before_what_is_shown_otherwise():
    latency = record("test_x.py::test_a[1]", verdict("e2e_latency", "regressed", 0.2))
    assert titles(latency, width=50) == ["TPOT", "latency"]
    assert titles(PASSED, width=50) == ["TTFT", "TPOT", "tokens/J"]


def test_a_metric_that_no_test_has_takes_no_column():
    prefill = record("t", metrics={"ttft": metric("ttft", 0.02), "tpot": metric("tpot", reason="one output token")})
    assert titles(prefill) == ["TTFT"]
    assert titles(record("t", metrics={})) == []


def test_the_regressed_come_first():
    _, lines = head_and_lines(PASSED, UNSTORED, INCONCLUSIVE, REGRESSED)
    assert [line.split()[0] for line in lines] == ["decode[16]", "decode[4]", "new", "decode[2]"]


def test_wide_terminals_see_on_what_a_verdict_stands():
    _, (line,) = head_and_lines(REGRESSED, width=200)
    assert line.endswith("regressed tpot +7.2 % (+6.1 to +8.4 %), tolerance 5.0 %")
    _, (line,) = head_and_lines(REGRESSED, width=80)
    assert line.endswith("regressed tpot +7.2 %")


@pytest.mark.parametrize(
    ("nodeids", "names"),
    [
        (["a/test_x.py::test_decode[1]", "a/test_x.py::test_prefill"], ["decode[1]", "prefill"]),
        (["test_x.py::TestIt::test_decode[a::test_b]", "test_x.py::test_a"], ["TestIt::decode[a::test_b]", "a"]),
        (["bench.py::check_it", "bench.py::test_it"], ["check_it", "test_it"]),
        (["a/test_x.py::test_one", "b/test_y.py::test_one", "test_y.py::test_two"], ["x: one", "y: one", "two"]),
        (["test_x.py::test_one#first", "test_x.py::test_one#second"], ["one#first", "one#second"]),
        ([], []),
    ],
)
def test_names_leave_out_what_all_have_in_common(nodeids, names):
    assert labels(nodeids) == names


def test_a_name_is_cut_in_its_middle():
    assert abridged("end_to_end_latency[128-32]", 18) == "end_to_…cy[128-32]"
    assert abridged("decode[16]", 10) == "decode[16]"
    assert before_parameters("end_to_end_latency[128-32]", 18) == "end_to_en…[128-32]"
    assert before_parameters("end_to_end_latency[128-32]", 12) == abridged("end_to_end_latency[128-32]", 12)
    assert before_parameters("end_to_end_latency", 10) == abridged("end_to_end_latency", 10)
    assert [len(abridged("decode[16]", width)) for width in range(1, 12)] == [*range(1, 11), 10]


def test_names_that_would_look_alike_are_given_room():
    tests = [record(f"t.py::test_sustained_{kind}_load_of[512-256-16]", verdict()) for kind in ("chatty", "bursty")]
    _, lines = head_and_lines(*tests, width=60)
    assert len({line.split()[0] for line in lines}) == 2


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (None, "regressed token_agreement -20.4 % (anchor)"),
        (41, "regressed token_agreement -20 %"),
        (30, "regressed answers -20 %"),
        (20, "regressed ans… -20 %"),
        (15, "regressed -20 %"),
        (9, "regressed"),
        (5, "regr…"),
    ],
)
def test_a_verdict_is_shortened_from_what_matters_least(width, said):
    test = results(record("t", verdict("token_agreement", "regressed", -0.204, against="anchor"))).tests[0]
    assert verdict_cell(test, width) == said


def test_other_verdicts_are_words():
    cells = [verdict_cell(test) for test in results(UNSTORED, PASSED, record("t")).tests]
    assert cells == ["no-baseline", "pass", "measured"]
    assert verdict_cell(results(record("t", engine=ENGINE | {"simulated": True})).tests[0]) == "simulated"
    assert verdict_cell(results(record("t", outcome="failed")).tests[0]) == "measured, but failed"


def test_a_test_of_other_metrics_has_no_columns():
    (other,) = results(record("t", metrics={"mfu": metric("mbu", 0.4)})).tests
    (nothing,) = results(record("t", metrics={"tpot": metric("tpot")})).tests
    assert without_columns(other)
    assert not without_columns(nothing)
    assert not without_columns(results(PASSED).tests[0])


def idle(name="test_floor", *verdicts, rungs=("bare_power", "context_power", "loaded_power"), **fields):
    watts = {rung: metric("tpj", 79.0 + 20 * place) | {"unit": "W"} for place, rung in enumerate(rungs)}
    watts["locked_power"] = metric("tpj", reason="no clock is held") | {"unit": "W"}
    return record(f"test_idle.py::{name}", *verdicts, metrics=watts, **fields)


def test_a_test_without_figures_for_the_columns_tells_its_own_in_their_place():
    _, lines = head_and_lines(PASSED, idle(), width=80)
    assert lines[-1] == "floor      bare 79.00 W, context 99.00 W, loaded 119.0 W    measured"
    assert told_in_rows(results(PASSED, idle()), 80) == {"test_idle.py::test_floor"}


def test_of_figures_that_do_not_fit_the_last_are_told_and_those_that_decided():
    _, lines = head_and_lines(idle("test_a"), PASSED, width=60)
    assert "context 99.00 W, loaded 119.0 W" in next(line for line in lines if line.startswith("a "))
    decided = verdict("bare_power", "regressed", 0.2, current=84.0)
    _, lines = head_and_lines(idle("test_a", decided), PASSED, width=60)
    assert "bare 84.00 W " in lines[0]
    assert told_in_rows(results(idle("test_a"), PASSED), 60) == frozenset()


def test_a_run_of_idle_boards_alone_has_their_figures_in_its_table():
    _, lines = head_and_lines(*(idle(f"test_floor_at_clock[{mhz}]") for mhz in (900, 1200)), width=80)
    assert all("bare 79.00 W, context 99.00 W, loaded 119.0 W" in line for line in lines)


def test_nothing_is_cut_that_narrow_gaps_and_short_names_make_room_for():
    tests = [
        record("test_x.py::test_concurrency[16]", verdict("tpot", "inconclusive", 0.05)),
        record("test_x.py::test_peaks", verdict("copy_bandwidth", "inconclusive", -0.048)),
    ]
    head, lines = head_and_lines(*tests, width=80)
    assert head.split() == ["test", "TTFT", "TPOT", "tokens/s", "tokens/J", "verdict"]
    assert lines[0].startswith("concurrency[16]  ")
    assert lines[1].endswith("  inconclusive copy -4.8 %")
    _, lines = head_and_lines(*tests, width=120)
    assert lines[1].endswith("  inconclusive copy_bandwidth -4.8 %")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters=":"), max_size=40)
VERDICTS = st.sampled_from(["regressed", "inconclusive", "improved", "pass", "no-baseline"])
CHANGES = st.none() | st.floats(-0.9, 1e9)


@settings(max_examples=60)
@given(st.lists(st.tuples(NAMES, VERDICTS, st.sampled_from(["tpot", "token_agreement"]), CHANGES), max_size=4),
       st.integers(20, 220))  # fmt: skip
def test_every_line_fits_and_says_its_verdict(told, width):
    tests = [record(f"test_x.py::test_{name}", verdict(of, word, change)) for name, word, of, change in told]
    head, lines = head_and_lines(*tests, width=width)
    assert len(lines) == len(tests)
    assert max(map(len, [head, *lines])) <= width
    assert all(line.isprintable() for line in lines)
    if width >= 60:
        words = sorted(word for _, word, _, _ in told)
        assert sorted(next(w for w in reversed(line.split()) if w.strip(",") in words) for line in lines) == words
