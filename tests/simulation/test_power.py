"""Power over clock and use; the search for the clock that keeps a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.simulation.board import BOARDS, BoardModel
from pytest_llmperf.simulation.power import draw, highest_clock, voltage, watts
from tests.simulation.round_numbers import round_board

boards = st.sampled_from(BOARDS).map(BoardModel.named)
shares = st.floats(0, 1)


@st.composite
def boards_and_two_clocks(draws):
    board = draws(boards)
    first, last, _ = board.product.sm_clocks_mhz
    return board, *sorted(draws(st.tuples(*[st.floats(first, last)] * 2)))


@given(boards_and_two_clocks(), st.booleans(), shares, shares, shares)
def test_power_does_not_fall_with_the_clock(given_, loaded, busy, memory, compute):
    board, low, high = given_
    first, second = (watts(board, f, loaded=loaded, busy=busy, memory=memory, compute=compute) for f in (low, high))
    assert first <= second


@given(boards_and_two_clocks(), shares, shares, shares)
def test_power_does_not_fall_with_what_is_in_use(given_, low, high, other):
    board, mhz, _ = given_
    low, high = sorted((low, high))
    for name, beside in (("memory", "compute"), ("compute", "busy"), ("busy", "memory")):
        first, second = (watts(board, mhz, loaded=True, **{name: share, beside: other}) for share in (low, high))
        assert first <= second
    assert watts(board, mhz, loaded=False) < watts(board, mhz, loaded=True)


@given(boards_and_two_clocks())
def test_the_voltage_is_flat_up_to_its_knee_and_rises_from_there(given_):
    board, low, high = given_
    knee, floor = board.power.voltage_knee_mhz, board.power.voltage_floor
    assert floor <= voltage(board, low) <= voltage(board, high) <= 1
    if high <= knee:
        assert voltage(board, low) == voltage(board, high) == floor
    if low < high and high - knee > 1:
        assert voltage(board, low) < voltage(board, high)
    top = board.product.sm_clocks_mhz[1]
    assert voltage(board, top) == pytest.approx(1)
    assert voltage(board, (knee + top) / 2) == pytest.approx((1 + floor) / 2)


@pytest.mark.parametrize("key", BOARDS)
def test_it_grows_with_the_clock_more_than_linearly_above_the_knee(key):
    board = BoardModel.named(key)
    knee, top = board.power.voltage_knee_mhz, board.product.sm_clocks_mhz[1]
    still = watts(board, knee, loaded=True)
    switching = [watts(board, f, loaded=True, busy=1, compute=0.1) - still for f in (knee / 2, knee, top)]
    assert switching[1] == pytest.approx(2 * switching[0])
    assert switching[2] == pytest.approx(switching[1] * top / knee / board.power.voltage_floor**2)


@pytest.mark.parametrize("key", BOARDS)
def test_at_the_highest_clock_it_is_the_sum_of_the_files_figures(key):
    board = BoardModel.named(key)
    power, top = board.power, board.product.sm_clocks_mhz[1]
    assert watts(board, top, loaded=False) == power.idle_w
    expected = power.idle_w + power.loaded_w + 0.75 * power.busy_w
    expected += 0.5 * (power.dram_w + power.memory_w) + 0.25 * power.compute_w
    assert watts(board, top, loaded=True, busy=0.75, memory=0.5, compute=0.25) == pytest.approx(expected)


def test_below_it_each_part_falls_as_it_should():
    board = round_board()
    half = draw(board, 990, loaded=True)  # below the knee of the voltage
    switching = 0.5 * 0.7**2
    # Neither what is there whatever the board does nor the memory itself cares for the SM clock.
    expected = (80 + 40, 50 * switching, 100 + 300 * switching, 1000 * switching)
    assert half == pytest.approx(expected)
    still, busy, memory, compute = expected
    assert half.watts(0.5, 0.25, 0.125) == pytest.approx(still + 0.5 * busy + 0.25 * memory + 0.125 * compute)


@given(boards, st.floats(0.1, 10), shares, shares, shares)
def test_a_scale_is_a_factor_on_everything(board, scale, busy, memory, compute):
    top = board.product.sm_clocks_mhz[1]
    scaled = draw(board, top, loaded=True, scale=scale).watts(busy, memory, compute)
    plain = watts(board, top, loaded=True, busy=busy, memory=memory, compute=compute)
    assert scaled == pytest.approx(scale * plain)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=60, unique=True).map(sorted),
    st.integers(0, 59),
    st.floats(-10, 4000),
    st.one_of(st.none(), st.integers(-5, 3005)),
)
def test_the_highest_clock_is_found_wherever_the_search_begins(clocks, number, limit, near):
    asked = clocks[min(number, len(clocks) - 1)]
    within = [clock for clock in clocks if clock <= asked and 1.25 * clock - 3 <= limit]
    looked_at = []

    def reached(clock):
        looked_at.append(clock)
        return 1.25 * clock - 3

    assert highest_clock(clocks, asked, limit, reached, near_mhz=near) == max(within, default=clocks[0])
    assert max(looked_at) <= asked
    assert len(looked_at) == len(set(looked_at)) <= 14


def test_a_search_that_begins_at_the_result_looks_twice():
    clocks, looked_at = range(345, 1981, 15), []

    def reached(clock):
        looked_at.append(clock)
        return clock

    assert highest_clock(clocks, 1980, 1503.0, reached, near_mhz=1500) == 1500
    assert looked_at == [1500, 1515]
