"""What a session finds out about its boards before it measures on them: their sensors, and what they draw when idle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_llmperf.clock import MonotonicClock
from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.engines.spec import EngineChoice
from pytest_llmperf.errors import GpuError, LlmperfError
from pytest_llmperf.gpu import Device, Reading, Unreadable
from pytest_llmperf.gpu.energy.idle import SETTLE_S, IdleLadder, IdlePower, Waits, idle_power, idle_window_s
from pytest_llmperf.gpu.guards.tenants import strangers
from pytest_llmperf.gpu.sampling.watch import Watch

if TYPE_CHECKING:
    from pytest_llmperf.plugin.boards import SessionBoards

__all__ = ["Calibration"]

#: How often a rung is tried before it is given up for the session: a board may be busy at one moment.
_TRIES = 3


@dataclass
class _Rungs:
    """What is known of the boards with one engine on them, and how often each rung was tried."""

    ladder: IdleLadder = field(default_factory=IdleLadder)
    tries: Counter[str | None] = field(default_factory=Counter)


class Calibration:
    """Measures each thing once, when there is an occasion, and says so.

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
        self._first = _Rungs()
        # Another engine fills the memory otherwise, and may stand on other boards.
        self._engines: dict[str, _Rungs] = {}

    def prepare(self) -> None:
        """Watch the sensors, and measure the lowest rung that is there; before a clock is held and an engine starts.

        Later calls do nothing, nor does any where the engine does not run on boards that can be read from here.
        """
        if self._prepared or not self._readable():
            return
        self._prepared = True
        self._show("watching the boards' sensors")
        self._boards.survey()
        ladder, clock = self._first.ladder, self._boards.clock
        if self._choice.platform == "url":
            ladder.bare = Unreadable("the server was there before the session, with its model loaded")
            if clock is None:
                self._first.tries[None] += 1
                ladder.loaded = self._alone()
        else:
            ladder.bare_at_mhz = None if clock is None else clock.locked_mhz
            ladder.bare = self._alone()
        self._record()

    def floor(self, running: RunningEngine) -> Reading[IdlePower]:
        """What net energy of an engine takes off, at the clock that is held."""
        return self._of(running).ladder.floor(self._held())

    def climb(self, running: RunningEngine) -> None:
        """Measure the rungs that an idle engine stands on, as far as they are not known: loaded, and held."""
        self.prepare()
        held, rungs = self._held(), self._of(running)
        if not self._readable() or _settled(rungs, held):
            return
        if held is not None and not _settled(rungs, None) and self._choice.platform != "url":
            rungs.tries[None] += 1
            rungs.ladder.loaded = self._freely(lambda: self._measured(running.run, running.engine.clock))
        rungs.tries[held] += 1
        power = self._measured(running.run, running.engine.clock)
        if held is None:
            rungs.ladder.loaded = power
        else:
            rungs.ladder.held[held] = power
        self._record()

    def alone(self) -> tuple[Reading[IdlePower], Reading[IdlePower]]:
        """The boards without an engine, read now with their clock free: bare, and with a CUDA context."""
        self.prepare()
        if self._choice.platform == "url":
            there = Unreadable("the server was there before the session, with its model loaded")
            return there, there
        bare, context = self._freely(lambda: self._empty(None)), self._freely(self._with_context)
        if isinstance(self._first.ladder.context, Unreadable):
            self._first.ladder.context = context
            self._record()
        return bare, context

    def standing(self, running: RunningEngine) -> tuple[Reading[IdlePower], Reading[IdlePower]]:
        """The boards with an idle engine, read now: the clock free, and as it is held."""
        held, ladder = self._held(), self._of(running).ladder

        def measured() -> Reading[IdlePower]:
            return self._measured(running.run, running.engine.clock)

        loaded = self._freely(measured)
        locked = Unreadable("no clock is held (--gpu-clock holds one)") if held is None else measured()
        if isinstance(ladder.loaded, Unreadable):
            ladder.loaded = loaded
        if held is not None and isinstance(ladder.floor(held), Unreadable):
            ladder.held[held] = locked
        self._record()
        return loaded, locked

    def why_unreadable(self) -> str | None:
        """Why no board's power can be read in this session; ``None`` where it can."""
        choice = self._choice
        if not self._readable():
            elsewhere = choice.platform == "url" and not Address.parse(choice.url or "").is_loopback
            on = f"the engine is {choice.name}" + (" on the processor" if choice.platform == "cpu" else "")
            return "the server's boards are not this machine's" if elsewhere else f"{on}, and no board can be read"
        return next((why for device in self._boards.devices() if (why := _tells_nothing(device)) is not None), None)

    def _with_context(self) -> Reading[IdlePower]:
        if (boards := self._boards.simulated) is not None:
            with boards.contexts():
                return self._alone(patiently=True)
        from pytest_llmperf.gpu.context import cuda_contexts

        self._show("holding a CUDA context")
        with cuda_contexts() as own:
            return own if isinstance(own, Unreadable) else self._empty(own)

    def _empty(self, own: int | None) -> Reading[IdlePower]:
        """Boards with nobody on them but a process of ours, if there is one."""
        before = strangers(self._boards.devices(), own)
        power = self._alone(patiently=True)
        found = before or strangers(self._boards.devices(), own)
        return power if found is None else Unreadable(found, "busy")

    def _of(self, running: RunningEngine) -> _Rungs:
        key, first = running.spec.key, self._first
        if key not in self._engines:
            bare = first.ladder
            known = IdleLadder(bare.bare, bare_at_mhz=bare.bare_at_mhz, context=bare.context)
            self._engines[key] = _Rungs(known) if self._engines else first
        return self._engines[key]

    def _freely(self, measured: Callable[[], Reading[IdlePower]]) -> Reading[IdlePower]:
        """What is measured with the clock free, where it can be."""
        if self._held() is None:
            return measured()
        if not self._boards.can_free:
            holder = "the run's controller" if self._boards.sets_clocks else "an administrator"
            return Unreadable(f"{holder} holds the clock")
        power: Reading[IdlePower] | None = None
        try:
            with self._boards.free():
                power = measured()
        except GpuError as error:
            if power is not None:
                raise  # the boards are not held any more
            return Unreadable(error.problem)
        return power

    def _readable(self) -> bool:
        choice = self._choice
        here = choice.platform in ("cuda", "sim")
        here = here or (choice.platform == "url" and Address.parse(choice.url or "").is_loopback)
        return here and bool(self._boards.boards())

    def _held(self) -> str | None:
        clock = self._boards.clock
        return None if clock is None else clock.key

    def _alone(self, *, patiently: bool = False) -> Reading[IdlePower]:
        """While no engine of ours is there to give a loop and a clock."""
        if (boards := self._boards.simulated) is not None:
            return self._measured(asyncio.run, boards, patiently=patiently)
        with MonotonicClock().runner() as runner:
            return self._measured(runner.run, MonotonicClock(), patiently=patiently)

    def _measured(
        self,
        run: Callable[[Coroutine[Any, Any, Reading[IdlePower]]], Reading[IdlePower]],
        clock: Waits,
        *,
        patiently: bool = False,
    ) -> Reading[IdlePower]:
        self._show("measuring idle power")

        async def work() -> Reading[IdlePower]:
            window_s = idle_window_s(self._boards.survey().values())
            try:
                return await idle_power(self._watch(), clock, settle_s=SETTLE_S, window_s=window_s, patiently=patiently)
            except LlmperfError as error:  # net energy is lost, the measurements are not
                return Unreadable(str(error))

        return run(work())

    def _record(self) -> None:
        sensors = {uuid: sensor.to_json() for uuid, sensor in self._boards.survey().items()}
        others = {key: rungs.ladder.to_json() for key, rungs in self._engines.items() if rungs is not self._first}
        self._note({"boards": sensors, "idle": self._first.ladder.to_json() | ({"others": others} if others else {})})


def _tells_nothing(device: Device) -> str | None:
    """Why a board's power cannot be known; ``None`` where it can."""
    told = (device.energy_j(), device.power_w())
    refused = [one.reason for one in told if isinstance(one, Unreadable)]
    return f"GPU {device.board.index} tells neither: {'; '.join(refused)}" if len(refused) == len(told) else None


def _settled(rungs: _Rungs, held: str | None) -> bool:
    """Whether a rung is known, or was tried often enough."""
    return not isinstance(rungs.ladder.floor(held), Unreadable) or rungs.tries[held] >= _TRIES
