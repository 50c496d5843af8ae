"""Many steps done at once leave a board as the same steps do one by one."""

from __future__ import annotations

import pytest

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.simulated import SimulatedBoards, SimulatedDevice
from pytest_llmperf.simulation.ramp import Ramp
from pytest_llmperf.simulation.steps import Pace

MS = 1_000_000
FAR = 1 << 60


def pace(step, sm_mhz, memory_mhz):
    """Steps of a decode that grows: 4 ms and more each, whose bandwidth rises from 30 % on."""
    seconds = 0.004 + step * 4e-6
    return Pace(seconds, (0.3 * 0.004 + step * 3e-6) / seconds, 0.02)


def long(step, sm_mhz, memory_mhz):
    """Ten times as long."""
    seconds = 0.04 + step * 4e-6
    return Pace(seconds, (0.3 * 0.04 + step * 3e-6) / seconds, 0.0)


def heavy(step, sm_mhz, memory_mhz):
    return Pace(0.02, 0.5, 1.0)


def device(key="h200"):
    made, now = SimulatedDevice(key), [0]
    made.attach(lambda: now[0])
    made.load(10**9)
    return made, now


def by_itself(made, ramp, start_ns):
    """The end of the last step of a ramp, done step by step."""
    for step in range(ramp.steps):
        start_ns = made.run(
            start_ns,
            lambda sm, memory, step=step: ramp.pace(step, sm, memory),
            stretch=ramp.stretch,
            until_ns=start_ns + ramp.launch_ns,
        )
    return start_ns


def at_once(made, ramp, start_ns, count=None):
    course = made.foresee(start_ns, ramp, FAR)
    assert course is not None
    made.follow(course, count or ramp.steps)
    return course.ends_ns[(count or ramp.steps) - 1]


RAMPS = {
    "plain": Ramp(pace, 400, 1.0, 0),
    "stretched": Ramp(pace, 200, 1.3, 0),
    "long steps": Ramp(long, 30, 1.0, 0),
}


@pytest.mark.parametrize("key", ["v100", "h200"])
@pytest.mark.parametrize("name", RAMPS)
def test_every_sensor_shows_the_same(name, key):
    ramp, ends, seen, means = RAMPS[name], [], [], []
    for way in (by_itself, at_once):
        made, now = device(key)
        end = way(made, ramp, 3 * MS)
        end = way(made, ramp._replace(steps=7), end + 5 * MS)
        ends.append(end)
        means.append(made._governor.mean_w)
        now[0] = end + NS_PER_S
        moment = [0]
        sensors = made.as_of(lambda moment=moment: moment[0])
        readings = []
        for at in range(0, end + NS_PER_S, 3 * MS):
            moment[0] = made.timeline.inside(at)
            readings.append(
                (
                    sensors.energy_j(), sensors.power_w(), sensors.mean_power_w(), sensors.sm_clock_mhz(),
                    sensors.memory_used_bytes(), sensors.clock_reasons(), sensors.utilization().gpu,
                )
            )  # fmt: skip
        seen.append(readings)
    assert ends[0] == ends[1]
    assert means[0] == pytest.approx(means[1], abs=1e-6)
    for one, other in zip(*seen, strict=True):
        assert one[0] == pytest.approx(other[0], abs=0.0011)  # a counter of whole millijoules
        assert one[1:3] == pytest.approx(other[1:3], abs=0.0011)
        assert one[3:6] == other[3:6]
        assert one[6] == pytest.approx(other[6], abs=1e-6)


def test_few_levels_say_it():
    made, _ = device()
    made.history.forget(made.timeline.now())
    end = at_once(made, RAMPS["plain"], 0)
    assert len(made.history) <= 4 + 2 * end / (100 * MS)


def test_levels_end_where_a_reading_looks():
    made, now = device()
    now[0] = at_once(made, RAMPS["plain"], 0)
    begin = at = made.timeline.inside(0)
    edges = set()
    while (at := made.next_edge(at)) < made.timeline.now():
        edges.add(at)
    at, ends = begin, set()
    for _, lasted in made.history.pieces(begin, made.timeline.now()):
        ends.add(at := at + lasted)
    assert edges <= ends


