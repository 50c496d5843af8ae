"""What happened: integer nanoseconds of one monotonic clock, nothing derived.

A trace is the evidence from which every latency is computed, so it keeps what was observed and no more: when a
request was due, when it was handed over, when each chunk came and how many tokens it held, and the engine's own
stamps where the engine tells them. It is stored as JSON lines, one repeat a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

__all__ = ["EngineStamps", "RepeatTrace", "RequestTrace", "dump_repeat", "load_repeats"]

#: A latency above this (30 days) is a stamp of another clock, not a latency.
_ABSURD_NS = 30 * 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineStamps:
    """The engine's own view of one request, in nanoseconds of the same monotonic clock.

    Attributes:
        queued_ns: The engine's scheduler took the request in.
        scheduled_ns: Its prefill was first scheduled.
        first_token_ns: Its first output token was there.
        last_token_ns: Its last output token was there.
    """

    queued_ns: int
    scheduled_ns: int
    first_token_ns: int
    last_token_ns: int


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request as the client saw it.

    Attributes:
        due_ns: When it should have been sent: its scheduled arrival in an open loop, its submission otherwise.
        sent_ns: When it was handed to the engine; later than due if the client was late.
        received_ns: When each chunk with at least one output token came, ascending.
        tokens: Output tokens in each of those chunks; as long as ``received_ns``.
        asked_input: Prompt tokens that the workload asked for.
        asked_output: Output tokens that the workload asked for.
        input_tokens: Prompt tokens, as the engine counted them.
        output_tokens: Output tokens: as the server counted them, else the sum of ``tokens``.
        token_source: ``"server"`` or ``"counted"``: where ``output_tokens`` comes from.
        chunk_tokens: ``"told"`` when the engine says how many tokens each chunk holds; ``"apportioned"`` when
            only their sum is known and it was spread over the chunks.
        time_source: Where ``received_ns`` comes from: ``"client"`` (the time at which an engine in this process
            handed a chunk over), ``"kernel"`` (the time at which the kernel received the chunk's last segment),
            ``"user"`` (the earliest time at which the client saw it) or ``"mixed"`` (kernel for some chunks only).
        upper_bounds: Indices into ``received_ns`` of chunks that came together with later ones in one read: they were
            there at that time, and may have been earlier.
        connected_late: Whether its connection had to be opened after it was due.
        engine: The engine's own stamps, where it tells them.
        error: Why the request failed; ``None`` when it completed.
    """

    due_ns: int
    sent_ns: int
    asked_input: int = 0
    asked_output: int = 0
    received_ns: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    token_source: str = "counted"
    chunk_tokens: str = "told"
    time_source: str = "client"
    upper_bounds: tuple[int, ...] = ()
    connected_late: bool = False
    engine: EngineStamps | None = None
    error: str | None = None

    @property
    def completed(self) -> bool:
        """Whether the request ended without an error and brought at least one token."""
        return self.error is None and bool(self.received_ns)

    @property
    def first_ns(self) -> int:
        """When the first output token came; only of a completed request."""
        return self.received_ns[0]

    @property
    def last_ns(self) -> int:
        """When the last output token came; only of a completed request."""
        return self.received_ns[-1]

    def impossible(self) -> str | None:
        """Why these stamps cannot be of one monotonic clock, or ``None`` when they can."""
        stamps = [self.sent_ns, *self.received_ns]
        if self.sent_ns < self.due_ns:
            return f"it was sent {self.due_ns - self.sent_ns} ns before it was due"
        if stamps != sorted(stamps):  # what is in order is sorted in one pass
            return "its time stamps go backwards"
        if stamps[-1] - self.due_ns > _ABSURD_NS:
            return "its time stamps are of two different clocks"
        return None

    def checked(self) -> RequestTrace:
        """Itself, or a failed request when its time stamps cannot be."""
        impossible = self.impossible() if self.error is None else None
        return self if impossible is None else replace(self, error=f"impossible time stamps: {impossible}")


@dataclass(frozen=True)
class RepeatTrace:
    """One run of the whole workload.

    Attributes:
        launch: Which engine start, from 0.
        repeat: Which repeat within the launch, from 0.
        loop: ``"batch"``, ``"closed"``, ``"open"``, or ``"gathered"`` (they arrived as in an open loop, and were sent
            in batches): how the requests were offered.
        requests: In the order in which they were due.
    """

    launch: int
    repeat: int
    loop: str
    requests: tuple[RequestTrace, ...]

    @cached_property
    def completed(self) -> tuple[RequestTrace, ...]:
        """The requests that ended well: the only ones that statistics may see."""
        return tuple(r for r in self.requests if r.completed)

    @cached_property
    def span(self) -> tuple[int, int] | None:
        """From when the first completed request was due to the last token, in ns; ``None`` when none completed."""
        done = self.completed
        return (min(r.due_ns for r in done), max(r.last_ns for r in done)) if done else None


def dump_repeat(repeat: RepeatTrace) -> str:
    """One line of strict JSON, without the line end."""
    requests = [
        {
            "due_ns": r.due_ns,
            "sent_ns": r.sent_ns,
            "asked_input": r.asked_input,
            "asked_output": r.asked_output,
            "received_ns": list(r.received_ns),
            "tokens": list(r.tokens),
            "input_tokens": r.input_tokens,
            "output_tokens": r.output_tokens,
            "token_source": r.token_source,
            "chunk_tokens": r.chunk_tokens,
            "time_source": r.time_source,
            "upper_bounds": list(r.upper_bounds),
            "connected_late": r.connected_late,
            "engine": None if r.engine is None else {name: getattr(r.engine, name) for name in EngineStamps.__slots__},
            "error": r.error,
        }
        for r in repeat.requests
    ]
    record = {"launch": repeat.launch, "repeat": repeat.repeat, "loop": repeat.loop, "requests": requests}
    return json.dumps(record, allow_nan=False, separators=(",", ":"))


def load_repeats(lines: Iterable[str]) -> Iterator[RepeatTrace]:
    """Read what :func:`dump_repeat` wrote, one repeat a line."""
    for line in lines:
        record: Mapping[str, Any] = json.loads(line)
        yield RepeatTrace(
            launch=record["launch"],
            repeat=record["repeat"],
            loop=record["loop"],
            requests=tuple(_request(r) for r in record["requests"]),
        )


def _request(record: Mapping[str, Any]) -> RequestTrace:
    fields = dict(record)
    fields["received_ns"] = tuple(fields["received_ns"])
    fields["tokens"] = tuple(fields["tokens"])
    fields["upper_bounds"] = tuple(fields.get("upper_bounds", ()))
    if fields["engine"] is not None:
        fields["engine"] = EngineStamps(**fields["engine"])
    return RequestTrace(**fields)
