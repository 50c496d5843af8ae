"""Steps become levels of the history: fewer, and no reading notices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.gpu.simulated.spans import Clocked, Spans
from pytest_llmperf.simulation.steps import Pace

MS = 1_000_000
REST = Level(100.0, 1980, 3201, 5)
CLOCKED = Clocked(1980, 3201, 5)


def spans(edge=lambda at: at + 10**12):
    history = History(0, REST)
    return history, Spans(history, REST, edge)


steps = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 5, 7 * MS]), st.integers(1, 15 * MS), st.floats(0, 900), st.floats(0, 1)),
    min_size=1,
    max_size=40,
)


@given(steps, st.booleans())
def test_merging_changes_no_integral(told, looks):
    history, made = spans()
    at, energy, dram, busy = 0, 0.0, 0.0, 0
    for pause, lasts, watts, share in told:
        made.work(at + pause, at + pause + lasts, CLOCKED, watts, share, 0.0)
        energy += 100 * pause + watts * lasts
        dram += share * lasts
        busy += lasts
        at += pause + lasts
        if looks:
            made.settle()
            assert history.integral("watts", at) == pytest.approx(energy / NS_PER_S, rel=1e-9)
    made.settle()
    for name, total in (("watts", energy), ("dram", dram), ("busy", busy)):
        assert history.integral(name, at) == pytest.approx(total / NS_PER_S, rel=1e-9)
    assert (history.level(at), history.end_ns) == (REST, at)


@given(steps)
def test_looking_in_between_changes_nothing(told):
    (seen, looked), (other, unlooked) = spans(), spans()
    at = 0
    for pause, lasts, watts, share in told:
        for each in (looked, unlooked):
            each.work(at + pause, at + pause + lasts, CLOCKED, watts, share, share)
        looked.settle()
        at += pause + lasts
    unlooked.settle()
    assert list(seen.pieces(0, at + 1)) == list(other.pieces(0, at + 1))


def test_steps_become_levels_of_at_most_10_ms():
    history, made = spans()
    for number in range(1000):
        made.work(number * MS, (number + 1) * MS, CLOCKED, float(number), 0.0, 0.0)
    made.settle()
    pieces = list(history.pieces(0, 1000 * MS))
    assert {lasted for _, lasted in pieces} == {10 * MS}
    assert [level.watts for level, _ in pieces[:2]] == pytest.approx([4.5, 14.5])


def test_a_longer_step_is_a_level_of_its_own():
    history, made = spans()
    for start, end in ((0, MS), (MS, 30 * MS), (30 * MS, 31 * MS)):
        made.work(start, end, CLOCKED, 1.0, 0.0, 0.0)
    made.settle()
    assert [lasted for _, lasted in history.pieces(0, 31 * MS)] == [MS, 29 * MS, MS]


@pytest.mark.parametrize("other", [Clocked(1965, 3201, 5), Clocked(1980, 3201, 5, capped=True)])
def test_what_runs_otherwise_is_a_level_of_its_own(other):
    history, made = spans()
    made.work(0, MS, CLOCKED, 1.0, 0.0, 0.0)
    made.work(MS, 2 * MS, other, 1.0, 0.0, 0.0)
    made.settle()
    assert [(level.sm_mhz, level.capped) for level, _ in history.pieces(0, 2 * MS)] == [
        (1980, False),
        (other.sm_mhz, other.capped),
    ]


def test_several_steps_never_go_past_an_edge():
    history, made = spans(edge=lambda at: (at // (4 * MS) + 1) * 4 * MS)
    for number in range(12):
        made.work(number * 3 * MS, (number + 1) * 3 * MS, CLOCKED, 1.0, 0.0, 0.0)
    made.settle()
    begins, at = [], 0
    for _, lasted in history.pieces(0, 36 * MS):
        begins.append(at)
        crossed = {edge for edge in range(0, 36 * MS, 4 * MS) if at < edge < at + lasted}
        assert not crossed or lasted == 3 * MS
        at += lasted
    assert begins[:3] == [0, 3 * MS, 6 * MS]


def test_what_comes_after_a_cut_does_not_join_what_was_before():
    history, made = spans()
    made.work(0, MS, CLOCKED, 1.0, 0.0, 0.0)
    made.work(MS, 3 * MS, CLOCKED, 4.0, 0.0, 0.0)
    made.cut(2 * MS)
    assert made.end_ns == 2 * MS
    assert history.level(2 * MS) == REST
    made.work(2 * MS, 3 * MS, CLOCKED, 9.0, 0.0, 0.0)
    made.settle()
    assert [(level.watts, lasted) for level, lasted in history.pieces(0, 4 * MS)] == [
        (3.0, 2 * MS),
        (9.0, MS),
        (100.0, MS),
    ]


@pytest.mark.parametrize("key", ["v100", "h200"])
def test_power_and_energy_read_in_time_are_those_read_late(key):
    paces = [Pace(0.0007 + number % 5 * 0.0009, 0.1 + number % 7 / 20, 0.01) for number in range(500)]
    readings = []
    for late in (False, True):
        now = [0]
        device = SimulatedDevice(key)
        device.attach(lambda now=now: now[0])
        device.load(1)
        ends, seen = [], []
        for pace in paces:
            ends.append(device.run(ends[-1] if ends else 0, lambda *_, pace=pace: pace))
            if not late:
                now[0] = ends[-1] - 1
                seen.append((device.power_w(), device.energy_j(), device.mean_power_w()))
        if late:
            for end in ends:
                now[0] = end - 1
                seen.append((device.power_w(), device.energy_j(), device.mean_power_w()))
        readings.append(seen)
    assert readings[0] == readings[1]
