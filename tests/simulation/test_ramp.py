"""Steps that grow evenly, told at once: as they go one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.simulation.ramp import Line, Ramp, evenly, foresee, tokens_ns
from pytest_llmperf.simulation.steps import Pace

S = 1_000_000_000
FAR = 1 << 60


def growing(first_s=0.004, growth_s=1e-6, moved_s=0.001, moved_growth_s=3e-7):
    """Steps that take longer and move more each time; at half the SM clock all takes twice as long."""

    def pace(step, sm_mhz, memory_mhz):
        seconds = (first_s + step * growth_s) * 1000 / sm_mhz
        return Pace(seconds, (moved_s + step * moved_growth_s) / seconds, 0.0001 / seconds)

    return pace


def ramp(pace=None, steps=50, stretch=1.0, launch_ns=0):
    return Ramp(pace or growing(), steps, stretch, launch_ns)


def one_by_one(pace, steps, start_ns=0, stretch=1.0):
    ends = []
    for step in range(steps):
        start_ns += round(pace(step, 1000, 1).seconds * stretch * S)
        ends.append(start_ns)
    return ends


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3), st.integers(0, 300), st.floats(0, 1))
def test_the_total_of_a_line_is_its_sum(first, growth, steps, share):
    line = Line(first, growth)
    added = sum(line.at(step) for step in range(steps)) + share * line.at(steps)
    assert line.total(steps, share) == pytest.approx(added, rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("stretch", [0.7, 1.0, 1.3])
def test_steps_end_as_one_by_one(stretch):
    course = foresee(ramp(stretch=stretch), 123, FAR, 1000, 1)
    assert course.ends_ns == one_by_one(growing(), 50, 123, stretch)
    assert [b - a for a, b in zip([123, *course.ends_ns], course.ends_ns, strict=False)] == course.lasts_ns


def test_it_goes_by_the_clock():
    assert foresee(ramp(steps=1), 0, FAR, 500, 1).ends_ns == [8_000_000]


@pytest.mark.parametrize("stretch", [1.0, 1.3])
def test_what_is_used_up_to_any_moment_is_what_the_steps_use(stretch):
    course, pace = foresee(ramp(stretch=stretch), 1000, FAR, 1000, 1), growing()
    used, start = [0.0, 0.0, 0.0], 1000
    for step, end in enumerate(course.ends_ns):
        taken = pace(step, 1000, 1)
        each = [taken.seconds * S, taken.memory * taken.seconds * S, taken.compute * taken.seconds * S]
        assert course.shares(step) == pytest.approx([one * stretch / (end - start) for one in each], rel=1e-6)
        middle = (start + end) // 2
        part = (middle - start) / (end - start)
        assert course.used(middle) == pytest.approx([u + part * one for u, one in zip(used, each, strict=True)])
        used, start = [u + one for u, one in zip(used, each, strict=True)], end
        assert course.used(end) == pytest.approx(used)
        assert course.step_at(end - 1) == step


def test_a_kernel_runs_no_longer_than_its_step():
    course = foresee(ramp(stretch=0.5), 0, FAR, 1000, 1)
    assert course.shares(0)[0] == pytest.approx(1.0)
    assert course.shares(0)[1] == pytest.approx(0.25)


def test_no_more_is_foreseen_than_is_needed():
    course = foresee(ramp(), 0, 20_000_000, 1000, 1)
    whole = foresee(ramp(), 0, FAR, 1000, 1)
    assert course.ends_ns[-1] > 20_000_000
    assert len(course.ends_ns) < 9
    assert course.ends_ns == whole.ends_ns[: len(course.ends_ns)]


@pytest.mark.parametrize("bent", ["seconds", "memory", "compute"])
def test_what_bends_is_not_foreseen(bent):
    def pace(step, sm_mhz, memory_mhz):
        straight = growing()(step, sm_mhz, memory_mhz)
        return straight._replace(**{bent: getattr(straight, bent) * (1 + (step >= 20) / 1e6)})

    assert foresee(ramp(pace), 0, FAR, 1000, 1) is None
    assert foresee(ramp(pace, steps=20), 0, FAR, 1000, 1) is not None


def test_what_becomes_shorter_is_not_foreseen():
    assert foresee(ramp(growing(growth_s=-1e-6)), 0, FAR, 1000, 1) is None


@pytest.mark.parametrize(("launch_ns", "known"), [(3_999_999, True), (4_000_000, True), (4_000_001, False)])
def test_a_queue_that_runs_empty_is_not_foreseen(launch_ns, known):
    assert (foresee(ramp(launch_ns=launch_ns), 0, FAR, 1000, 1) is not None) is known


@given(
    st.integers(0, 100), st.integers(1, 50), st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 400)
)
def test_tokens_come_out_when_a_step_has_ended_and_the_next_is_launched(thread_ns, launch_ns, longer, first_ns):
    ends, at = [], first_ns
    for more in longer:
        ends.append(at)
        at += launch_ns + more
    outs, now = [], thread_ns
    for end in ends:
        now = max(now + launch_ns, end)
        outs.append(now)
    assert tokens_ns(thread_ns, launch_ns, ends) == outs


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4), st.integers(1, 200), st.integers(20, 300))
def test_loads_that_grow_evenly_are_told_as_they_are(contexts, count, window):
    def loads(ahead):
        return sum(min(each + ahead, window) for each in contexts), 3 * sum(each + ahead for each in contexts)

    number, load = evenly(loads, count)
    assert 1 <= number <= count
    assert [load(ahead) for ahead in range(number)] == [loads(ahead + 1) for ahead in range(number)]
    if max(contexts) + count <= window:
        assert number >= count - 1
