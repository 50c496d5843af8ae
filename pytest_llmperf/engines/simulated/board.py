"""The boards that a simulated engine runs on, as the engine sees them: they say when a step ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.ramp import Course, Ramp, foresee
from pytest_llmperf.simulation.steps import Pace

__all__ = ["NoBoard", "SimulatedBoard"]


class SimulatedBoard(Protocol):
    """Whoever holds the clocks and the power limit, and remembers what was done; one board or several alike."""

    def attach(self, now: Callable[[], int], *, power_scale: float) -> None:
        """The engine opens.

        Args:
            now: Its time in ns, which is the board's until it closes.
            power_scale: A factor on the board's power.
        """
        ...

    def detach(self) -> None:
        """The engine has closed."""
        ...

    def load(self, size: int) -> None:
        """The engine has taken so many bytes of the memory of each GPU."""
        ...

    def unload(self) -> None:
        """The engine has given them back."""
        ...

    def run(
        self, start_ns: int, pace: Callable[[float, float], Pace], *, stretch: float = 1.0, until_ns: int = 0
    ) -> int:
        """The engine does a step; steps come in the order of time, do not overlap, and may lie ahead of now.

        Args:
            start_ns: When it begins, in the engine's time.
            pace: How long each GPU takes for it and what it uses meanwhile, at an SM and a memory clock in MHz.
            stretch: A factor on the whole time, also where the power limit acts: the limit takes from the clock what it
                would take without. What is used is spread over it.
            until_ns: The step does not end before: the host is still launching it. The same work is spread over that
                time.

        Returns:
            When it ends, in the engine's time: later than at the clocks held where the power limit takes from them.
        """
        ...

    def foresee(self, start_ns: int, ramp: Ramp, until_ns: int) -> Course | None:
        """How steps that grow evenly will go.

        Args:
            start_ns: When the first begins, in the engine's time.
            ramp: The steps.
            until_ns: Steps that begin later need not be foreseen.

        Returns:
            Their course, as :meth:`run` would do them one by one; ``None``: it has to.
        """
        ...

    def follow(self, course: Course, count: int) -> None:
        """The engine does the first so many steps of a course that was foreseen, with nothing done in between."""
        ...

    def abandon(self) -> None:
        """What was foretold for after now does not happen."""
        ...


class NoBoard:
    """Nobody who would remember anything, without power and without a limit.

    Args:
        sm_mhz: The SM clock at which everything runs.
        memory_mhz: The memory clock likewise.
    """

    def __init__(self, sm_mhz: float, memory_mhz: float) -> None:
        self._clocks = (sm_mhz, memory_mhz)

    @classmethod
    def of(cls, board: BoardModel) -> NoBoard:
        """At the highest clocks of a board."""
        return cls(board.product.sm_clocks_mhz[1], board.product.memory_clocks_mhz[-1])

    def attach(self, now: Callable[[], int], *, power_scale: float) -> None:
        """Nothing."""

    def detach(self) -> None:
        """Nothing."""

    def load(self, size: int) -> None:
        """Nothing."""

    def unload(self) -> None:
        """Nothing."""

    def run(
        self, start_ns: int, pace: Callable[[float, float], Pace], *, stretch: float = 1.0, until_ns: int = 0
    ) -> int:
        """When a step ends that nothing slows down."""
        return max(start_ns + round(pace(*self._clocks).seconds * stretch * NS_PER_S), until_ns)

    def foresee(self, start_ns: int, ramp: Ramp, until_ns: int) -> Course | None:
        """How steps go that nothing slows down."""
        return foresee(ramp, start_ns, until_ns, *self._clocks)

    def follow(self, course: Course, count: int) -> None:
        """Nothing."""

    def abandon(self) -> None:
        """Nothing."""
