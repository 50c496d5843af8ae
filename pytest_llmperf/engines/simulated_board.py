"""The board that a simulated engine runs on, as the engine sees it: it asks for the clocks and tells what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["NoBoard", "SimulatedBoard"]


class SimulatedBoard(Protocol):
    """Whoever wants to know what the engine does, and holds its clocks."""

    @property
    def max_sm_clock_mhz(self) -> int:
        """The SM clock in MHz at which the board's peaks hold."""
        ...

    @property
    def max_memory_clock_mhz(self) -> int:
        """The memory clock in MHz at which the board's peaks hold."""
        ...

    def sm_clock_mhz(self) -> int:
        """The SM clock in MHz of what begins now."""
        ...

    def memory_clock_mhz(self) -> int:
        """The memory clock in MHz of what begins now."""
        ...

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
        """The engine has taken so many bytes of the memory."""
        ...

    def unload(self) -> None:
        """The engine has given them back."""
        ...

    def occupy(self, start_ns: int, end_ns: int, *, memory: float, compute: float) -> None:
        """The engine works in this span, told when it begins; spans come in the order of time and do not overlap.

        Args:
            start_ns: In the engine's time.
            end_ns: Likewise.
            memory: Share of the peak bandwidth that is used, 0 to 1.
            compute: Share of the FLOPs that are used, of those which the present clock allows, 0 to 1.
        """
        ...


class NoBoard:
    """Nobody who would want to know; clocks run free."""

    max_sm_clock_mhz = 1
    max_memory_clock_mhz = 1

    def sm_clock_mhz(self) -> int:
        """The highest."""
        return 1

    def memory_clock_mhz(self) -> int:
        """The highest."""
        return 1

    def attach(self, now: Callable[[], int], *, power_scale: float) -> None:
        """Nothing."""

    def detach(self) -> None:
        """Nothing."""

    def load(self, size: int) -> None:
        """Nothing."""

    def unload(self) -> None:
        """Nothing."""

    def occupy(self, start_ns: int, end_ns: int, *, memory: float, compute: float) -> None:
        """Nothing."""
