"""A board in software alone: its engine tells it what it does, and its sensors show that as a product's would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import Board
from pytest_llmperf.gpu.simulated.governor import Governor
from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.gpu.simulated.product import Product
from pytest_llmperf.gpu.simulated.sensors import SimulatedSensors
from pytest_llmperf.gpu.simulated.spans import Clocked, Spans
from pytest_llmperf.gpu.simulated.timeline import Timeline
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.power import Draw, draw, highest_clock
from pytest_llmperf.simulation.ramp import Course, Ramp, foresee
from pytest_llmperf.simulation.steps import Pace

__all__ = ["RESTED_NS", "SimulatedDevice"]

#: A watch begins after so much rest: no sensor then shows anything of the work before.
RESTED_NS = 2 * NS_PER_S

#: Bytes that the driver takes for itself.
_RESERVED_BYTES = 640 * 2**20
#: So much is kept of the past when an engine opens: what the slowest sensor looks back, and the lead of a watch.
_KEPT_NS = 3 * NS_PER_S


class SimulatedDevice(SimulatedSensors):
    """Keeps the contract of :class:`pytest_llmperf.gpu.Device`, and is what a simulated engine runs on.

    Args:
        board: Its model, or the model's key (:data:`pytest_llmperf.simulation.board.BOARDS`).
        index: Of the board.
        power_scale: A factor on its power.
    """

    def __init__(self, board: BoardModel | str, index: int = 0, *, power_scale: float = 1.0) -> None:
        model = BoardModel.named(board) if isinstance(board, str) else board
        self.product = Product.of(model)
        self.timeline = Timeline()
        self._power_scale = power_scale
        self._locked_sm: int | None = None
        self._locked_memory: int | None = None
        self._loaded_bytes: int | None = None
        self._context = False
        self._watched: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        #: The clock at which the limit was last kept: the next one will not be far.
        self._capped_mhz = self.product.max_sm_clock_mhz
        self._take_state()
        # It was at rest before: the sensors look back from the first moment on.
        history = History(self.timeline.now() - _KEPT_NS, self._rest)
        super().__init__(_board(self.product, index), self.product, history, self._present)
        self._spans = Spans(history, self._rest, self.next_edge)
        constant_s = self.product.model.power.limit_s
        self._governor = Governor(self.product.power_limit_w, constant_s, self._rest.watts)

    # What an engine tells it.

    def attach(self, now: Callable[[], int], *, power_scale: float = 1.0) -> None:
        """An engine opens: from now on its clock is the board's.

        Args:
            now: The engine's time in ns.
            power_scale: A factor on the power.
        """
        self._spans.settle()
        self.timeline.attach(now)
        present = self.timeline.now()
        self.history.forget(min([present, *self._watched.values()]) - _KEPT_NS)
        self._power_scale = power_scale
        self._state_changed()
        self._governor.begin(self._rest.watts)  # every engine begins alike

    def detach(self) -> None:
        """The engine has closed; whatever it foretold does not happen."""
        self.abandon()
        self.timeline.detach()

    def load(self, size: int) -> None:
        """A model takes so many bytes of the memory."""
        self._loaded_bytes = size
        self._state_changed()
        self._governor.begin(self._rest.watts)  # loading takes long

    def unload(self) -> None:
        """Nothing is loaded any more."""
        self._loaded_bytes = None
        self._state_changed()

    def hold_context(self, *, held: bool) -> None:
        """A process makes a CUDA context and nothing else, or gives it back."""
        self._context = held
        self._state_changed()

    def run(
        self, start_ns: int, pace: Callable[[float, float], Pace], *, stretch: float = 1.0, until_ns: int = 0
    ) -> int:
        """The engine does a step; steps come in the order of time, do not overlap, and may lie ahead of now.

        Args:
            start_ns: When it begins, in the engine's time.
            pace: How long the board takes for it and what it uses meanwhile, at an SM and a memory clock in MHz.
            stretch: A factor on that time; what is used is spread over it. The power limit takes from the clock what it
                would take without: the factor is one on the whole time, also where the limit acts.
            until_ns: The step does not end before; what is used is spread over that time likewise.

        Returns:
            When it ends, in the engine's time: later than at the clocks held where the power limit takes from them.

        Raises:
            ValueError: it begins before the end of the last one.
        """
        shift = self.timeline.inside(0)
        start = start_ns + shift
        spans, governor = self._spans, self._governor
        if (pause := start - spans.end_ns) > 0:
            governor.rest(self._rest.watts, pause / (NS_PER_S * stretch))
        work = _Work(start, pace, stretch, until_ns + shift)
        lasts, busy, memory, compute = work.rest(start, 1.0, self._clocked.sm_mhz, self._clocked.memory_mhz)
        mean_w = governor.after(self._draw.watts(busy, memory, compute), lasts / (NS_PER_S * stretch))
        if mean_w > governor.most_w:
            return self._run_limited(work, lasts, busy, memory, compute) - shift
        self._work(start, lasts, self._clocked, (busy, memory, compute), stretch)
        governor.mean_w, governor.capped = mean_w, False
        return start_ns + lasts

    def foresee(self, start_ns: int, ramp: Ramp, until_ns: int) -> Course | None:
        """How steps that grow evenly will go, if they go evenly.

        Args:
            start_ns: When the first begins, in the engine's time.
            ramp: The steps.
            until_ns: Steps that begin later need not be foreseen.

        Returns:
            Their course; ``None``: they have to be done one by one, because the power limit could be reached, or for a
            reason of :func:`~pytest_llmperf.simulation.ramp.foresee`.
        """
        course = foresee(ramp, start_ns, until_ns, self._clocked.sm_mhz, self._clocked.memory_mhz)
        # Between the ends the power lies between that at the ends, and the mean of what keeps below the limit does too.
        limit = self._governor.limit_w
        if course is None or self._governor.mean_w > limit:
            return None
        drawn = (self._draw.watts(*course.shares(step)) for step in (0, len(course.lasts_ns) - 1))
        return course if max(drawn) <= limit else None

    def follow(self, course: Course, count: int) -> None:
        """Do the first so many steps of a course that was foreseen, with nothing done in between."""
        shift = self.timeline.inside(0)
        governor = self._governor
        if (pause := course.start_ns + shift - self._spans.end_ns) > 0:
            governor.rest(self._rest.watts, pause / (NS_PER_S * course.stretch))
        self._spans.follow(course, course.ends_ns[count - 1], shift, self._clocked, self._draw)
        governor.follow(course, count, self._draw)

    def abandon(self) -> None:
        """What was foretold for after now does not happen."""
        present = self.timeline.now()
        if self._spans.end_ns > present:
            self._spans.cut(present)
            governor = self._governor
            governor.begin(self._rest.watts)
            for level, lasted in self.history.pieces(present - _KEPT_NS, present):
                governor.mean_w = governor.after(level.watts, lasted / NS_PER_S)

    def _run_limited(self, work: _Work, lasts: int, busy: float, memory: float, compute: float) -> int:
        """A step within which the power limit is reached; when it ends, in ns of the board's life."""
        governor, start, left, second = self._governor, work.start, 1.0, NS_PER_S * work.stretch
        if not governor.capped:
            watts = self._draw.watts(busy, memory, compute)
            free = min(lasts, int(governor.free_s(watts) * second))
            if free > 0:
                self._work(start, free, self._clocked, (busy, memory, compute), work.stretch)
                governor.mean_w = governor.after(watts, free / second)
                start, left = start + free, 1 - free / lasts
            governor.capped = True

        def mean_w(sm_mhz: int) -> float:
            lasts, *shares = work.rest(start, left, sm_mhz, self._clocked.memory_mhz)
            return governor.after(self._draw_at(sm_mhz).watts(*shares), lasts / second)

        clocks, asked = self.product.sm_clocks_mhz, self._clocked.sm_mhz
        clock = highest_clock(clocks, asked, governor.most_w, mean_w, near_mhz=self._capped_mhz)
        self._capped_mhz = clock
        governor.mean_w = mean_w(clock)
        lasts, busy, memory, compute = work.rest(start, left, clock, self._clocked.memory_mhz)
        clocked = self._clocked._replace(sm_mhz=clock, capped=True)
        self._work(start, lasts, clocked, (busy, memory, compute), work.stretch)
        return start + lasts

    def _work(
        self, start: int, lasts: int, clocked: Clocked, shares: tuple[float, float, float], stretch: float
    ) -> None:
        """Note a span of work that uses such shares of the time, the bandwidth and the FLOPs before it is stretched."""
        busy, memory, compute = (share / stretch for share in shares)
        watts = self._draw_at(clocked.sm_mhz).watts(min(1.0, busy), memory, compute)
        self._spans.work(start, start + lasts, clocked, watts, memory, compute)

    # Its state.

    def _state_changed(self) -> None:
        """What was foretold goes on as it was foretold; what comes after it is in the new state."""
        at = max(self.timeline.now(), self._spans.end_ns)
        self._governor.rest(self._rest.watts, (at - self._spans.end_ns) / NS_PER_S)
        self._take_state()
        self._spans.rest(at, self._rest)

    def _take_state(self) -> None:
        loaded = self._loaded_bytes is not None
        asked = self._locked_sm or self.product.max_sm_clock_mhz
        resting = asked if loaded or self._context else self._locked_sm or self.product.idle_mhz
        memory_mhz = self._locked_memory or self.product.max_memory_clock_mhz
        self._clocked = Clocked(asked, memory_mhz, _RESERVED_BYTES + (self._loaded_bytes or 0))
        self._draws: dict[int, Draw] = {}
        self._draw = self._draw_at(asked)
        self._rest = Level(self._draw.still, resting, memory_mhz, self._clocked.memory_used)

    def _draw_at(self, sm_mhz: int) -> Draw:
        found = self._draws.get(sm_mhz)
        if found is None:
            loaded = self._loaded_bytes is not None
            found = self._draws[sm_mhz] = draw(
                self.product.model, sm_mhz, loaded=loaded, context=self._context, scale=self._power_scale
            )
        return found

    def _present(self, ns: int) -> int:
        """The moment of a reading that takes so long; all that was told is there to be read."""
        self._spans.settle()
        return self.timeline.spend(ns)

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
        self._spans.settle()
        return SimulatedSensors(self.board, self.product, self.history, lambda _: moment())

    def keep(self, watcher: object) -> int:
        """Forget nothing from now on until :meth:`release`; the present in ns of the board's life.

        Unless another watcher needs it, the past beyond the reach of the sensors is forgotten: where the energy counter
        stands, and how sums are rounded, is then the same whatever was measured before.
        """
        present = self.timeline.now()
        if not self._watched:
            self._spans.close()
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


def _board(product: Product, index: int) -> Board:
    return Board(
        index=index,
        name=product.name,
        uuid=f"GPU-sim-{product.model.key}-{index}",
        driver="simulated",
        power_limit_w=product.power_limit_w,
        memory_bytes=product.memory_bytes,
        compute_capability=product.compute_capability,
        max_sm_clock_mhz=product.max_sm_clock_mhz,
        simulated=True,
    )


class _Work(NamedTuple):
    """A step, in ns of the board's life."""

    start: int
    pace: Callable[[float, float], Pace]
    stretch: float
    until: int

    def rest(self, start: int, left: float, sm_mhz: int, memory_mhz: int) -> tuple[int, float, float, float]:
        """What is left of it at other clocks.

        Returns:
            How many ns it takes, and the shares of the time, the bandwidth and the FLOPs in use, if nothing stretched
            it.
        """
        seconds, memory, compute = self.pace(sm_mhz, memory_mhz)
        busy = left * seconds * NS_PER_S * self.stretch
        lasts = max(round(busy), self.until - start, 1)
        share = busy / lasts
        return lasts, min(1.0, share), memory * share, compute * share
