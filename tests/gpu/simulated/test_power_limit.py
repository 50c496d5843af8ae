"""What the power limit does to steps: it acts on a running mean, by way of the clock, and work takes longer for it."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.simulation.board import BOARDS
from pytest_llmperf.simulation.power import watts
from pytest_llmperf.simulation.steps import Pace
from tests.simulation.round_numbers import round_board

MS = 1_000_000


def work(seconds, memory, compute, top_mhz=1980):
    """Work bound by FLOPs, so that it goes with the SM clock; its figures at the highest."""

    def pace(sm_mhz, _memory_mhz):
        return Pace(seconds * top_mhz / sm_mhz, memory * sm_mhz / top_mhz, compute)

    return pace


class Driven:
    def __init__(self, key="h200", **kwargs):
        self.now = 0
        self.model = round_board(key)
        self.top = self.model.product.supported_sm_clocks_mhz[-1]
        self.device = SimulatedDevice(self.model)
        self.device.attach(lambda: self.now, **kwargs)
        self.device.load(10**9)

    @property
    def limit_w(self):
        return self.device.board.power_limit_w

    def steps(self, count, seconds, memory, compute):
        """How long each takes, in ns."""
        pace, took = work(seconds, memory, compute, self.top), []
        for _ in range(count):
            end = self.device.run(self.now, pace)
            took.append(end - self.now)
            self.now = end
        return took

    def watts(self, memory, compute, mhz=None, busy=1.0):
        return watts(self.model, mhz or self.top, loaded=True, busy=busy, memory=memory, compute=compute)

    @property
    def rest_w(self):
        return self.watts(0, 0, busy=0)

    def mean_w(self, start, end):
        self.device.power_w()  # all that was told is in its history
        inside = self.device.timeline.inside
        return self.device.history.mean("watts", inside(start), inside(end))

    def capped_ns(self):
        return self.device.throttle_ns()["sw_power_cap"]


@pytest.fixture
def heavy():
    """An H200 with work that draws 890 W at its highest clock, and that work's compute share."""
    driven = Driven()
    still, full = driven.watts(0.3, 0), driven.watts(0.3, 1)
    return driven, (890 - still) / (full - still)


def test_a_burst_runs_free_until_the_mean_has_reached_the_limit(heavy):
    driven, compute = heavy
    free_s = driven.model.power.limit_s * log((890 - driven.rest_w) / (890 - 700))
    took = driven.steps(100, 0.003, 0.3, compute)
    before = int(free_s / 0.003)
    assert took[:before] == [3 * MS] * before
    assert driven.mean_w(0, before * 3 * MS) == pytest.approx(890)
    assert all(each > 3.1 * MS for each in took[before + 2 :])
    assert driven.now - driven.capped_ns() == pytest.approx(free_s * NS_PER_S, abs=2)


def test_the_step_in_which_the_limit_begins_to_bite_is_split(heavy):
    driven, compute = heavy
    free_s = driven.model.power.limit_s * log((890 - driven.rest_w) / 190)
    (took,) = driven.steps(1, 1.0, 0.3, compute)
    driven.now -= 1
    clock = driven.device.sm_clock_mhz()
    assert clock < 1980
    assert took / NS_PER_S == pytest.approx(free_s + (1 - free_s) * 1980 / clock)
    assert driven.capped_ns() / NS_PER_S == pytest.approx((1 - free_s) * 1980 / clock)


@pytest.mark.parametrize("key", BOARDS)
@pytest.mark.parametrize("step_s", [0.0005, 0.004, 0.03])
@pytest.mark.parametrize("excess", [1.02, 1.3])
def test_the_mean_settles_at_the_limit(key, step_s, excess):
    driven = Driven(key)
    still, full = driven.watts(0.2, 0), driven.watts(0.2, 1)
    compute = (excess * driven.limit_w - still) / (full - still)
    driven.steps(round(1 / step_s), step_s, 0.2, compute)
    driven.device.power_w()
    settled = driven.now
    driven.steps(round(1 / step_s), step_s, 0.2, compute)
    assert driven.mean_w(settled, driven.now) == pytest.approx(driven.limit_w, rel=0.01)
    assert driven.mean_w(settled, driven.now) <= driven.limit_w
    assert driven.capped_ns() > 0.9 * (driven.now - settled)


