"""The boards while something is measured: the sampler's process from the side of the process that measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pytest_llmperf.errors import EngineError, GpuError
from pytest_llmperf.gpu.sampling.sampler import BoardSamples, Collect, Peek, Start
from pytest_llmperf.piped import PipedProcess

__all__ = ["BoardWatch", "Watch"]

#: Seconds from one reading to the next.
INTERVAL_S = 0.01
#: A process that does not answer for so many seconds hangs: opening the driver takes a few, all else less than two.
ANSWER_S = 30.0


class Watch(Protocol):
    """Reads the boards in use from one moment to another, again and again. Who made it closes it."""

    async def begin(self) -> None:
        """Begin to read.

        Raises:
            LlmperfError: the boards cannot be read.
        """
        ...

    async def end(self) -> list[BoardSamples]:
        """Stop reading; what was read, board by board.

        Raises:
            LlmperfError: the readings are lost.
        """
        ...


class BoardWatch:
    """Samples boards from a process of its own, as long as it is asked to.

    Of a process that failed, or whose answer was not awaited, nobody knows what it says next: it is ended, and the next
    begin starts another.

    Args:
        uuids: The boards.
        interval_s: Seconds from one reading to the next.
        memory_clock: Whether the memory clock has to be seen to hold.
    """

    def __init__(self, uuids: Sequence[str], interval_s: float = INTERVAL_S, *, memory_clock: bool = False) -> None:
        self._start = Start(tuple(uuids), interval_s, memory_clock)
        self._process: PipedProcess | None = None

    @property
    def uuids(self) -> tuple[str, ...]:
        """The boards, in the order in which their samples come."""
        return self._start.uuids

    @property
    def reads_memory_clock(self) -> bool:
        """Whether it reads the memory clock as often as the SM clock."""
        return self._start.memory_clock

    async def begin(self) -> None:
        """Begin to read; returns when it is known when the boards' counters step. The process stays for the next time.

        Raises:
            EngineError: it ended, or does not answer.
            GpuError: a board does not answer.
        """
        _check(await self._reply(self._start))

    async def end(self) -> list[BoardSamples]:
        """Stop reading; what was read, board by board, until the counters' first step from now on.

        Raises:
            EngineError: the process ended, or does not answer.
        """
        samples: list[BoardSamples] = await self._reply(Collect())
        return samples

    def begin_blocking(self) -> None:
        """The same as :meth:`begin` outside of an event loop."""
        _check(self._wait(self._start))

    def peek_blocking(self) -> list[BoardSamples]:
        """What was read since the beginning, until the counters' first step from now on; reading goes on.

        Raises:
            EngineError: the process ended, or does not answer.
        """
        samples: list[BoardSamples] = self._wait(Peek())
        return samples

    def end_blocking(self) -> list[BoardSamples]:
        """The same as :meth:`end` outside of an event loop."""
        samples: list[BoardSamples] = self._wait(Collect())
        return samples

    async def _reply(self, order: Start | Collect) -> Any:
        try:
            return await self._told(order).reply(ANSWER_S)
        except BaseException:
            self.close()
            raise

    def _wait(self, order: Start | Peek | Collect) -> Any:
        try:
            return self._told(order).wait(ANSWER_S)
        except BaseException:
            self.close()
            raise

    def _told(self, order: Start | Peek | Collect) -> PipedProcess:
        if self._process is None:
            if not isinstance(order, Start):
                raise EngineError("Nobody reads the boards: the sampling process was ended.")
            self._process = PipedProcess("pytest_llmperf.gpu.sampling.sampler")
        self._process.tell(order)
        return self._process

    def close(self) -> None:
        """End the process; it may be closed again."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _check(reply: object) -> None:
    if reply != "started":
        raise GpuError(f"The boards cannot be read: {reply}.", remedy="Check nvidia-smi.")
