"""The time of a simulated board: one that never jumps, whichever clock drives it.

A board outlives the engines that run on it, and every engine begins at 0 in a virtual time of its own. While an engine
drives the board, the board's time is the engine's, shifted; otherwise it is a clock that a reading moves on by as long
as it would take on the product.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_llmperf.clock import NS_PER_S, VirtualClock

__all__ = ["Timeline"]


class Timeline:
    """Nanoseconds of a board's life, and the clock that they are told in outside."""

    def __init__(self) -> None:
        self._own = VirtualClock()
        self._driver: Callable[[], int] | None = None
        self._shift = 0

    def now(self) -> int:
        """The present, in nanoseconds of the board's life."""
        return self._own.now() if self._driver is None else self.inside(self._driver())

    @property
    def driven(self) -> bool:
        """Whether an engine's clock drives the board."""
        return self._driver is not None

    def attach(self, now: Callable[[], int]) -> None:
        """Be driven by a clock from the next whole second on.

        Every engine then begins at the same phase of the sensors: without noise its launches are equal.
        """
        present = -(-self.now() // NS_PER_S) * NS_PER_S
        self._shift = present - now()
        self._driver = now

    def detach(self) -> None:
        """Be driven by nothing but readings; times are still told in the clock of before."""
        if self._driver is not None:
            present = self.now()
            self._driver = None
            self._pass(present - self._own.now())

    def spend(self, ns: int) -> int:
        """Let time pass that a reading takes, unless a clock drives the board; the present then."""
        if self._driver is None:
            self._pass(ns)
        return self.now()

    def inside(self, at_ns: int) -> int:
        """A moment of the clock that drives the board, or drove it last, in the board's life."""
        return at_ns + self._shift

    def outside(self, at_ns: int) -> int:
        """The other way round."""
        return at_ns - self._shift

    def _pass(self, ns: int) -> None:
        if ns > 0:
            self._own.advance(ns / NS_PER_S)
