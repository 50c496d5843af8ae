"""The energy of an exact window against the truth, and every way in which a counter or its readings can fail."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gpu.energy import FELL, Joules, NoEnergy
from pytest_llmperf.gpu.energy.exact_window import across
from tests.fake_nvml.curves import Curve

from .simulated_sensors import GENERATIONS, H100, NS, V100, random_bursts, random_ramps, random_steps, work

#: Seconds of a window, and how far off its energy may be.
LIMITS = {0.5: 0.05, 2.0: 0.01, 10.0: 0.003}
FLAT = Curve(((0.0, 250.0), (20.0, 250.0)))


def ns(seconds):
    return round(seconds * NS)


def windows(kind, sensors, length, count, seed=1):
    """What is found for windows that fall anywhere, and the truth."""
    for n in range(count):
        rng = random.Random(f"{seed} {n} {kind.__name__} {length}")
        seconds, start = length + 1.2, rng.uniform(0.5, 0.6)
        end = start + length
        curve = work(rng, seconds, start, end) if kind is work else kind(rng, seconds)
        yield across(*sensors.both(curve, rng, seconds), ns(start), ns(end)), curve.joules(start, end)


@pytest.mark.parametrize("length", LIMITS)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("kind", [random_steps, random_ramps, random_bursts, work])
class TestTruth:
    def test_the_energy_is_right_or_refused(self, kind, generation, length):
        count = 60 if length < 5 else 8
        found = list(windows(kind, GENERATIONS[generation], length, count))
        known = [(one, truth) for one, truth in found if isinstance(one, Joules)]
        assert len(known) >= 0.6 * count
        off = sorted(abs(one.value / truth - 1) for one, truth in known)
        # A prefill that no reading saw, in the very step of the counter in which the window begins, is not to be known.
        assert off[int(0.97 * len(off))] <= LIMITS[length]
        assert off[-1] <= 1.3 * LIMITS[length]
        assert all(one.error <= min(0.05, max(0.003, 0.02 / length)) * one.value for one, _ in known)
        assert all("too short" in one.reason for one, _ in found if isinstance(one, NoEnergy))

    def test_the_uncertainty_covers_the_error(self, kind, generation, length):
        count = 60 if length < 5 else 8
        errors = [
            abs(one.value - truth) / one.error
            for one, truth in windows(kind, GENERATIONS[generation], length, count, seed=2)
            if isinstance(one, Joules)
        ]
        assert sum(error <= 1 for error in errors) >= 0.68 * len(errors)
        assert sum(error <= 2 for error in errors) >= 0.93 * len(errors)
        assert max(errors) < 5


@given(start=st.floats(0.3, 0.7), length=st.floats(0.25, 3.0), phase=st.floats(0, 0.0999), seed=st.integers(0, 99))
def test_a_flat_curve_is_exact_wherever_the_window_falls(start, length, phase, seed):
    rng = random.Random(seed)
    counter, power = H100.counter(FLAT, rng, 4.5, phase), H100.power(FLAT, rng, 4.5, phase)
    found = across(counter, power, ns(start), ns(start + length))
    assert isinstance(found, Joules)
    assert (found.start_ns, found.end_ns, found.source) == (ns(start), ns(start + length), "counter")
    # Both ends hang on steps whose moments are known to half the distance of two reads.
    assert found.value == pytest.approx(250 * length, abs=250 * 0.009)
    assert abs(found.value - 250 * length) <= 3 * found.error


def test_a_step_of_power_is_found_within_a_step_of_the_counter():
    """The window begins with the work, in the middle of one of the counter's steps."""
    curve = Curve(((0.0, 80.0), (0.55, 80.0), (0.55, 400.0), (3.0, 400.0)))
    rng = random.Random(1)
    counter, power = H100.counter(curve, rng, 2, 0.0), H100.power(curve, rng, 2, 0.0)
    found = across(counter, power, ns(0.55), ns(1.05))
    assert found.value == pytest.approx(200, rel=0.01)
    # By the counter alone the joules of that step would be spread evenly: 8 J too few.
    assert across(counter, [], ns(0.55), ns(1.05)).error > found.error


