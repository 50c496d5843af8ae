"""The shared mathematics, on curves whose answer is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.findings.fits import corner, knee, least_squares, pooled_spread, student

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def blended(flat: float, slope: float, turn: float) -> list[float]:
    if math.isinf(turn):
        return [max(flat, slope * batch) for batch in BATCHES]
    return [(flat**turn + (slope * batch) ** turn) ** (1 / turn) for batch in BATCHES]


@pytest.mark.parametrize("turn", [1.0, 2.0, 3.0, 8.0, math.inf])
@pytest.mark.parametrize("at", [20.0, 173.0])
def test_a_corner_is_found_whatever_the_turn(turn, at):
    found = corner(BATCHES, blended(0.026, 0.026 / at, turn))
    assert found.at == pytest.approx(at, rel=1e-6)
    assert found.turn == turn
    assert found.error < 1e-9
    assert found.low <= found.at <= found.high


@given(st.floats(1e-4, 1), st.floats(3, 300), st.sampled_from([1.0, 1.5, 2.0, 4.0, math.inf]), st.floats(0.1, 10))
def test_a_corner_does_not_depend_on_the_unit(flat, at, turn, unit):
    one = corner(BATCHES, blended(flat, flat / at, turn))
    other = corner(BATCHES, [y * unit for y in blended(flat, flat / at, turn)])
    assert other.at == pytest.approx(one.at, rel=1e-6)


def test_a_turn_that_is_not_known_widens_the_interval():
    batches = BATCHES[:7]
    noisy = [y * (1.03 if i % 2 else 0.97) for i, y in enumerate(blended(0.026, 0.026 / 40, 1.5)[:7])]
    found = corner(batches, noisy)
    assert found.low < found.high
    assert found.low <= found.at <= found.high
    assert found.low < 40 < found.high


def test_a_curve_that_does_not_rise_turns_nowhere():
    assert corner(BATCHES, [0.026] * len(BATCHES)) is None


@pytest.mark.parametrize("turn", [1.0, 2.0, math.inf])
def test_a_corner_beyond_the_last_point_is_not_reached(turn):
    assert corner(BATCHES[:6], blended(0.026, 0.026 / 173, turn)[:6]) is None


def test_three_points_are_too_few_for_a_corner():
    assert corner([1, 2, 3], [1.0, 1.0, 2.0]) is None


def test_extreme_values_are_no_error():
    assert corner([1, 2, 3, 4], [1e-300, 1.0, 1e200, 1e300]) is None
    assert corner([1e-3, 1, 1e3, 1e6], [1e-200, 1.1e-200, 5e-200, 1e-197]) is not None


def test_least_squares_finds_a_plane_and_its_worst_point():
    rows = [(1.0, x, y) for x in (128.0, 512.0, 4096.0) for y in (8.0, 64.0)]
    exact = [0.01 + 2e-4 * x + 0.03 * y for _, x, y in rows]
    found = least_squares(rows, exact)
    assert found.coefficients == pytest.approx((0.01, 2e-4, 0.03))
    assert found.worst < 1e-9
    off = least_squares(rows, [*exact[:-1], exact[-1] * 1.2])
    assert 0.02 < off.worst < 0.2


def test_least_squares_of_a_line_in_disguise_is_none():
    assert least_squares([(1.0, x, 2 * x) for x in (1.0, 2.0, 3.0, 4.0)], [1.0, 2.0, 3.0, 4.0]) is None


@pytest.mark.parametrize(
    ("xs", "ys", "at"),
    [
        ([1, 1.1, 1.2, 3, 9], [10, 20, 40, 44, 45], 2),
        ([1, 1.1, 1.2, 1.3, 1.4], [10, 20, 40, 80, 160], None),  # it pays up to the end
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], None),
        ([1, 1, 1, 1, 1], [1, 2, 3, 4, 5], None),
        ([1, 2, 3, 4, 5], [5, 5, 5, 5, 5], None),  # it never did
        ([1, 1.1, 1.2, 9], [1, 9, 18, 19], None),
        ([1, 1.1, 1.2, 2.4, 9], [10, 20, 40, 72, 73], 3),  # not clearly less at first
    ],
)
def test_the_knee_is_where_throughput_begins_to_grow_clearly_less_than_latency(xs, ys, at):
    assert knee(xs, ys) == at


def test_a_pooled_spread_counts_differences_within_series_only():
    spread, freedom = pooled_spread([(1.0, math.e**0.02), (5.0, 5 * math.e**0.02), (9.0,)])
    assert freedom == 2
    assert spread == pytest.approx(0.01 * math.sqrt(2))
    assert pooled_spread([(1.0,), ()]) == (0.0, 0)


def test_students_quantile():
    assert student(0.95, 2) == pytest.approx(2.91999, rel=1e-5)
