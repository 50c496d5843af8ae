"""A simulated board: its sensors against the truth, its clocks, its time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy.sensor import watch
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.gpu.simulated.product import Product
from pytest_llmperf.simulation.board import BOARDS, BoardModel
from pytest_llmperf.simulation.power import watts
from pytest_llmperf.simulation.steps import Pace
from tests.simulation.round_numbers import round_board

MS = 1_000_000


def steady(seconds, memory=0.0, compute=0.0):
    """Work that takes as long at every clock."""
    return lambda _sm, _memory: Pace(seconds, memory, compute)


def rests(key="h200"):
    """Watts of a board with a model loaded that does nothing."""
    return watts(round_board(key), 1, loaded=True)


def draws(memory=0.0, compute=0.0, *, key="h200", sm_mhz=None):
    """Watts of one that is at work, without a limit; at its highest clock unless told otherwise."""
    model = round_board(key)
    sm_mhz = sm_mhz or model.product.sm_clocks_mhz[1]
    return watts(model, sm_mhz, loaded=True, busy=1, memory=memory, compute=compute)


class Driven:
    """A board under the hands of an engine whose time the test sets; with a model loaded."""

    def __init__(self, key="h200", **kwargs):
        self.now = 0
        self.device = SimulatedDevice(round_board(key))
        self.device.attach(lambda: self.now, **kwargs)
        self.device.load(14 * 10**9)

    def work(self, seconds, memory=0.0, compute=0.0):
        self.now = self.device.run(self.now, steady(seconds, memory, compute))


def ticks(device, until):
    """The moments, in the engine's time, at which the counter steps, found by looking."""
    inside = device.timeline.inside
    return [device.timeline.outside(at) for at in device.counter_ticks(inside(0), inside(until))]


class TestEnergy:
    @given(
        st.sampled_from(BOARDS),
        st.lists(st.tuples(st.floats(0, 0.3), st.floats(0.0001, 0.3), st.floats(0, 0.5), st.floats(0, 0.1))),
    )
    def test_the_counter_steps_by_the_integral_of_the_true_power(self, name, spans):
        driven = Driven(name)
        device = driven.device
        rest = rests(name)
        told = []
        for gap, seconds, memory, compute in spans:
            driven.now += round(gap * NS_PER_S)
            start = driven.now
            driven.work(seconds, memory, compute)
            told.append((start, driven.now, draws(memory, compute, key=name)))
        driven.now += NS_PER_S
        at = ticks(device, driven.now)
        first, last = at[0], at[-1]
        truth = rest * (last - first) / NS_PER_S
        for start, end, drawn in told:
            truth += (drawn - rest) * max(0, min(end, last) - max(start, first)) / NS_PER_S
        counted = []
        for driven.now in (first, last):
            counted.append(device.energy_j())
        assert counted[1] - counted[0] == pytest.approx(truth, abs=0.0021)  # two readings of whole millijoules

    def test_it_stands_still_between_its_ticks(self):
        driven = Driven()
        driven.device.run(0, steady(1, memory=0.6))
        first, second, *_ = ticks(driven.device, NS_PER_S)
        assert second - first == 100 * MS
        seen = []
        for driven.now in (first - 1, first, second - 1, second):
            seen.append(driven.device.energy_j())
        assert seen[0] < seen[1] == seen[2] < seen[3]

    def test_it_never_falls_and_never_stops_over_engines_and_pauses(self):
        device = SimulatedDevice(round_board())
        seen = [device.energy_j()]
        for _ in range(3):
            clock = [0]
            device.attach(lambda clock=clock: clock[0])
            device.load(1)
            for _ in range(40):
                clock[0] = device.run(clock[0], steady(0.007, memory=0.5, compute=0.1))
                seen.append(device.energy_j())
            device.unload()
            device.detach()
            device.wait(0.25)
            seen.append(device.energy_j())
        assert seen == sorted(seen)
        assert seen[0] > 0
        now = device.timeline.now()
        truth = device.history.integral("watts", now) - device.history.integral("watts", 4_500_000)
        assert seen[-1] - seen[0] == pytest.approx(truth, abs=2 * 0.1 * 500)


