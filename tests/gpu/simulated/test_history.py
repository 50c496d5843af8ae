"""Levels and their integrals, against sums over every piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.simulated.history import History, Level


def level(watts, **fields):
    return Level(watts, 1000, 877, 0, **fields)


def history(changes):
    (start, first), *others = changes
    made = History(start, level(first))
    for at, watts in others:
        made.change(at, level(watts))
    return made


def summed(changes, start, end):
    """Joules by brute force: each piece for as long as it overlaps."""
    ends = [*(at for at, _ in changes[1:]), 10**30]
    begins = [-(10**30), *(at for at, _ in changes[1:])]
    pieces = zip(changes, begins, ends, strict=True)
    return sum(watts * max(0, min(end, until) - max(start, since)) for (_, watts), since, until in pieces) / NS_PER_S


times = st.integers(-(10**12), 10**12)
changes = st.dictionaries(times, st.floats(0, 1000), min_size=1, max_size=30).map(lambda d: sorted(d.items()))


@given(changes, times, times)
def test_an_integral_is_the_sum_over_all_pieces(pieces, one, other):
    start, end = sorted((one, other))
    made = history(pieces)
    gained = made.integral("watts", end) - made.integral("watts", start)
    assert gained == pytest.approx(summed(pieces, start, end), rel=1e-9, abs=1e-6)
    if end > start:
        assert made.mean("watts", start, end) == pytest.approx(gained / ((end - start) / NS_PER_S), rel=1e-6, abs=1e-6)


@given(changes, times, times)
def test_what_is_forgotten_changes_nothing_later(pieces, before, at):
    whole, rest = history(pieces), history(pieces)
    rest.forget(before)
    later = max(before, at)
    assert rest.level(later) == whole.level(later)
    assert rest.integral("watts", later) == whole.integral("watts", later)
    assert len(rest) == max(1, sum(at > before for at, _ in pieces) + any(at <= before for at, _ in pieces))


def test_the_first_level_held_before_and_the_last_one_holds_after():
    made = history([(0, 10.0), (NS_PER_S, 20.0)])
    assert [made.level(at).watts for at in (-5, 0, NS_PER_S - 1, NS_PER_S, 10**18)] == [10, 10, 10, 20, 20]
    assert made.mean("watts", -NS_PER_S, 0) == 10
    assert made.mean("watts", 5 * NS_PER_S, 5 * NS_PER_S) == 20


def test_a_change_at_the_same_moment_replaces_and_an_earlier_one_is_refused():
    made = history([(0, 10.0), (NS_PER_S, 20.0), (NS_PER_S, 30.0)])
    assert (len(made), made.level(NS_PER_S).watts, made.integral("watts", 2 * NS_PER_S)) == (2, 30, 40)
    with pytest.raises(ValueError, match="before the last one"):
        made.change(NS_PER_S - 1, level(0.0))


def test_what_was_foretold_can_be_cut_off():
    made = history([(0, 10.0), (NS_PER_S, 20.0), (2 * NS_PER_S, 30.0)])
    made.cut(NS_PER_S + 5)
    made.change(NS_PER_S + 5, level(0.0))
    assert made.integral("watts", 10 * NS_PER_S) == pytest.approx(10 + 20 * 5e-9)


def test_a_share_is_never_beyond_one():
    made = History(0, level(0.0, busy=True))
    for at in range(7, 7000, 7):
        made.change(at, level(0.0, busy=True))
    assert all(0 <= made.share("busy", start, 6999) <= 1 for start in range(0, 6999, 13))


@given(changes, st.integers(0, 10**12), st.integers(0, 10**9))
def test_what_follows_a_restart_owes_no_bit_to_what_was_before(pieces, since, later):
    last, watts = pieces[-1]
    restarted, fresh = history(pieces), History(last + since, level(watts))
    restarted.restart(last + since)
    for made in (restarted, fresh):
        made.change(last + since + 7, level(300.1))
        made.change(last + since + 7 + later, level(80.3))
    for at in (0, 5, 8, later, later + 100):
        assert restarted.integral("watts", last + since + at) == fresh.integral("watts", last + since + at)


@given(changes, times)
def test_a_restart_keeps_what_lies_ahead_of_it(pieces, at):
    made, before = history(pieces), history(pieces)
    at = max(at, pieces[0][0])
    made.restart(at)
    for moment, watts in pieces:
        if moment >= at:
            assert made.level(moment).watts == watts
            gained = before.integral("watts", moment) - before.integral("watts", at)
            assert made.integral("watts", moment) == pytest.approx(gained, rel=1e-9, abs=1e-6)
