"""What a session finds out about its boards before it measures on them: their sensors, and what they draw when idle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pytest_llmperf.clock import MonotonicClock
from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.engines.spec import EngineChoice
from pytest_llmperf.errors import GpuError, LlmperfError
from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy.idle import SETTLE_S, IdleLadder, IdlePower, Waits, idle_power, idle_window_s
from pytest_llmperf.gpu.sampling.watch import Watch

if TYPE_CHECKING:
    from pytest_llmperf.plugin.boards import SessionBoards

__all__ = ["Calibration"]

#: How often a rung is tried before it is given up for the session: a board may be busy at one moment.
_TRIES = 3


class Calibration:
    """Measures each thing once, when there is an occasion, and says so.

    Attributes:
        ladder: The idle power of the boards, as far as it is known.

    Args:
        boards: The session's.
        choice: The engine that will run on them.
        watch: Gives what reads them.
        show: Is told what is under way.
        note: Takes the record, whenever something is added to it.
    """

    def __init__(
        self,
        boards: SessionBoards,
        choice: EngineChoice,
        watch: Callable[[], Watch],
        show: Callable[[str], None],
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        self._boards = boards
        self._choice = choice
        self._watch = watch
        self._show = show
        self._note = note
        self._prepared = False
        self._tries: Counter[int | None] = Counter()
        self.ladder = IdleLadder()

    def prepare(self) -> None:
        """Watch the sensors, and measure the lowest rung that is there; before a clock is held and an engine starts.

        Later calls do nothing, nor does any where the engine does not run on boards that can be read from here.
        """
        if self._prepared or not self._readable():
            return
        self._prepared = True
        self._show("watching the boards' sensors")
        self._boards.survey()
        if self._choice.platform == "url":
            self.ladder.bare = Unreadable("the server was there before the session, with its model loaded")
            if self._held_mhz() is None:
                self._tries[None] += 1
                self.ladder.loaded = self._alone()
        else:
            self.ladder.bare_at_mhz = self._held_mhz()
            self.ladder.bare = self._alone()
        self._record()

    def climb(self, running: RunningEngine) -> None:
        """Measure the rungs that an idle engine stands on, as far as they are not known: loaded, and held."""
        self.prepare()
        mhz = self._held_mhz()
        if not self._readable() or self._settled(mhz):
            return
        if mhz is not None and not self._settled(None) and self._choice.platform != "url":
            self.ladder.loaded = self._freed(running)
        self._tries[mhz] += 1
        power = self._measured(running.run, running.engine.clock)
        if mhz is None:
            self.ladder.loaded = power
        else:
            self.ladder.held[mhz] = power
        self._record()

    def _settled(self, mhz: int | None) -> bool:
        """Whether a rung is known, or was tried often enough."""
        return not isinstance(self.ladder.floor(mhz), Unreadable) or self._tries[mhz] >= _TRIES

    def _freed(self, running: RunningEngine) -> Reading[IdlePower]:
        self._tries[None] += 1
        if not self._boards.sets_clocks:
            return Unreadable("an administrator holds the clock")
        try:
            with self._boards.free():
                return self._measured(running.run, running.engine.clock)
        except GpuError as error:
            return Unreadable(error.problem)

    def _readable(self) -> bool:
        choice = self._choice
        here = choice.platform in ("cuda", "sim")
        here = here or (choice.platform == "url" and Address.parse(choice.url or "").is_loopback)
        return here and bool(self._boards.boards())

    def _held_mhz(self) -> int | None:
        clock = self._boards.clock
        return None if clock is None else clock.locked_mhz

    def _alone(self) -> Reading[IdlePower]:
        """While no engine of ours is there to give a loop and a clock."""
        if (device := self._boards.simulated) is not None:
            return self._measured(asyncio.run, device)
        with MonotonicClock().runner() as runner:
            return self._measured(runner.run, MonotonicClock())

    def _measured(
        self, run: Callable[[Coroutine[Any, Any, Reading[IdlePower]]], Reading[IdlePower]], clock: Waits
    ) -> Reading[IdlePower]:
        self._show("measuring idle power")

        async def work() -> Reading[IdlePower]:
            window_s = idle_window_s(self._boards.survey().values())
            try:
                return await idle_power(self._watch(), clock, settle_s=SETTLE_S, window_s=window_s)
            except LlmperfError as error:  # net energy is lost, the measurements are not
                return Unreadable(str(error))

        return run(work())

    def _record(self) -> None:
        sensors = {uuid: sensor.to_json() for uuid, sensor in self._boards.survey().items()}
        self._note({"boards": sensors, "idle": self.ladder.to_json()})
