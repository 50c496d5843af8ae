"""Offering a load: which requests are due when.

A request's latency counts from when it was due. In a batch and in a closed loop that is its submission; in an
open loop it is its scheduled arrival, however late the client or a batching policy hands it over.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Engine, Offer, Request
from pytest_llmperf.runner.plan import Planned
from pytest_llmperf.trace import RepeatTrace, RequestTrace
from pytest_llmperf.workload import Workload

__all__ = ["drive"]

#: Time between planning an open loop and its first arrival, so that the first request is not late.
_LEAD_NS = 50_000_000


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
    requests = [
        Request(f"{repeat_id}/{index}", p.prompt, p.output_len, repeat_id, workload.sampling)
        for index, p in enumerate(planned)
    ]
    await engine.prepare(requests, workload.batch or workload.concurrency or workload.max_batch)
    offering = _Offering(engine, requests, [p.offset_ns for p in planned], round(read_timeout * NS_PER_S))
    offer = {"batch": offering.batches, "closed": offering.closed_loop, "open": offering.open_loop}[workload.loop]
    loop = "gathered" if workload.loop == "open" and workload.policy != "continuous" else workload.loop
    return RepeatTrace(launch, repeat, loop, tuple(await offer(workload)))


class _Offering:
    """The ways to offer the requests of one repeat."""

    def __init__(
        self, engine: Engine, requests: Sequence[Request], offsets_ns: Sequence[int], read_timeout_ns: int
    ) -> None:
        self._engine = engine
        self._requests = tuple(requests)
        self._offsets_ns = offsets_ns
        self._timeout_ns = read_timeout_ns

    async def batches(self, workload: Workload) -> list[RequestTrace]:
        size = workload.batch
        assert size is not None
        traces: list[RequestTrace] = []
        for start in range(0, len(self._requests), size):
            batch = self._requests[start : start + size]
            traces += await self._engine.carry(Offer(batch, read_timeout_ns=self._timeout_ns))
        return traces

    async def closed_loop(self, workload: Workload) -> list[RequestTrace]:
        offer = Offer(self._requests, lanes=workload.concurrency, read_timeout_ns=self._timeout_ns)
        return await self._engine.carry(offer)

    async def open_loop(self, workload: Workload) -> list[RequestTrace]:
        clock = self._engine.clock
        start = clock.now() + _LEAD_NS
        due = [start + offset for offset in self._offsets_ns]
        if workload.policy == "continuous":
            return await self._carry(0, due)
        assert workload.max_batch is not None
        wait_ns = round((workload.max_wait or 0) * NS_PER_S)
        traces: list[RequestTrace] = []
        while (index := len(traces)) < len(due):
            await clock.sleep_until(due[index])
            end = min(index + workload.max_batch, len(due))
            # Static: until the batch is full (or nothing more will come). Dynamic: no longer than max_wait after
            # its first request arrived, or after the previous batch ended if that was later.
            full = due[end - 1]
            if workload.policy == "static":
                await clock.sleep_until(full)
            else:
                await clock.sleep_until(min(full, max(clock.now(), due[index] + wait_ns)))
            now = clock.now()
            traces += await self._carry(index, [when for when in due[index:end] if when <= now])
        return traces

    async def _carry(self, first: int, due_ns: list[int]) -> list[RequestTrace]:
        requests = self._requests[first : first + len(due_ns)]
        return await self._engine.carry(Offer(requests, tuple(due_ns), read_timeout_ns=self._timeout_ns))