class TestPower:
    def test_a_reading_is_the_mean_of_the_window_before_the_last_tick(self):
        driven = Driven()
        device = driven.device
        tick = ticks(device, 2 * NS_PER_S)[13]
        start = tick - 10 * MS  # 10 of the 25 ms
        device.run(start, steady(1, memory=0.6))
        rest, busy = rests(), draws(memory=0.6)
        seen = []
        for driven.now in (tick - 1, tick, tick + 99 * MS, tick + 100 * MS):
            seen.append(device.power_w())
        mixed = (15 * rest + 10 * busy) / 25
        assert seen == pytest.approx([rest, mixed, mixed, busy], abs=0.0015)
        assert device.mean_power_w() == pytest.approx(rest + (busy - rest) * 0.11, abs=0.01)

    @pytest.mark.parametrize(("name", "period_s"), [("v100", 0.02), ("a100", 0.1), ("h100", 0.1), ("h200", 0.1)])
    def test_the_sensors_have_the_products_periods(self, name, period_s):
        device = SimulatedDevice(round_board(name))
        sensor = watch(device, seconds=0.8, now=device.now)
        assert sensor.counter.period_s == pytest.approx(period_s, abs=sensor.counter.read_s)
        assert sensor.counter.read_s == Product.of(BoardModel.named(name)).counter_read_ns / NS_PER_S
        assert sensor.power.period_s == pytest.approx(period_s, rel=0.01)  # at rest: by the last digit
        driven = Driven(name)
        for number in range(200):
            driven.work(0.005, memory=number / 200)
        changes, before = [], None
        for driven.now in range(0, NS_PER_S, MS):
            power = driven.device.power_w()
            changes += [driven.now] if before is not None and power != before else []
            before = power
        assert {later - earlier for earlier, later in pairwise(changes)} == {period_s * NS_PER_S}

    def test_at_rest_it_flickers_by_the_last_digit_and_at_work_it_does_not(self):
        driven = Driven("v100")
        device, seen = driven.device, {}
        for what in ("rest", "work"):
            if what == "work":
                driven.work(0.5, memory=0.5)
            first = ticks(device, NS_PER_S)[-1] if what == "rest" else driven.now - 300 * MS
            readings = []
            for driven.now in range(first, first + 200 * MS, 20 * MS):
                readings.append(device.power_w())
                assert device.power_w() == readings[-1]  # a reading changes nothing
            seen[what] = readings
        assert {abs(round(b - a, 6)) for a, b in pairwise(seen["rest"])} == {0.001}
        assert len(set(seen["rest"])) == 2
        assert len(set(seen["work"])) == 1

    @pytest.mark.parametrize("name", BOARDS)
    def test_idle_and_loaded(self, name):
        power = BoardModel.named(name).power
        device = SimulatedDevice(name)
        seen = [device.power_w()]
        for act in (lambda: device.load(10**9), device.unload):
            act()
            device.wait(0.3)
            seen.append(device.power_w())
        # NVML reads whole milliwatts, and the last of them flickers.
        idle_w, loaded_w = power.idle_w, power.idle_w + power.loaded_w
        assert seen == pytest.approx([idle_w, loaded_w, idle_w], abs=0.00151)
        assert idle_w < loaded_w

    def test_a_scale_acts_on_everything(self):
        idle = SimulatedDevice(round_board()).power_w()
        assert SimulatedDevice(round_board(), power_scale=1.1).power_w() == pytest.approx(1.1 * idle, abs=0.002)
        plain, scaled = Driven(), Driven(power_scale=1.1)
        for driven in (plain, scaled):
            driven.work(0.3, memory=0.6, compute=0.02)
        assert scaled.device.power_w() == pytest.approx(1.1 * plain.device.power_w(), rel=1e-4)


