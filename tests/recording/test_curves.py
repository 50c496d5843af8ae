"""Readings as values over time: nothing is made up where nobody read, and no joule is lost or found."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.recording.curves import climbed, held, joined_spans, lowest_of, mean_of

MS = 1_000_000
S = 1000 * MS
NOTHING = float("nan")


def test_a_reading_holds_until_the_next_and_the_last_as_long_as_the_one_before():
    assert held([0, 10 * MS, 30 * MS], [1.0, 2.0, 3.0]) == [
        (0, 10 * MS, 1.0),
        (10 * MS, 30 * MS, 2.0),
        (30 * MS, 50 * MS, 3.0),
    ]
    assert held([], []) == []


def test_what_was_not_read_is_left_out_and_no_reading_bridges_a_hole():
    at = [n * 10 * MS for n in range(10)] + [2 * S]
    pieces = held(at, [1.0, NOTHING, *[3.0] * 9])
    assert (10 * MS, 20 * MS) not in [(start, end) for start, end, _ in pieces]
    assert pieces[8] == (90 * MS, 90 * MS + S // 2, 3.0)


def test_a_counter_tells_the_power_between_its_steps():
    at = [n * MS for n in range(200)]
    joules = [1e6 + 20 * (n // 40) for n in range(200)]
    pieces = climbed(at, joules)
    assert {round(watts) for _, _, watts in pieces} == {500}
    assert [round(start / MS) for start, _, _ in pieces] == [40, 80, 120]
    assert climbed(at, [*joules[:100], *joules[:100]]) == []  # it fell
    assert climbed(at, [1.0] * 200) == []


def test_the_mean_of_a_stretch_is_over_what_is_known_of_it():
    pieces = [(0, 10, 100.0), (10, 20, 200.0), (30, 40, 300.0)]
    assert mean_of(pieces, [0, 20, 28, 40, 50]) == [150.0, None, 300.0, None]
    assert mean_of([], [0, 5]) == [None]


def test_a_dip_shows_in_the_stretch_in_which_it_began_and_in_no_other():
    pieces = [(0, 10, 1980.0), (10, 21, 900.0), (21, 40, 1980.0)]
    assert lowest_of(pieces, [0, 20, 30, 40, 50]) == [900.0, 1980.0, 1980.0, None]


def test_spans_a_little_apart_are_one():
    assert joined_spans([(30, 40), (0, 10), (12, 15)], 2) == [(0, 15), (30, 40)]
    assert joined_spans([(0, 50), (10, 20)], 0) == [(0, 50)]


PIECES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 50), st.floats(0, 1000)), min_size=1, max_size=40
).map(lambda parts: [(sum(g + n for g, n, _ in parts[:i]) + g, sum(g + n for g, n, _ in parts[: i + 1]), v)
                     for i, (g, n, v) in enumerate(parts)])  # fmt: skip


@given(PIECES, st.lists(st.integers(-20, 1500), min_size=2, max_size=30, unique=True).map(sorted))
def test_means_keep_the_integral(pieces, edges):
    # Over a stretch the mean stands for the known part alone.
    known = [
        sum(max(0, min(end, stop) - max(start, begin)) for start, end, _ in pieces) for begin, stop in pairwise(edges)
    ]
    means = mean_of(pieces, edges)
    assert [mean is None for mean in means] == [length == 0 for length in known]
    total = math.fsum(mean * length for mean, length in zip(means, known, strict=True) if mean is not None)
    truth = math.fsum(max(0, min(e, edges[-1]) - max(s, edges[0])) * v for s, e, v in pieces)
    assert total == pytest.approx(truth, rel=1e-9, abs=1e-9)


@given(PIECES, st.lists(st.integers(-20, 1500), min_size=2, max_size=30, unique=True).map(sorted))
def test_no_dip_is_lost(pieces, edges):
    lows = [low for low in lowest_of(pieces, edges) if low is not None]
    begun = [value for start, _, value in pieces if edges[0] <= start < edges[-1]]
    if begun:
        assert min(lows) == min(begun + [v for s, e, v in pieces if s < edges[0] < e and v in lows])
