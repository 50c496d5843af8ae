from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S, MonotonicClock, VirtualClock

HOUR_NS = 3600 * NS_PER_S
DAY_NS = 24 * HOUR_NS


def run(clock, work):
    with clock.runner() as runner:
        return runner.run(work)


async def wake(clock, when_ns):
    await clock.sleep_until(when_ns)
    return clock.now()


def test_virtual_time_starts_at_zero_and_stands_still_while_tasks_work():
    clock = VirtualClock()

    async def work():
        for _ in range(1000):
            await asyncio.sleep(0)

    assert clock.now() == 0
    run(clock, work())
    assert clock.now() == 0


@given(st.lists(st.integers(0, 10 * DAY_NS), min_size=1, max_size=30))
def test_every_task_wakes_at_the_very_nanosecond(due):
    clock = VirtualClock()

    async def work():
        return await asyncio.gather(*[wake(clock, when) for when in due])

    assert run(clock, work()) == due
    assert clock.now() == max(due)


@given(st.integers(0, 10 * DAY_NS), st.integers(1, 1000))
def test_a_nanosecond_more_is_a_nanosecond_more(start, step):
    clock = VirtualClock()

    async def work():
        return await wake(clock, start), await wake(clock, start + step)

    assert run(clock, work()) == (start, start + step)


def test_tasks_wake_in_the_order_of_their_times():
    clock, woken = VirtualClock(), []

    async def note(when):
        await clock.sleep_until(when)
        woken.append(when)

    async def work():
        await asyncio.gather(*[note(when) for when in (30, 10, 20, 11, 10 * NS_PER_S)])

    run(clock, work())
    assert woken == [10, 11, 20, 30, 10 * NS_PER_S]


@pytest.mark.parametrize("when", [-5, 0, 7])
def test_a_time_that_is_past_returns_at_once(when):
    clock = VirtualClock()
    clock.advance(1e-6)
    assert run(clock, wake(clock, when)) == 1000


def test_thousands_of_timers_over_days_are_waited_for_without_waiting():
    clock = VirtualClock()

    async def work():
        return await asyncio.gather(*[wake(clock, i * 60 * NS_PER_S) for i in range(5000)])

    # Were the time to pass, this would take three and a half days.
    assert run(clock, work()) == [i * 60 * NS_PER_S for i in range(5000)]


def test_a_sleep_longer_than_the_event_loop_waits_at_once_is_exact():
    clock = VirtualClock()
    assert run(clock, wake(clock, 3 * DAY_NS + 1)) == 3 * DAY_NS + 1


def test_a_timeout_ends_at_its_virtual_time():
    clock = VirtualClock()

    async def work():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2.5)

    run(clock, work())
    assert clock.now() == pytest.approx(2.5 * NS_PER_S, abs=1)


def test_waiting_for_what_no_timer_brings_is_called_a_deadlock():
    with pytest.raises(RuntimeError, match="deadlock in virtual time"):
        run(VirtualClock(), asyncio.Event().wait())


def test_time_goes_on_from_one_run_to_the_next():
    clock = VirtualClock()
    with clock.runner() as runner:
        assert runner.run(wake(clock, 10)) == 10
        assert runner.run(wake(clock, 25)) == 25


def test_the_monotonic_clock_is_the_machines():
    before = time.monotonic_ns()
    now = MonotonicClock().now()
    assert before <= now <= time.monotonic_ns()


def test_the_monotonic_clock_never_wakes_early():
    clock = MonotonicClock()
    when = clock.now() + 2_000_000
    assert run(clock, wake(clock, when)) >= when
