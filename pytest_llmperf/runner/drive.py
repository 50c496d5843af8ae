"""Offering a load: who is sent when, and the trace of what came back.

A request's latency counts from when it was due. In a batch and in a closed loop that is its submission; in an
open loop it is its scheduled arrival, however late the client or a batching policy hands it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_llmperf.clock import NS_PER_S, Clock
from pytest_llmperf.engines import Engine, Request
from pytest_llmperf.errors import RequestError
from pytest_llmperf.runner.plan import Planned
from pytest_llmperf.trace import EngineStamps, RepeatTrace, RequestTrace
from pytest_llmperf.workload import Workload

__all__ = ["drive"]

#: Time between planning an open loop and its first arrival, so that the first request is not late.
_LEAD_NS = 10_000_000


async def drive(
    engine: Engine, workload: Workload, planned: Sequence[Planned], *, launch: int, repeat: int, repeat_id: str,
    read_timeout: float,
) -> RepeatTrace:  # fmt: skip
    """Carry out one repeat.

    Args:
        engine: An open engine.
        workload: How the requests are offered.
        planned: The requests, in the order in which they are due.
        launch: For the trace.
        repeat: For the trace.
        repeat_id: Makes request ids unique within the engine's life.
        read_timeout: Seconds without anything new on an open request, after which it counts as failed.

    Raises:
        EngineError: the engine died; nothing of the repeat is kept.
    """
    sender = _Sender(engine, repeat_id, planned, workload.sampling, read_timeout)
    watch = asyncio.ensure_future(sender.watch())
    offer = {"batch": _batches, "closed": _closed_loop, "open": _open_loop}[workload.loop]
    offering = asyncio.ensure_future(offer(sender, workload))
    try:
        # An engine that dies is noticed at once, not when the next request is due.
        either: set[asyncio.Future[Any]] = {offering, sender.died}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if sender.died.done():
            raise sender.died.result()
        offering.result()
    finally:
        watch.cancel()
        offering.cancel()
        await asyncio.gather(offering, return_exceptions=True)
        await sender.cancel_all()
    return RepeatTrace(launch, repeat, workload.loop, tuple(sender.traces()))


async def _batches(sender: _Sender, workload: Workload) -> None:
    assert workload.batch is not None
    for start in range(0, len(sender.planned), workload.batch):
        due = sender.clock.now()
        await asyncio.gather(*[sender.start(i, due) for i in range(start, start + workload.batch)])


async def _closed_loop(sender: _Sender, workload: Workload) -> None:
    assert workload.concurrency is not None
    upcoming = iter(range(len(sender.planned)))

    async def lane() -> None:
        for index in upcoming:
            await sender.start(index, sender.clock.now())

    await asyncio.gather(*[lane() for _ in range(workload.concurrency)])


async def _open_loop(sender: _Sender, workload: Workload) -> None:
    start = sender.clock.now() + _LEAD_NS
    due = [start + p.offset_ns for p in sender.planned]
    if workload.policy == "continuous":
        tasks = []
        for index, when in enumerate(due):
            await sender.clock.sleep_until(when)
            tasks.append(sender.start(index, when))
        await asyncio.gather(*tasks)
        return
    assert workload.max_batch is not None
    wait_ns = round((workload.max_wait or 0) * NS_PER_S)
    index = 0
    while index < len(due):
        await sender.clock.sleep_until(due[index])
        end = index + workload.max_batch
        # Static: until the batch is full (or nothing more will come). Dynamic: no longer than max_wait after
        # its first request arrived, or after the previous batch ended if that was later.
        full = due[min(end, len(due)) - 1]
        if workload.policy == "static":
            await sender.clock.sleep_until(full)
        else:
            await sender.clock.sleep_until(min(full, max(sender.clock.now(), due[index] + wait_ns)))
        arrived = [i for i in range(index, min(end, len(due))) if due[i] <= sender.clock.now()]
        await asyncio.gather(*[sender.start(i, due[i]) for i in arrived])
        index += len(arrived)


class _Sender:
    """The requests of one repeat: planned, in flight, and what has come back."""

    def __init__(
        self,
        engine: Engine,
        repeat_id: str,
        planned: Sequence[Planned],
        sampling: Mapping[str, Any],
        read_timeout: float,
    ) -> None:
        self.planned = planned
        self._sampling = sampling
        self.clock: Clock = engine.clock
        self._engine = engine
        self._repeat_id = repeat_id
        self._timeout_ns = round(read_timeout * NS_PER_S)
        self._records = [_Record(p) for p in planned]
        self._tasks: dict[asyncio.Task[None], _Record] = {}
        #: Done with the error that ended a request's task: the engine died.
        self.died: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def start(self, index: int, due_ns: int) -> asyncio.Task[None]:
        record = self._records[index]
        record.due_ns = due_ns
        record.last_news_ns = self.clock.now()
        task = asyncio.ensure_future(self._send(index, record))
        self._tasks[task] = record
        task.add_done_callback(self._note_death)
        return task

    def _note_death(self, task: asyncio.Task[None]) -> None:
        """A failed request is no exception of its task; what is one ends the repeat."""
        if not task.cancelled() and (error := task.exception()) is not None and not self.died.done():
            self.died.set_result(error)

    async def _send(self, index: int, record: _Record) -> None:
        planned = self.planned[index]
        request = Request(
            f"{self._repeat_id}/{index}", planned.prompt, planned.output_len, self._repeat_id, self._sampling
        )
        record.sent_ns = self.clock.now()
        try:
            async for chunk in self._engine.generate(request):
                record.last_news_ns = chunk.received_ns
                if chunk.tokens:
                    record.received_ns.append(chunk.received_ns)
                    record.tokens.append(chunk.tokens)
                if chunk.input_tokens is not None:
                    record.input_tokens = chunk.input_tokens
                if chunk.output_tokens is not None:
                    record.output_tokens = chunk.output_tokens
                record.stamps = chunk.stamps or record.stamps
        except RequestError as error:
            record.error = str(error)
        except asyncio.CancelledError:
            if not record.stalled:
                raise
            record.error = f"read timeout: nothing came for {self._timeout_ns / NS_PER_S:g} s"

    async def watch(self) -> None:
        """Cancel requests on which nothing new has come for the read timeout."""
        while True:
            await self.clock.sleep_until(self.clock.now() + max(1, self._timeout_ns // 4))
            for task, record in self._tasks.items():
                if not task.done() and self.clock.now() - record.last_news_ns > self._timeout_ns:
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
        "due_ns", "error", "input_tokens", "last_news_ns", "output_tokens", "planned", "received_ns", "sent_ns",
        "stalled", "stamps", "tokens",
    )  # fmt: skip

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.due_ns = self.sent_ns = self.last_news_ns = 0
        self.received_ns: list[int] = []
        self.tokens: list[int] = []
        self.input_tokens = len(planned.prompt)
        self.output_tokens: int | None = None
        self.stamps: EngineStamps | None = None
        self.error: str | None = None
        self.stalled = False

    def trace(self) -> RequestTrace:
        counted = sum(self.tokens)
        error = self.error
        if error is None and not counted:
            error = "the stream ended without any output token"
        trace = RequestTrace(
            due_ns=self.due_ns,
            sent_ns=self.sent_ns,
            asked_input=len(self.planned.prompt),
            asked_output=self.planned.output_len,
            received_ns=tuple(self.received_ns),
            tokens=tuple(self.tokens),
            input_tokens=self.input_tokens,
            output_tokens=counted if self.output_tokens is None else self.output_tokens,
            token_source="counted" if self.output_tokens is None else "server",
            engine=self.stamps,
            error=error,
        )
        impossible = trace.impossible() if error is None else None
        return trace if impossible is None else replace(trace, error=f"impossible time stamps: {impossible}")
