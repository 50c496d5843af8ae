"""A stream of events put together: its output, its counts, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_llmperf.engines.openai.decoding.chunks import Chunk, complaint, read_chunk
from pytest_llmperf.engines.openai.decoding.sse import Event, events
from pytest_llmperf.engines.openai.decoding.words import decode_text, parse_json, server_message, tidy

__all__ = ["Stream", "read_stream"]


@dataclass(slots=True)
class Stream:
    """What the events said.

    Attributes:
        texts: The output of each chunk that brought some.
        stops: Of each of those chunks, where its event ends in the body.
        ids: Of each of those chunks, how many token ids it lists.
        totals: Of each of those chunks, the output tokens so far, as it reports them.
        events: How many events with data there were, [DONE] left out.
        input_tokens: As reported last.
        output_tokens: As reported last.
        done: Whether [DONE] came.
        finished: Whether a reason came why the output ended.
        summed_up: Whether a usage came that sums the answer up.
        cut: Whether the body ended within an event.
        error: The first failure that an event tells of.
    """

    texts: list[str] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    totals: list[int | None] = field(default_factory=list)
    events: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    done: bool = False
    finished: bool = False
    summed_up: bool = False
    cut: bool = False
    error: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the events themselves say that nothing more is to come."""
        return self.done or ((self.finished or self.summed_up) and not self.cut)


def read_stream(body: bytes, *, ended: bool) -> Stream:
    """Read a body up to the first failure or [DONE]; what follows these is ignored.

    Args:
        body: What came of it.
        ended: Whether it is known to be all: then a last event without its blank line counts.
    """
    stream = Stream()
    for event in events(body):
        data = event.data.strip()
        if data == b"[DONE]":
            stream.done = True
            break
        if not event.whole and not ended:
            stream.cut = True
            break
        if data or event.kind == b"error":  # empty data is a sign of life
            said = _read_event(event, stream)
            if stream.error is not None or stream.cut:
                break
            _add(stream, read_chunk(said), event.end)
    return stream


def _read_event(event: Event, stream: Stream) -> dict[str, object]:
    """The event's object; a failure that it tells of is noted in the stream."""
    said = parse_json(event.data)
    if event.kind == b"error":
        words = server_message(said) or tidy(decode_text(event.data), 200)
        stream.error = f"error event: {words or 'it gives no reason'}"
    elif isinstance(said, dict):
        stream.error = complaint(said)
        return said
    elif event.whole:
        stream.error = f"an event holds something else than a JSON object: {tidy(decode_text(event.data), 80)}"
    else:
        stream.cut = True
    return {}


def _add(stream: Stream, chunk: Chunk, end: int) -> None:
    counted = chunk.output_tokens is not None
    if chunk.text or chunk.token_ids:
        stream.texts.append(chunk.text)
        stream.stops.append(end)
        stream.ids.append(chunk.token_ids)
        stream.totals.append(chunk.output_tokens)
        # A usage on every chunk does not say which is the last; one that comes late does.
        stream.summed_up = counted and stream.output_tokens is None
    elif counted:
        stream.summed_up = True
    stream.events += 1
    stream.finished |= chunk.finished
    if counted:
        stream.output_tokens = chunk.output_tokens
    if chunk.input_tokens is not None:
        stream.input_tokens = chunk.input_tokens
