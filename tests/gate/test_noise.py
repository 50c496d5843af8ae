from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from pytest_llmperf.gate import Noise, NoisePool, Series
from pytest_llmperf.gate.noise import FLOOR

NOBODY = ("another test", (0.0,), (0.0,))


def suite(matrix, run="one run"):
    """A series a row: a test's launches."""
    return [Series(f"test {i}", run, tuple(map(float, row))) for i, row in enumerate(matrix)]


def pooled(series):
    noise = NoisePool(series).of(*NOBODY)
    return noise.pooled_sd, noise.pooled_df


class TestOwn:
    def test_baseline_and_run_are_each_taken_about_their_own_mean(self):
        noise = Noise.judged([(0.0, 0.02), (1.01, 1.03, 1.05)])
        # squares: 2 * 0.01^2, and 2 * 0.02^2; degrees of freedom: 1 + 2
        assert (noise.own_df, noise.df, noise.source) == (3, 3, "own")
        assert noise.sd == noise.own_sd == pytest.approx(math.sqrt(0.001 / 3))

    def test_a_change_between_them_is_no_noise(self):
        still, moved = Noise.judged([(0.0, 0.1), (0.0, 0.1)]), Noise.judged([(0.0, 0.1), (5.0, 5.1)])
        assert moved.sd == pytest.approx(still.sd)

    @pytest.mark.parametrize("groups", [[(0.0,), (3.0,)], [(1.0,), ()], [(), ()]])
    def test_one_launch_of_each_knows_nothing(self, groups):
        noise = Noise.judged(groups)
        assert (noise.df, noise.own_df, noise.own_sd, noise.source) == (0, 0, None, "unknown")

    def test_launches_that_agree_to_the_last_digit_are_not_taken_for_exact(self):
        assert Noise.judged([(2.0,) * 5, (2.0,)]).sd == FLOOR

    @given(st.lists(st.floats(-20, 20), min_size=2, max_size=8), st.lists(st.floats(-20, 20), min_size=1, max_size=8))
    def test_it_is_the_pooled_variance_of_two_samples(self, one, other):
        squares = (len(one) - 1) * np.var(one, ddof=1) + (np.var(other) * len(other))
        expected = math.sqrt(squares / (len(one) + len(other) - 2))
        assert Noise.judged([one, other]).sd == pytest.approx(max(FLOOR, expected), rel=1e-6, abs=1e-7)


class TestWeighing:
    def test_own_and_pooled_are_weighed_by_their_degrees_of_freedom(self):
        noise = Noise.judged([(0.0, 0.02), (0.0,)], pooled_sd=0.02, pooled_df=3, tests=4)
        assert noise.own_sd == pytest.approx(math.sqrt(0.0002))
        assert noise.sd == pytest.approx(math.sqrt((1 * 0.0002 + 3 * 0.0004) / 4))
        assert (noise.df, noise.source, noise.tests) == (4, "pooled", 4)

    def test_one_launch_of_each_is_judged_by_the_other_tests_alone(self):
        noise = Noise.judged([(0.0,), (1.0,)], pooled_sd=0.02, pooled_df=12.5, tests=6)
        assert (noise.sd, noise.df, noise.own_sd, noise.source) == (0.02, 12.5, None, "pooled")

    @pytest.mark.parametrize("pool", [(None, 0.0), (0.02, 0.0), (0.02, 0.015), (None, 5.0)])
    def test_a_pool_that_knows_nothing_adds_nothing(self, pool):
        alone, with_it = Noise.judged([(0.0, 0.02), (0.0,)]), Noise.judged([(0.0, 0.02), (0.0,)], *pool)
        assert (with_it.sd, with_it.df, with_it.source) == (alone.sd, alone.df, "own")
        assert Noise.judged([(0.0,), (0.0,)], *pool).df == 0

    @pytest.mark.parametrize("pooled_df", [3.0, 17.5, 200.0])
    def test_a_clearly_noisier_test_uses_its_own_and_the_limit_is_that_of_an_f_test(self, pooled_df):
        limit = math.sqrt(stats.f.isf(0.01, 4, pooled_df))

        def source(ratio):
            spread = ratio * 0.01
            return Noise.judged([(spread, -spread, spread, -spread, 0.0), (0.0,)], 0.01, pooled_df)

        assert source(1.0).own_sd == pytest.approx(0.01)
        noisy, plain = source(1.01 * limit), source(0.99 * limit)
        assert (noisy.source, noisy.sd, noisy.df) == ("own", noisy.own_sd, 4)
        assert (plain.source, plain.df) == ("pooled", 4 + pooled_df)

    def test_a_quieter_test_does_not_use_its_own(self):
        noise = Noise.judged([(0.0, 1e-5, 0.0, 1e-5), (0.0,)], 0.01, 20.0)
        assert noise.source == "pooled"
        assert noise.sd > 0.009


