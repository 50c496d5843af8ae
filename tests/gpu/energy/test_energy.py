from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gpu.energy import Joules, NoEnergy, by_counter, by_integral, disagreement, steps, total

MS = 1_000_000
S = 1000 * MS


def counter(power_w, *, tick_ms=100, read_ms=5.0, until_s=3.0, start_j=1e6, offset_ms=0.0):
    """Reads of a counter that steps every ``tick_ms`` under a constant power."""
    reads = []
    t = 0.0
    while t <= until_s * 1e3:
        done = max(0, math.floor((t - offset_ms) / tick_ms)) * tick_ms
        reads.append((round(t * MS), start_j + power_w * done / 1e3))
        t += read_ms
    return reads


class TestCounter:
    @given(
        power=st.floats(50, 700), tick=st.sampled_from([20, 100]), offset=st.floats(0, 90),
        start=st.floats(0.1, 0.7), length=st.floats(0.5, 2.0), read=st.sampled_from([4.5, 9.0]),
    )  # fmt: skip
    def test_mean_power_is_right_wherever_the_window_falls(self, power, tick, offset, start, length, read):
        reads = counter(power, tick_ms=tick, offset_ms=offset, read_ms=read)
        found = by_counter(reads, round(start * S), round((start + length) * S))
        assert isinstance(found, Joules)
        assert start * S <= found.start_ns < found.end_ns <= (start + length) * S
        # The moments of the steps are known to half a read's distance.
        assert found.watts == pytest.approx(power, abs=power * 2 * read / 1e3 / found.seconds)
        assert 0 < found.error < found.value * read / 1e3 / found.seconds

    def test_a_naive_difference_would_be_wrong_by_a_fifth(self):
        reads = counter(400)
        start, end = 199 * MS, 701 * MS
        found = by_counter(reads, start, end)
        assert found.watts == pytest.approx(400, rel=0.01)
        naive = (dict(reads)[700 * MS] - dict(reads)[195 * MS]) / ((end - start) / S)
        assert naive > 1.15 * 400

    def test_a_window_within_one_step(self):
        found = by_counter(counter(400), 210 * MS, 240 * MS)
        assert found == NoEnergy("too short: the window of 30 ms holds 0 steps of the energy counter")

    def test_a_counter_that_falls(self):
        reads = counter(400)
        reads[300:] = [(t, v - 1e6) for t, v in reads[300:]]
        assert "driver was reloaded" in by_counter(reads, 0, 3 * S).reason

    def test_a_counter_that_stalls(self):
        reads = [(t, 5.0) for t, _ in counter(400)]
        assert "0 steps" in by_counter(reads, 0, 3 * S).reason

    @given(seed=st.integers(0, 50))
    def test_unordered_doubled_and_missing_readings(self, seed):
        reads = counter(400)
        mixed = [*reads, *reads[::7], *((t + 1, math.nan) for t, _ in reads[::5])]
        random.Random(seed).shuffle(mixed)
        assert by_counter(mixed, 0, 3 * S) == by_counter(reads, 0, 3 * S)

    def test_a_counter_that_falls_and_rises_above_its_old_value(self):
        reads = counter(400)
        reads[300:] = [(t, v + 1e6) for t, v in reads[300:]]
        reads[299] = (reads[299][0], 5.0)
        assert "driver was reloaded" in by_counter(reads, 0, 3 * S).reason

    def test_steps_that_were_looked_for_are_the_ends(self):
        """Read in pairs about every second step of 20 ms, a change from pair to pair is of nobody knows which."""
        reads = [
            (t, 1e6 + 300 * (t // (20 * MS)) * 0.02) for n in range(60) for t in (n * 40 * MS - MS, n * 40 * MS + MS)
        ]
        found = by_counter(reads, 121 * MS, 1479 * MS)
        assert found.watts == pytest.approx(300, rel=0.002)
        assert found.error < 0.001 * found.value

    def test_steps(self):
        assert [s.value for s in steps([(0, 1.0), (10, 1.0), (20, 3.0), (30, 3.0), (40, 4.0)])] == [3.0, 4.0]

    def test_without_readings(self):
        assert isinstance(by_counter([], 0, S), NoEnergy)


class TestIntegral:
    def test_the_trapezoid_by_hand(self):
        readings = [(0, 100.0), (1 * S, 100.0), (round(1.1 * S), 300.0), (2 * S, 300.0)]
        found = by_integral(readings, 0, 2 * S)
        assert found.value == pytest.approx(390)
        assert 100 / found.value == pytest.approx(0.2564, abs=1e-4)
        assert 1100 / found.value == pytest.approx(2.8205, abs=1e-4)

    def test_a_constant_power_without_a_counter(self):
        found = by_integral([(n * 100 * MS, 250.0) for n in range(41)], 0, 4 * S)
        assert (found.value, found.source, found.error) == (pytest.approx(1000), "integral", 0)

    def test_ends_are_held(self):
        found = by_integral([(500 * MS, 200.0)], 0, S)
        assert found.value == pytest.approx(200)

    def test_readings_outside_are_not_used(self):
        found = by_integral([(-1, 9999.0), (500 * MS, 200.0), (S + 1, 9999.0)], 0, S)
        assert found.value == pytest.approx(200)

    def test_unordered_doubled_and_missing_readings(self):
        readings = [(n * 100 * MS, 200.0 + n) for n in range(41)]
        mixed = [*readings[::-1], *readings, (150 * MS, math.nan), (250 * MS, math.inf)]
        assert by_integral(mixed, 0, 4 * S) == by_integral(readings, 0, 4 * S)

    def test_without_readings(self):
        assert by_integral([], 0, S) == NoEnergy("too short: no power reading falls into the window")
        assert isinstance(by_integral([(0, 1.0)], 0, 0), NoEnergy)


class TestSeveralBoards:
    def test_the_sum_over_the_common_window(self):
        one = Joules(400, 4, 0, 1 * S, "counter")
        two = Joules(300, 3, 100 * MS, 1100 * MS, "counter")
        both = total([one, two])
        assert (both.start_ns, both.end_ns) == (100 * MS, 1 * S)
        assert both.watts == pytest.approx(700)
        assert both.error == pytest.approx(0.9 * 5)

    def test_one_without_a_figure_leaves_none(self):
        assert total([Joules(1, 0, 0, S, "counter"), NoEnergy("no")]) == NoEnergy("no")
        assert isinstance(total([]), NoEnergy)

    def test_windows_that_do_not_meet(self):
        assert "overlap" in total([Joules(1, 0, 0, 1, "counter"), Joules(1, 0, 2, 3, "counter")]).reason


def test_disagreement():
    assert disagreement(Joules(100, 0, 0, S, "counter"), Joules(220, 0, 0, 2 * S, "integral")) == pytest.approx(0.1)
