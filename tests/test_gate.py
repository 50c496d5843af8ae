from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gate import PASSING, SEVERITY, compare, decide, worst
from pytest_llmperf.metrics import REGISTRY, Summary

DIRECTIONS = {name: metric.better for name, metric in REGISTRY.items()}
NAN, INF = math.nan, math.inf


def summary(*launches, reason=None):
    """Launches of one repeat each, or of a list of repeats; none at all is a metric that was not measured."""
    if not launches:
        return Summary(None, (), None, reason or "not measured")
    return Summary(1.0, tuple(tuple(v) if isinstance(v, list) else (v,) for v in launches), None, None)


def verdict_of(baseline, current, better="lower", tolerance=0.05):
    return compare("tpot", baseline, current, better=better, tolerance=tolerance).verdict


class TestDirection:
    @pytest.mark.parametrize(("name", "better"), DIRECTIONS.items())
    def test_a_tenth_worse_regresses_and_a_tenth_better_improves(self, name, better):
        up = compare(name, summary(1.0), summary(1.1), better=better, tolerance=0.05)
        down = compare(name, summary(1.1), summary(1.0), better=better, tolerance=0.05)
        assert (up.verdict, down.verdict) == (
            ("regressed", "improved") if better == "lower" else ("improved", "regressed")
        )
        assert up.change == pytest.approx(0.1)
        assert down.change == pytest.approx(-1 / 11)

    @pytest.mark.parametrize("better", ["lower", "higher"])
    def test_much_better_is_no_failure(self, better):
        fast, slow = summary(0.001), summary(1000.0)
        assert verdict_of(*((slow, fast) if better == "lower" else (fast, slow)), better) == "improved"

    @pytest.mark.parametrize("better", ["lower", "higher"])
    def test_the_same_passes_even_without_any_tolerance(self, better):
        assert verdict_of(summary(3.3, 3.4), summary(3.4, 3.3), better, tolerance=0) == "pass"


positive = st.floats(1e-9, 1e9)
tolerances = st.floats(0, 2)


class TestTolerance:
    @pytest.mark.parametrize(
        ("current", "expected"), [(1.0499, "pass"), (1.0501, "regressed"), (0.9525, "pass"), (0.9523, "improved")]
    )
    def test_it_ends_where_it_says(self, current, expected):
        assert verdict_of(summary(1.0), summary(current)) == expected

    @given(positive, positive, tolerances)
    def test_a_factor_weighs_the_same_up_and_down(self, one, other, tolerance):
        forth = decide([[one]], [[other]], better="lower", tolerance=tolerance)
        back = decide([[other]], [[one]], better="higher", tolerance=tolerance)
        assert (forth.verdict == "regressed") == (back.verdict == "regressed")

    @given(positive, positive, tolerances, st.sampled_from(["lower", "higher"]))
    def test_exchanging_run_and_baseline_exchanges_better_and_worse(self, one, other, tolerance, better):
        forth = decide([[one]], [[other]], better=better, tolerance=tolerance).verdict
        back = decide([[other]], [[one]], better=better, tolerance=tolerance).verdict
        near = abs(max(one, other) / min(one, other) - (1 + tolerance)) < 1e-9
        assert near or {forth, back} in ({"pass"}, {"regressed", "improved"})

    @given(positive, st.floats(0, 2), st.floats(0, 2))
    def test_a_wider_tolerance_never_finds_more(self, current, narrow, more):
        if decide([[1.0]], [[current]], better="lower", tolerance=narrow).verdict == "pass":
            assert decide([[1.0]], [[current]], better="lower", tolerance=narrow + more).verdict == "pass"

    @given(positive, positive, st.floats(1e-3, 1e3), st.sampled_from(["lower", "higher"]))
    def test_the_unit_does_not_matter(self, one, other, unit, better):
        ratio = max(one, other) / min(one, other)
        scaled = decide([[one * unit]], [[other * unit]], better=better, tolerance=0.05).verdict
        plain = decide([[one]], [[other]], better=better, tolerance=0.05).verdict
        assert plain == scaled or ratio == pytest.approx(1.05, rel=1e-9)


class TestLaunches:
    def test_what_is_compared_is_the_median_over_launches_of_the_median_over_repeats(self):
        result = compare("tpot", summary([1, 2, 90], [3, 3, 3], [500]), summary([4.0]), better="lower", tolerance=0.05)
        assert (result.baseline, result.current) == (3, 4)
        assert result.baseline_launches == ((1, 2, 90), (3, 3, 3), (500,))

    def test_repeats_do_not_stand_in_for_launches(self):
        assert verdict_of(summary([1.0], [1.0], [1.0]), summary([2.0] * 100, [1.0], [1.0])) == "pass"

    def test_the_comparison_keeps_what_led_to_it(self):
        result = compare("tpot", summary(2.0), summary(3.0), better="lower", tolerance=0.05)
        assert (result.metric, result.tolerance, result.change, result.reason) == ("tpot", 0.05, 0.5, None)


