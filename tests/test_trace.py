from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.trace import EngineStamps, RepeatTrace, RequestTrace, dump_repeat, load_repeats

from .fakes import repeat, request

ns = st.integers(-(2**63), 2**63)
stamps = st.builds(EngineStamps, ns, ns, ns, ns)
requests = st.lists(st.tuples(ns, st.integers(1, 99)), max_size=5).flatmap(
    lambda chunks: st.builds(
        RequestTrace,
        due_ns=ns,
        sent_ns=ns,
        asked_input=st.integers(0, 9),
        asked_output=st.integers(0, 9),
        received_ns=st.just(tuple(at for at, _ in chunks)),
        tokens=st.just(tuple(n for _, n in chunks)),
        input_tokens=st.integers(0, 9),
        output_tokens=st.integers(0, 9),
        token_source=st.sampled_from(["server", "counted"]),
        engine=st.none() | stamps,
        error=st.none() | st.text(),
    )
)
repeats = st.builds(
    RepeatTrace,
    launch=st.integers(0, 9),
    repeat=st.integers(0, 9),
    loop=st.sampled_from(["batch", "closed", "open"]),
    requests=st.lists(requests, max_size=4).map(tuple),
)


@given(st.lists(repeats, max_size=4))
def test_what_is_written_is_read_again(traces):
    lines = "".join(dump_repeat(trace) + "\n" for trace in traces)
    assert list(load_repeats(io.StringIO(lines, newline="\n"))) == traces


@given(repeats)
def test_a_repeat_is_one_line_of_strict_json(trace):
    line = dump_repeat(trace)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(
    ("trace", "completed"),
    [
        (request(10), True),
        (request(10, 20), True),
        (request(), False),
        (request(10, error="the stream broke"), False),
        (request(error="refused"), False),
    ],
)
def test_a_request_has_completed_when_tokens_came_and_no_error(trace, completed):
    assert trace.completed is completed
    assert repeat(trace).completed == ((trace,) if completed else ())


def test_first_and_last_are_of_the_tokens():
    trace = request(10, 20, 35)
    assert (trace.first_ns, trace.last_ns) == (10_000_000, 35_000_000)


DAYS_MS = 86_400_000


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (request(10, 20), None),
        (request(10, 10, 10), None),
        (request(0), None),
        (request(12, due=5, sent=7), None),
        (request(29 * DAYS_MS), None),
        (request(10, due=5, sent=4), "before it was due"),
        (request(10, 9), "go backwards"),
        (request(5, due=5, sent=6), "go backwards"),
        (request(10, 20, 15, 30), "go backwards"),
        (request(31 * DAYS_MS), "two different clocks"),
        (request(sent=31 * DAYS_MS), "two different clocks"),
        # Received on the wall clock, due on the monotonic one.
        (request(1.76e12, due=4e6), "two different clocks"),
        (request(4e6, due=1.76e12), "go backwards"),
    ],
)
def test_stamps_that_no_single_clock_gives_are_called_out(trace, why):
    if why is None:
        assert trace.impossible() is None
    else:
        assert why in trace.impossible()
