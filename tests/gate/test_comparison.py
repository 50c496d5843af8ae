from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gate import SEVERITY, NoisePool, Rules, Series, again, compare
from pytest_llmperf.metrics import REGISTRY, Summary

from .launches import summary

DIRECTIONS = {name: metric.better for name, metric in REGISTRY.items()}
NAN, INF = math.nan, math.inf
FIVE = (1.0, 1.001, 0.999, 1.0005, 0.9995)


def times(factor, launches=FIVE):
    return summary(*(factor * launch for launch in launches))


def verdict_of(baseline, current, better="lower", tolerance=0.05, **more):
    return compare("tpot", baseline, current, better=better, tolerance=tolerance, **more).verdict


class TestDirection:
    @pytest.mark.parametrize(("name", "better"), DIRECTIONS.items())
    def test_a_tenth_worse_regresses_and_a_tenth_better_improves(self, name, better):
        up = compare(name, times(1), times(1.1), better=better, tolerance=0.05)
        down = compare(name, times(1.1), times(1), better=better, tolerance=0.05)
        assert (up.verdict, down.verdict) == (
            ("regressed", "improved") if better == "lower" else ("improved", "regressed")
        )
        assert up.change == pytest.approx(0.1)
        assert down.change == pytest.approx(-1 / 11)

    @pytest.mark.parametrize("better", ["lower", "higher"])
    def test_much_better_is_no_failure(self, better):
        fast, slow = times(0.001), times(1000.0)
        assert verdict_of(*((slow, fast) if better == "lower" else (fast, slow)), better) == "improved"

    @pytest.mark.parametrize("better", ["lower", "higher"])
    def test_the_interval_is_of_the_change_of_the_value_whichever_direction_is_better(self, better):
        result = compare("x", times(1), times(1.02), better=better, tolerance=0.05)
        low, high = result.interval
        assert low < result.change < high
        assert result.change == pytest.approx(0.02)


class TestValues:
    def test_the_value_is_the_geometric_mean_of_the_launches_medians(self):
        result = compare("tpot", summary([1, 2, 90], [8, 8, 8]), summary([4.0], [16.0]), better="lower", tolerance=0.05)
        assert (result.baseline, result.current) == pytest.approx((4, 8))
        assert result.change == pytest.approx(1.0)
        assert result.baseline_launches == ((1, 2, 90), (8, 8, 8))

    def test_repeats_do_not_stand_in_for_launches(self):
        few = compare("tpot", times(1), summary(1.02, 1.03), better="lower", tolerance=0.05)
        many = compare("tpot", times(1), summary([1.02] * 99, [1.03] * 99), better="lower", tolerance=0.05)
        assert (few.interval, few.noise) == (many.interval, many.noise)

    def test_the_comparison_keeps_what_led_to_it(self):
        rules = Rules.of_run(6, 8)
        result = compare(
            "tpot", times(1), times(1.02, FIVE[:3]), better="lower", tolerance=0.05, rules=rules, against="anchor"
        )
        assert (result.metric, result.tolerance, result.reason, result.against) == ("tpot", 0.05, None, "anchor")
        assert (result.looks, result.launches, result.alpha) == (3, 3, pytest.approx(rules.family_alpha / 6))
        assert (result.noise.source, result.noise.df, result.prediction) == ("own", 6, False)
        assert result.minimum_detectable > 0.05

    def test_between_two_looks_the_verdict_stands_on_the_launches_of_the_last(self):
        rules = Rules.of_run(1, 8)
        seven = compare("tpot", times(1), times(1, (1.04,) * 6 + (9.0,)), better="lower", tolerance=0.05, rules=rules)
        six = compare("tpot", times(1), times(1, (1.04,) * 6), better="lower", tolerance=0.05, rules=rules)
        assert seven == six
        assert (six.launches, six.looks) == (6, 6)


