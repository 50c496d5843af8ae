"""A board in software alone: its engine tells it what it does, and its sensors show that as a product's would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import Board
from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.gpu.simulated.products import PRODUCTS
from pytest_llmperf.gpu.simulated.sensors import SimulatedSensors
from pytest_llmperf.gpu.simulated.timeline import Timeline

__all__ = ["RESTED_NS", "SimulatedDevice"]

#: A watch begins after so much rest: no sensor then shows anything of the work before.
RESTED_NS = 2 * NS_PER_S

#: Bytes that the driver takes for itself.
_RESERVED_BYTES = 640 * 2**20
#: So much is kept of the past when an engine opens: what the slowest sensor looks back, and the lead of a watch.
_KEPT_NS = 3 * NS_PER_S


class SimulatedDevice(SimulatedSensors):
    """Keeps the contract of :class:`pytest_llmperf.gpu.Device`.

    Args:
        product: A key of :data:`~pytest_llmperf.gpu.simulated.products.PRODUCTS`.
        index: Of the board.
        power_scale: A factor on its power.
    """

    def __init__(self, product: str, index: int = 0, *, power_scale: float = 1.0) -> None:
        self.product = PRODUCTS[product]
        self.timeline = Timeline()
        self._power_scale = power_scale
        self._locked_sm: int | None = None
        self._locked_memory: int | None = None
        self._loaded_bytes: int | None = None
        #: The span that was told last: its end, and the shares of bandwidth and FLOPs.
        self._span: tuple[int, float, float] = (0, 0.0, 0.0)
        self._watched: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        # It was at rest before: the sensors look back from the first moment on.
        history = History(self.timeline.now() - _KEPT_NS, self._resting())
        super().__init__(_board(product, index), self.product, history, self.timeline.spend)

    # What an engine tells it.

    @property
    def max_sm_clock_mhz(self) -> int:
        """The SM clock in MHz at which it runs free."""
        return self.product.max_sm_clock_mhz

    @property
    def max_memory_clock_mhz(self) -> int:
        """The memory clock in MHz at which it runs free."""
        return self.product.max_memory_clock_mhz

    def attach(self, now: Callable[[], int], *, power_scale: float = 1.0) -> None:
        """An engine opens: from now on its clock is the board's.

        Args:
            now: The engine's time in ns.
            power_scale: A factor on the power.
        """
        self.timeline.attach(now)
        present = self.timeline.now()
        self.history.forget(min([present, *self._watched.values()]) - _KEPT_NS)
        self._power_scale = power_scale
        self._span = (present, 0.0, 0.0)
        self._state_changed()

    def detach(self) -> None:
        """The engine has closed; whatever it foretold does not happen."""
        present = self.timeline.now()
        self._span = (present, 0.0, 0.0)
        self._state_changed()
        self.timeline.detach()

    def load(self, size: int) -> None:
        """A model takes so many bytes of the memory."""
        self._loaded_bytes = size
        self._state_changed()

    def unload(self) -> None:
        """Nothing is loaded any more."""
        self._loaded_bytes = None
        self._state_changed()

    def occupy(self, start_ns: int, end_ns: int, *, memory: float, compute: float) -> None:
        """The engine works in this span, which may lie ahead; spans come in the order of time.

        Args:
            start_ns: In the engine's time.
            end_ns: Likewise.
            memory: Share of the peak bandwidth that is used, 0 to 1.
            compute: Share of the FLOPs that are used, of those which the present clock allows, 0 to 1.

        Raises:
            ValueError: it begins before the end of the last one.
        """
        start, end = self.timeline.inside(start_ns), self.timeline.inside(end_ns)
        self.history.change(start, self._working(memory, compute))
        self.history.change(end, self._resting())
        self._span = (end, memory, compute)

    def _state_changed(self) -> None:
        """What was foretold for a work that is under way goes on in the new state."""
        present = self.timeline.now()
        end, memory, compute = self._span
        self.history.cut(present)
        if end > present:
            self.history.change(present, self._working(memory, compute))
            self.history.change(end, self._resting())
        else:
            self.history.change(present, self._resting())

    def _resting(self) -> Level:
        loaded = self._loaded_bytes is not None
        free = self.product.max_sm_clock_mhz if loaded else self.product.idle_mhz
        clock = self._locked_sm or free
        return self._level(clock, self._power_scale * self.product.watts(clock, loaded=loaded))

    def _working(self, memory: float, compute: float) -> Level:
        asked = self._locked_sm or self.product.max_sm_clock_mhz
        loaded = self._loaded_bytes is not None
        watts = self._power_scale * self.product.watts(asked, loaded=loaded, memory=memory, compute=compute)
        limit = self.product.power_limit_w
        if watts <= limit:
            return self._level(asked, watts, busy=True, dram=memory, tensor=compute)
        # The clock is shown to give way; that the work then takes longer is not simulated yet.
        clock = self.product.clock_within(
            limit / self._power_scale, asked, loaded=loaded, memory=memory, compute=compute
        )
        return self._level(clock, limit, busy=True, capped=True, dram=memory, tensor=compute)

    def _level(self, sm_mhz: int, watts: float, **activity: Any) -> Level:
        memory_mhz = self._locked_memory or self.product.max_memory_clock_mhz
        return Level(watts, sm_mhz, memory_mhz, _RESERVED_BYTES + (self._loaded_bytes or 0), **activity)

    # Its time.

    def now(self) -> int:
        """The present in nanoseconds of the clock that drives it, or drove it last."""
        return self.timeline.outside(self.timeline.now())

    def wait(self, seconds: float) -> None:
        """Let time pass, where no engine does."""
        self.timeline.spend(round(seconds * NS_PER_S))

    async def sleep_until(self, at_ns: int) -> None:
        """Let time pass until a moment, where no engine does: with :meth:`now` it is its own clock.

        Args:
            at_ns: In the time of :meth:`now`.
        """
        self.wait(max(0.0, (at_ns - self.now()) / NS_PER_S))

    def as_of(self, moment: Callable[[], int]) -> SimulatedSensors:
        """Its sensors at other moments of its life.

        Args:
            moment: The moment of each reading, in ns of the board's life.
        """
        return SimulatedSensors(self.board, self.product, self.history, lambda _: moment())

    def keep(self, watcher: object) -> int:
        """Forget nothing from now on until :meth:`release`; the present in ns of the board's life.

        Unless another watcher needs it, the past beyond the reach of the sensors is forgotten: where the energy counter
        stands, and how sums are rounded, is then the same whatever was measured before.
        """
        present = self.timeline.now()
        if not self._watched:
            self.history.restart(present - RESTED_NS)
        self._watched[watcher] = present
        return present

    def release(self, watcher: object) -> None:
        """Nobody will ask for it any more."""
        self._watched.pop(watcher, None)

    # Its clocks.

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the SM clock.

        Raises:
            GpuError: the board does not support this one.
        """
        self._check("SM", mhz, self.product.sm_clocks_mhz)
        self._locked_sm = mhz
        self._state_changed()

    def unlock_sm_clock(self) -> None:
        """Let the SM clock run free."""
        self._locked_sm = None
        self._state_changed()

    def lock_memory_clock(self, mhz: int) -> None:
        """Hold the memory clock.

        Raises:
            GpuError: the board does not support this one, or has no other.
        """
        if len(self.product.memory_clocks_mhz) == 1:
            raise GpuError(f"The memory clock of the simulated {self._board.name} cannot be locked: it has but one.")
        self._check("memory", mhz, self.product.memory_clocks_mhz)
        self._locked_memory = mhz
        self._state_changed()

    def unlock_memory_clock(self) -> None:
        """Let the memory clock run free."""
        self._locked_memory = None
        self._state_changed()

    def _check(self, what: str, mhz: int, supported: tuple[int, ...]) -> None:
        if mhz not in supported:
            raise GpuError(
                f"The simulated {self._board.name} has no {what} clock of {mhz} MHz.",
                remedy=f"It has {len(supported)} from {supported[0]} to {supported[-1]} MHz.",
            )


def _board(product: str, index: int) -> Board:
    what = PRODUCTS[product]
    return Board(
        index=index,
        name=what.name,
        uuid=f"GPU-sim-{product}-{index}",
        driver="simulated",
        power_limit_w=what.power_limit_w,
        memory_bytes=what.memory_bytes,
        compute_capability=what.compute_capability,
        max_sm_clock_mhz=what.max_sm_clock_mhz,
        simulated=True,
    )