class TestCounter:
    """A board with 250 W whose readings went wrong; the window is from 0.5 s to 2.5 s."""

    def found(self, change=lambda reads: reads, sensors=H100, power=True):
        rng = random.Random(3)
        counter, readings = sensors.both(FLAT, rng, 3.2)
        return across(change(counter), readings if power else [], ns(0.5), ns(2.5))

    def test_as_it_should_be(self):
        assert self.found().value == pytest.approx(500, rel=0.005)

    def test_absent(self):
        found = self.found(lambda reads: [])
        assert (found.value, found.source) == (pytest.approx(500, rel=0.005), "integral")
        assert "no energy counter" in found.notes[0]

    def test_absent_as_the_power_is(self):
        found = self.found(lambda reads: [], power=False)
        assert isinstance(found, NoEnergy)
        assert "there is no energy counter" in found.reason
        assert "0 power readings" in found.reason

    def test_falling_within_the_window(self):
        for drop in (1e6, 100.0):
            assert self.found(lambda reads: [(t, v - drop * (t > NS)) for t, v in reads]) == NoEnergy(FELL)  # noqa: B023

    def test_falling_and_rising_above_the_old_value(self):
        def change(reads):
            return [(t, v if t < NS else 3.0 if t < 1.2 * NS else v + 1e6) for t, v in reads]

        assert self.found(change) == NoEnergy(FELL)

    def test_falling_before_or_after_the_window(self):
        before = self.found(lambda reads: [(t, v + 1e6 * (t < 0.25 * NS)) for t, v in reads])
        after = self.found(lambda reads: [(t, v * (t < 2.75 * NS)) for t, v in reads])
        assert before.value == pytest.approx(500, rel=0.005)
        assert after.value == pytest.approx(500, rel=0.005)

    @pytest.mark.parametrize("since", [0.0, 1.4])
    def test_stalling_hands_over_to_the_power_readings(self, since):
        def change(reads):
            stuck = next(v for t, v in reads if t >= since * NS)
            return [(t, v if t < since * NS else stuck) for t, v in reads]

        found = self.found(change)
        assert (found.value, found.source) == (pytest.approx(500, rel=0.005), "integral")
        assert "stood still" in found.notes[0] or "did not move" in found.notes[0]
        alone = self.found(change, power=False)
        assert isinstance(alone, NoEnergy)
        assert "power readings" in alone.reason

    def test_of_a_board_whose_sensors_say_nothing_but_zero(self):
        found = across(
            [(ns(n / 50), 0.0) for n in range(160)], [(ns(n / 50), 0.0) for n in range(160)], ns(0.5), ns(2.5)
        )
        assert isinstance(found, NoEnergy)
        assert "did not move for 3.2 s" in found.reason
        assert "says 0 W" in found.reason

    def test_one_step_of_which_nothing_falls_into_the_window(self):
        """The power before and after holds all the joules of the steps in which it begins and ends."""
        counter = [(ns(n / 100), 100.0 * sum(n >= at for at in (10, 40, 70, 100))) for n in range(111)]
        power = [(ns(n / 100), 0.0 if 20 < n < 60 else 500.0) for n in range(111)]
        found = across(counter, power, ns(0.3), ns(0.5))
        assert isinstance(found, NoEnergy)
        assert "0 J" in found.reason or "too short" in found.reason

    def test_no_numbers_are_no_readings(self):
        def change(reads):
            wrong = [math.nan, math.inf, -math.inf, -1.0]
            return [point for n, (t, v) in enumerate(reads) for point in ((t, v), (t + 1000, wrong[n % 4]))]

        assert self.found(change).value == pytest.approx(self.found().value)

    def test_doubled_and_unordered_readings(self):
        def change(reads):
            doubled = [*reads, *reads, *((t, v - 1.0) for t, v in reads)]
            random.Random(0).shuffle(doubled)
            return doubled

        assert self.found(change) == self.found()

    def test_read_by_a_slow_beat_only(self):
        """Every read shows a new value, and no step is known to better than 20 ms."""
        counter = [(ns(n * 0.02 + 0.007), 1e6 + 250 * n * 0.02) for n in range(160)]
        found = across(counter, [], ns(0.5), ns(2.5))
        assert found.value == pytest.approx(500, rel=0.01)
        assert found.error > 250 * 0.004

    def test_not_read_around_the_window(self):
        def change(reads):
            return [(t, v) for t, v in reads if 0.8 * NS < t < 2.2 * NS]

        assert self.found(change, power=False) == NoEnergy(
            "the boards were not read from before the window until after it"
        )
        filled = self.found(change)
        assert filled.value == pytest.approx(500, rel=0.01)

    def test_stepping_more_seldom_than_the_window_is_long(self):
        rng = random.Random(5)
        counter, power = H100.both(FLAT, rng, 2)
        found = across(counter, power, counter[12][0] + ns(0.03), counter[12][0] + ns(0.06))
        assert isinstance(found, NoEnergy)
        assert "too short" in found.reason
        assert "30 ms" in found.reason

    def test_no_window_at_all(self):
        assert "too short" in across([], [], NS, NS).reason
        assert "too short" in across([], [], NS, 0).reason


def test_the_joules_of_parts_add_up():
    rng = random.Random(8)
    curve = random_bursts(rng, 6.0)
    counter, power = V100.both(curve, rng, 6.0)
    whole = across(counter, power, ns(0.5), ns(5.0))
    parts = [across(counter, power, ns(a), ns(b)) for a, b in ((0.5, 2.13), (2.13, 5.0))]
    assert sum(part.value for part in parts) == pytest.approx(whole.value)
