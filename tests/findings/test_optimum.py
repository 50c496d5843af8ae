"""When a clock is certainly worse than another, by hand."""

import math

import pytest

from pytest_llmperf.findings.optimum import Swept, optimum_of
from pytest_llmperf.findings.points import points_of
from tests.findings.records import case, results

#: Three launches whose logarithms scatter by 0.01.
SCATTER = tuple(math.exp(0.01 * at) for at in (-1, 0, 1))
#: 95 % of Student's distribution with four degrees of freedom, times 0.01 sqrt(1/3 + 1/3).
DISTANCE = 2.131847 * 0.01 * math.sqrt(2 / 3)


def swept(*yields, scatter=SCATTER):
    clocks = [case(f"t{i}", clock=700.0 + 50 * i, values={"tpj": value}) for i, value in enumerate(yields)]
    points = points_of(results(*clocks))
    return [
        Swept(point, value, tuple(value * one for one in scatter))
        for point, value in zip(points, yields, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(("factor", "worse"), [(0.97, False), (1.03, True)])
def test_worse_is_beyond_the_noise_of_both(factor, worse):
    one, best = swept(math.exp(-DISTANCE * factor), 1.0)
    found = optimum_of([one, best])
    assert found.freedom == 4
    assert found.spread == pytest.approx(0.01)
    assert found.is_worse(one, best) is worse
    assert found.below == (0 if worse else None)


def test_the_bounds_are_the_nearest_ones():
    found = optimum_of(swept(0.5, 0.7, 0.999, 1.0, 0.999, 0.7, 0.5))
    assert (found.best, found.below, found.above) == (3, 1, 5)


def test_of_equal_clocks_the_lowest_is_the_best():
    found = optimum_of(swept(1.0, 1.0, 1.0))
    assert (found.best, found.below, found.above) == (0, None, None)


@pytest.mark.parametrize(("scatter", "exact"), [((1.0,), True), ((1.0, 1.0, 1.0), False)])
def test_without_noise_any_difference_counts(scatter, exact):
    found = optimum_of(swept(0.999, 1.0, 0.999, scatter=scatter), exact=exact)
    assert found.freedom == 0
    assert (found.best, found.below, found.above) == (1, 0, 2)


def test_one_launch_of_unknown_noise_tells_nothing_apart():
    found = optimum_of(swept(0.5, 1.0, 0.5, scatter=(1.0,)))
    assert not found.known
    assert (found.best, found.below, found.above) == (1, None, None)


def test_choosing_among_many_asks_for_a_greater_distance():
    scatter = (0.99, 1.0, 1.01)
    few, many = swept(0.981, 1.0, scatter=scatter), swept(0.981, 1.0, *[0.9] * 10, scatter=scatter)
    assert optimum_of(few).candidates == (1,)
    # A spread known from more launches, and yet not certain: one of eleven such statements may be wrong by chance.
    assert optimum_of(many).candidates == (0, 1)
