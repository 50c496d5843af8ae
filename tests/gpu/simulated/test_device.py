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
from pytest_llmperf.gpu.simulated.products import PRODUCTS

MS = 1_000_000


class Driven:
    """A board under the hands of an engine whose time the test sets; with a model loaded."""

    def __init__(self, product="h200", **kwargs):
        self.now = 0
        self.device = SimulatedDevice(product)
        self.device.attach(lambda: self.now, **kwargs)
        self.device.load(14 * 10**9)

    def work(self, seconds, memory=0.0, compute=0.0):
        end = self.now + round(seconds * NS_PER_S)
        self.device.occupy(self.now, end, memory=memory, compute=compute)
        self.now = end


def ticks(device, until):
    """The moments, in the engine's time, at which the counter steps, found by looking."""
    inside = device.timeline.inside
    return [device.timeline.outside(at) for at in device.counter_ticks(inside(0), inside(until))]


class TestEnergy:
    @given(
        st.sampled_from(sorted(PRODUCTS)),
        st.lists(st.tuples(st.floats(0, 0.3), st.floats(0.001, 0.3), st.floats(0, 1), st.floats(0, 0.2))),
    )
    def test_the_counter_steps_by_the_integral_of_the_true_power(self, name, spans):
        driven = Driven(name)
        device, product = driven.device, PRODUCTS[name]
        rest = product.idle_w + product.loaded_w
        told = []
        for gap, seconds, memory, compute in spans:
            driven.now += round(gap * NS_PER_S)
            start = driven.now
            driven.work(seconds, memory, compute)
            top = product.max_sm_clock_mhz
            watts = product.watts(top, loaded=True, memory=memory, compute=compute)
            told.append((start, driven.now, min(watts, product.power_limit_w)))
        driven.now += NS_PER_S
        at = ticks(device, driven.now)
        first, last = at[0], at[-1]
        truth = rest * (last - first) / NS_PER_S
        for start, end, watts in told:
            truth += (watts - rest) * max(0, min(end, last) - max(start, first)) / NS_PER_S
        counted = []
        for driven.now in (first, last):
            counted.append(device.energy_j())
        assert counted[1] - counted[0] == pytest.approx(truth, abs=0.0021)  # two readings of whole millijoules

    def test_it_stands_still_between_its_ticks(self):
        driven = Driven()
        driven.device.occupy(0, NS_PER_S, memory=0.6, compute=0.0)
        first, second, *_ = ticks(driven.device, NS_PER_S)
        assert second - first == 100 * MS
        seen = []
        for driven.now in (first - 1, first, second - 1, second):
            seen.append(driven.device.energy_j())
        assert seen[0] < seen[1] == seen[2] < seen[3]

    def test_it_never_falls_and_never_stops_over_engines_and_pauses(self):
        device = SimulatedDevice("h200")
        seen = [device.energy_j()]
        for _ in range(3):
            clock = [0]
            device.attach(lambda clock=clock: clock[0])
            device.load(1)
            for _ in range(40):
                device.occupy(clock[0], clock[0] + 7 * MS, memory=0.5, compute=0.1)
                clock[0] += 7 * MS
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
        driven = Driven("h200")
        device = driven.device
        tick = ticks(device, 2 * NS_PER_S)[13]
        start = tick - 10 * MS  # 10 of the 25 ms
        device.occupy(start, start + NS_PER_S, memory=0.6, compute=0.0)
        rest, busy = 125.0, PRODUCTS["h200"].watts(1980, loaded=True, memory=0.6)
        seen = []
        for driven.now in (tick - 1, tick, tick + 99 * MS, tick + 100 * MS):
            seen.append(device.power_w())
        mixed = (15 * rest + 10 * busy) / 25
        assert seen == pytest.approx([rest, mixed, mixed, busy], abs=0.001)
        assert device.mean_power_w() == pytest.approx(rest + (busy - rest) * 0.11, abs=0.01)

    @pytest.mark.parametrize(("name", "period_s"), [("v100", 0.02), ("a100", 0.1), ("h100", 0.1), ("h200", 0.1)])
    def test_the_sensors_have_the_products_periods(self, name, period_s):
        device = SimulatedDevice(name)
        sensor = watch(device, seconds=0.8, now=device.now)
        assert sensor.counter.period_s == pytest.approx(period_s, abs=sensor.counter.read_s)
        assert sensor.counter.read_s == PRODUCTS[name].counter_read_ns / NS_PER_S
        assert isinstance(sensor.power, Unreadable)  # an idle board's power does not move
        driven = Driven(name)
        for number in range(200):
            driven.work(0.005, memory=number / 200)
        changes, before = [], None
        for driven.now in range(0, NS_PER_S, MS):
            power = driven.device.power_w()
            changes += [driven.now] if before is not None and power != before else []
            before = power
        assert {later - earlier for earlier, later in pairwise(changes)} == {period_s * NS_PER_S}

    def test_idle_and_loaded(self):
        assert SimulatedDevice("v100").power_w() == 23
        device = SimulatedDevice("h200")
        assert device.power_w() == 79
        device.load(10**9)
        device.wait(0.3)
        assert device.power_w() == 125
        device.unload()
        device.wait(0.3)
        assert device.power_w() == 79

    def test_a_scale_acts_on_everything(self):
        assert SimulatedDevice("h200", power_scale=1.1).power_w() == pytest.approx(1.1 * 79)
        plain, scaled = Driven(), Driven(power_scale=1.1)
        for driven in (plain, scaled):
            driven.work(0.3, memory=0.6, compute=0.02)
        assert scaled.device.power_w() == pytest.approx(1.1 * plain.device.power_w(), rel=1e-4)

    def test_the_limit_is_kept_and_the_clock_gives_way(self):
        driven = Driven()
        driven.device.occupy(0, NS_PER_S, memory=0.3, compute=0.8)
        driven.now = NS_PER_S - 1
        device = driven.device
        assert device.power_w() == 700
        assert device.clock_reasons() == {"sw_power_cap"}
        clock = device.sm_clock_mhz()
        draws = [PRODUCTS["h200"].watts(mhz, loaded=True, memory=0.3, compute=0.8) for mhz in (clock, clock + 15)]
        assert draws[0] <= 700 < draws[1]
        assert device.throttle_ns()["sw_power_cap"] == pytest.approx(NS_PER_S, abs=2)
        driven.now = NS_PER_S
        assert (device.clock_reasons(), device.sm_clock_mhz()) == ({"gpu_idle"}, 1980)

    def test_a_locked_clock_draws_less_and_is_not_capped(self):
        driven = Driven()
        driven.device.lock_sm_clock(900)
        driven.work(1, memory=0.3, compute=0.8)
        assert driven.device.power_w() < 500
        assert driven.device.throttle_ns()["sw_power_cap"] == 0

    @pytest.mark.parametrize("name", PRODUCTS)
    def test_it_grows_with_the_clock_more_than_linearly_above_the_knee(self, name):
        product = PRODUCTS[name]
        still = product.watts(product.idle_mhz, loaded=True)
        knee, top = product.voltage_knee_mhz, product.max_sm_clock_mhz
        switching = [product.watts(f, loaded=True, compute=0.1) - still for f in (knee / 2, knee, top)]
        assert switching[1] == pytest.approx(2 * switching[0])
        assert switching[2] > switching[1] * top / knee * 1.3


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

    def test_a_lock_amid_a_span_changes_the_rest_of_it(self):
        driven = Driven()
        device = driven.device
        device.occupy(0, NS_PER_S, memory=0.6, compute=0.0)
        driven.now = NS_PER_S // 2
        device.lock_sm_clock(900)
        device.occupy(NS_PER_S, 2 * NS_PER_S, memory=0.6, compute=0.0)
        level = device.history.level
        inside = device.timeline.inside
        assert [level(inside(at)).sm_mhz for at in (0, driven.now - 1, driven.now, NS_PER_S)] == [1980, 1980, 900, 900]
        assert level(inside(0)).watts > level(inside(driven.now)).watts > 125

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
        driven.device.occupy(0, 100, memory=1, compute=0)
        with pytest.raises(ValueError, match="before the last one"):
            driven.device.occupy(99, 200, memory=1, compute=0)


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
        device = SimulatedDevice("h200")
        seen = []
        for _ in range(3):
            clock = [0]
            device.attach(lambda clock=clock: clock[0])
            device.load(1)
            readings = []
            for _ in range(60):
                device.occupy(clock[0], clock[0] + 7 * MS, memory=0.5, compute=0.1)
                clock[0] += 7 * MS
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
        driven.device.occupy(0, 10 * NS_PER_S, memory=1, compute=0)
        driven.now = NS_PER_S
        driven.device.unload()
        driven.device.detach()
        driven.device.wait(1)
        assert driven.device.clock_reasons() == {"gpu_idle"}
        assert driven.device.power_w() == 79

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