class TestFewLaunches:
    MANY = Rules.of_run(1, 8)

    def test_one_launch_against_several_is_a_prediction(self):
        result = compare("tpot", times(1), summary(1.001), better="lower", tolerance=0.05, rules=self.MANY)
        assert (result.verdict, result.prediction, result.launches) == ("pass", True, 1)

    def test_one_launch_however_bad_is_not_called_regressed_while_more_are_allowed(self):
        result = compare("tpot", times(1), summary(9.0), better="lower", tolerance=0.05, rules=self.MANY)
        assert (result.verdict, result.decided) == ("inconclusive", False)
        alone = compare("tpot", times(1), summary(9.0), better="lower", tolerance=0.05, rules=Rules.of_run(1, 1))
        assert (alone.verdict, alone.decided) == ("regressed", True)

    @pytest.mark.parametrize("current", [1.0, 0.5, 9.0])
    @pytest.mark.parametrize("rules", [MANY, Rules()])
    def test_one_launch_against_one_knows_nothing_of_noise(self, current, rules):
        result = compare("tpot", summary([1.0] * 9), summary(current), better="lower", tolerance=0.05, rules=rules)
        assert result.verdict == "inconclusive"
        assert result.change == pytest.approx(current - 1)
        assert (result.interval, result.minimum_detectable, result.noise, result.prediction) == (
            None,
            None,
            None,
            False,
        )
        assert "says nothing of the noise" in result.advice

    def test_a_baseline_of_one_launch_is_judged_by_the_launches_now(self):
        result = compare("tpot", summary(1.0), times(1.5), better="lower", tolerance=0.05, rules=self.MANY)
        assert (result.verdict, result.noise.own_df) == ("regressed", 4)

    def test_what_other_tests_know_decides_one_launch_against_one(self):
        series = [Series(f"test {i}", None, tuple(math.log(x + i / 1e5) for x in FIVE)) for i in range(4)]
        result = compare(
            "tpot",
            summary(1.0),
            summary(1.001),
            better="lower",
            tolerance=0.05,
            rules=self.MANY,
            pool=NoisePool(series),
            test="t",
        )
        assert (result.verdict, result.noise.source, result.noise.tests) == ("pass", "pooled", 4)

    def test_of_its_own_series_in_the_pool_a_test_learns_nothing_twice(self):
        series = [Series(f"test {i}", None, tuple(math.log(x) for x in FIVE)) for i in range(3)]
        options = {"better": "lower", "tolerance": 0.05, "rules": self.MANY, "pool": NoisePool(series)}
        assert compare("tpot", times(1), summary(1.0), test="test 1", **options).noise.source == "own"
        assert compare("tpot", times(1), summary(1.0), test="another", **options).noise.source == "pooled"


class TestExtremes:
    def test_without_noise_a_hair_beyond_the_tolerance_is_told_from_a_hair_below(self):
        same = (1.0,) * 5
        assert verdict_of(summary(*same), times(1.0495, same)) == "pass"
        assert verdict_of(summary(*same), times(1.0505, same)) == "regressed"
        assert verdict_of(summary(*same), times(1.05, same)) == "inconclusive"

    def test_without_tolerance_and_noise_the_same_is_not_shown_to_be_no_worse(self):
        result = compare("tpot", summary(*FIVE), summary(*FIVE), better="lower", tolerance=0)
        assert result.verdict == "inconclusive"
        assert "below the noise" in result.advice

    @pytest.mark.parametrize("factor", [1e300, 1e-300])
    def test_values_that_lie_far_apart_are_compared(self, factor):
        result = compare("tpot", times(1), times(factor), better="lower", tolerance=0.05)
        assert result.verdict == ("regressed" if factor > 1 else "improved")
        assert result.change == pytest.approx(factor - 1)

    @pytest.mark.parametrize("better", ["lower", "higher"])
    @pytest.mark.parametrize(("before", "after"), [(1e-300, 1e300), (5e-324, 1.7e308), (1e300, 1e-300)])
    def test_values_at_the_ends_of_all_numbers_give_json_or_a_reason(self, before, after, better):
        result = compare("tpot", times(1, (before,) * 3), times(1, (after,) * 3), better=better, tolerance=0.05)
        worse = (after > before) == (better == "lower")
        if result.verdict == "invalid":
            assert "too far apart" in result.reason
        else:
            assert result.verdict == ("regressed" if worse else "improved")
        json.dumps(dataclasses.asdict(result), allow_nan=False)

    def test_the_largest_numbers_have_a_median_too(self):
        result = compare("x", summary([1.7e308, 1.7e308]), summary([1.7e308, 1.7e308]), better="lower", tolerance=0.05)
        json.dumps(dataclasses.asdict(result), allow_nan=False)

    @pytest.mark.parametrize("launches", [1, 3, 8])
    def test_noise_beyond_all_bounds_is_told_without_a_figure(self, launches):
        wild = summary(1e-300, 1e300, 1.0)
        rules = Rules.of_run(9, launches)
        result = compare("x", wild, summary(*[1.0] * launches), better="lower", tolerance=0.05, rules=rules)
        assert result.verdict == "inconclusive"
        assert "more than 100000%" in result.advice
        json.dumps(dataclasses.asdict(result), allow_nan=False)

    def test_tests_that_moved_nearly_as_one_are_taken_for_no_knowledge(self):
        drift = [0.01, -0.02, 0.015, 0.003, -0.008]
        series = [
            Series(f"test {i}", "one run", tuple(x * (1 + i * (-1) ** k / 99) for k, x in enumerate(drift)))
            for i in range(5)
        ]
        pool = NoisePool(series)
        assert 0 < pool.of("another", (0.0,), (0.0,)).pooled_df < 1
        result = compare("x", summary(1.0), summary(1.0), better="lower", tolerance=0.05, pool=pool, test="another")
        assert (result.verdict, result.noise) == ("inconclusive", None)
        assert "says nothing of the noise" in result.advice

    @pytest.mark.parametrize("tolerance", [0, 1e-300, 0.05, 1e6])
    def test_any_tolerance_gives_json(self, tolerance):
        result = compare("tpot", times(1), times(1.2), better="lower", tolerance=tolerance, rules=Rules.of_run(900, 8))
        json.dumps(dataclasses.asdict(result), allow_nan=False)


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

    @pytest.mark.parametrize("against", ["baseline", "anchor"])
    def test_it_is_said_against_what(self, against):
        for before, now in (
            (None, summary()),
            (None, summary(1.0)),
            (summary(1.0), summary()),
            (summary(NAN), summary(1.0)),
        ):
            assert compare("x", before, now, better="lower", tolerance=0.05, against=against).against == against

    def test_all_of_these_are_decided(self):
        for before, now in (
            (None, summary()),
            (None, summary(1.0)),
            (summary(1.0), summary()),
            (summary(NAN), summary(1.0)),
        ):
            assert compare("x", before, now, better="lower", tolerance=0.05).decided


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
    def test_only_finite_numbers_above_zero_are_ever_judged(self, baseline, current, better, tolerance):
        result = compare("tpot", summary(*baseline), summary(*current), better=better, tolerance=tolerance)
        values = [v for launches in (baseline, current) for launch in launches for v in launch]
        usable = all(math.isfinite(v) and v > 0 for v in values)
        complete = all(launches and all(launches) for launches in (baseline, current))
        assert result.verdict in SEVERITY
        if result.verdict in ("pass", "improved", "regressed", "inconclusive"):
            assert usable
            assert complete
            json.dumps(dataclasses.asdict(result), allow_nan=False)