def test_it_is_shown_and_ends_with_the_load(heavy):
    driven, compute = heavy
    device = driven.device
    driven.steps(100, 0.005, 0.3, compute)
    driven.now -= 1
    assert device.clock_reasons() == {"sw_power_cap"}
    assert device.sm_clock_mhz() < 1980
    driven.now += 1
    assert (device.clock_reasons(), device.sm_clock_mhz()) == (set(), 1980)
    capped = driven.capped_ns()
    assert driven.steps(3, 0.005, 0.6, 0.02) == [5 * MS] * 3  # decode draws less than the limit
    assert driven.capped_ns() == capped
    driven.now += 100 * MS  # after a tenth of a second a burst begins anew
    assert driven.steps(5, 0.005, 0.3, compute) == [5 * MS] * 5


def test_light_work_ends_it_as_a_pause_does(heavy):
    driven, compute = heavy
    driven.steps(100, 0.005, 0.3, compute)
    driven.steps(100, 0.005, 0.6, 0.02)
    light = driven.watts(0.6, 0.02)
    free_s = driven.model.power.limit_s * log((890 - light) / (890 - 700))
    capped, begin = driven.capped_ns(), driven.now
    driven.steps(1, 1.0, 0.3, compute)
    assert driven.now - begin - (driven.capped_ns() - capped) == pytest.approx(free_s * NS_PER_S, rel=1e-3)


@pytest.mark.parametrize("worked_s", [0, 1])
def test_after_what_was_abandoned_the_mean_is_that_of_what_was_done(heavy, worked_s):
    driven, compute = heavy
    pace, at = work(0.005, 0.3, compute), 0
    while at < 3 * NS_PER_S:
        at = driven.device.run(at, pace)
    driven.now = worked_s * NS_PER_S
    driven.device.abandon()
    (took,) = driven.steps(1, 0.005, 0.3, compute)
    assert (took > 5.3 * MS) if worked_s else (took == 5 * MS)


def test_a_clock_that_draws_less_than_the_limit_is_never_capped(heavy):
    driven, compute = heavy
    driven.device.lock_sm_clock(900)
    assert driven.watts(0.3 * 900 / 1980, compute, 900) < 700
    assert set(driven.steps(200, 0.005, 0.3, compute)) == {11 * MS}
    assert driven.capped_ns() == 0


def test_it_never_runs_above_the_clock_that_is_locked(heavy):
    driven, compute = heavy
    driven.device.lock_sm_clock(1905)
    driven.steps(100, 0.005, 0.3, compute)
    driven.device.power_w()
    levels = {level.sm_mhz for level, _ in driven.device.history.pieces(0, driven.device.timeline.now())}
    assert max(levels) == 1905
    assert len(levels) > 1


def test_a_higher_power_scale_is_capped_deeper(heavy):
    _, compute = heavy
    took = []
    for scale in (0.5, 1.0, 1.2):
        driven = Driven(power_scale=scale)
        took.append(driven.steps(200, 0.005, 0.3, compute)[-1])
    assert took[0] == 5 * MS < took[1] < took[2]


def test_a_step_that_waits_for_its_launch_spreads_its_power(heavy):
    driven, compute = heavy
    pace = work(0.005, 0.3, compute)
    for _ in range(200):
        end = driven.device.run(driven.now, pace, until_ns=driven.now + 10 * MS)
        assert end == driven.now + 10 * MS
        driven.now = end
    assert driven.capped_ns() == 0
    assert driven.mean_w(0, driven.now) == pytest.approx(driven.watts(0.15, compute / 2, busy=1 / 2))


