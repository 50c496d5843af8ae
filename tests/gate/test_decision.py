from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmperf.gate import Noise, Rules, decide, logs
from pytest_llmperf.gate.decision import quantile, standard_error

from .launches import known, sequence

#: Of both errors 5 %, so that an interval is symmetric.
ONE_LOOK = Rules(family_alpha=0.05, limit_alpha=0.05, pass_alpha=0.05)


class TestQuantile:
    @pytest.mark.parametrize("df", [0.3, 1, 2, 3.7, 8, 30, 1000])
    @pytest.mark.parametrize("alpha", [0.5, 0.2, 0.05, 0.025, 1e-3, 0.05 / 2000])
    def test_it_is_that_of_students_t(self, alpha, df):
        assert quantile(alpha, df) == pytest.approx(stats.t.isf(alpha, df), rel=1e-6, abs=1e-9)

    @pytest.mark.parametrize("alpha", [0.05, 0.025, 0.001])
    def test_it_has_a_closed_form_at_one_and_two_degrees_of_freedom(self, alpha):
        assert quantile(alpha, 1) == pytest.approx(1 / math.tan(math.pi * alpha))
        assert quantile(alpha, 2) == pytest.approx((1 - 2 * alpha) / math.sqrt(2 * alpha * (1 - alpha)))

    @pytest.mark.parametrize("df", [0, -1])
    def test_without_any_degree_of_freedom_nothing_is_certain(self, df):
        assert quantile(0.05, df) == math.inf

    def test_three_launches_alone_and_one_now_are_known_within_nearly_nine_standard_deviations(self):
        """With 5 % shared among the six metrics of a suite; nothing but a pool helps against that."""
        half_width = quantile(0.05 / 6, 2) * standard_error(1.0, 1, 3)
        assert half_width == pytest.approx(8.8, abs=0.05)
        assert quantile(0.05 / 6, 22) * standard_error(1.0, 1, 3) < 3.1  # with what ten such tests know


def test_the_logarithm_of_a_launch_is_that_of_the_median_of_its_repeats():
    assert logs([[1, math.e, 90], [1.0], [1, 3]]) == pytest.approx((1.0, 0.0, math.log(2)))


class TestInterval:
    BEFORE, AFTER = (0.00, 0.01, 0.02), (0.05, 0.07)

    def test_it_is_the_two_sample_interval_of_textbooks(self):
        noise = Noise.judged([self.BEFORE, self.AFTER])
        found = decide(
            self.BEFORE,
            self.AFTER,
            better="lower",
            tolerance=0.01,
            noise=noise,
            rules=replace(ONE_LOOK, looks=(2,)),
            look=0,
        )
        expected = stats.ttest_ind(self.AFTER, self.BEFORE).confidence_interval(0.90)  # 5 % to either side
        assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high))
        assert found.worse == pytest.approx(0.05)
        assert found.verdict == "regressed"

    def test_of_one_launch_it_is_the_prediction_interval(self):
        noise = Noise.judged([self.BEFORE, (0.3,)])
        found = decide(self.BEFORE, (0.3,), better="lower", tolerance=0.05, noise=noise, rules=ONE_LOOK, look=0)
        # sd 0.01 of three launches, t(0.05, 2) = 2.920, sqrt(1 + 1/3) = 1.1547
        assert found.lower == pytest.approx(0.29 - 2.920 * 0.01 * 1.1547, abs=1e-5)
        assert found.upper == pytest.approx(0.29 + 2.920 * 0.01 * 1.1547, abs=1e-5)

    def test_each_bound_is_at_the_error_of_what_it_is_used_for(self):
        rules, look = Rules.of_run(10, 8), 6
        found = decide(
            (0.0,) * 5, (0.0,) * 8, better="lower", tolerance=0.5, noise=known(0.1, 40), rules=rules, look=look
        )
        error = 0.1 * math.sqrt(1 / 5 + 1 / 8)
        assert found.upper == pytest.approx(stats.t.isf(rules.passing_alpha(look), 40) * error)
        assert found.lower == pytest.approx(-stats.t.isf(rules.regressed_alphas(look)[1], 40) * error)
        assert -found.lower != pytest.approx(found.upper)

    def test_at_the_first_of_several_looks_the_lower_bound_is_only_shown(self):
        found = decide(
            (0.0,) * 5, (1.0,), better="lower", tolerance=0.05, noise=known(1e-3, 40), rules=Rules.of_run(1, 8), look=0
        )
        assert found.lower - found.worse == pytest.approx(found.worse - found.upper)
        assert found.verdict == "inconclusive"

    def test_without_any_knowledge_of_the_noise_it_is_endless(self):
        found = decide(
            (0.0,), (5.0,), better="lower", tolerance=0.05, noise=Noise.judged([(0.0,), (5.0,)]), rules=ONE_LOOK, look=0
        )
        assert (found.verdict, found.lower, found.upper) == ("inconclusive", -math.inf, math.inf)