def test_a_part_of_a_course_can_be_done():
    (some, _), (other, _) = device(), device()
    end = at_once(some, RAMPS["plain"], 0, count=20)
    assert end == by_itself(other, RAMPS["plain"]._replace(steps=20), 0)
    assert some._governor.mean_w == pytest.approx(other._governor.mean_w, abs=1e-6)
    assert some.run(end, lambda *_: Pace(0.004, 0.3, 0.1)) == end + 4 * MS


def test_looking_ahead_changes_nothing():
    (some, now), (other, then) = device(), device()
    assert some.foresee(5 * MS, RAMPS["plain"], FAR) is not None
    ends = [by_itself(each, RAMPS["plain"], 7 * MS) for each in (some, other)]
    assert ends[0] == ends[1]
    now[0] = then[0] = ends[0]
    assert (some.energy_j(), some.power_w()) == (other.energy_j(), other.power_w())


def test_what_could_reach_the_power_limit_is_not_foreseen():
    made, _ = device()
    assert made.foresee(0, Ramp(heavy, 10, 1.0, 0), FAR) is None

    def ends_heavy(step, sm_mhz, memory_mhz):
        return Pace(0.02, 0.5, step / 10)

    assert made.foresee(0, Ramp(ends_heavy, 3, 1.0, 0), FAR) is not None
    assert made.foresee(0, Ramp(ends_heavy, 11, 1.0, 0), FAR) is None


def test_light_steps_after_capped_ones_end_the_cap():
    (some, now), (other, then) = device(), device()
    ends = []
    for made, way in ((some, at_once), (other, by_itself)):
        end = by_itself(made, Ramp(heavy, 20, 1.0, 0), 0)
        assert made._governor.capped
        end = by_itself(made, RAMPS["plain"]._replace(steps=1), end)  # the mean is below the limit from here on
        ends.append(way(made, RAMPS["plain"], end))
        assert not made._governor.capped
        ends.append(by_itself(made, Ramp(heavy, 20, 1.0, 0), ends[-1]))
    assert ends[:2] == pytest.approx(ends[2:], abs=5)
    now[0] = then[0] = ends[1]
    assert some.throttle_ns()["sw_power_cap"] == pytest.approx(other.throttle_ns()["sw_power_cap"], abs=20)


def test_what_was_to_come_of_a_course_can_be_abandoned():
    made, now = device()
    end = at_once(made, RAMPS["plain"], 0)
    now[0] = end // 2
    made.abandon()
    other, then = device()
    by_itself(other, RAMPS["plain"], 0)
    then[0] = end // 2
    other.abandon()
    for each in (now, then):
        each[0] = end
    assert not made.history.level(made.timeline.now()).busy
    # It ends amid a level, which says the mean from one moment at which a reading looks to the next.
    assert made.energy_j() - 100_000 == pytest.approx(other.energy_j() - 100_000, rel=1e-4)
    assert made._governor.mean_w == pytest.approx(other._governor.mean_w, rel=1e-3)


class TestGroup:
    def group(self, count):
        boards, now = SimulatedBoards("h200"), [0]
        group = boards.group(count)
        group.attach(lambda: now[0], power_scale=1.0)
        group.load(10**9)
        return boards, group, now

    @pytest.mark.parametrize("count", [1, 2])
    def test_every_board_does_it(self, count):
        boards, group, now = self.group(count)
        now[0] = end = at_once(group, RAMPS["plain"], 0)
        other, then = device()
        then[0] = by_itself(other, RAMPS["plain"], 0)
        assert end == then[0]
        for each in boards.devices:
            assert each.energy_j() == pytest.approx(other.energy_j(), abs=0.0011)

    def test_boards_that_differ_are_asked_step_by_step(self):
        boards, group, _ = self.group(2)
        boards.devices[1].lock_sm_clock(1500)

        def clocked(step, sm_mhz, memory_mhz):
            return pace(step, sm_mhz, memory_mhz)._replace(seconds=2 / sm_mhz)

        assert group.foresee(0, Ramp(clocked, 9, 1.0, 0), FAR) is None