def test_a_stretched_step_uses_the_same_work_over_a_longer_time(heavy):
    driven, compute = heavy
    assert driven.device.run(0, work(0.005, 0.3, compute), stretch=1.5) == 7.5 * MS
    driven.now = round(7.5 * MS)
    assert driven.mean_w(0, driven.now) == pytest.approx(driven.watts(0.2, compute / 1.5, busy=1 / 1.5))


@pytest.mark.parametrize(("stretch", "until_s"), [(1.0, 0.0), (1.1, 0.0), (1.0, 1.1)])
def test_while_it_bites_a_step_draws_for_the_time_in_which_its_kernels_run(heavy, stretch, until_s):
    driven, compute = heavy
    device = driven.device
    for seconds in (1.0, 1.0):
        driven.now = device.run(
            driven.now, work(seconds, 0.3, compute), stretch=stretch, until_ns=driven.now + round(until_s * NS_PER_S)
        )
    device.power_w()
    level = device.history.level(device.timeline.inside(driven.now - 1))
    clock, busy = level.sm_mhz, level.tensor / compute
    assert level.capped
    assert level.dram == pytest.approx(0.3 * clock / 1980 * busy)
    assert level.watts == pytest.approx(driven.watts(level.dram, level.tensor, clock, busy=busy))
    assert level.watts <= driven.limit_w * (1 + 1e-6)
    if stretch > 1:
        assert busy == pytest.approx(1 / stretch)


def test_where_even_the_lowest_clock_draws_too_much_it_runs_at_that():
    driven = Driven(power_scale=20)
    driven.steps(50, 0.005, 0.3, 0.5)
    driven.now -= 1
    assert driven.device.sm_clock_mhz() == 345
    assert driven.device.clock_reasons() == {"sw_power_cap"}


@given(
    st.lists(
        st.tuples(st.floats(0.0001, 0.2), st.floats(0, 0.7), st.floats(0, 1), st.sampled_from([0.0, 0.0, 0.002, 0.3])),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_comes_the_work_is_done_and_the_mean_kept(steps):
    driven = Driven()
    device, constant_s = driven.device, driven.model.power.limit_s
    computed = 0.0
    for seconds, memory, compute, pause in steps:
        driven.now += round(pause * NS_PER_S)
        (took,) = driven.steps(1, seconds, memory, compute)
        assert took >= seconds * NS_PER_S - 1
        computed += compute * seconds
    driven.now += 10 * MS
    device.power_w()
    inside, mean = device.timeline.inside, driven.rest_w
    done = 0.0
    for level, lasted in device.history.pieces(inside(0), inside(driven.now)):
        seconds = lasted / NS_PER_S
        mean = level.watts + (mean - level.watts) * 2.718281828459045 ** (-seconds / constant_s)
        done += level.tensor * level.sm_mhz / 1980 * seconds
        # Levels are means of up to 10 ms, and so know the running mean to the excess of that time.
        assert mean < 700 * (1 + 0.01 / constant_s)
    assert done == pytest.approx(computed, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("stretch", [0.8, 1.05, 1.5])
def test_a_stretch_is_a_factor_on_the_whole_time_also_under_the_limit(stretch):
    def ends(factor):
        device = SimulatedDevice(round_board())
        device.attach(lambda: 0)
        device.load(10**9)
        at, found = 0, []
        for _ in range(60):
            at = device.run(at, lambda sm_mhz, _: Pace(0.01 * 1980 / sm_mhz, 0.3, 0.9), stretch=factor)
            found.append(at)
        return found

    plain = ends(1.0)
    assert plain[-1] > 1.05 * 60 * 0.01 * 1e9  # the limit acts
    assert ends(stretch) == pytest.approx([stretch * at for at in plain], rel=1e-4)
