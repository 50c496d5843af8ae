"""Answers that went wrong in comparable tools, in every framing and every cut."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from pytest_llmperf.engines.openai.decoding.answer import RawAnswer, decode
from pytest_llmperf.metrics import (
    request_chunk_gaps,
    request_e2e_latency,
    request_itl,
    request_tpot,
    request_ttft,
)
from pytest_llmperf.trace import RequestTrace

from ..served import FRAMINGS, MS, frame

STREAMS = json.loads(Path(__file__).with_name("streams.json").read_text(encoding="utf-8"))
TIMED_OUT = "read timeout: nothing came for 0.5 s"


def play(stream, framing) -> RawAnswer:
    """A case of the file on a connection: its head comes 1 ms after the request, its terminator with the end."""
    hangs = stream["end"] == "hang"
    parts = [base64.b64decode(chunk["b64"]) for chunk in stream["chunks"]]
    status = {200: "200 OK", 503: "503 Service Unavailable"}[stream["http_status"]]
    kind = "text/event-stream" if stream["http_status"] == 200 else "application/json"
    reads = frame(parts, framing, whole=not hangs, status=status, kind=kind)
    times = [1, *(chunk["at_ms"] for chunk in stream["chunks"])]
    times += [times[-1]] * (len(reads) - len(times))
    return RawAnswer(
        [time * MS for time in times], reads, "timeout" if hangs else "close", TIMED_OUT if hangs else None
    )


def trace_of(decoded) -> RequestTrace:
    return RequestTrace(
        due_ns=0,
        sent_ns=0,
        received_ns=decoded.received_ns,
        tokens=decoded.tokens,
        output_tokens=decoded.output_tokens,
        token_source=decoded.token_source,
        error=decoded.error,
    )


def milliseconds(seconds):
    return None if seconds is None else pytest.approx(seconds * 1000, abs=1e-4)


CHECKS = {
    "success": lambda trace, _: trace.completed,
    "reason": lambda trace, _: trace.error.partition(":")[0],
    "output_tokens": lambda trace, _: trace.output_tokens,
    "text": lambda _, decoded: decoded.text,
    "ttft_ms": lambda trace, _: milliseconds(request_ttft(trace)),
    "tpot_ms": lambda trace, _: milliseconds(request_tpot(trace)),
    "itl_ms": lambda trace, _: [milliseconds(gap) for gap in request_itl(trace)],
    "inter_chunk_ms": lambda trace, _: [milliseconds(gap) for gap in request_chunk_gaps(trace)],
    "e2e_to_last_token_ms": lambda trace, _: milliseconds(request_e2e_latency(trace)),
}


@pytest.fixture(params=STREAMS)
def stream(request):
    return STREAMS[request.param]


@pytest.fixture(params=FRAMINGS)
def framing(request):
    return request.param


def test_the_right_figures_come_out(stream, framing):
    decoded = decode(play(stream, framing))
    trace = trace_of(decoded)
    expected = dict(stream["expect"])
    assert trace.output_tokens != expected.pop("not_output_tokens", None), stream["why"]
    assert {name: CHECKS[name](trace, decoded) for name in expected} == expected, stream["why"]
    assert trace.impossible() is None


def test_the_words_of_the_failures():
    assert decode(play(STREAMS["error_event_inside_200"], "chunked")).error == "error event: boom"
    assert decode(play(STREAMS["http_503_json"], "chunked")).error == "HTTP 503: overloaded"
    stalled = decode(play(STREAMS["stalls_for_ever"], "chunked"))
    assert (stalled.error, stalled.tokens, stalled.text) == (TIMED_OUT, (1,), " t0")


def test_a_cut_changes_nothing_where_both_parts_come_at_once(stream, framing):
    played = play(stream, framing)
    whole = decode(played)
    for index, (time, read) in enumerate(zip(played.times, played.reads, strict=True)):
        for at in range(len(read) + 1):
            times = [*played.times[:index], time, *played.times[index:]]
            reads = [*played.reads[:index], read[:at], read[at:], *played.reads[index + 1 :]]
            cut = decode(replace(played, times=times, reads=reads))
            assert replace(cut, upper_bounds=()) == replace(whole, upper_bounds=()), (index, at)


def last_bytes(stream, played) -> tuple[int, ...]:
    """Where in the connection the last byte of each event with output is, found another way."""
    parts = [base64.b64decode(chunk["b64"]) for chunk in stream["chunks"]]
    starts = list(accumulate(map(len, played.reads), initial=0))[1:]
    where = [
        start + read.index(part) + offset
        for start, read, part in zip(starts, played.reads[1:], parts, strict=False)
        for offset in range(len(part))
    ]
    found = re.finditer(rb'data: \{[^\r\n]*"content": "(?!")[^\r\n]*(?:\r\n\r\n|\n\n)', b"".join(parts))
    return tuple(where[match.end() - 1] for match in found)


def test_of_two_reads_each_event_belongs_to_the_one_with_its_last_byte(stream, framing):
    played = play(stream, framing)
    connection = b"".join(played.reads)
    ends = last_bytes(stream, played)
    whole = decode(played)
    for at in range(len(connection) + 1):
        cut = decode(replace(played, times=[5, 9], reads=[connection[:at], connection[at:]]))
        assert cut.received_ns == tuple(5 if end < at else 9 for end in ends), at
        assert (cut.text, cut.tokens, cut.error) == (whole.text, whole.tokens, whole.error), at


def test_bytes_that_come_one_by_one(stream, framing):
    played = play(stream, framing)
    connection = b"".join(played.reads)
    single = decode(replace(played, times=list(range(len(connection))), reads=[bytes([b]) for b in connection]))
    whole = decode(played)
    assert (single.text, single.tokens, single.error) == (whole.text, whole.tokens, whole.error)
    assert single.received_ns == last_bytes(stream, played)
    assert single.upper_bounds == ()
