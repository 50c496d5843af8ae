"""The wall clock's times on the monotonic clock, whatever is done to the wall clock."""

import socket
import time
from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.load.connection import Exchange
from pytest_llmperf.engines.openai.load.stamps import CMSG_SPACE, ClockMap, ask_for_stamps, stamp_of
from pytest_llmperf.engines.openai.load.worker import _times

MS = 1_000_000
S = 1_000 * MS
START = 123 * S
WALL = 1_700_000_000 * S
GRAIN = 100 * MS


def drifting(ppm, steps=()):
    """The wall clock: what it shows at a monotonic time, set by so much at each of these times."""

    def wall(at):
        return WALL + at + round((at - START) * ppm / 1e6) + sum(by for when, by in steps if at >= when)

    return wall


def sampled(wall, samples=20):
    clocks = ClockMap()
    moments = [START + place * GRAIN for place in range(samples)]
    for moment in moments:
        clocks.add(moment, wall(moment))
    return clocks


ppm = st.floats(-500, 500)
moment = st.integers(START, START + 19 * GRAIN)
#: How long a stamp waits for user space.
wake = st.integers(0, 2 * MS)


@given(ppm, moment, wake)
def test_any_drift_converts_within_microseconds(ppm, seen, wake):
    wall = drifting(ppm)
    at = seen - wake
    got = sampled(wall).monotonic(wall(at), seen)
    assert got is not None
    assert abs(got - at) <= 2_000  # 500 ppm of the two milliseconds, and roundings
    assert got <= seen


@given(ppm, moment, wake, st.sampled_from([1, -1]), st.integers(MS, 10**6 * S), moment)
def test_a_step_is_distrusted_around_it_and_only_there(ppm, when, wake, sign, by, seen):
    wall = drifting(ppm, [(when, sign * by)])
    clocks = sampled(wall)
    at = max(START, seen - wake)
    got = clocks.monotonic(wall(at), seen)
    between = (when - START - 1) // GRAIN if when > START else None  # the step lies after this sample
    current = bisect_right(range(START, START + 20 * GRAIN, GRAIN), seen) - 1
    near = between is not None and current in (between, between + 1)
    # Right before the last sample there is nothing to tell a step by.
    if near:
        assert got is None
    else:
        assert got is not None
        assert abs(got - at) <= 2_000
    assert clocks.stepped == (between is not None)


@given(ppm, moment, wake, st.integers(-10 * S, 10 * S))
def test_no_result_lies_after_the_read(ppm, seen, wake, off):
    wall = drifting(ppm)
    got = sampled(wall).monotonic(wall(seen - wake) + off, seen)
    assert got is None or got <= seen
    if off > wake + 30_000:
        assert got is None


def test_one_sample_has_to_do():
    clocks = ClockMap()
    clocks.add(START, WALL)
    assert clocks.monotonic(WALL + 5, START + 7) == START + 5
    assert (clocks.stepped, clocks.drift_ns) == (False, 0)


def test_drift_is_that_of_all_samples():
    assert abs(sampled(drifting(100)).drift_ns - round(19 * GRAIN * 100 / 1e6)) <= 1


def test_the_clocks_themselves():
    clocks = ClockMap()
    clocks.sample()
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    clocks.sample()
    got = clocks.monotonic(wall, after)
    assert got is None or before - 20_000 <= got <= after


def test_what_a_read_brings():
    assert stamp_of([]) == 0
    assert stamp_of([(socket.SOL_SOCKET, 35, b"short")]) == 0
    assert stamp_of([(socket.SOL_SOCKET, 99, bytes(16))]) == 0
    data = (7).to_bytes(8, "little") + (5).to_bytes(8, "little")
    assert stamp_of([(1, 2, b""), (socket.SOL_SOCKET, 35, data)]) == 7 * S + 5


def test_the_kernel_stamps_what_comes():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            if not ask_for_stamps(ours):
                pytest.skip("no stamps on this platform")
            before = time.time_ns()
            theirs.sendall(b"x")
            _, ancillary, _, _ = ours.recvmsg(10, CMSG_SPACE)
    stamp = stamp_of(ancillary)
    # A kernel that has just begun to stamp may have missed it.
    assert stamp == 0 or abs(stamp - before) < 3600 * S


@given(st.lists(st.tuples(st.integers(0, 5 * S), st.integers(-5 * MS, 5 * S) | st.none()), max_size=12), ppm)
def test_times_of_an_exchange_are_in_order_and_after_its_submission(reads, ppm):
    wall = drifting(ppm)
    exchange = Exchange(1, b"")
    exchange.submitted_ns = START + 200 * MS
    seen = sorted(exchange.submitted_ns + at for at, _ in reads)
    for at, (_, wait) in zip(seen, reads, strict=True):
        exchange.seen.append(at)
        exchange.stamps.append(0 if wait is None else wall(at - wait))
    wakes: list[int] = []
    times, source = _times(exchange, sampled(wall), wakes)
    assert len(times) == len(reads)
    assert all(earlier <= later for earlier, later in pairwise([exchange.submitted_ns, *times]))
    assert all(time <= at for time, at in zip(times, seen, strict=True))
    assert all(wait >= 0 for wait in wakes)
    assert source == ("user" if not wakes else "kernel" if len(wakes) == len(reads) else "mixed")