def at(change, tolerance=0.05, *, sd=0.01, df=20, better="lower", rules=ONE_LOOK, look=0):
    before, after = (0.0,) * 5, (change,) * rules.looks[look]
    return decide(before, after, better=better, tolerance=tolerance, noise=known(sd, df), rules=rules, look=look)


class TestVerdict:
    # the half-width of one launch against five: t(0.05, 20) * 0.01 * sqrt(1 + 1/5)
    HALF = stats.t.isf(0.05, 20) * 0.01 * math.sqrt(1.2)

    @pytest.mark.parametrize(
        ("beyond", "expected"),
        [(1.01, "regressed"), (0.99, "inconclusive"), (-0.99, "inconclusive"), (-1.01, "pass")],
    )
    def test_it_changes_one_half_width_from_the_tolerance(self, beyond, expected):
        limit = math.log1p(0.05)
        assert at(limit + beyond * self.HALF).verdict == expected
        assert at(-limit - beyond * self.HALF, better="higher").verdict == expected

    def test_an_improvement_is_better_by_the_tolerance_and_the_half_width(self):
        limit = math.log1p(0.05)
        assert at(-limit - 1.01 * self.HALF).verdict == "improved"
        assert at(-limit - 0.99 * self.HALF).verdict == "pass"
        assert at(limit + 1.01 * self.HALF, better="higher").verdict == "improved"

    @pytest.mark.parametrize("better", ["lower", "higher"])
    def test_however_much_better_it_is_no_failure(self, better):
        assert at(-500.0 if better == "lower" else 500.0, better=better).verdict == "improved"

    def test_of_an_improvement_the_run_is_allowed_as_many_errors_as_of_a_regression(self):
        change = -math.log1p(0.05) - 1.01 * self.HALF
        assert at(change, rules=replace(ONE_LOOK, gated=50)).verdict == "pass"

    def test_without_any_tolerance_only_what_is_shown_to_be_better_passes(self):
        assert at(0.0, 0.0).verdict == "inconclusive"
        assert at(-1.01 * self.HALF, 0.0).verdict == "improved"
        assert at(1.01 * self.HALF, 0.0).verdict == "regressed"

    @pytest.mark.parametrize("look", range(7))
    def test_nothing_is_called_regressed_on_one_launch_while_more_are_allowed(self, look):
        expected = "inconclusive" if look == 0 else "regressed"
        assert at(3.0, rules=Rules.of_run(1, 8), look=look).verdict == expected


changes = st.floats(-1, 1)
spreads = st.floats(1e-4, 0.3)
dfs = st.floats(0.5, 60)
tolerances = st.floats(0, 2)
directions = st.sampled_from(["lower", "higher"])
groups = st.lists(st.floats(-3, 3), min_size=1, max_size=8)
GOOD = ("pass", "improved")


class TestProperties:
    @given(groups, groups, tolerances, directions, spreads, dfs)
    def test_exchanging_run_and_baseline_exchanges_the_directions(self, one, other, tolerance, better, sd, df):
        judge = partial(decide, tolerance=tolerance, noise=known(sd, df), rules=ONE_LOOK, look=0)
        forth = judge(one, other, better=better)
        back = judge(other, one, better="higher" if better == "lower" else "lower")
        assert (forth.worse, forth.lower, forth.upper) == pytest.approx((back.worse, back.lower, back.upper))
        assert forth.verdict == back.verdict or _on_the_edge(forth, tolerance)

    @given(groups, groups, tolerances, directions, spreads, dfs)
    def test_in_one_direction_it_exchanges_better_and_worse(self, one, other, tolerance, better, sd, df):
        judge = partial(decide, better=better, tolerance=tolerance, noise=known(sd, df), rules=ONE_LOOK, look=0)
        forth, back = judge(one, other), judge(other, one)
        assert (forth.lower, forth.upper) == pytest.approx((-back.upper, -back.lower))
        near = _on_the_edge(forth, tolerance) or _on_the_edge(back, tolerance)
        assert near or (forth.verdict == "regressed") == (back.verdict == "improved")

    @given(changes, tolerances, st.floats(0, 2), directions, spreads, dfs)
    def test_a_wider_tolerance_never_finds_more(self, change, narrow, more, better, sd, df):
        found = at(change, narrow, sd=sd, df=df, better=better).verdict
        wider = at(change, narrow + more, sd=sd, df=df, better=better).verdict
        assert found not in GOOD or wider in GOOD
        assert wider != "regressed" or found == "regressed"
        assert wider != "improved" or found == "improved"

    @given(changes, changes, tolerances, spreads, dfs)
    def test_what_is_worse_is_never_judged_better(self, one, other, tolerance, sd, df):
        order = ["improved", "pass", "inconclusive", "regressed"]
        better, worse = (at(change, tolerance, sd=sd, df=df).verdict for change in sorted((one, other)))
        assert order.index(better) <= order.index(worse)

    @given(groups, groups, st.floats(-20, 20), tolerances, directions)
    def test_the_unit_does_not_matter(self, one, other, unit, tolerance, better):
        def judge(shift):
            before, after = ([x + shift for x in group] for group in (one, other))
            noise = Noise.judged([before, after])
            rules = Rules(looks=(len(after),))
            return decide(before, after, better=better, tolerance=tolerance, noise=noise, rules=rules, look=0)

        plain, scaled = judge(0.0), judge(unit)
        assert plain.worse == pytest.approx(scaled.worse, abs=1e-9)
        assert plain.lower == pytest.approx(scaled.lower, rel=1e-4, abs=1e-6)
        assert plain.verdict == scaled.verdict or _on_the_edge(plain, tolerance, 1e-3)

    @given(changes, tolerances, spreads, dfs, st.integers(1, 100), st.integers(1, 30))
    def test_the_interval_holds_the_estimate_and_the_verdict_follows_from_it(self, change, tolerance, sd, df, gated, n):
        rules = Rules.of_run(gated, n)
        for look in range(len(rules.looks)):
            found = at(change, tolerance, sd=sd, df=df, rules=rules, look=look)
            unchanged, at_limit = rules.regressed_alphas(look)
            changed = found.worse > stats.t.isf(unchanged, df) * standard_error(sd, rules.looks[look], 5)
            limit = math.log1p(tolerance)
            assert found.lower <= found.worse <= found.upper
            assert (found.verdict in GOOD) == (found.upper < limit)
            assert (found.verdict == "regressed") == (found.lower > limit and at_limit > 0 and changed)


