"""The boards of a simulated machine: as many as its engines ask for, with one time and one clock for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import EngineError
from pytest_llmperf.gpu.clocks.control import BoardId, Clock, DeviceControl
from pytest_llmperf.gpu.simulated.device import SimulatedDevice
from pytest_llmperf.gpu.simulated.peaks import peaks_of
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.simulation.ramp import Course, Ramp
from pytest_llmperf.simulation.steps import Pace

__all__ = ["BoardGroup", "SimulatedBoards"]

#: As many as a server with such boards has.
_MOST = 8


class SimulatedBoards:
    """Boards of one product, equal to one another; there is one from the beginning on.

    Args:
        key: Of their model, see :data:`pytest_llmperf.simulation.board.BOARDS`.
        power_scale: A factor on their power, until an engine gives another.
    """

    #: As :class:`~pytest_llmperf.gpu.clocks.control.DeviceControl`, whose place it takes.
    name = DeviceControl.name

    def __init__(self, key: str, *, power_scale: float = 1.0) -> None:
        self._key = key
        self._power_scale = power_scale
        self._clock = Clock(None)
        self._devices: list[SimulatedDevice] = []
        self.grow(1)

    @property
    def devices(self) -> tuple[SimulatedDevice, ...]:
        """Those that were asked for so far."""
        return tuple(self._devices)

    def grow(self, count: int) -> None:
        """Make boards until there are so many; a clock that is held is held on the new ones too.

        Raises:
            EngineError: There are never so many.
        """
        if count > _MOST:
            raise EngineError(
                f"The simulated machine has {_MOST} GPUs, and {count} are asked for.",
                remedy=f"Give tensor_parallel_size a value of at most {_MOST}.",
            )
        while len(self._devices) < count:
            device = SimulatedDevice(self._key, len(self._devices), power_scale=self._power_scale)
            DeviceControl({device.board.uuid: device}).lock(BoardId.of(device), self._clock)
            self._devices.append(device)

    def group(self, count: int) -> BoardGroup:
        """The first boards, for an engine that splits its model over so many.

        Raises:
            EngineError: There are never so many.
        """
        self.grow(count)
        return BoardGroup(self, count)

    def peaks(self, clock: Clock | None = None) -> list[DevicePeaks]:
        """What a measurement would come to on each.

        Args:
            clock: At which clocks, what it leaves open running free; those that are held right now without it.
        """
        product, count = self._devices[0].product, len(self._devices)
        held = self._clock if clock is None else clock
        sm_mhz = held.sm_mhz or product.max_sm_clock_mhz
        memory_mhz = held.memory_mhz or product.max_memory_clock_mhz
        return [peaks_of(product.model, n, count, sm_mhz=sm_mhz, memory_mhz=memory_mhz) for n in range(count)]

    @contextmanager
    def contexts(self) -> Iterator[None]:
        """A process holds a CUDA context on each of them within the block, and nothing else."""
        for device in self._devices:
            device.hold_context(held=True)
        try:
            yield
        finally:
            for device in self._devices:
                device.hold_context(held=False)

    # Their time, where no engine drives it.

    def now(self) -> int:
        """The present in nanoseconds of the clock that drives them, or drove them last."""
        return self._devices[0].now()

    def wait(self, seconds: float) -> None:
        """Let time pass, where no engine does."""
        for device in self._devices:
            device.wait(seconds)

    async def sleep_until(self, at_ns: int) -> None:
        """Let time pass until a moment of :meth:`now`, where no engine does."""
        self.wait(max(0.0, (at_ns - self.now()) / NS_PER_S))

    # Their clocks: a :class:`~pytest_llmperf.gpu.clocks.control.ClockControl` for all of them at once.

    def lock(self, board: BoardId, clock: Clock) -> None:
        """Lock every board, also those that are still to come.

        Args:
            board: Any of them.
            clock: At what; what it leaves free stays as it is.

        Raises:
            GpuError: they do not support it; nothing of them is locked then that was not before.
        """
        del board
        for device in self._devices:
            DeviceControl({device.board.uuid: device}).lock(BoardId.of(device), clock)
        held = self._clock
        self._clock = Clock(
            held.sm_mhz if clock.sm_mhz is None else clock.sm_mhz,
            held.memory_mhz if clock.memory_mhz is None else clock.memory_mhz,
        )

    def unlock(self, board: BoardId, *, sm: bool = True, memory: bool = False) -> None:
        """Let clocks of every board run free.

        Args:
            board: Any of them.
            sm: Whether the SM clock was locked.
            memory: Whether the memory clock was.
        """
        del board
        for device in self._devices:
            DeviceControl({device.board.uuid: device}).unlock(BoardId.of(device), sm=sm, memory=memory)
        self._clock = Clock(None if sm else self._clock.sm_mhz, None if memory else self._clock.memory_mhz)


class BoardGroup:
    """The boards of one engine: each does the same share of every step, and the last to end it counts.

    The engine's clock drives the other boards too, which rest meanwhile: that is how all of them are read at one time.

    Args:
        boards: All there are.
        count: How many of them work, from the first on.
    """

    def __init__(self, boards: SimulatedBoards, count: int) -> None:
        self._boards = boards
        self._working = boards.devices[:count]
        if count == 1:  # a trace has hundreds of thousands of steps
            self.run = self._working[0].run  # type: ignore[method-assign]
            self.foresee = self._working[0].foresee  # type: ignore[method-assign]

    def attach(self, now: Callable[[], int], *, power_scale: float) -> None:
        """The engine opens.

        Args:
            now: Its time in ns.
            power_scale: A factor on the power of every board.
        """
        for device in self._boards.devices:
            device.attach(now, power_scale=power_scale)

    def detach(self) -> None:
        """The engine has closed."""
        for device in self._boards.devices:
            device.detach()

    def load(self, size: int) -> None:
        """So many bytes of each working board's memory are taken."""
        for device in self._working:
            device.load(size)

    def unload(self) -> None:
        """They are given back."""
        for device in self._working:
            device.unload()

    def run(
        self, start_ns: int, pace: Callable[[float, float], Pace], *, stretch: float = 1.0, until_ns: int = 0
    ) -> int:
        """A step on every board; when the last one has ended it. See :meth:`SimulatedDevice.run`."""
        return max(device.run(start_ns, pace, stretch=stretch, until_ns=until_ns) for device in self._working)

    def foresee(self, start_ns: int, ramp: Ramp, until_ns: int) -> Course | None:
        """How steps go on every board, where they go alike on all. See :meth:`SimulatedDevice.foresee`."""
        courses = [device.foresee(start_ns, ramp, until_ns) for device in self._working]
        return courses[0] if all(course == courses[0] for course in courses) else None

    def follow(self, course: Course, count: int) -> None:
        """Do the first so many steps of a course on every board."""
        for device in self._working:
            device.follow(course, count)

    def abandon(self) -> None:
        """What was foretold for after now does not happen."""
        for device in self._working:
            device.abandon()
