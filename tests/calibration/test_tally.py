"""Shares with exact intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr, bdtrc

from pytest_llmperf.calibration.tally import Share, clopper_pearson


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(0, 300, 0.0, 0.01222), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0), (1, 1000, 0.0000253, 0.005559)],
)
def test_published_values(hits, trials, low, high):
    assert clopper_pearson(hits, trials) == pytest.approx((low, high), rel=2e-3)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_each_end_leaves_a_tail_of_two_and_a_half_percent(case):
    hits, trials = case
    low, high = clopper_pearson(hits, trials)
    assert low <= hits / trials <= high
    if hits:
        assert bdtrc(hits - 1, trials, low) == pytest.approx(0.025, rel=1e-6)
    if hits < trials:
        assert bdtr(hits, trials, high) == pytest.approx(0.025, rel=1e-6)


def test_a_share_of_nothing_is_none():
    assert Share.of([]).value is None
    assert Share.of([True, False, False]) == Share(1, 3)