def moments(variances, dfs):
    """Smyth's estimators written down anew: solved by bisection, in numpy."""
    dfs = np.asarray(dfs, float)
    e = np.log(variances) - special.digamma(dfs / 2) + np.log(dfs / 2)
    between = e.var(ddof=1) - special.polygamma(1, dfs / 2).mean()
    if between <= 0:
        return math.exp(e.mean()), math.inf
    half = optimize.brentq(lambda x: special.polygamma(1, x) - between, 1e-6, 1e9, xtol=1e-12)
    return math.exp(e.mean() + special.digamma(half) - math.log(half)), 2 * half


class TestShrinkage:
    @pytest.mark.parametrize("seed", range(8))
    def test_it_is_the_method_of_moments_of_limma(self, seed):
        draw = np.random.default_rng(seed)
        spread = np.exp(draw.normal(-5, 0.4 + 0.1 * seed, size=12))
        rows = [draw.normal(0, sd, size=draw.integers(3, 9)) for sd in spread]
        sd, df = pooled(suite(rows, run=None))
        variance, alike = moments([np.var(row, ddof=1) for row in rows], [len(row) - 1 for row in rows])
        assert sd == pytest.approx(math.sqrt(variance), rel=1e-6)
        assert df == pytest.approx(min(alike, sum(len(row) - 1 for row in rows)), rel=1e-6)

    def test_tests_that_differ_less_than_chance_would_have_it_are_worth_all_their_launches(self):
        rows = [np.array([-1, 0, 1]) * 0.01 * (1 + i / 100) for i in range(4)]
        assert moments([np.var(row, ddof=1) for row in rows], [2] * 4)[1] == math.inf
        assert pooled(suite(rows, run=None))[1] == pytest.approx(8)

    @pytest.mark.parametrize("alike", [4, 10])
    def test_scale_and_degrees_of_freedom_are_recovered_from_draws(self, alike):
        draw = np.random.default_rng(alike)
        variances = alike * 0.01**2 / draw.chisquare(alike, size=300)
        rows = draw.normal(0, np.sqrt(variances)[:, None], size=(300, 6))
        sd, df = pooled(suite(rows, run=None))
        assert sd == pytest.approx(0.01, rel=0.1)
        assert df == pytest.approx(alike, rel=0.35)

    def test_intervals_by_the_pool_hold_what_they_promise(self):
        """The whole point of the shrinkage: d / (sd sqrt(...)) follows Student's t with the degrees of freedom said."""
        draw = np.random.default_rng(1)
        variances = 6 * 0.01**2 / draw.chisquare(6, size=1500)
        rows = draw.normal(0, np.sqrt(variances)[:, None], size=(1500, 4))
        outside = 0
        for block in range(0, 1500, 50):  # thirty suites of fifty tests
            pool = NoisePool(suite(rows[block : block + 50, :3], run=None))
            for i in range(50):
                before, after = tuple(rows[block + i, :3]), tuple(rows[block + i, 3:])
                noise = pool.of(f"test {i}", before, after)
                t = (fmean(after) - fmean(before)) / (noise.sd * math.sqrt(1 + 1 / 3))
                outside += t > stats.t.isf(0.05, noise.df)
        assert 0.03 < outside / 1500 < 0.07

    @given(st.floats(-7, 7).map(lambda e: 10**e))
    def test_the_inverse_of_trigamma_inverts_it(self, y):
        from pytest_llmperf.gate.noise import _trigamma_inverse

        assert float(special.polygamma(1, _trigamma_inverse(y))) == pytest.approx(y, rel=1e-3)


