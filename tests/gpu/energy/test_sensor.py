"""What the sensors' watch finds: on boards of the fake driver library, and on a sensor in virtual time."""

import json
import math
import random
import threading

import pytest

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy.sensor import Gauge, Sensor, survey, watch
from pytest_llmperf.gpu.nvml import Nvml

from ..devices import board

MS = 1_000_000
NO = Unreadable("Not Supported")


class TimedDevice:
    """A counter and a power that are functions of a time, which passes only while it is read and in pauses."""

    def __init__(self, energy, power=lambda ns: NO, *, read_ns=100_000, late=lambda ns: 0):
        self.board = board(0)
        self.ns = 7 * MS
        self._energy, self._power, self._read_ns, self._late = energy, power, read_ns, late

    def energy_j(self):
        self.ns += self._read_ns
        return self._energy(self.ns)

    def power_w(self):
        return self._power(self.ns)

    def pause(self, seconds):
        self.ns += round(seconds * 1e9) + self._late(self.ns)

    def watch(self, seconds=1.2):
        return watch(self, seconds=seconds, now=lambda: self.ns, pause=self.pause)


def ticking(period_ms, joules=2.0):
    return lambda ns: 1000 + joules * (ns // round(period_ms * MS))


def test_a_period_to_a_thousandth():
    for period in (20, 25, 50, 100, 200):
        gauge = TimedDevice(ticking(period)).watch().counter
        assert gauge.period_s == pytest.approx(period / 1e3, rel=0.02)
        assert gauge.read_s == pytest.approx(1e-4)


@pytest.mark.parametrize("period", [20, 100])
def test_reads_that_come_late_do_not_move_the_period(period):
    rng = random.Random(5)
    for _ in range(20):
        device = TimedDevice(ticking(period), late=lambda ns: rng.choice([0] * 40 + [8 * MS, 30 * MS]))
        assert device.watch().counter.period_s == pytest.approx(period / 1e3, rel=0.05)


def test_a_slow_read_leaves_the_period_known():
    gauge = TimedDevice(ticking(100), read_ns=4_500_000).watch().counter
    assert gauge == Gauge(pytest.approx(0.1, rel=0.02), pytest.approx(4.5e-3))


def test_a_power_that_often_repeats_has_the_period_of_its_ticks():
    rng = random.Random(3)
    drawn = [rng.choice([100.0, 100.0, 100.1]) for _ in range(200)]
    sensor = TimedDevice(lambda ns: NO, lambda ns: drawn[ns // (20 * MS)]).watch()
    assert sensor.power.period_s == pytest.approx(0.02, rel=0.02)
    assert sensor.counter == NO


def test_moments_without_a_rule_are_no_period():
    rng = random.Random(2)
    at = sorted(rng.uniform(0, 1300 * MS) for _ in range(16))
    sensor = TimedDevice(lambda ns: float(sum(1 for one in at if one <= ns))).watch()
    assert "no regular distance" in sensor.counter.reason


@pytest.mark.parametrize(
    ("energy", "words"),
    [
        (lambda ns: 5.0, "changed 0 times"),
        (ticking(500), "its period cannot be told"),
        (lambda ns: ticking(100)(min(ns, 700 * MS)), "stopped: it moved every 0.1 s"),
        (lambda ns: ticking(100)(ns) - (900 if ns > 600 * MS else 0), "fell"),
        (lambda ns: NO if ns > 500 * MS else ticking(100)(ns), "Not Supported"),
        (lambda ns: math.nan, "changed 0 times"),
    ],
)
def test_a_counter_that_cannot_be_used_says_why(energy, words):
    sensor = TimedDevice(energy).watch()
    assert words in sensor.counter.reason
    assert sensor.shortest_window_s(0.02) == math.inf
    assert sensor.to_json() == {
        "counter": {"reason": sensor.counter.reason}, "power": {"reason": "Not Supported"}, "shortest_window_s": None,
    }  # fmt: skip


def test_a_refusal_now_and_then_is_left_out():
    refused = iter(range(10_000))
    sensor = TimedDevice(lambda ns: NO if next(refused) % 10 == 0 else ticking(100)(ns)).watch()
    assert sensor.counter.period_s == pytest.approx(0.1, rel=0.02)


def test_how_long_a_window_has_to_be():
    slow, power = Gauge(0.1, 0.0045), Gauge(0.02, 1e-6)
    # A tenth of a period at both ends, and the distance of two reads, each 1 % of the window.
    ends, apart = 100 * 0.01 * math.sqrt(2), 100 * 0.02 / math.sqrt(6)
    assert Sensor(slow, power).shortest_window_s(0.02) == pytest.approx(math.hypot(ends, apart))
    assert Sensor(Gauge(0.1, 0.05), power).shortest_window_s(0.02) == pytest.approx(math.hypot(ends, 2.5 * apart))
    assert Sensor(NO, power).shortest_window_s() == pytest.approx(2)
    assert json.loads(json.dumps(Sensor(slow, NO).to_json()))["counter"] == {"period_s": 0.1, "read_s": 0.0045}


@pytest.mark.parametrize(
    ("scenario", "period_ms"), [("v100", 20), ("a100", 100), ("h100", 100), ("h200", 100), ("consumer", None)]
)
def test_the_generations_differ(fake_nvml, scenario, period_ms):
    fake_nvml.scenario(scenario)
    with Nvml() as nvml:
        (sensor,) = survey([nvml.device(board) for board in nvml.boards()], seconds=1.2).values()
    if period_ms is None:
        assert "Not Supported" in sensor.counter.reason
        assert sensor.power.period_s == pytest.approx(0.1, rel=0.2)
    else:
        assert sensor.counter.period_s == pytest.approx(period_ms / 1e3, rel=0.2)


def test_at_a_constant_power_the_counter_alone_counts(fake_nvml):
    fake_nvml.scenario("h200", "[board 0]\nnoise_w = 0\n")
    with Nvml() as nvml:
        sensor = watch(nvml.device(nvml.boards()[0]), seconds=1.2)
    assert "changed 0 times" in sensor.power.reason
    assert isinstance(sensor.counter, Gauge)
    assert sensor.shortest_window_s() < 2


def test_a_stalled_counter_of_one_board_and_the_sound_one_of_the_other(fake_nvml):
    fake_nvml.scenario("two-h200", "[board 1]\nenergy_stall_s = 0\n")
    with Nvml() as nvml:
        boards = nvml.boards()
        sensors = survey([nvml.device(board) for board in boards], seconds=1.2)
    assert list(sensors) == [board.uuid for board in boards]
    sound, stalled = sensors.values()
    assert isinstance(sound.counter, Gauge)
    assert "changed 0 times" in stalled.counter.reason


def test_boards_are_watched_at_the_same_time():
    together = threading.Barrier(4, timeout=10)

    class Meeting(TimedDevice):
        def energy_j(self):
            if self.ns == 7 * MS:
                together.wait()  # breaks unless every board is being read
            return super().energy_j()

    def device(index):
        made = Meeting(ticking(100))
        made.board = board(index)
        return made

    assert len(survey([device(index) for index in range(4)], seconds=0.01)) == 4
    assert survey([]) == {}
