"""What holds for any bytes, any cut and any valid stream."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.decoding.answer import RawAnswer, decode
from pytest_llmperf.engines.openai.decoding.sse import events

from ..served import DONE, FRAMINGS, frame, head

ENDS = st.sampled_from(["complete", "close", "reset", "timeout", "refused", "odd"])
ASIDE = ["code", "status", "detail", "x_groq", "reasoning_details", "summary", "input_tokens", "output_tokens"]
WHERE = ["choices", "delta", "text", "content", "usage", "error", "object", "index", "token_ids", "finish_reason"]
INSIDE = ["completion_tokens", "prompt_tokens", "tool_calls", "function", "name", "arguments", "reasoning", "detail"]
NAMES = st.sampled_from([*WHERE, *INSIDE, *ASIDE, "message", "thinking"])
HEADER = st.characters(codec="latin-1", exclude_characters="\r\n\0")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("error"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def check(decoded):
    """What every answer keeps, good or not."""
    assert len(decoded.tokens) == len(decoded.received_ns)
    assert sum(decoded.tokens) == decoded.output_tokens
    assert all(tokens >= 1 for tokens in decoded.tokens)
    assert all(earlier <= later for earlier, later in pairwise(decoded.received_ns))
    assert list(decoded.upper_bounds) == sorted(set(decoded.upper_bounds) & set(range(len(decoded.tokens))))
    assert decoded.chunk_tokens in ("told", "apportioned")
    assert decoded.token_source in ("server", "counted")
    assert decoded.error is None or (decoded.error and decoded.error.isprintable())
    assert bool(decoded.tokens) or decoded.error
    decoded.text.encode()


def pieces(data: bytes, cuts) -> list[bytes]:
    places = sorted({at % (len(data) + 1) for at in cuts})
    return [data[start:end] for start, end in pairwise([0, *places, len(data)])]


@given(st.lists(st.binary()), ENDS, st.none() | st.just("gone"))
@example([b"HTTP/1.1 200 OK\r\n\r\n", b"data: " + b"[" * 200_000 + b"\n\n"], "close", None)
@example([b"HTTP/1.1 200 OK\r\n\r\n", b'data: {"a": ' * 5_000 + b"\n\n"], "close", None)
@example([b"", b"", b""], "close", None)
def test_no_bytes_at_all_raise(reads, end, error):
    check(decode(RawAnswer(list(range(len(reads))), reads, end, error)))


@given(st.lists(st.binary() | st.sampled_from([b"\r", b"\n", b"data:", b"event: error", DONE, b"\xef\xbb\xbf"])), ENDS)
def test_no_body_raises(parts, end):
    for framing in FRAMINGS:
        reads = frame(parts, framing)
        check(decode(RawAnswer(list(range(len(reads))), reads, end, None)))


@settings(max_examples=300)
@given(st.lists(OBJECTS, max_size=4), ENDS)
def test_no_json_raises(objects, end):
    reads = [head(), *(b"data: " + json.dumps(value).encode() + b"\n\n" for value in objects), DONE]
    check(decode(RawAnswer(list(range(len(reads))), reads, end, None)))


@given(
    OBJECTS,
    st.sampled_from(["200 OK", "503 Oops", "307 Go"]),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0")),
)
def test_no_refusal_raises(value, status, location):
    place = (
        location.encode("latin-1", "replace").decode("latin-1").replace("\r", "").replace("\n", "").replace("\0", "")
    )
    reads = [head(f"Location: {place}", status=status, kind="application/json"), json.dumps(value).encode()]
    check(decode(RawAnswer([0, 1], reads, "close", None)))


EOL = st.sampled_from(["\n", "\r\n", "\r"])
WORDS = st.text(max_size=8)


@st.composite
def streams(draw):
    """A valid body; the texts of the events that bring some; and where each of these events ends in the body."""
    body, texts, stops = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), [], []
    for words in draw(st.lists(WORDS, min_size=1, max_size=6)):
        payload = {"choices": [draw(st.sampled_from([{"text": words}, {"delta": {"content": words}}]))]}
        written = json.dumps(payload, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        colon = draw(st.sampled_from(["data:", "data: "]))
        lines = [colon + line for line in written.split("\n")]
        lines[draw(st.integers(0, len(lines))) : 0] = [f": {draw(st.sampled_from(['ping', 'é']))}", "id: 7"]
        # A blank line after \r would be one line end with it if it began with \n.
        ends = [draw(EOL) for _ in lines]
        body += "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
        blank = draw(st.sampled_from(["\r", "\r\n"])) if ends[-1] == "\r" else draw(EOL)
        body += blank.encode()
        if words:
            texts.append(words)
            stops.append(len(body))
        if draw(st.booleans()):
            # It may not begin with \n, which a \r before it would take for its own.
            body += (draw(st.sampled_from([": ping", "retry: 1", "event: x"])) + draw(EOL)).encode()
            body += draw(st.sampled_from([b"", b"\r\n"])) if not body.endswith(b"\r") else b""
    return body + b"data: [DONE]\n\n", texts, stops


@settings(max_examples=300)
@given(
    streams(),
    st.sampled_from(FRAMINGS),
    st.lists(st.integers(0, 10_000), max_size=4),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.lists(st.integers(0, 9), min_size=20, max_size=20),
)
def test_texts_times_and_bounds_of_any_stream_in_any_framing_and_any_cut(stream, framing, writes, cuts, gaps):
    body, texts, stops = stream
    written = frame([part for part in pieces(body, writes) if part], framing)
    where = body_places(written, body)
    reads = pieces(b"".join(written), cuts)
    times = list(accumulate(gaps))[: len(reads)]
    decoded = decode(RawAnswer(times, reads, "close", None))
    check(decoded)
    assert (decoded.error is None, decoded.text) == (bool(texts), "".join(texts))
    ends = list(accumulate(map(len, reads)))
    read_of = [next(read for read, end in enumerate(ends) if where[stop - 1] < end) for stop in stops]
    assert decoded.received_ns == tuple(times[read] for read in read_of)
    # Whatever else the framing adds, more of the body in the same read makes an upper bound.
    more = {i for i, (stop, read) in enumerate(zip(stops, read_of, strict=True)) if where[stop] < ends[read]}
    assert more <= set(decoded.upper_bounds)
    if framing != "chunked":
        assert more == set(decoded.upper_bounds)


def body_places(written, body) -> list[int]:
    """Where in the connection each byte of the body is."""
    places, start, at = [], len(written[0]), 0
    for write in written[1:]:
        size = len(write)
        if at < len(body) and write != body[at : at + size]:
            skip = write.index(b"\r\n") + 2
            size = int(write[: skip - 2], 16)
            places += range(start + skip, start + skip + size)
        elif at < len(body):
            places += range(start, start + size)
        at, start = at + size, start + len(write)
    return places


@given(streams(), st.lists(st.integers(0, 10_000), max_size=5))
def test_the_events_of_a_body_do_not_depend_on_what_follows(stream, places):
    body = stream[0]
    whole = list(events(body))
    for at in places:
        start = body[: at % (len(body) + 1)]
        known = [event for event in events(start) if event.whole]
        # Of \r\n a first half is a line end, too: the event is the same, its end comes with the second half.
        assert [without_end(event) for event in known] == [without_end(event) for event in whole[: len(known)]]


def without_end(event):
    return event._replace(end=0)


@given(streams(), ENDS)
def test_a_stream_is_the_same_in_every_framing(stream, end):
    decoded = []
    for framing in FRAMINGS:
        reads = frame([stream[0]], framing)[:2]
        decoded.append(replace(decode(RawAnswer([0, 1], reads, end, None)), upper_bounds=()))
    assert decoded[0] == decoded[1] == decoded[2]
