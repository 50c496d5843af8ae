"""The boards while something is measured: the sampler's process from the side of the process that measures."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu.sampler import BoardSamples, Collect, Start
from pytest_llmperf.piped import PipedProcess

__all__ = ["BoardWatch"]

#: Seconds from one reading to the next.
INTERVAL_S = 0.01


class BoardWatch:
    """Samples boards from a process of its own, as long as it is asked to.

    Args:
        uuids: The boards.
        interval_s: Seconds from one reading to the next.
    """

    def __init__(self, uuids: Sequence[str], interval_s: float = INTERVAL_S) -> None:
        self._start = Start(tuple(uuids), interval_s)
        self._process: PipedProcess | None = None

    @property
    def uuids(self) -> tuple[str, ...]:
        """The boards, in the order in which their samples come."""
        return self._start.uuids

    async def begin(self) -> None:
        """Begin to read; the process stays for the next time.

        Raises:
            EngineError: it ended.
            GpuError: a board does not answer.
        """
        if self._process is None:
            self._process = PipedProcess("pytest_llmperf.gpu.sampler")
        self._process.tell(self._start)
        reply = await self._process.reply()
        if reply != "started":
            raise GpuError(f"The boards cannot be read: {reply}.", remedy="Check nvidia-smi.")

    async def end(self) -> list[BoardSamples]:
        """Stop reading; what was read, board by board.

        Raises:
            EngineError: the process ended.
        """
        assert self._process is not None
        self._process.tell(Collect())
        samples: list[BoardSamples] = await self._process.reply()
        return samples

    def close(self) -> None:
        """End the process; it may be closed again."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