class TestMissing:
    def test_null_for_the_same_reason_in_both_is_not_applicable(self):
        result = compare("tpj", summary(reason="no GPU"), summary(reason="no GPU"), better="higher", tolerance=0.05)
        assert (result.verdict, result.reason) == ("not-applicable", "no GPU")

    def test_reasons_that_differ_in_a_figure_are_one(self):
        before, now, other = (
            summary(reason=f"too {w}: the window of {n} ms") for w, n in [("short", 30), ("short", 31.5), ("long", 30)]
        )
        assert verdict_of(before, now) == "not-applicable"
        assert verdict_of(before, other) == "invalid"

    def test_null_that_no_baseline_knows_is_not_applicable(self):
        assert compare("tpj", None, summary(reason="no GPU"), better="higher", tolerance=0.05).reason == "no GPU"
        assert verdict_of(None, summary(reason="no GPU")) == "not-applicable"

    def test_null_for_another_reason_is_a_failure(self):
        result = compare("tpot", summary(reason="no GPU"), summary(reason="one token"), better="lower", tolerance=0.05)
        assert result.verdict == "invalid"
        assert "one token" in result.reason
        assert "no GPU" in result.reason

    def test_null_only_now_is_a_failure(self):
        result = compare("tpot", summary(1.0), summary(reason="one token"), better="lower", tolerance=0.05)
        assert (result.verdict, result.baseline) == ("invalid", 1.0)
        assert "no data now (one token)" in result.reason

    def test_a_value_without_a_baseline_is_no_baseline_and_says_why(self):
        nothing = compare("tpot", None, summary(1.0), better="lower", tolerance=0.05, absent="none is stored in x.json")
        null = compare("tpot", summary(reason="no GPU"), summary(1.0), better="lower", tolerance=0.05)
        assert (nothing.verdict, nothing.reason) == ("no-baseline", "none is stored in x.json")
        assert (null.verdict, null.reason) == ("no-baseline", "in the baseline: no GPU")


UNUSABLE = [
    summary(NAN),
    summary(INF),
    summary(-INF),
    summary(0.0),
    summary(-1.0),
    summary(1.0, NAN),
    summary([1.0, 1.0, -0.0]),
    summary([1.0], []),
    summary([]),
    Summary(1.0, (), None, None),
]


class TestUnusable:
    @pytest.mark.parametrize("better", ["lower", "higher"])
    @pytest.mark.parametrize("broken", UNUSABLE)
    def test_a_value_that_is_none_is_invalid_and_says_whose_it_is(self, broken, better):
        for baseline, current, whose in ((broken, summary(1.0), "baseline"), (summary(1.0), broken, "run")):
            result = compare("tpot", baseline, current, better=better, tolerance=0.05)
            assert result.verdict == "invalid"
            assert result.reason.startswith(f"the {whose} holds ")

    @pytest.mark.parametrize("broken", UNUSABLE)
    def test_the_same_rubbish_twice_does_not_pass_either(self, broken):
        assert verdict_of(broken, broken) == "invalid"

    @given(
        st.lists(st.lists(st.floats(), max_size=3), max_size=3),
        st.lists(st.lists(st.floats(), max_size=3), max_size=3),
        st.sampled_from(["lower", "higher"]),
        st.floats(0, 10),
    )
    def test_only_finite_numbers_above_zero_ever_pass(self, baseline, current, better, tolerance):
        result = compare("tpot", summary(*baseline), summary(*current), better=better, tolerance=tolerance)
        values = [v for launches in (baseline, current) for launch in launches for v in launch]
        usable = all(math.isfinite(v) and v > 0 for v in values)
        complete = all(launches and all(launches) for launches in (baseline, current))
        if result.verdict in ("pass", "improved", "regressed"):
            assert usable
            assert complete
            assert math.isfinite(result.baseline)
            assert math.isfinite(result.current)


class TestWorst:
    @pytest.mark.parametrize("verdict", SEVERITY)
    def test_the_worst_of_one_is_itself(self, verdict):
        assert worst([verdict]) == verdict

    @given(st.lists(st.sampled_from(SEVERITY), min_size=1))
    def test_one_bad_verdict_is_not_made_good_by_others(self, verdicts):
        assert (worst(verdicts) in PASSING) == all(v in PASSING for v in verdicts)
        assert worst(verdicts) == worst(reversed(verdicts))

    def test_nothing_compared_is_never_passed(self):
        assert worst([]) == "no-baseline"
        assert worst([]) not in PASSING

    def test_only_these_let_a_test_pass(self):
        assert {"pass", "improved", "not-applicable"} == PASSING
