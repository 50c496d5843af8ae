"""What a simulated board did, as levels that hold from one change to the next.

Energy is the integral of the power, and every sensor shows a mean or an integral over some span. So the integrals up to
each change are kept, from the first time on that one is asked for: a change costs next to nothing, a look at any moment
one bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from pytest_llmperf.clock import NS_PER_S

__all__ = ["History", "Level"]

#: The attributes of a level that are integrated.
_INTEGRATED = ("watts", "busy", "capped", "dram", "tensor")


class Level(NamedTuple):
    """What holds from one change to the next.

    Attributes:
        watts: True power.
        sm_mhz: SM clock.
        memory_mhz: Memory clock.
        memory_used: Bytes in use.
        busy: Whether something runs.
        capped: Whether the power limit takes away from the clock.
        dram: Share of the peak bandwidth in use.
        tensor: Share of the FLOPs in use that the clock allows.
    """

    watts: float
    sm_mhz: int
    memory_mhz: int
    memory_used: int
    busy: bool = False
    capped: bool = False
    dram: float = 0.0
    tensor: float = 0.0


class History:
    """Levels in the order of time. The first one held for ever before, the last one holds for ever after.

    Args:
        at_ns: When the integrals begin.
        level: The first.
    """

    def __init__(self, at_ns: int, level: Level) -> None:
        self._at = [at_ns]
        self._levels = [level]
        #: Up to each change, as far as it was summed up.
        self._sums = {name: array("d", [0.0]) for name in _INTEGRATED}

    def __len__(self) -> int:
        return len(self._levels)

    @property
    def end_ns(self) -> int:
        """When the last level begins."""
        return self._at[-1]

    def change(self, at_ns: int, level: Level) -> None:
        """From ``at_ns`` on this level holds, instead of one that begins there.

        Raises:
            ValueError: a later one is there already.
        """
        end = self._at[-1]
        if at_ns < end:
            raise ValueError(f"a change at {at_ns} ns comes before the last one at {end} ns")
        if at_ns == end:
            self._levels[-1] = level
            return
        self._at.append(at_ns)
        self._levels.append(level)

    def cut(self, at_ns: int) -> None:
        """Forget what was foretold for after ``at_ns``; the level that holds there goes on."""
        kept = max(1, bisect_right(self._at, at_ns))
        del self._at[kept:], self._levels[kept:]
        for total in self._sums.values():
            del total[kept:]

    def forget(self, before_ns: int) -> None:
        """Forget what ended before; the integrals go on."""
        gone = max(0, bisect_right(self._at, before_ns) - 1)
        for name in _INTEGRATED:
            del self._summed(name)[:gone]
        del self._at[:gone], self._levels[:gone]

    def restart(self, at_ns: int) -> None:
        """Forget what was before, and count every integral from 0 there: what follows owes no bit to what was.

        Args:
            at_ns: Not before the first level that is still known.
        """
        self.forget(at_ns)
        self._at[0] = max(at_ns, self._at[0])
        self._sums = {name: array("d", [0.0]) for name in _INTEGRATED}

    def level(self, at_ns: int) -> Level:
        """What holds at a moment."""
        return self._levels[self._place(at_ns)]

    def integral(self, name: str, at_ns: int) -> float:
        """The integral of an attribute up to a moment, per second: watts come out as joules."""
        place = self._place(at_ns)
        rate = getattr(self._levels[place], name)
        return self._summed(name)[place] + float(rate * (at_ns - self._at[place]) / NS_PER_S)

    def mean(self, name: str, start_ns: int, end_ns: int) -> float:
        """The mean of an attribute over a span; of no span, what holds there."""
        if end_ns <= start_ns:
            return float(getattr(self.level(end_ns), name))
        gained = self.integral(name, end_ns) - self.integral(name, start_ns)
        return gained / ((end_ns - start_ns) / NS_PER_S)

    def share(self, name: str, start_ns: int, end_ns: int) -> float:
        """The same mean of an attribute that is a share: never beyond 0 to 1 by rounding."""
        return min(1.0, max(0.0, self.mean(name, start_ns, end_ns)))

    def pieces(self, start_ns: int, end_ns: int) -> Iterator[tuple[Level, int]]:
        """Each level within a span, and for how many nanoseconds of it it holds."""
        for place in range(self._place(start_ns), len(self._levels)):
            begins = max(start_ns, self._at[place]) if place else start_ns
            if begins >= end_ns:
                return
            ends = self._at[place + 1] if place + 1 < len(self._at) else end_ns
            yield self._levels[place], min(ends, end_ns) - begins

    def _summed(self, name: str) -> array[float]:
        """The integral of an attribute up to each change."""
        sums, at, rate = self._sums[name], self._at, attrgetter(name)
        total = sums[-1]
        for place in range(len(sums), len(at)):
            total += float(rate(self._levels[place - 1]) * (at[place] - at[place - 1]) / NS_PER_S)
            sums.append(total)
        return sums

    def _place(self, at_ns: int) -> int:
        return max(0, bisect_right(self._at, at_ns) - 1)
