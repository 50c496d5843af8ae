"""Xid errors through NVML's event sets: what the driver reported of a board since somebody listens."""

from __future__ import annotations

from typing import Any

from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.nvml.driver import Driver

__all__ = ["NvmlFaultWatch"]

_WHAT = "Xid errors"
_EVENT_XID = 0x8
#: A board that reports without end must not keep its reader for ever.
_MOST_EVENTS = 100


class NvmlFaultWatch:
    """Listens to the Xid errors of one board; keeps the contract of :class:`pytest_llmperf.gpu.FaultWatch`.

    Args:
        driver: The open driver.
        events: An event set of it, with the board registered.
    """

    def __init__(self, driver: Driver, events: Any) -> None:
        self._driver = driver
        self._events: Any | None = events

    @classmethod
    def begun(cls, driver: Driver, handle: Any) -> Reading[NvmlFaultWatch]:
        """A watch of the board with this handle: what it reports from now on is kept by the driver."""
        events = driver.read(_WHAT, "nvmlEventSetCreate")
        if isinstance(events, Unreadable):
            return events
        watch = cls(driver, events)
        registered = driver.read(_WHAT, "nvmlDeviceRegisterEvents", handle, _EVENT_XID, events)
        if isinstance(registered, Unreadable):
            watch.close()
            return registered
        return watch

    def read(self) -> Reading[list[int]]:
        """Their numbers, in order, since the watch was begun or read last."""
        if self._events is None:
            return Unreadable(f"{_WHAT}: the watch is closed")
        found: list[int] = []
        while len(found) < _MOST_EVENTS:
            event = self._driver.poll(_WHAT, "nvmlEventSetWait_v2", self._events, 0)
            if event is None:
                break
            if isinstance(event, Unreadable):
                return found or event
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        """Stop to listen; it may be closed again."""
        events, self._events = self._events, None
        if events is not None:
            self._driver.read(_WHAT, "nvmlEventSetFree", events)
