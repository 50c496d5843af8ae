"""Dividing launches."""

import pytest

from pytest_llmperf.calibration.splits import split
from pytest_llmperf.errors import OptionError


def test_all_ways_where_they_are_few():
    splits = split(10, 5, at_most=8)
    assert len(splits.baselines) == len(set(splits.baselines)) == splits.possible == 252
    assert splits.run == 5
    assert splits.disjoint == 1


def test_the_run_takes_the_other_launches_in_their_order():
    splits = split(8, 3, at_most=4)
    for baseline in splits.baselines:
        run = splits.runs(baseline)
        assert len(run) == 4
        assert not set(run) & set(baseline)
        assert list(run) == sorted(run)
    assert splits.runs((0, 1, 2)) == (3, 4, 5, 6)


def test_a_sample_where_they_are_many_is_the_same_again():
    splits = split(20, 5, at_most=8, most=300)
    assert len(set(splits.baselines)) == 300 < splits.possible
    assert splits == split(20, 5, at_most=8, most=300)
    assert splits != split(20, 5, at_most=8, most=300, seed=1)
    assert {i for baseline in splits.baselines for i in baseline} == set(range(20))
    assert splits.disjoint == 1


@pytest.mark.parametrize(("launches", "baseline"), [(5, 5), (3, 5), (6, 0), (6, -1)])
def test_nothing_left_for_the_run_is_refused(launches, baseline):
    with pytest.raises(OptionError, match="cannot be divided"):
        split(launches, baseline, at_most=8)
