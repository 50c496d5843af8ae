"""What is held to the boards of an engine while it is measured: a watch, guards, the sensors' calibration."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.engines.spec import EngineChoice
from pytest_llmperf.errors import LlmperfError, OptionError
from pytest_llmperf.gpu import Board, Device, Reading, Unreadable
from pytest_llmperf.gpu.energy.idle import Floor, IdlePower
from pytest_llmperf.gpu.guards import Findings, Guards
from pytest_llmperf.gpu.sampling.sampler import BoardSamples
from pytest_llmperf.gpu.sampling.watch import BoardWatch, Watch
from pytest_llmperf.gpu.simulated import SimulatedWatch
from pytest_llmperf.local_processes import descendants, server_processes
from pytest_llmperf.plugin.calibration import Calibration
from pytest_llmperf.runner import Launch, joined, judged, with_readings

if TYPE_CHECKING:
    from pytest_llmperf.plugin.boards import SessionBoards
    from pytest_llmperf.plugin.recorder import Recorder

__all__ = ["Instruments", "own_processes"]

#: Measures a launch: given who reads the boards, if anybody, and how many seconds its repeats have to fill.
Measure = Callable[[Watch | None, float], Launch]


class Instruments:
    """Those of a session.

    Args:
        held: The session's boards, and the clock that they are held at.
        choice: The engine that runs on them.
        recorder: Keeps what the calibration finds.
        show: Is told what is under way.
    """

    def __init__(
        self, held: SessionBoards, choice: EngineChoice, recorder: Recorder, show: Callable[[str], None]
    ) -> None:
        self._held = held
        self._choice = choice
        self._recorder = recorder
        self._watch: BoardWatch | SimulatedWatch | None = None
        self._guards: dict[tuple[str, ...], Guards] = {}
        self._calibration = Calibration(
            held, choice, lambda: self._watch_of(held.boards()), show, lambda found: recorder.note(sensor=found)
        )

    def prepare(self) -> None:
        """Look at the boards while nothing of ours runs on them and their clock is free; once."""
        self._calibration.prepare()

    def measured(self, running: RunningEngine, measure: Measure) -> Launch:
        """Measure a launch with the boards of its engine watched and guarded.

        Args:
            running: The engine.
            measure: Measures it.

        Returns:
            The launch with what its boards said, what became of their clock, and what makes it doubtful.

        Raises:
            OptionError: a clock was asked for, and the engine does not run on boards that it can be held on.
        """
        boards = self._boards_of(running)
        if not boards:
            if self._held.clock is not None:
                raise OptionError(
                    f"A GPU clock was asked for, and the engine runs on {running.info.device}.",
                    remedy="Leave --gpu-clock, --gpu-memory-clock and the gpu_clock parameter out, or measure the GPUs "
                    "of this machine.",
                )
            return measure(None, 0.0)
        self._calibration.climb(running)
        guards, watch = self._guards_of(boards), _Tolerant(self._watch_of(boards))
        guards.begin()
        launch = measure(watch, self._fill_s(boards))
        found = guards.end(launch.samples)
        doubts = [] if watch.failure is None else [f"The boards could not be read: {watch.failure}"]
        launch = with_readings(launch, self._idle_w(running, boards), watch.failure)
        warnings = (*launch.warnings, *found.warnings, *doubts)
        return judged(
            replace(launch, invalid=joined(launch.invalid, found.invalid), warnings=warnings), self._held.clock
        )

    @property
    def calibration(self) -> Calibration:
        """What is found out about the boards before anything is measured on them."""
        return self._calibration

    def floor(
        self, running: RunningEngine, alone: tuple[Reading[IdlePower], Reading[IdlePower]]
    ) -> tuple[Floor, Findings]:
        """What the boards of an engine draw when idle, and what makes that doubtful.

        Args:
            running: The engine; nothing is asked of it.
            alone: What they drew without it in this launch: bare, and with a CUDA context.
        """
        boards = self._boards_of(running)
        guards = self._guards_of(boards)
        guards.begin()
        loaded, locked = self._calibration.standing(running)
        found = guards.end()
        return Floor(tuple(board.uuid for board in boards), *alone, loaded, locked), found

    def close(self) -> None:
        """Give everything back; it may be closed again."""
        self._close_watch()
        for guards in self._guards.values():
            guards.close()
        self._guards.clear()

    def _boards_of(self, running: RunningEngine) -> list[Board]:
        """An engine's own boards: of a local one the first it was told to use, of a local server all that are visible.

        Empty where they are not this machine's.
        """
        info, boards = running.info, list(self._held.boards())
        if info.device not in {board.name for board in boards}:
            return []
        return boards if running.spec.choice.platform == "url" else boards[: info.device_count]

    def _watch_of(self, boards: Sequence[Board]) -> Watch:
        uuids = tuple(board.uuid for board in boards)
        memory = self._held.clock is not None and self._held.clock.memory is not None
        before = self._watch
        if (
            before is not None
            and before.uuids == uuids
            and (isinstance(before, SimulatedWatch) or before.reads_memory_clock == memory)
        ):
            return before
        self._close_watch()
        if self._held.simulated is not None:
            devices = self._held.simulated.devices
            self._watch = SimulatedWatch([device for device in devices if device.board.uuid in uuids])
        else:
            self._watch = BoardWatch(uuids, memory_clock=memory)
        return self._watch

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _guards_of(self, boards: Sequence[Board]) -> Guards:
        uuids = tuple(board.uuid for board in boards)
        if uuids not in self._guards:
            self._guards[uuids] = Guards(self._devices(uuids), self._own_processes)
        return self._guards[uuids]

    def _own_processes(self) -> set[int]:
        return own_processes(self._choice, in_worker=bool(self._recorder.worker))

    def _devices(self, uuids: Sequence[str]) -> list[Device]:
        return [device for device in self._held.devices() if device.board.uuid in uuids]

    def _fill_s(self, boards: Sequence[Board]) -> float:
        """How long the repeats of a launch have to last for the slowest sensor; 0 where none tells energy."""
        sensors = self._held.survey()
        shortest = max(sensors[board.uuid].shortest_window_s() for board in boards)
        return shortest if math.isfinite(shortest) else 0.0

    def _idle_w(self, running: RunningEngine, boards: Sequence[Board]) -> Reading[float]:
        floor = self._calibration.floor(running)
        return floor if isinstance(floor, Unreadable) else floor.watts_of(board.uuid for board in boards)


class _Tolerant:
    """A watch whose failure costs its readings, and not what is measured meanwhile.

    Attributes:
        failure: Why there are no readings; ``None`` while there are.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.failure: str | None = None

    async def begin(self) -> None:
        try:
            await self._watch.begin()
        except LlmperfError as error:
            self.failure = str(error)

    async def end(self) -> list[BoardSamples]:
        if self.failure is not None:
            return []
        try:
            return await self._watch.end()
        except LlmperfError as error:
            self.failure = str(error)
            return []


def own_processes(choice: EngineChoice, *, in_worker: bool) -> set[int]:
    """Who may compute on the boards: what this run has started and, where a server is not ours, that server.

    Args:
        choice: The engine.
        in_worker: Whether this is a worker of xdist; the engines of the others rest while this one measures.
    """
    own = descendants(os.getppid() if in_worker else os.getpid())
    if choice.platform == "url":
        address = Address.parse(choice.url or "")
        if address.is_loopback:
            own |= server_processes(address.port)
    return own
