from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gate import Rules
from pytest_llmperf.gate.rules import _LAST_REGRESSED, FAMILY_ALPHA, LIMIT_ALPHA, PASS_ALPHA

many_launches = pytest.mark.parametrize("launches", [*range(1, 14), 21, 50])
many_comparisons = pytest.mark.parametrize("gated", [1, 2, 7, 1000])


def total(rules, part):
    return sum(part(look) for look in range(len(rules.looks)))


def both(rules, part):
    """The sums of the error when nothing changed, and of that exactly at the tolerance."""
    return [rules.gated * total(rules, lambda look, one=one: part(look)[one]) for one in (0, 1)]


class TestLooks:
    @pytest.mark.parametrize(
        ("launches", "looks"),
        [
            (1, (1,)),
            (2, (1, 2)),
            (3, (1, 2, 3)),
            (7, (1, 2, 3, 4, 5, 6, 7)),
            (8, (1, 2, 3, 4, 5, 6, 8)),
            (11, (1, 2, 3, 4, 5, 6, 8, 11)),
            (12, (1, 2, 3, 4, 5, 6, 8, 12)),
            (21, (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 21)),
        ],
    )
    def test_they_grow_rarer_and_end_with_the_last_launch(self, launches, looks):
        assert Rules.of_run(1, launches).looks == looks

    @many_launches
    def test_they_ascend_from_the_first_launch_to_the_last(self, launches):
        rules = Rules.of_run(3, launches)
        assert rules.looks[0] == 1
        assert rules.launches == rules.looks[-1] == launches
        assert list(rules.looks) == sorted(set(rules.looks))

    @pytest.mark.parametrize(("there", "seen"), [(1, 1), (6, 6), (7, 6), (8, 8), (9, 8), (40, 8)])
    def test_launches_between_two_looks_or_past_the_last_are_not_seen(self, there, seen):
        assert Rules.of_run(1, 8).seen(there) == seen


class TestBudgets:
    @many_launches
    @many_comparisons
    def test_regressions_of_all_looks_and_comparisons_use_what_the_run_is_allowed(self, launches, gated):
        rules = Rules.of_run(gated, launches)
        assert both(rules, rules.regressed_alphas) == pytest.approx([FAMILY_ALPHA, LIMIT_ALPHA])

    @many_launches
    @many_comparisons
    def test_improvements_likewise(self, launches, gated):
        rules = Rules.of_run(gated, launches)
        assert both(rules, rules.improved_alphas) == pytest.approx([FAMILY_ALPHA, LIMIT_ALPHA])

    @many_launches
    @many_comparisons
    def test_passes_of_all_looks_use_what_one_metric_is_allowed_however_many_there_are(self, launches, gated):
        rules = Rules.of_run(gated, launches)
        assert total(rules, rules.passing_alpha) == pytest.approx(PASS_ALPHA)

    @given(
        st.integers(1, 10_000),
        st.lists(st.integers(1, 1000), min_size=1, max_size=12, unique=True).map(lambda n: tuple(sorted(n))),
        st.floats(1e-6, 0.5),
        st.floats(1e-6, 0.5),
        st.floats(1e-6, 0.5),
    )
    def test_no_plan_of_looks_and_no_level_uses_more(self, gated, looks, family, limit, passing):
        rules = Rules(gated, looks, family, limit, passing)
        for part in (rules.regressed_alphas, rules.improved_alphas):
            unchanged, at_limit = both(rules, part)
            assert unchanged <= family * (1 + 1e-9)
            assert at_limit <= limit * (1 + 1e-9)
            assert all(min(part(look)) >= 0 for look in range(len(looks)))
        assert total(rules, rules.passing_alpha) <= passing * (1 + 1e-9)
        assert all(rules.passing_alpha(look) >= 0 for look in range(len(looks)))

    @pytest.mark.parametrize("launches", [*range(2, 14), 50])
    def test_one_launch_of_several_is_never_called_regressed(self, launches):
        rules = Rules.of_run(3, launches)
        assert rules.regressed_alphas(0) == (0, 0)
        assert all(min(rules.regressed_alphas(look)) > 0 for look in range(1, len(rules.looks)))

    def test_the_only_launch_that_is_allowed_may_be(self):
        assert Rules.of_run(4, 1).regressed_alphas(0) == pytest.approx((FAMILY_ALPHA / 4, LIMIT_ALPHA / 4))

    def test_a_clear_pass_is_looked_for_first_and_a_regression_last(self):
        rules = Rules.of_run(1, 8)
        assert rules.passing_alpha(0) == pytest.approx(PASS_ALPHA / 2)
        of_looks = [rules.regressed_alphas(look)[1] for look in range(7)]
        assert of_looks[6] == pytest.approx(_LAST_REGRESSED * LIMIT_ALPHA)
        assert of_looks[1:6] == pytest.approx([(1 - _LAST_REGRESSED) * LIMIT_ALPHA / 5] * 5)
        assert of_looks[6] > sum(of_looks[:6])

    def test_a_run_that_compares_nothing_divides_by_one(self):
        assert Rules.of_run(0, 8).alpha == FAMILY_ALPHA
