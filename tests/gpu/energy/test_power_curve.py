"""Power readings alone."""

import math
import random

import pytest

from pytest_llmperf.gpu.energy import Joules, NoEnergy
from pytest_llmperf.gpu.energy.exact_window import across
from pytest_llmperf.gpu.energy.power_curve import area, integrated, period_s
from tests.fake_nvml.curves import Curve, ramp, steps

from .simulated_sensors import GENERATIONS, NS, V100, Sensors

CONSUMER = Sensors(0.1, 0.1, 0.3, 0.0001)


def test_a_constant_power():
    found = across([], [(n * NS // 10, 250.0) for n in range(41)], 0, 4 * NS)
    assert (found.value, found.source, found.watts) == (pytest.approx(1000), "integral", pytest.approx(250))


def test_the_trapezoid_by_hand():
    readings = [(0, 100.0), (NS, 100.0), (round(1.1 * NS), 300.0), (2 * NS, 300.0)]
    found = integrated(readings, 0, 2 * NS)
    assert found.value == pytest.approx(390)
    assert 100 / found.value == pytest.approx(0.2564, abs=1e-4)
    assert 1100 / found.value == pytest.approx(2.8205, abs=1e-4)


@pytest.mark.parametrize("sensors", [*GENERATIONS.values(), CONSUMER], ids=[*GENERATIONS, "consumer"])
def test_a_steady_ramp_is_not_late(sensors):
    """On a ramp every lag shows: 100 W/s and 100 ms are 10 W."""
    rng = random.Random(1)
    curve = ramp(12.0, 100, 700)
    found = integrated(sensors.power(curve, rng, 6.0, 0.0), NS, 5 * NS)
    truth = curve.joules(1, 5)
    assert abs(found.value - truth) < 2 * found.error
    assert found.value == pytest.approx(truth, rel=0.007)


def test_the_uncertainty_covers_what_happens_between_readings():
    curve = steps(0.13, [100, 500, 200, 600, 350])
    errors = []
    for seed in range(60):
        rng = random.Random(seed)
        start = rng.uniform(0.3, 0.5)
        power = CONSUMER.power(curve, rng, 4.0, rng.uniform(0, 0.1))
        found = integrated(power, round(start * NS), round((start + 3) * NS))
        errors.append(abs(found.value - curve.joules(start, start + 3)) / found.error)
    assert sum(error <= 1 for error in errors) >= 0.68 * 60
    assert sum(error <= 2 for error in errors) >= 0.95 * 60


def test_what_is_not_known_well_is_refused():
    curve = steps(0.13, [100, 600])
    power = CONSUMER.power(curve, random.Random(1), 2.0, 0.0)
    found = across([], power, round(0.4 * NS), round(0.9 * NS))
    assert isinstance(found, NoEnergy)
    assert "too short: power changes so much" in found.reason


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([], "0 power readings fall into the window of 2000 ms"),
        ([(NS, 100.0)], "1 power readings"),
        ([(NS, math.nan), (NS + 1, math.inf), (NS + 2, -1.0)], "0 power readings"),
        (
            [(n * NS // 100, -5.0) for n in range(300)],
            "0 power readings fall into the window of 2000 ms beside 201 below 0 W",
        ),
        ([(n * NS // 100, 0.0) for n in range(300)], "says 0 W, which no board draws"),
        ([(n * NS // 100, 0.0 if n > 40 else 100.0) for n in range(300)], "says 0 W, which no board draws"),
        ([(n * NS // 100, 100.0) for n in range(300) if not 120 < n < 190], "not read for 0.7 s"),
        ([(n * NS // 100, 100.0) for n in range(100)], "not read for"),
    ],
)
def test_too_little_was_read(readings, words):
    for found in (integrated(readings, NS // 2, 5 * NS // 2), across([], readings, NS // 2, 5 * NS // 2)):
        assert isinstance(found, NoEnergy)
        assert words in found.reason


def test_a_window_of_less_than_two_updates():
    power = CONSUMER.power(ramp(1, 100, 300), random.Random(1), 2.0, 0.0)
    assert "fewer than two updates" in integrated(power, NS, NS + 150_000_000).reason


def test_doubled_and_unordered_readings():
    power = V100.power(ramp(1, 100, 300), random.Random(1), 2.0, 0.0)
    mixed = [*power, *power]
    random.Random(1).shuffle(mixed)
    assert integrated(mixed, NS // 2, NS) == integrated(power, NS // 2, NS)


def test_seldom_changes_tell_no_period():
    assert period_s([(n * 20_000_000, 1.0) for n in range(9)]) == pytest.approx(0.02)
    assert period_s([(n * NS, 1.0) for n in range(9)]) is None
    assert period_s([(0, 1.0), (1, 2.0)]) is None


def test_a_change_at_once_or_evenly():
    points = [(0.0, 100.0), (1.0, 300.0)]
    assert area(points, 0, 1, None) == pytest.approx(200)
    assert area(points, 0, 1, 0.25) == pytest.approx(250)
    assert area(points, -1, 0, 0.25) == pytest.approx(100)
    assert area(points, 1, 3, None) == pytest.approx(600)
    assert area([(0.0, 50.0)], -1, 1, 0.5) == pytest.approx(100)


def test_the_curves_of_these_tests_are_right():
    curve = Curve(((0.0, 100.0), (1.0, 100.0), (1.0, 300.0), (2.0, 300.0), (3.0, 100.0)))
    assert curve.joules(0, 3) == pytest.approx(600)
    assert curve.joules(0.5, 1.5) == pytest.approx(200)
    assert curve.joules(2.5, 3.5) == pytest.approx(125)
    assert curve.watts(2.5) == pytest.approx(200)
    assert isinstance(integrated([(0, 1.0), (NS, 1.0)], 0, NS), Joules)
