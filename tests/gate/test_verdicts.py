from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gate import PASSING, SEVERITY, worst


@pytest.mark.parametrize("verdict", SEVERITY)
def test_the_worst_of_one_is_itself(verdict):
    assert worst([verdict]) == verdict


@given(st.lists(st.sampled_from(SEVERITY), min_size=1))
def test_one_bad_verdict_is_not_made_good_by_others(verdicts):
    assert (worst(verdicts) in PASSING) == all(v in PASSING for v in verdicts)
    assert worst(verdicts) == worst(reversed(verdicts))


def test_nothing_compared_is_never_passed():
    assert worst([]) == "no-baseline"
    assert worst([]) not in PASSING


def test_only_these_let_a_test_pass():
    assert {"pass", "improved", "not-applicable"} == PASSING


def test_what_is_not_known_is_worse_than_a_pass_and_better_than_what_is_known_to_be_bad():
    assert worst(["pass", "inconclusive", "improved"]) == "inconclusive"
    assert worst(["regressed", "inconclusive"]) == "regressed"
