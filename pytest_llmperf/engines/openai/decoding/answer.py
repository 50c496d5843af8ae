"""What a server answered, and when: decoded after the load from the bytes of one connection and their times.

While a load runs, nothing is parsed that need not be: parsing in the client would delay the very stamps that it is
there to take. So a client keeps what each read brought, and all else happens here: HTTP framing, events, tokens.

An event's time is that of the read that brought its last byte. A kernel stamps only the last segment of a read, so
when more follows in the same read, that time is an upper bound, and is marked as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pytest_llmperf.engines.openai.decoding.apportion import apportion, told
from pytest_llmperf.engines.openai.decoding.framing import Message, unframe
from pytest_llmperf.engines.openai.decoding.refusal import refusal
from pytest_llmperf.engines.openai.decoding.stream import Stream, read_stream
from pytest_llmperf.engines.openai.decoding.words import parse_json, server_message

__all__ = ["Decoded", "RawAnswer", "decode"]

#: Ends of a connection that end a body of unknown length as they should.
_ORDERLY = ("complete", "close")
_ENDS = {"complete": "ended", "close": "closed", "reset": "was reset", "timeout": "timed out", "refused": "was refused"}


@dataclass(slots=True)
class RawAnswer:
    """What one request's connection brought.

    Attributes:
        times: Of each read, in nanoseconds of the monotonic clock.
        reads: The bytes, as they came (after TLS).
        end: ``"complete"`` (the HTTP message was complete), ``"close"`` (an orderly end of the connection),
            ``"reset"``, ``"timeout"``, ``"refused"``, or another word for an end that was not orderly.
        error: Why the client gave up; ``None`` when it did not.
    """

    times: list[int]
    reads: list[bytes]
    end: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """One answer. Where it failed, what had come until then is kept.

    Attributes:
        text: All output: text, reasoning, refusals, names and arguments of tool calls.
        received_ns: When each chunk with output came, ascending.
        tokens: Output tokens in each of those chunks; as long as ``received_ns``.
        upper_bounds: Indices into ``received_ns`` of times that are upper bounds only.
        chunk_tokens: ``"told"`` when the server tells how many tokens each chunk holds, else ``"apportioned"``.
        input_tokens: Prompt tokens as the server counted them, or ``None``.
        output_tokens: Output tokens: the sum of ``tokens``.
        token_source: ``"server"`` or ``"counted"``: where ``output_tokens`` comes from.
        error: The first reason why the answer is not complete and good; ``None`` when it is.
    """

    text: str
    received_ns: tuple[int, ...]
    tokens: tuple[int, ...]
    upper_bounds: tuple[int, ...]
    chunk_tokens: str
    input_tokens: int | None
    output_tokens: int
    token_source: str
    error: str | None


def decode(raw: RawAnswer, *, count_tokens: Callable[[str], int] | None = None) -> Decoded:
    """Decode one answer; never raises, whatever the bytes are.

    Args:
        raw: What the connection brought.
        count_tokens: Counts the tokens of a text; asked once, and only where the server does not tell.
    """
    message = unframe(raw.reads)
    error = _headless(raw, message) if message.status is None else refusal(message)
    if error is not None:
        return Decoded("", (), (), (), "apportioned", None, 0, "counted", error)
    ended = message.complete or (not message.framed and raw.error is None and raw.end in _ORDERLY)
    stream = read_stream(message.body, ended=ended)
    error = stream.error or _shortfall(stream, raw, message, ended)
    text = _join(stream.texts)
    received, bounds = _stamps(stream.stops, message, raw.times)
    kept, tokens, chunk_tokens = _tokens(stream, text, count_tokens)
    return Decoded(
        text=text,
        received_ns=tuple(received[index] for index in kept),
        tokens=tokens,
        upper_bounds=tuple(new for new, old in enumerate(kept) if old in bounds),
        chunk_tokens=chunk_tokens,
        input_tokens=stream.input_tokens,
        output_tokens=sum(tokens),
        token_source="server" if tokens and stream.output_tokens else "counted",
        error=error,
    )


def _headless(raw: RawAnswer, message: Message) -> str:
    """Why there is not even a response's head."""
    where = "in the middle of the answer's head" if any(raw.reads) else "before any answer came"
    return raw.error or message.broken or f"the connection {_ENDS.get(raw.end, 'broke')} {where}"


def _shortfall(stream: Stream, raw: RawAnswer, message: Message, ended: bool) -> str | None:
    """What a stream without a failure of its own lacks, or ``None`` when it is complete and brought output."""
    if stream.done or (ended and stream.complete):
        return None if stream.stops else "the stream ended without any output token"
    if raw.error is not None:
        return raw.error
    after = f"after {stream.events} event{'' if stream.events == 1 else 's'}"
    if not message.complete:
        what = message.broken or f"the connection {_ENDS.get(raw.end, 'broke')} before the answer's end"
        return f"{what}, {after}"
    if stream.cut:
        return f"the answer ended within an event, {after}"
    said = None if stream.events else server_message(parse_json(message.body))
    return f"answered without an event: {said}" if said else f"cut short: no [DONE], finish_reason or usage, {after}"


def _join(texts: Sequence[str]) -> str:
    text = "".join(texts)
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON may escape the two halves of a character in two events: surrogates, which only together are one.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _stamps(stops: Sequence[int], message: Message, times: Sequence[int]) -> tuple[list[int], set[int]]:
    """When each event came, and the indices of those events that were not the last thing in their read."""
    # Bytes are handed on in order: a segment that overtook an earlier one waited for it.
    available = list(accumulate(times, max))
    received: list[int] = []
    bounds: set[int] = set()
    read = 0
    for index, stop in enumerate(stops):
        while message.ends[read] < stop:
            read += 1
        received.append(available[read])
        if stop < message.ends[read] or message.trailed[read]:
            bounds.add(index)
    return received, bounds


def _tokens(
    stream: Stream, text: str, count_tokens: Callable[[str], int] | None
) -> tuple[Sequence[int], tuple[int, ...], str]:
    """Which chunks are kept, the tokens in each of these, and whether the server told these."""
    chunks = len(stream.stops)
    if not chunks:
        return (), (), "apportioned"
    reported = stream.output_tokens or None  # no token at all, though output came, is no count
    tokens = told(stream.ids, stream.totals, reported)
    if tokens is not None:
        return range(chunks), tokens, "told"
    total = reported or (count_tokens(text) if count_tokens and text else 0)
    return *apportion(total if total > 0 else chunks, chunks), "apportioned"
