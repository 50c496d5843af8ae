"""When an energy counter is read, on a clock of its own."""

import random
from itertools import pairwise

import pytest

from pytest_llmperf.gpu.sampling.counter_reads import CounterReads

MS = 1_000_000


def run(value, *, cost_ms=0.05, late_ms=lambda rng: 0.3, seconds=5.0, seed=1):
    """Reads a counter as it asks to be read; the reads, from when on steps were expected, and it."""
    rng = random.Random(seed)
    now = 10**12
    until = now + round(seconds * 1000 * MS)
    reads = CounterReads(now)
    taken, settled = [], None
    while now < until:
        now = max(now, reads.due_ns) + round(late_ms(rng) * MS)
        before, now = now, now + round(cost_ms * MS)
        now += 1
        reads.took(before, now, value(now))
        taken.append(((before + now) // 2, value(now)))
        if reads.settled and settled is None:
            settled = len(taken)
    return taken, settled, reads


def ticking(period_ms, phase_ms=13.7):
    return lambda now: (now - phase_ms * MS) // (period_ms * MS) * 7.5


def widths_ms(taken):
    """Between which reads the steps lie."""
    return [(t1 - t0) / MS for (t0, v0), (t1, v1) in pairwise(taken) if v1 != v0]


@pytest.mark.parametrize(
    ("period_ms", "cost_ms"), [(100, 4.5), (100, 0.05), (20, 0.05), (50, 1.0), (99.7, 4.5), (20.05, 0.05)]
)
def test_steps_are_known_to_a_few_milliseconds_at_no_more_reads_than_a_beat(period_ms, cost_ms):
    taken, settled, reads = run(ticking(period_ms), cost_ms=cost_ms, late_ms=lambda rng: rng.uniform(0, 0.8))
    after = taken[settled:]
    seconds = (after[-1][0] - after[0][0]) / 1e9
    assert len(after) / seconds < 60  # a beat of 20 ms is 50
    close = [width for width in widths_ms(after) if width < 5.5 + 2 * cost_ms]
    every = max(period_ms, 40)
    assert len(close) > 0.7 * seconds * 1e3 / every
    assert (after[0][0] - 10**12) / MS < max(5 * period_ms, 300)
    assert taken[-1][0] - reads.last_step_ns < 3 * every * MS


def test_following_steps_for_long_does_not_drift_away_from_them():
    """Every pair of reads finds its step in its middle, wherever it is: that must not become where it is expected."""
    taken, settled, _ = run(ticking(100), seconds=60.0, late_ms=lambda rng: rng.uniform(0, 0.8))
    assert len([width for width in widths_ms(taken[settled:]) if width < 5.6]) > 0.85 * 600
    assert len(taken) - settled < 60 * 40


def test_a_step_is_seen_soon_after_it_was_asked_for():
    _, _, reads = run(ticking(100), seconds=2.0)
    assert 10**12 + 1800 * MS < reads.last_step_ns <= 10**12 + 2000 * MS


def test_a_step_that_moved_is_found_again():
    def value(now):
        moved = 37 * MS if now > 10**12 + 2000 * MS else 0
        return ticking(100)(now - moved)

    taken, settled, _ = run(value)
    late = [t for t in taken[settled:] if t[0] > 10**12 + 2300 * MS]
    assert len([width for width in widths_ms(late) if width < 6]) > 20


def test_reads_that_come_late_now_and_then_lose_nothing_for_long():
    taken, settled, _ = run(ticking(100), late_ms=lambda rng: 15 if rng.random() < 0.1 else 0.2)
    assert len([width for width in widths_ms(taken[settled:]) if width < 6]) > 18


def test_a_counter_without_a_rhythm_is_read_by_the_beat():
    rng = random.Random(2)
    steps = sorted(10**12 + rng.uniform(0, 10_000) * MS for _ in range(100))
    taken, _, _ = run(lambda now: sum(step <= now for step in steps), seconds=10.0)
    last = [t for t, _ in taken if t > 10**12 + 8000 * MS]
    assert 90 <= len(last) <= 110


def test_a_counter_that_stands_still_is_read_by_the_beat():
    taken, settled, reads = run(lambda now: 5.0, seconds=3.0)
    assert (taken[settled - 1][0] - 10**12) / MS < 600
    assert (len(taken) - settled) / 2.5 < 55
    assert reads.last_step_ns == 0
