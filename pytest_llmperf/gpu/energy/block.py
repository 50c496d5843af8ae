"""Energy and power of a block of code: ``with PowerWindow(watch) as p: work()``.

Any number of windows, one in the other or in several threads, share one sampling process: it reads from the beginning
of the first to the end of the last, and every window is cut from what it read.

A window that cannot be measured is no error of the code in it. Then there is no energy, and a reason.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pytest_llmperf.errors import LlmperfError, OptionError
from pytest_llmperf.gpu import Board
from pytest_llmperf.gpu.energy import DISAGREEMENT, Joules, NoEnergy, plausible
from pytest_llmperf.gpu.energy.exact_window import across
from pytest_llmperf.gpu.energy.power_curve import integrated
from pytest_llmperf.gpu.sampling.sampler import BoardSamples
from pytest_llmperf.gpu.sampling.watch import BoardWatch

__all__ = ["BoardPower", "PowerWindow", "SharedWatch"]

T = TypeVar("T")

_NS = 1_000_000_000
_NOT_ENDED = "the block has not ended yet"
_NO_BOARD = "there is no GPU, or its driver does not answer (check nvidia-smi and CUDA_VISIBLE_DEVICES)"
_SIMULATED = "the boards are simulated: a block of code takes no time on them"


class SharedWatch:
    """The boards, sampled while at least one window is open.

    Args:
        boards: Gives the boards in use; asked once, when the first window opens.
    """

    def __init__(self, boards: Callable[[], Sequence[Board]]) -> None:
        self._ask = boards
        self._boards: tuple[Board, ...] | None = None
        self._lock = threading.Lock()
        self._watch: BoardWatch | None = None
        self._open = 0

    def boards(self) -> tuple[Board, ...]:
        """Each once, though several of its MIG instances may be in use.

        Raises:
            GpuError: a board is there and does not answer.
        """
        if self._boards is None:
            self._boards = tuple({board.uuid: board for board in self._ask()}.values())
        return self._boards

    def enter(self) -> bool:
        """Have the boards read from now on; ``False`` where there are none.

        Raises:
            EngineError: the sampling process ended.
            GpuError: a board does not answer.
        """
        with self._lock:
            if not self.boards():
                return False
            if self._open == 0:
                self._watch = self._watch or BoardWatch([board.uuid for board in self.boards()])
                self._or_close(self._watch.begin_blocking)
            self._open += 1
            return True

    def leave(self) -> list[BoardSamples]:
        """What was read so far; the last one to leave ends the reading.

        Raises:
            EngineError: the sampling process ended.
        """
        with self._lock:
            self._open -= 1
            if self._watch is None:
                return []
            return self._or_close(self._watch.peek_blocking if self._open else self._watch.end_blocking)

    def close(self) -> None:
        """End the sampling process; it may be closed again."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _or_close(self, act: Callable[[], T]) -> T:
        """Nobody knows what a process whose answer was not awaited says next, so it is ended."""
        try:
            return act()
        except BaseException:
            self.close()
            raise


@dataclass(frozen=True)
class BoardPower:
    """What one board used in a window.

    Attributes:
        energy_j: Joules; ``None`` where they are not known.
        error_j: Their standard uncertainty; the gain of the board's sensor, about 5 %, is no part of it.
        power_w: Mean power, watts.
        source: ``"counter"`` or ``"integral"`` (of power readings, where there is no usable counter).
        reason: Why ``energy_j`` is ``None``.
        integral_j: Joules by the power readings, to be held beside those of the counter.
        samples: What was read, from before the window until after it.
        warnings: What a reader should know, in sentences.
    """

    energy_j: float | None = None
    error_j: float | None = None
    power_w: float | None = None
    source: str | None = None
    reason: str | None = None
    integral_j: float | None = None
    samples: BoardSamples | None = None
    warnings: tuple[str, ...] = ()