class TestClocks:
    def test_free_locked_and_free_again(self):
        driven = Driven("v100")
        device = driven.device
        seen = []
        for act in (None, lambda: device.lock_sm_clock(900), device.unlock_sm_clock):
            if act is not None:
                act()
            driven.now += MS
            seen.append(device.sm_clock_mhz())
        assert seen == [1530, 900, 1530]

    def test_without_a_model_it_idles_low_unless_locked(self):
        device = SimulatedDevice("h200")
        assert device.sm_clock_mhz() == 345
        device.lock_sm_clock(1200)
        assert device.sm_clock_mhz() == 1200

    def test_a_lock_amid_a_step_holds_from_the_next_one_on(self):
        driven = Driven()
        device = driven.device
        device.run(0, steady(1, memory=0.6))
        driven.now = NS_PER_S // 2
        device.lock_sm_clock(900)
        device.run(NS_PER_S, steady(1, memory=0.6))
        seen = []
        for driven.now in (NS_PER_S // 4, NS_PER_S - 1, NS_PER_S, 2 * NS_PER_S - 1, 3 * NS_PER_S):
            seen.append((device.sm_clock_mhz(), device.clock_reasons()))
        assert seen == [*[(1980, set())] * 2, *[(900, set())] * 2, (900, {"gpu_idle"})]
        assert device.history.level(device.timeline.inside(NS_PER_S)).watts == draws(memory=0.6, sm_mhz=900)

    def test_between_two_kernels_it_is_not_idle_and_a_second_later_it_is(self):
        driven = Driven()
        driven.device.run(0, steady(0.1, memory=0.6))
        seen = []
        for driven.now in (NS_PER_S // 20, NS_PER_S // 10, NS_PER_S, NS_PER_S * 11 // 10, 2 * NS_PER_S):
            seen.append(driven.device.clock_reasons())
        assert seen == [set(), set(), set(), {"gpu_idle"}, {"gpu_idle"}]

    @pytest.mark.parametrize("clock", [0, 344, 901, 1995, -5])
    def test_one_that_it_does_not_have_is_refused(self, clock):
        device = SimulatedDevice("h200")
        with pytest.raises(GpuError, match=f"no SM clock of {clock} MHz.*345 to 1980"):
            device.lock_sm_clock(clock)

    def test_a_single_memory_clock_cannot_be_locked(self):
        with pytest.raises(GpuError, match="has but one"):
            SimulatedDevice("v100").lock_memory_clock(877)

    def test_spans_do_not_overlap(self):
        driven = Driven()
        driven.device.run(0, steady(1e-7, memory=1))
        with pytest.raises(ValueError, match="before the end of the last one"):
            driven.device.run(99, steady(1e-7, memory=1))


class TestActivity:
    def test_is_the_mean_since_the_last_look(self):
        driven = Driven()
        meter = driven.device.activity_meter()
        assert isinstance(meter.read(), Unreadable)  # no time has passed
        driven.work(0.3, memory=0.6, compute=0.1)
        driven.now += NS_PER_S // 10
        activity = meter.read()
        assert (activity.sm, activity.dram, activity.tensor) == pytest.approx((0.75, 0.45, 0.075))
        driven.now += NS_PER_S
        assert meter.read().sm == 0
        meter.close()
        meter.close()
        assert "closed" in meter.read().reason

    def test_utilisation_temperature_and_memory(self):
        driven = Driven()
        device = driven.device
        cold = device.temperature_c()
        driven.work(2, memory=0.6)
        assert (device.utilization().gpu, device.utilization().memory) == pytest.approx((1, 0.6))
        assert cold < device.temperature_c() < device.slowdown_temperature_c()
        assert device.memory_used_bytes() == 14 * 10**9 + 640 * 2**20


class TestTime:
    def test_every_engine_begins_alike(self):
        device = SimulatedDevice(round_board())
        seen = []
        for _ in range(3):
            clock = [0]
            device.attach(lambda clock=clock: clock[0])
            device.load(1)
            readings = []
            for _ in range(60):
                clock[0] = device.run(clock[0], steady(0.007, memory=0.5, compute=0.1))
                readings.append((device.power_w(), device.temperature_c()))
            seen.append(readings)
            device.unload()
            device.detach()
            device.wait(1.234)
        assert seen[0] == seen[1] == seen[2]

    def test_belongs_to_the_engine_while_one_is_open(self):
        driven = Driven()
        device = driven.device
        driven.now = 5 * NS_PER_S
        device.energy_j()
        assert device.now() == 5 * NS_PER_S
        device.detach()
        device.wait(1)
        driven.now = 77 * NS_PER_S
        assert device.now() == 6 * NS_PER_S

    def test_moves_on_with_readings_otherwise(self):
        device = SimulatedDevice("h200")
        before = device.now()
        device.energy_j()
        assert device.now() - before == 4_500_000

    def test_what_a_closed_engine_had_foretold_does_not_happen(self):
        driven = Driven()
        driven.device.run(0, steady(10, memory=1))
        driven.now = NS_PER_S
        driven.device.unload()
        driven.device.detach()
        driven.device.wait(1)
        assert driven.device.clock_reasons() == {"gpu_idle"}
        assert driven.device.power_w() == SimulatedDevice(round_board()).power_w()

    def test_what_was_abandoned_does_not_happen_and_what_comes_instead_does(self):
        driven = Driven()
        device = driven.device
        at = 0
        for _ in range(1000):
            at = device.run(at, steady(0.01, memory=0.5))
        driven.now = NS_PER_S + 3
        device.abandon()
        assert device.run(driven.now + 7, steady(0.001, memory=0.1)) == NS_PER_S + 10 + MS
        inside = device.timeline.inside
        driven.now = 2 * NS_PER_S
        device.power_w()
        drawn = device.history.integral("watts", inside(2 * NS_PER_S)) - device.history.integral("watts", inside(0))
        extra = (draws(memory=0.5) - rests()) * (1 + 3e-9)
        extra += (draws(memory=0.1) - rests()) * 0.001
        assert drawn == pytest.approx(2 * rests() + extra, rel=1e-9)

    def test_the_past_is_forgotten_when_an_engine_opens_unless_somebody_watches(self):
        lengths = []
        for watched in (False, True):
            driven = Driven()
            if watched:
                watcher = TestTime()
                driven.device.keep(watcher)
            for _ in range(1000):
                driven.work(0.01, memory=0.5)
            driven.device.detach()
            driven.device.attach(lambda: 0)
            lengths.append(len(driven.device.history))
        assert lengths[0] < 400 < 1000 < lengths[1]


@pytest.mark.parametrize("key", BOARDS)
def test_a_context_draws_more_than_nothing_and_less_than_a_model(key):
    device = SimulatedDevice(key)
    power = device.product.model.power
    bare, clock = device.power_w(), device.sm_clock_mhz()
    device.hold_context(held=True)
    device.wait(5)
    assert device.power_w() == pytest.approx(power.idle_w + power.context_w, abs=0.01)
    assert device.sm_clock_mhz() == device.product.max_sm_clock_mhz > clock
    device.load(10**9)
    device.wait(5)
    assert device.power_w() == pytest.approx(power.idle_w + power.loaded_w, abs=0.01)
    assert bare < power.idle_w + power.context_w < power.idle_w + power.loaded_w
    device.unload()
    device.hold_context(held=False)
    device.wait(5)
    assert device.power_w() == pytest.approx(bare, abs=0.01)