class TestPool:
    def test_too_few_other_tests_say_nothing(self):
        rows = np.random.default_rng(0).normal(0, 0.01, size=(3, 5))
        pool = NoisePool(suite(rows, run=None))
        assert pool.of(*NOBODY).source == "pooled"
        assert pool.of("test 0", tuple(rows[0]), (0.0,)).source == "own"
        assert NoisePool().of(*NOBODY).source == "unknown"

    def test_a_test_is_left_out_of_what_the_others_know(self):
        rows = np.random.default_rng(0).normal(0, 0.01, size=(5, 5))
        wild = [*suite(rows, run=None), Series("wild", None, (0.0, 3.0, -3.0, 1.0, 2.0))]
        assert NoisePool(wild).of("wild", (0.0,), (0.0,)).pooled_sd == pytest.approx(pooled(suite(rows, run=None))[0])
        # The others hardly know what to expect of a test once one of them is so.
        assert NoisePool(wild).of("test 1", (0.0,), (0.0,)).pooled_df < 1

    def test_baselines_of_one_launch_and_unusable_values_are_no_part_of_it(self):
        rows = np.random.default_rng(0).normal(0, 0.01, size=(4, 5))
        more = [
            Series("short", None, (1.0,)),
            Series("broken", None, (1.0, math.nan)),
            Series("inf", None, (-math.inf,) * 3),
        ]
        assert pooled([*suite(rows, run=None), *more]) == pooled(suite(rows, run=None))

    def test_equal_launches_everywhere_are_a_noise_at_the_floor(self):
        sd, df = pooled(suite(np.ones((5, 4)), run=None))
        assert sd == pytest.approx(FLOOR, rel=0.5)
        assert df > 0


def shared(tests, launches, correlation, seed, sd=0.01):
    """Launches of tests that have a part of their noise in common, start by start."""
    draw = np.random.default_rng(seed)
    start, own = draw.normal(size=launches), draw.normal(size=(tests, launches))
    return sd * (math.sqrt(correlation) * start + math.sqrt(1 - correlation) * own)


class TestCorrelation:
    def test_tests_that_move_as_one_know_what_one_knows_which_is_no_more_than_the_test_itself(self):
        assert pooled(suite(shared(10, 5, 1.0, seed=0)))[1] == pytest.approx(0, abs=1e-6)

    def test_of_tests_of_other_runs_the_launches_share_nothing(self):
        rows = shared(10, 5, 1.0, seed=0)
        apart = [Series(f"test {i}", f"run {i}", tuple(row)) for i, row in enumerate(rows)]
        assert pooled(apart)[1] == pytest.approx(40)

    def test_two_launches_cannot_tell_and_are_taken_for_one(self):
        assert pooled(suite(shared(10, 2, 0.0, seed=0)))[1] == pytest.approx(0, abs=1e-6)
        assert pooled(suite(shared(10, 2, 0.0, seed=0), run=None))[1] > 0

    def test_independent_ones_keep_most_of_their_worth(self):
        worth = [pooled(suite(shared(12, 5, 0.0, seed)))[1] for seed in range(40)]
        assert fmean(worth) > 0.5 * 48
        assert max(worth) <= 48 + 1e-6

    @pytest.mark.parametrize("correlation", [0.5, 0.8, 0.95])
    def test_they_are_credited_no_more_than_they_know(self, correlation):
        """What a pooled variance is worth: the degrees of freedom of a chi-squared that spreads as it does."""
        found = [pooled(suite(shared(12, 6, correlation, seed))) for seed in range(300)]
        spread = np.var([2 * math.log(sd) for sd, _ in found], ddof=1)
        known = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - spread, 0.1, 1e5)
        assert fmean(df for _, df in found) < 1.25 * known
