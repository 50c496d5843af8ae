"""The boards of a session, open while it needs them, and the clock that they are held at.

With a simulated engine they are simulated too: nothing of this machine is opened, read or locked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pytest_llmperf.errors import GpuError, OptionError
from pytest_llmperf.plugin.keys import RECORDER

if TYPE_CHECKING:
    import pytest

    from pytest_llmperf.engines.spec import EngineChoice
    from pytest_llmperf.gpu import Board, Device
    from pytest_llmperf.gpu.clocks import ClockLock, ExpectedClock, HeldClock
    from pytest_llmperf.gpu.energy.sensor import Sensor
    from pytest_llmperf.gpu.simulated import BoardGroup, SimulatedBoards
    from pytest_llmperf.peaks import DevicePeaks

__all__ = ["SessionBoards"]


class SessionBoards:
    """The boards that this session may use. Nothing is opened before somebody asks.

    Args:
        config: Holds ``--gpu-clock``, ``--gpu-memory-clock``, ``--gpu-clock-mode`` and ``--llmperf-engine``.

    Attributes:
        clock: What is held right now; ``None`` when nothing is.
        notes: What a reader of the header should know.
        before_hold: Called before a clock is held: the last moment to see boards whose clock is free.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._requested: int | None = config.getoption("--gpu-clock")
        self._requested_memory: int | None = config.getoption("--gpu-memory-clock")
        self._expected = config.getoption("--gpu-clock-mode") == "expect"
        # Under xdist the controller holds the session's clock, once, and its workers live with it. Of simulated boards
        # each process has its own.
        self._controller: int | None = getattr(config, "workerinput", {}).get("llmperf", {}).get("pid")
        self._open = ExitStack()
        self._held = ExitStack()
        self._devices: list[Device] | None = None
        self._holder: ClockLock | ExpectedClock | None = None
        self._simulated: SimulatedBoards | None = None
        self.clock: HeldClock | None = None
        self._of_session: HeldClock | None = None
        self.notes: list[str] = []
        self.before_hold: Callable[[], None] = lambda: None
        self._sensors: dict[str, Sensor] | None = None

    def boards(self) -> tuple[Board, ...]:
        """In CUDA's order; none without a driver."""
        return tuple(device.board for device in self.devices())

    def devices(self) -> list[Device]:
        """The same, open until this is closed; none without a driver.

        Raises:
            GpuError: a board is there and does not answer.
        """
        if self.simulated is not None:
            return list(self.simulated.devices)
        if self._devices is None:
            from pytest_llmperf.gpu.nvml import Nvml

            nvml = Nvml()
            try:
                nvml.open()
            except GpuError:
                return []
            self._open.callback(nvml.close)
            selection = nvml.visible()
            self.notes += [selection.doubt] if selection.doubt else []
            self._devices = [nvml.device(board) for board in selection.boards]
        return self._devices

    @property
    def asked_for(self) -> bool:
        """Whether the command line asks for a clock."""
        return self._requested is not None or self._requested_memory is not None

    @property
    def simulated(self) -> SimulatedBoards | None:
        """The simulated boards, where the engine that was asked for, or was chosen, is a simulated one."""
        if self._simulated is None and self._devices is None:
            self.simulate(_asked_for(self._config))
        return self._simulated

    def simulate(self, choice: EngineChoice | None) -> None:
        """Hold the boards of a simulated engine instead of this machine's; of any other engine: change nothing."""
        if self._simulated is None and choice is not None and choice.platform == "sim":
            from pytest_llmperf.gpu.simulated import SimulatedBoards

            scale = float(choice.treatment.get("power_scale", 1.0))
            self._simulated = SimulatedBoards(choice.name.removeprefix("sim:"), power_scale=scale)

    def simulated_group(self, count: int) -> BoardGroup:
        """The first so many simulated boards, for an engine; those that are not there yet are made.

        Raises:
            EngineError: there are never so many.
        """
        assert self.simulated is not None
        return self.simulated.group(count)

    def survey(self) -> dict[str, Sensor]:
        """How the boards' sensors behave, by UUID; they are watched when it is first asked for, for a second."""
        from pytest_llmperf.gpu.energy.sensor import survey, watch

        if self.simulated is not None:
            self._sensors = self._sensors or {}
            for device in self.simulated.devices:
                if device.board.uuid not in self._sensors:
                    self._sensors[device.board.uuid] = watch(device, now=device.now, pause=device.wait)
        elif self._sensors is None:
            self._sensors = survey(self.devices())
        return self._sensors

    def begin(self) -> HeldClock | None:
        """Hold the session's clock, if one was asked for, until :meth:`close`; once, however often it is called.

        Raises:
            GpuError: it cannot be held.
        """
        if self.clock is None and self.asked_for:
            clock = self._nearest(self._requested)
            if self._controller is None or self.simulated is not None:
                self._held.enter_context(self._hold(clock))
            self.clock = self._of_session = clock
        return self.clock

    def simulated_peaks(self) -> list[DevicePeaks]:
        """What simulated boards reach at the session's clock, whatever a sweep holds them at meanwhile."""
        from pytest_llmperf.gpu.clocks.control import Clock

        assert self.simulated is not None
        own = self._of_session
        return self.simulated.peaks(Clock(None) if own is None else Clock(own.locked_mhz, own.memory_mhz))

    def supported_clocks(self) -> tuple[int, ...]:
        """SM clocks in MHz that all boards in use can be locked at, ascending; none where there is nobody to tell.

        Boards that do not answer tell nothing here; who measures on them is told why.
        """
        try:
            return self._sm_clocks()
        except GpuError:
            return ()

    def not_swept(self, mhz: int, sweep: Sequence[int]) -> str | None:
        """Why a clock of a sweep would be no point of its own; ``None`` where it is one.

        Args:
            mhz: The clock, as asked for.
            sweep: All clocks of the sweep, in their order; of those that snap onto one and the same the first counts.
        """
        from pytest_llmperf.gpu.clocks import snap

        supported = self.supported_clocks()
        if not supported or mhz < 1:
            return None  # who holds it is told why that cannot be
        names = ", ".join(sorted({board.name for board in self.boards()}))
        if not supported[0] <= mhz <= supported[-1]:
            return f"{mhz} MHz is beyond the SM clocks of {names}: {supported[0]} to {supported[-1]} MHz"
        locked = snap(mhz, supported)
        same = next((other for other in sweep if snap(other, supported) == locked), mhz)
        if same == mhz:
            return None
        return f"{mhz} MHz is {locked} MHz on {names}, at which {same} MHz has been swept already"

    @contextmanager
    def at(self, mhz: int) -> Iterator[HeldClock]:
        """Hold another SM clock within the block; the session's returns after it, and its memory clock stays.

        Under xdist no other worker measures meanwhile: the boards are everybody's.

        Raises:
            GpuError: it cannot be held.
        """
        before = self.begin()
        clock = self._nearest(mhz)
        with self._config.stash[RECORDER].alone(), self._hold(clock):
            self.clock = clock
            try:
                yield clock
            finally:
                self.clock = before

    @property
    def sets_clocks(self) -> bool:
        """Whether a clock is held by setting it, and not only expected."""
        return not self._expected

    @property
    def can_free(self) -> bool:
        """Whether a clock is held that this very process has locked, and not an administrator or xdist's controller."""
        from pytest_llmperf.gpu.clocks import ClockLock

        return isinstance(self._holder, ClockLock) and self._holder.own

    @contextmanager
    def free(self) -> Iterator[None]:
        """Let the clocks run free within the block, where they can be; what was held is held again after it.

        Raises:
            GpuError: a board refused.
        """
        from pytest_llmperf.gpu.clocks import ClockLock

        assert isinstance(self._holder, ClockLock), "nothing is held"
        before = self.clock
        with self._config.stash[RECORDER].alone(), self._holder.free():
            self.clock = None
            try:
                yield
            finally:
                self.clock = before

    def header(self) -> list[str]:
        """What to say at the start: the clock, what was found left behind, what is doubtful."""
        lines = [f"gpu clock: {self.clock} on {_names(self.boards())}"] if self.clock is not None else []
        return lines + [f"gpu: {note}" for note in self.notes]

    def close(self) -> None:
        """Give the clock back and close the boards; it may be closed again."""
        try:
            self._held.close()
        finally:
            self.clock = self._of_session = None
            self._devices = self._holder = None
            self._open.close()

    def _nearest(self, mhz: int | None) -> HeldClock:
        """What the boards can do of an SM clock (``None``: free) beside the session's memory clock."""
        from pytest_llmperf.gpu.clocks import HeldClock, SnappedClock, common_memory_clocks
        from pytest_llmperf.gpu.clocks.control import Clock

        for value, name in ((mhz, "GPU clock"), (self._requested_memory, "GPU memory clock")):
            if value is not None and value < 1:
                raise OptionError(f"A {name} is a frequency in MHz, not {value}.")
        devices = self.devices()
        if not devices:
            raise GpuError(
                f"There is no GPU whose clock could be held at {Clock(mhz, self._requested_memory)}.",
                remedy="Check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave the clock alone.",
            )
        memory = None
        if self._requested_memory is not None:
            memory = SnappedClock.nearest(self._requested_memory, common_memory_clocks(devices))
        sm = None if mhz is None else SnappedClock.nearest(mhz, self._sm_clocks())
        return HeldClock(sm, memory, self._expected)

    def _sm_clocks(self) -> tuple[int, ...]:
        """Those that all boards can do beside the session's memory clock."""
        from pytest_llmperf.gpu.clocks import common_clocks, common_memory_clocks, snap

        devices, asked = self.devices(), self._requested_memory
        memory = None if asked is None or not devices else snap(asked, common_memory_clocks(devices))
        return common_clocks(devices, memory)

    @contextmanager
    def _hold(self, clock: HeldClock) -> Iterator[None]:
        if self._holder is None:
            self._holder = self._new_holder()
        if not self._expected:
            self.before_hold()
        with self._holder.hold(clock.locked_mhz, clock.memory_mhz):
            yield

    def _new_holder(self) -> ClockLock | ExpectedClock:
        from pytest_llmperf.gpu.clocks import ClockLock, ExpectedClock
        from pytest_llmperf.gpu.clocks.control import Clock
        from pytest_llmperf.gpu.clocks.recovery import release_stale

        if self._expected:
            return ExpectedClock()
        if self.simulated is not None:
            return ClockLock(self.simulated.devices[:1], controls=[self.simulated], guarded=False)
        for recovered in release_stale():
            # The header is where one looks for it; what locks after that, or in a worker, has warnings only.
            if self.asked_for and self._controller is None:
                self.notes.append(str(recovered))
            else:
                warnings.warn(f"llmperf: {recovered}", stacklevel=2)
        lent = None
        if self._controller is not None and self.clock is not None:
            lent = (self._controller, Clock(self.clock.locked_mhz, self.clock.memory_mhz))
        return ClockLock(self.devices(), within=lent)


def _names(boards: tuple[Board, ...]) -> str:
    return ", ".join(f"GPU {board.index} ({'simulated ' * board.simulated}{board.name})" for board in boards)


def _asked_for(config: pytest.Config) -> EngineChoice | None:
    """The simulated engine that the command line or the ini file names; ``None`` where they name none."""
    text = config.getoption("--llmperf-engine") or config.getini("llmperf_engine") or ""
    if not text.startswith("sim:"):
        return None
    from pytest_llmperf.engines.spec import choose

    return choose(text, gpus=(), gate_needs_gpu=False)
