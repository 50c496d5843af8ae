"""The client of a simulated engine: when it submits requests, has their tokens, and gives them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.errors import RequestError
from pytest_llmperf.simulation.board import Host
from pytest_llmperf.simulation.server import NEVER, Served, Server
from pytest_llmperf.trace import EngineStamps, RequestTrace

__all__ = ["Load", "Submissions", "stamps_of"]


class Submissions:
    """One thread that submits requests one after the other.

    Args:
        host: What the computer around the board adds.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._free_ns = 0

    def submit(self, server: Server, served: Served, ready_ns: int) -> int:
        """Submit a request as soon as possible from a time on; when that is, in ns."""
        sent_ns = max(ready_ns, self._free_ns)
        self._free_ns = sent_ns + _ns(self._host.submit_s, served)
        server.submit(served, sent_ns + _ns(self._host.ingest_s, served))
        return sent_ns

    def delivery_ns(self, served: Served) -> int:
        """From the end of a step until the client has its token."""
        return _ns(self._host.deliver_s, served)

    def abandon(self, now_ns: int) -> None:
        """Forget what would have been submitted after now."""
        self._free_ns = min(self._free_ns, now_ns)


def _ns(seconds: float, served: Served) -> int:
    return round(seconds * served.factor * NS_PER_S)


def stamps_of(served: Served, token_ns: list[int]) -> EngineStamps:
    """The engine's own times of a request that has finished."""
    return EngineStamps(
        served.queued_ns, served.scheduled_ns, token_ns[served.spans[0][0]], token_ns[served.spans[-1][1] - 1]
    )


@cache
def _ones(count: int) -> tuple[int, ...]:
    """A token in each of so many chunks; requests of one length share it."""
    return (1,) * count


@dataclass(eq=False, slots=True)
class _Record:
    """A request of an offer: its trace while it is being written."""

    number: int
    request: Request
    due_ns: int = 0
    sent_ns: int = 0
    served: Served | None = None
    delivery_ns: int = 0
    ended_ns: int = 0
    error: str | None = None
    done: bool = False


class Load:
    """One offer, carried out from now on.

    Args:
        offer: What to send and when.
        server: Serves it; nothing else may be under way on it.
        submissions: Submits it.
        admit: Makes of a request what the server takes, or raises :class:`~pytest_llmperf.errors.RequestError`.
        now_ns: The present.
    """

    def __init__(
        self, offer: Offer, server: Server, submissions: Submissions, admit: Callable[[Request], Served], now_ns: int
    ) -> None:
        self._offer = offer
        self._server = server
        self._submissions = submissions
        self._admit = admit
        self._now_ns = now_ns
        self._records = [_Record(number, request) for number, request in enumerate(offer.requests)]
        #: When requests will be given up if nothing comes: looked at again then, because something may have come.
        self._deadlines: list[tuple[int, int]] = []
        self._upcoming: Iterator[_Record] = iter(())
        self._longest_delivery_ns = 0

    def carry(self) -> tuple[list[RequestTrace], int]:
        """What happens to each request, and when the last of it does, in ns.

        Raises:
            EngineError: The engine cannot go on.
        """
        self._begin()
        server = self._server
        deadlines = self._deadlines
        while (when := server.next_ns()) is not None:
            before_ns = when + self._longest_delivery_ns if server.blocked else when
            if deadlines and deadlines[0][0] < before_ns:
                self._give_up(before_ns)
            for served in server.advance(self._horizon()):
                record = served.data
                self._end(record, self._heard_ns(record))
        return self._traces(), max([self._now_ns, *(record.ended_ns for record in self._records)])

    def served(self) -> list[Served]:
        """The requests that the server took."""
        return [record.served for record in self._records if record.served is not None]

    def _begin(self) -> None:
        offer = self._offer
        if offer.due_ns is not None:
            for record, when in zip(self._records, offer.due_ns, strict=True):
                self._start(record, when)
        elif offer.lanes is None:
            for record in self._records:
                self._start(record, self._now_ns)
        else:
            self._upcoming = iter(self._records)
            for _ in range(offer.lanes):
                self._next(self._now_ns)

    def _next(self, now_ns: int) -> None:
        """A lane is free."""
        record = next(self._upcoming, None)
        if record is not None:
            self._start(record, now_ns)

    def _start(self, record: _Record, due_ns: int) -> None:
        record.due_ns = due_ns
        ready_ns = max(due_ns, self._now_ns)
        try:
            served = self._admit(record.request)
        except RequestError as error:
            record.error = str(error)
            record.sent_ns = ready_ns
            self._end(record, ready_ns)
            return
        served.data = record
        record.served = served
        record.sent_ns = self._submissions.submit(self._server, served, ready_ns)
        record.delivery_ns = self._submissions.delivery_ns(served)
        self._longest_delivery_ns = max(self._longest_delivery_ns, record.delivery_ns)
        heappush(self._deadlines, (record.sent_ns + self._offer.read_timeout_ns, record.number))

    def _end(self, record: _Record, at_ns: int) -> None:
        record.done = True
        record.ended_ns = at_ns
        if self._offer.lanes is not None:
            self._next(at_ns)

    def _horizon(self) -> int:
        """Tokens that come out up to then come before any request is given up."""
        return self._deadlines[0][0] - self._longest_delivery_ns if self._deadlines else NEVER

    def _give_up(self, before_ns: int) -> None:
        """End the requests on which nothing has come for the read timeout, where that is over before a time."""
        timeout_ns = self._offer.read_timeout_ns
        while self._deadlines and self._deadlines[0][0] < before_ns:
            _, number = heappop(self._deadlines)
            record = self._records[number]
            if record.done:
                continue
            deadline_ns = self._heard_ns(record) + timeout_ns
            if deadline_ns >= before_ns:
                heappush(self._deadlines, (deadline_ns, number))
                continue
            record.error = f"read timeout: nothing came for {timeout_ns / NS_PER_S:g} s"
            assert record.served is not None
            self._server.withdraw(record.served, deadline_ns)
            self._end(record, deadline_ns)

    def _heard_ns(self, record: _Record) -> int:
        """When its last token came; when it was sent, if none has."""
        spans = record.served.spans if record.served is not None else []
        return self._server.token_ns[spans[-1][1] - 1] + record.delivery_ns if spans else record.sent_ns

    def _received(self, record: _Record) -> list[int]:
        """When its tokens came."""
        if record.served is None:
            return []
        token_ns, delivery_ns = self._server.token_ns, record.delivery_ns
        return [at + delivery_ns for first, end in record.served.spans for at in token_ns[first:end]]

    def _traces(self) -> list[RequestTrace]:
        return [self._trace(record) for record in self._records]

    def _trace(self, record: _Record) -> RequestTrace:
        received = self._received(record)
        complete = record.error is None
        return RequestTrace(
            due_ns=record.due_ns,
            sent_ns=record.sent_ns,
            asked_input=len(record.request.prompt),
            asked_output=record.request.output_len,
            received_ns=tuple(received),
            tokens=_ones(len(received)),
            input_tokens=len(record.request.prompt),
            output_tokens=len(received),
            token_source="server" if complete else "counted",
            engine=stamps_of(record.served, self._server.token_ns) if complete and record.served else None,
            error=record.error,
        ).checked()