def _on_the_edge(found, tolerance, rel=1e-9):
    """Whether rounding alone may decide."""
    limit = math.log1p(tolerance)
    bounds = (found.lower, found.upper, -found.lower, -found.upper)
    return any(bound == pytest.approx(limit, rel=rel, abs=1e-9) for bound in bounds)


class Unshared(Rules):
    """Every look may use the whole error: what a gate does that looks again until it likes what it sees."""

    def regressed_alphas(self, look):
        return (self.alpha, self.limit_alpha / self.gated) if look else (0.0, 0.0)

    def passing_alpha(self, look):
        return self.pass_alpha


class TestErrorsOfAllLooks:
    """Simulated tests that go on until they are decided; seeded, so that a share is the same in every run."""

    TESTS = 1200
    EVERY, SPOILT = Rules.of_run(1, 8), Unshared(1, Rules.of_run(1, 8).looks)

    def most(self, error):
        """The largest share that chance makes of an error: three standard errors more."""
        return error + 3 * math.sqrt(error * (1 - error) / self.TESTS)

    def share(self, rules, verdicts, change, tolerance=0.03, **options):
        found = [
            sequence(rules, change, tolerance=tolerance, sd=0.03, seed=seed, **options) for seed in range(self.TESTS)
        ]
        return fmean(verdict in verdicts for verdict, _ in found)

    @pytest.mark.parametrize("pooled_df", [None, 12])
    def test_exactly_at_the_tolerance_hardly_any_passes(self, pooled_df):
        assert self.share(self.EVERY, GOOD, 0.03, pooled_df=pooled_df) < self.most(self.EVERY.pass_alpha)

    @pytest.mark.parametrize("pooled_df", [None, 12])
    def test_exactly_at_the_tolerance_hardly_any_is_called_regressed(self, pooled_df):
        found = self.share(self.EVERY, ["regressed"], 0.03, pooled_df=pooled_df)
        assert found < self.most(self.EVERY.limit_alpha)

    def test_unchanged_hardly_any_is_called_regressed_even_without_a_tolerance(self):
        assert self.share(self.EVERY, ["regressed"], 0.0, tolerance=0.0) < self.most(self.EVERY.family_alpha)

    def test_among_many_comparisons_each_has_its_part_of_the_error(self):
        rules = Rules.of_run(20, 8)
        assert self.share(rules, ["regressed"], 0.03) < self.most(rules.limit_alpha / 20)

    def test_a_gate_that_forgets_to_share_would_be_found_out(self):
        for verdicts, error in ((GOOD, self.SPOILT.pass_alpha), (["regressed"], self.SPOILT.limit_alpha)):
            assert self.share(self.SPOILT, verdicts, 0.03, pooled_df=12) > self.most(error)

    def test_what_is_clear_is_called_and_a_clear_pass_takes_one_launch(self):
        clear = [sequence(self.EVERY, 0.0, tolerance=0.3, sd=0.03, seed=seed, pooled_df=30) for seed in range(200)]
        assert fmean(one == ("pass", 1) for one in clear) > 0.95
        worse = [sequence(self.EVERY, 0.3, tolerance=0.03, sd=0.03, seed=seed, pooled_df=30) for seed in range(200)]
        assert {verdict for verdict, _ in worse} == {"regressed"}
        assert min(launches for _, launches in worse) == 2
