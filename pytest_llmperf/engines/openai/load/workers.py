"""The worker processes from the side of the process that measures: shares of the load, and one clock for all.

Every worker gets every n-th request, so that the shares of a load are alike at any moment. ``CLOCK_MONOTONIC`` is one
clock for all processes of a machine: due times and time stamps need no translation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_llmperf.engines.openai.load.worker import (
    Answer,
    Carried,
    Carry,
    Failed,
    Open,
    Prepare,
    Prepared,
    Statistics,
)
from pytest_llmperf.errors import EngineError
from pytest_llmperf.piped import PipedProcess

__all__ = ["Workers"]

#: Time that an order needs to reach every worker.
_LEAD_NS = 20_000_000
#: Connections opened ahead when only the load can tell how many it needs.
_STANDING_BY = 4


class Workers:
    """Processes that carry one load together.

    Args:
        opening: The server.
        count: How many.
    """

    def __init__(self, opening: Open, count: int) -> None:
        self._opening = opening
        self._processes: list[PipedProcess] = []
        self._messages: Mapping[int, bytes] = {}
        self._owner: dict[int, int] = {}
        self._active = count
        self.count = count
        self.statistics: list[Statistics] = []

    async def start(self) -> None:
        """Start all.

        Raises:
            EngineError: one did not start.
        """
        self._processes = [PipedProcess("pytest_llmperf.engines.openai.load.worker") for _ in range(self.count)]
        await self._all([self._opening] * self.count)

    async def prepare(self, messages: Mapping[int, bytes], at_once: int | None) -> int:
        """Hand out requests and open connections; returns how many connections stand by."""
        self._messages = messages
        shares: list[dict[int, bytes]] = [{} for _ in range(self.count)]
        wanted = min(len(messages), at_once or _STANDING_BY)
        self._active = max(1, min(self.count, wanted))
        self._owner = {number: place % self._active for place, number in enumerate(messages)}
        for number, message in messages.items():
            shares[self._owner[number]][number] = message
        orders = [Prepare(share, self._part(wanted, worker)) for worker, share in enumerate(shares)]
        replies: list[Prepared] = await self._all(orders)
        return sum(reply.connections for reply in replies)

    async def carry(
        self,
        numbers: Sequence[int],
        due_ns: Sequence[int] | None,
        lanes: int | None,
        read_timeout_ns: int,
        most_events: int | None = None,
    ) -> list[Answer]:
        """Carry prepared requests; returns their answers in the order of ``numbers``."""
        if lanes is not None and lanes < self._active:
            # A worker without a lane would never send its share.
            await self.prepare(self._messages, lanes)
        start = time.monotonic_ns() + _LEAD_NS
        orders = []
        for worker in range(self._active):
            mine = [place for place, number in enumerate(numbers) if self._owner[number] == worker]
            share = None if lanes is None else self._part(lanes, worker)
            due = None if due_ns is None else tuple(due_ns[place] for place in mine)
            orders.append(Carry(tuple(numbers[p] for p in mine), due, start, share, read_timeout_ns, most_events))
        replies: list[Carried] = await self._all(orders)
        self.statistics += [reply.statistics for reply in replies]
        answers = {answer.number: answer for reply in replies for answer in reply.answers}
        return [answers[number] for number in numbers]

    def _part(self, whole: int, worker: int) -> int:
        """A worker's part of a number of lanes or connections; those that have nothing to send get none."""
        return whole // self._active + (worker < whole % self._active) if worker < self._active else 0

    async def _all(self, orders: Sequence[Any]) -> list[Any]:
        if not self._processes:
            raise EngineError("The load client has ended, because a load was broken off.")
        # The order may be for the first few only.
        asking = [
            asyncio.ensure_future(_ask(process, order)) for process, order in zip(self._processes, orders, strict=False)
        ]
        try:
            return await asyncio.gather(*asking)
        except BaseException:
            # One that failed, or Ctrl-C: the others must not go on sending, and nobody waits for them on closed pipes.
            for one in asking:
                one.cancel()
            try:
                await asyncio.wait(asking)
            finally:
                self.close()
            raise

    def close(self) -> None:
        """End every worker at once; the kernel closes its connections."""
        for process in self._processes:
            process.kill()
        self._processes = []


async def _ask(process: PipedProcess, order: Any) -> Any:
    process.tell(order)
    reply = await process.reply()
    if isinstance(reply, Failed):
        raise EngineError(f"A worker process of the load client failed:\n{reply.reason}")
    return reply