class PowerWindow:
    """Measures the one block that it is the context of; ``async with`` does not hold up the event loop.

    Args:
        watch: Reads the boards.

    Attributes:
        boards: What each board used, by its UUID; empty before the end of the block and without boards.
        seconds: Length of the block; ``None`` before its end.
        warnings: What a reader should know, in sentences.
    """

    def __init__(self, watch: SharedWatch) -> None:
        self._watch = watch
        self._entered = threading.Lock()
        self._reading = False
        self._start_ns = 0
        self.boards: Mapping[str, BoardPower] = {}
        self.seconds: float | None = None
        self.warnings: tuple[str, ...] = ()
        self._reason: str | None = _NOT_ENDED

    @property
    def energy_j(self) -> float | None:
        """Joules of all boards together; ``None`` where one is not known: :attr:`reason` says why."""
        return None if self._reason is not None else sum(board.energy_j or 0.0 for board in self.boards.values())

    @property
    def error_j(self) -> float | None:
        """Standard uncertainty of the joules; the gain of the boards' sensors, about 5 % each, is no part of it."""
        return None if self._reason is not None else math.hypot(*(b.error_j or 0.0 for b in self.boards.values()))

    @property
    def power_w(self) -> float | None:
        """Mean power of all boards together, watts."""
        energy = self.energy_j
        return None if energy is None or not self.seconds else energy / self.seconds

    @property
    def source(self) -> str | None:
        """``"counter"``, ``"integral"``, or ``"mixed"`` where boards differ."""
        if self._reason is not None:
            return None
        sources = {board.source for board in self.boards.values()}
        return sources.pop() if len(sources) == 1 else "mixed"

    @property
    def reason(self) -> str | None:
        """Why there is no energy; ``None`` where there is."""
        return self._reason

    @property
    def samples(self) -> tuple[BoardSamples, ...]:
        """What was read of the boards, from before the block until after it."""
        return tuple(board.samples for board in self.boards.values() if board.samples is not None)

    def __enter__(self) -> PowerWindow:
        self._enter()
        self._begin()
        self._start_ns = time.monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(time.monotonic_ns())

    async def __aenter__(self) -> PowerWindow:
        self._enter()
        await asyncio.to_thread(self._begin)
        self._start_ns = time.monotonic_ns()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end, time.monotonic_ns())

    def _enter(self) -> None:
        """Once and for all: a second block would pass its joules off as those of the first."""
        if not self._entered.acquire(blocking=False):
            raise OptionError(
                "A power window was entered twice, and measures one block.", remedy="Ask power_sampler() for another."
            )

    def _begin(self) -> None:
        try:
            if any(board.simulated for board in self._watch.boards()):
                self._reason = _SIMULATED
                return
            self._reading = self._watch.enter()
            if not self._reading:
                self._reason = _NO_BOARD
        except LlmperfError as error:
            self._reason = str(error)

    def _end(self, end_ns: int) -> None:
        self.seconds = (end_ns - self._start_ns) / _NS
        if not self._reading:
            return
        self._reading = False
        try:
            samples = self._watch.leave()
        except LlmperfError as error:
            self._reason = str(error)
            return
        boards = {board.uuid: board for board in self._watch.boards()}
        self.boards = {one.uuid: _measured(one, boards[one.uuid], self._start_ns, end_ns) for one in samples}
        self.warnings = tuple(warning for board in self.boards.values() for warning in board.warnings)
        self._reason = None if samples else "the sampling process ended before the block did"
        for uuid, board in self.boards.items():
            if board.energy_j is None and self._reason is None:
                self._reason = board.reason if len(self.boards) == 1 else f"GPU {boards[uuid].index}: {board.reason}"


def _measured(samples: BoardSamples, board: Board, start_ns: int, end_ns: int) -> BoardPower:
    limit_w = samples.power_limit_w
    found = across(samples.counter(), samples.power(), start_ns, end_ns, limit_w=limit_w)
    integral = plausible(integrated(samples.power(), start_ns, end_ns), limit_w)
    integral_j = integral.value if isinstance(integral, Joules) else None
    if isinstance(found, NoEnergy):
        refused = [samples.refused[name] for name in ("energy", "power") if name in samples.refused]
        reason = (
            found.reason if samples.counter_j else "; ".join([*refused, *([] if len(refused) == 2 else [found.reason])])
        )
        return BoardPower(reason=reason, integral_j=integral_j, samples=samples)
    warnings = [f"GPU {board.index}: {note}" for note in found.notes]
    if found.source == "counter" and isinstance(integral, Joules):
        off = integral.value - found.value
        if abs(off) > DISAGREEMENT * found.value and abs(off) > 2 * math.hypot(found.error, integral.error):
            warnings.append(
                f"GPU {board.index}: the energy counter and the power readings disagree by {off / found.value:+.1%}: "
                f"{found.watts:.1f} W by the counter, {integral.watts:.1f} W by the readings."
            )
    if board.mig is not None:
        warnings.append(f"GPU {board.index}: the sensors are those of the whole board, not of the MIG instance in use.")
    return BoardPower(found.value, found.error, found.watts, found.source, None, integral_j, samples, tuple(warnings))
