"""Time: one monotonic clock for what is measured, one virtual clock for what is simulated.

All times in the package are integer nanoseconds of one clock. The real clock is ``CLOCK_MONOTONIC``, which on
Linux is one clock for all processes of a machine: an engine's own time stamps, taken in another process, can
be subtracted from ours.

A virtual clock drives an asyncio event loop in which waiting costs nothing: when every task waits, time jumps
to the moment at which the next one is due. The runner is the same code on both.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["NS_PER_S", "Clock", "MonotonicClock", "VirtualClock"]

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Where a time stamp comes from, and the event loop whose waiting follows that clock."""

    def now(self) -> int:
        """The present time in nanoseconds; only differences have a meaning."""
        ...

    async def sleep_until(self, when_ns: int) -> None:
        """Return at ``when_ns``, or at once if that is past."""
        ...

    def runner(self) -> asyncio.Runner:
        """A runner whose event loop lives on this clock; the caller closes it."""
        ...


class MonotonicClock:
    """``CLOCK_MONOTONIC``, and an ordinary event loop."""

    def now(self) -> int:
        """The present time in nanoseconds since an arbitrary start."""
        return time.monotonic_ns()

    async def sleep_until(self, when_ns: int) -> None:
        """Return at ``when_ns``; the event loop may be up to a millisecond late (its timer's grain)."""
        while (left := when_ns - self.now()) > 0:
            await asyncio.sleep(left / NS_PER_S)

    def runner(self) -> asyncio.Runner:
        """A runner on asyncio's default loop."""
        return asyncio.Runner()


class VirtualClock:
    """Time that passes only while every task waits, and then in a jump; starts at 0."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now(self) -> int:
        """The present virtual time in nanoseconds."""
        return self._now_ns

    async def sleep_until(self, when_ns: int) -> None:
        """Return at ``when_ns`` exactly: no task wakes between two due times."""
        while (left := when_ns - self._now_ns) > 0:
            await asyncio.sleep(left / NS_PER_S)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass: to the nearest nanosecond, and at least one.

        The event loop hands over differences of floats, which after an hour of virtual time are off by parts of a
        nanosecond in either direction. Rounding up would overshoot; a timer woken early sleeps on.
        """
        self._now_ns += max(1, round(seconds * NS_PER_S))

    def runner(self) -> asyncio.Runner:
        """A runner whose loop asks this clock for the time and jumps instead of waiting."""
        return asyncio.Runner(loop_factory=lambda: _VirtualLoop(self))


class _JumpingSelector(selectors.BaseSelector):
    """Advances the clock where a real selector would block."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that no timer will bring: a deadlock in virtual time")
        self._clock.advance(timeout)
        return ready

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.now() / NS_PER_S
