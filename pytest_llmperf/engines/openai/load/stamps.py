"""The kernel's receive times, on the clock that everything else is measured with.

A process that is woken late reads late, and a time stamp taken after the read says when the client was scheduled,
not when the server answered. Linux notes for every TCP segment when it was received and hands that time out with the
read (``SO_TIMESTAMPNS``). Three facts shape this module:

- A read that takes several segments brings the time of the last one only.
- The stamps are of the wall clock (``CLOCK_REALTIME``), which may be set while we measure. They are converted with
  differences between the two clocks that are sampled all along, and distrusted around a step.
- The kernel begins to stamp a little after the first socket of the machine asks for it; segments that arrive before
  have none.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["CMSG_SPACE", "ClockMap", "ask_for_stamps", "stamp_of"]

#: socket.h: equal on all of Linux but a few architectures that no inference server runs on.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
#: Room for one struct timespec as ancillary data.
CMSG_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)

#: What adjtime and NTP may do to the wall clock's speed (500 ppm), twice.
_SLEW = 1e-3
#: Reading two clocks one after the other has this error when the process is interrupted in between.
_SLACK_NS = 20_000


def ask_for_stamps(sock: socket.socket) -> bool:
    """Turn the kernel's receive stamps on; ``False`` where the platform has none."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def stamp_of(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """The stamp among a read's ancillary data, in ns of the wall clock; 0 when there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0


class ClockMap:
    """Converts the wall clock's times to ``CLOCK_MONOTONIC``.

    :meth:`sample` is called when a load starts, now and then during it, and when it has ended.
    """

    def __init__(self) -> None:
        self._monotonic: list[int] = []
        self._offset: list[int] = []

    def sample(self) -> None:
        """Read both clocks together."""
        self.add(*min((_both() for _ in range(5)), key=lambda reading: reading[2])[:2])

    def add(self, monotonic_ns: int, wall_ns: int) -> None:
        """Take in one reading of both clocks."""
        self._monotonic.append(monotonic_ns)
        self._offset.append(wall_ns - monotonic_ns)

    def monotonic(self, wall_ns: int, seen_ns: int) -> int | None:
        """The monotonic time of a stamp, or ``None`` when it cannot be told.

        Args:
            wall_ns: The stamp.
            seen_ns: Monotonic time at which the read that brought it had returned.

        Returns:
            ``None`` when the wall clock was set around that time, or when the result would lie after ``seen_ns``.
        """
        after = bisect_right(self._monotonic, seen_ns)
        first, last = max(0, after - 2), min(len(self._offset) - 1, after)
        if any(self._stepped(i) for i in range(first, last)):
            return None
        nearest = min(max(after - 1, 0), len(self._offset) - 1)
        if last > nearest:
            span = self._monotonic[last] - self._monotonic[nearest]
            share = (seen_ns - self._monotonic[nearest]) / span if span else 0.0
            offset = self._offset[nearest] + round(share * (self._offset[last] - self._offset[nearest]))
        else:
            offset = self._offset[nearest]
        converted = wall_ns - offset
        if converted > seen_ns + _SLACK_NS:
            return None
        return min(converted, seen_ns)

    @property
    def drift_ns(self) -> int:
        """By how much the clocks' difference changed over all samples."""
        return max(self._offset) - min(self._offset) if self._offset else 0

    @property
    def stepped(self) -> bool:
        """Whether the wall clock was set between two samples."""
        return any(self._stepped(i) for i in range(len(self._offset) - 1))

    def _stepped(self, index: int) -> bool:
        elapsed = self._monotonic[index + 1] - self._monotonic[index]
        return abs(self._offset[index + 1] - self._offset[index]) > _SLEW * elapsed + _SLACK_NS


def _both() -> tuple[int, int, int]:
    before = time.monotonic_ns()
    wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after = time.monotonic_ns()
    return (before + after) // 2, wall, after - before
