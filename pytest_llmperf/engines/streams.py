"""Engines that hand their answers to this process chunk by chunk: an offer becomes one task a request."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pytest_llmperf.clock import NS_PER_S, Clock
from pytest_llmperf.engines import Chunk, Offer, Request
from pytest_llmperf.engines.account import Account
from pytest_llmperf.errors import RequestError
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.trace import EngineStamps, RequestTrace

__all__ = ["StreamingEngine"]


class StreamingEngine(ABC):
    """Carries offers for an engine that can ``generate``."""

    clock: Clock

    @abstractmethod
    def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """Carry a request out and yield chunks as they come.

        Raises:
            RequestError: this request failed.
            EngineError: the engine died.
        """

    async def prepare(self, requests: Sequence[Request], at_once: int | None) -> None:  # noqa: B027  # a default
        """Nothing: a request is handed over as it is."""

    async def open_account(self) -> None:  # noqa: B027  # a default
        """Nothing: the engine's stamps come with each request."""

    async def close_account(self) -> Account:
        """No books of its own."""
        return Account()

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Nothing: a chunk tells how many tokens it holds and not which."""
        del prompts, length
        return Unavailable("this engine does not tell its tokens")

    async def carry(self, offer: Offer) -> list[RequestTrace]:
        """Carry an offer out on the running event loop, which is the clock's."""
        load = _Load(self, offer)
        watch = asyncio.ensure_future(load.watch())
        offering = asyncio.ensure_future(load.offer())
        try:
            # An engine that dies is noticed at once, not when the next request is due.
            either: set[asyncio.Future[Any]] = {offering, load.died}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if load.died.done():
                raise load.died.result()
            offering.result()
        finally:
            watch.cancel()
            offering.cancel()
            await asyncio.gather(offering, return_exceptions=True)
            await load.cancel_all()
        return load.traces()


class _Load:
    """The requests of one offer: to come, in flight, and what has come back."""

    def __init__(self, engine: StreamingEngine, offer: Offer) -> None:
        self._engine = engine
        self._offer = offer
        self._clock = engine.clock
        self._records = [_Record(request) for request in offer.requests]
        self._tasks: dict[asyncio.Task[None], _Record] = {}
        #: Done with the error that ended a request's task: the engine died.
        self.died: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def offer(self) -> None:
        if self._offer.due_ns is not None:
            await self._as_due(self._offer.due_ns)
        elif self._offer.lanes is None:
            now = self._clock.now()
            await asyncio.gather(*[self._start(record, now) for record in self._records])
        else:
            upcoming = iter(self._records)
            await asyncio.gather(*[self._lane(upcoming) for _ in range(self._offer.lanes)])

    async def _as_due(self, due_ns: Sequence[int]) -> None:
        tasks = []
        for record, when in zip(self._records, due_ns, strict=True):
            await self._clock.sleep_until(when)
            tasks.append(self._start(record, when))
        await asyncio.gather(*tasks)

    async def _lane(self, upcoming: Any) -> None:
        for record in upcoming:
            await self._start(record, self._clock.now())

    def _start(self, record: _Record, due_ns: int) -> asyncio.Task[None]:
        record.due_ns = due_ns
        record.last_news_ns = self._clock.now()
        task = asyncio.ensure_future(self._send(record))
        self._tasks[task] = record
        task.add_done_callback(self._note_death)
        return task

    def _note_death(self, task: asyncio.Task[None]) -> None:
        """A failed request is no exception of its task; what is one ends the offer."""
        if not task.cancelled() and (error := task.exception()) is not None and not self.died.done():
            self.died.set_result(error)

    async def _send(self, record: _Record) -> None:
        record.sent_ns = self._clock.now()
        try:
            async for chunk in self._engine.generate(record.request):
                record.take(chunk)
        except RequestError as error:
            record.error = str(error)
        except asyncio.CancelledError:
            if not record.stalled:
                raise
            record.error = f"read timeout: nothing came for {self._offer.read_timeout_ns / NS_PER_S:g} s"

    async def watch(self) -> None:
        """Cancel requests on which nothing new has come for the read timeout."""
        timeout_ns = self._offer.read_timeout_ns
        while True:
            await self._clock.sleep_until(self._clock.now() + max(1, timeout_ns // 4))
            for task, record in self._tasks.items():
                if not task.done() and self._clock.now() - record.last_news_ns > timeout_ns:
                    record.stalled = True
                    task.cancel()

    async def cancel_all(self) -> None:
        pending = [task for task in self._tasks if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def traces(self) -> list[RequestTrace]:
        return [record.trace() for record in self._records]


class _Record:
    """A request trace while it is being written."""

    __slots__ = (
        "due_ns", "error", "input_tokens", "last_news_ns", "output_tokens", "received_ns", "request", "sent_ns",
        "stalled", "stamps", "tokens",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.due_ns = self.sent_ns = self.last_news_ns = 0
        self.received_ns: list[int] = []
        self.tokens: list[int] = []
        self.input_tokens = len(request.prompt)
        self.output_tokens: int | None = None
        self.stamps: EngineStamps | None = None
        self.error: str | None = None
        self.stalled = False

    def take(self, chunk: Chunk) -> None:
        self.last_news_ns = chunk.received_ns
        if chunk.tokens:
            self.received_ns.append(chunk.received_ns)
            self.tokens.append(chunk.tokens)
        if chunk.input_tokens is not None:
            self.input_tokens = chunk.input_tokens
        if chunk.output_tokens is not None:
            self.output_tokens = chunk.output_tokens
        self.stamps = chunk.stamps or self.stamps

    def trace(self) -> RequestTrace:
        counted = sum(self.tokens)
        error = self.error
        if error is None and not counted:
            error = "the stream ended without any output token"
        return RequestTrace(
            due_ns=self.due_ns,
            sent_ns=self.sent_ns,
            asked_input=len(self.request.prompt),
            asked_output=self.request.output_len,
            received_ns=tuple(self.received_ns),
            tokens=tuple(self.tokens),
            input_tokens=self.input_tokens,
            output_tokens=counted if self.output_tokens is None else self.output_tokens,
            token_source="counted" if self.output_tokens is None else "server",
            engine=self.stamps,
            error=error,
        ).checked()