launches_of = st.lists(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=3), min_size=1, max_size=9)
near = st.lists(st.lists(st.floats(0.9, 1.2), min_size=1, max_size=3), min_size=1, max_size=9)
pools = st.lists(
    st.tuples(st.sampled_from([None, "a", "b"]), st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=5)), max_size=6
)


class TestAgain:
    @given(
        st.one_of(launches_of, near),
        st.one_of(launches_of, near),
        st.sampled_from(["lower", "higher"]),
        st.floats(0, 0.5),
        st.integers(1, 200),
        st.integers(1, 14),
        pools,
        st.sampled_from(["baseline", "anchor"]),
    )
    def test_any_verdict_is_derived_again_from_its_record(
        self, baseline, current, better, tolerance, gated, allowed, others, against
    ):
        rules = Rules.of_run(gated, allowed)
        pool = NoisePool([Series(f"test {i}", run, tuple(logs)) for i, (run, logs) in enumerate(others)])
        first = compare(
            "tpot",
            summary(*baseline),
            summary(*current),
            better=better,
            tolerance=tolerance,
            rules=rules,
            pool=pool,
            test="test 1",
            against=against,
        )
        if first.looks is None:
            return
        record = json.loads(json.dumps(dataclasses.asdict(first), allow_nan=False))
        metric = json.loads(json.dumps({"better": better, "launches": current}))
        gate = json.loads(json.dumps(dataclasses.asdict(rules)))
        derived = again(record, gate, metric)
        assert dataclasses.asdict(derived) == dataclasses.asdict(first)

    def test_a_verdict_of_an_earlier_look_takes_no_launch_that_came_later(self):
        rules = Rules.of_run(4, 8)
        early = compare("tpot", times(1), times(1, FIVE[:2]), better="lower", tolerance=0.05, rules=rules)
        assert early.verdict == "pass"
        record = json.loads(json.dumps(dataclasses.asdict(early)))
        metric = {"better": "lower", "launches": [[1.0], [1.001], [7.0], [9.0]]}
        assert again(record, dataclasses.asdict(rules), metric) == early
