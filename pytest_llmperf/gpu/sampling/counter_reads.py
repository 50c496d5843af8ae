"""When to read an energy counter so that the moments of its steps are known, at no more reads than a slow beat takes.

A read of the counter takes milliseconds inside the driver, so it cannot be read all the time. But it steps regularly:
who has seen a few steps reads just before and just after the next one and knows its moment to a few milliseconds, where
a beat of 20 ms knows it to 20. At first, and whenever a step did not come where it was expected, the counter is read
again and again until steps were seen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["CounterReads"]

#: Mean distance of two reads, ns.
_BEAT_NS = 20_000_000
#: Distance of two reads while every step is looked for, where a read takes less: at first, and later.
_DENSE_FIRST_NS, _DENSE_NS = 2_000_000, 4_000_000
#: How far before and after a step it is read, beyond what a read takes. Before is more, for who sleeps wakes late; how
#: much more turns out: others may have to be read at the same time.
_BEFORE_NS, _BEFORE_MOST_NS, _AFTER_NS = 2_000_000, 10_000_000, 1_500_000
#: How far a step may be from where the one before lets expect it.
_WANDER_NS = 200_000
#: A gap between steps that is no multiple of their period by this part of it is no sign of the period.
_OFF_BEAT = 0.2
#: Steps that tell the period.
_ENOUGH = 4
#: And the time that they have to span, so that a short period is told well too.
_ENOUGH_NS = 150_000_000
#: The last steps, which the period is told from.
_REMEMBERED = 40
#: A counter that does not step for so long while it is read all the time is read by the beat from then on.
_PATIENCE_NS = 500_000_000
#: So is one of whose steps so many were lost; a step that came as expected makes up for half of one.
_TOO_MANY_LOST = 4.0


class CounterReads:
    """Says when a counter is to be read next, from what was read.

    Args:
        now_ns: The time.

    Attributes:
        due_ns: When to read next; a time that has passed means at once.
        settled: Whether enough is known: steps can be expected, or will not be looked for any more.
    """

    def __init__(self, now_ns: int) -> None:
        self.due_ns = now_ns
        self.settled = False
        self._watched_since = now_ns
        self._target: int | None = None
        self._steps: deque[int] = deque(maxlen=_REMEMBERED)
        self._bounds = _Step(0, 0)
        self._last: tuple[int, float] | None = None
        self._period: float | None = None
        self._before_read = self._late = False
        self._before: float = _BEFORE_NS
        self._lost = 0.0
        self._regular = True

    @property
    def pressing(self) -> bool:
        """Whether the next read has to come on time: the one before an expected step."""
        return self._target is not None and not self._before_read

    @property
    def last_step_ns(self) -> int:
        """The last step whose moment is known well; 0 without one."""
        return self._steps[-1] if self._steps else 0

    def took(self, before_ns: int, after_ns: int, value: float) -> None:
        """Take note of a read.

        Args:
            before_ns: When it began.
            after_ns: When it returned.
            value: What it said.
        """
        at, cost = (before_ns + after_ns) // 2, after_ns - before_ns
        last, self._last = self._last, (at, value)
        # The first read says nothing of a step.
        step = None if last is None or value == last[1] else _Step(last[0], at)
        if not self._regular:
            self.due_ns = before_ns + _BEAT_NS
        elif self._target is None:
            self._watched(step, after_ns, cost)
        elif before_ns < self._target and not self._before_read:
            self._before_read, self._late = True, after_ns > self._target - _BEFORE_NS // 2
            self.due_ns = self._target + _AFTER_NS
        else:
            self._expected(step, after_ns, cost)

    def _watched(self, step: _Step | None, now: int, cost: int) -> None:
        """A read of those that follow each other without a pause."""
        self.due_ns = max(now, now - cost + (_DENSE_NS if self.settled else _DENSE_FIRST_NS))
        if step is not None:
            self._watched_since = now
            self._bounds = step
            self._steps.append(step.middle)
            if len(self._steps) >= _ENOUGH and self._steps[-1] - self._steps[0] >= _ENOUGH_NS:
                self._aim(cost)
        elif now - self._watched_since > _PATIENCE_NS:
            self._give_up(now)

    def _expected(self, step: _Step | None, now: int, cost: int) -> None:
        """The read after a step was due."""
        assert self._target is not None
        self._before_read = False
        if step is None and self._late:  # it may have come before the read before it, which was late
            self._read_earlier(cost)
        elif step is None:  # it came early, or is late
            self._lost += 1
            self._target = None
            self._watched_since = self.due_ns = now
            if self._lost > _TOO_MANY_LOST:
                self._give_up(now)
        elif step.until - step.after > 2 * (self._before + _AFTER_NS + cost):  # the read before it was not made in time
            self._read_earlier(cost)
        else:
            self._before = max(_BEFORE_NS, self._before * 0.9)
            self._lost = max(0.0, self._lost - 0.5)
            self._bounds = step.within(self._bounds, self._target - self._steps[-1])
            self._steps.append(self._bounds.middle)
            self._aim(cost)

    def _read_earlier(self, cost: int) -> None:
        self._before = min(_BEFORE_MOST_NS, self._before * 1.5)
        self._aim(cost)

    def _aim(self, cost: int) -> None:
        """Read about a step to come, as many periods ahead as keep the beat."""
        self.settled = True
        self._period = _period(self._steps, self._period)
        ahead = max(1, math.ceil(2 * _BEAT_NS / self._period))
        last = self._steps[-1]
        passed = 0 if self._target is None else max(0, round((self._target - last) / self._period))
        self._target = last + round((passed + ahead) * self._period)
        self.due_ns = self._target - round(self._before) - cost

    def _give_up(self, now: int) -> None:
        self.settled, self._regular = True, False
        self.due_ns = now + _BEAT_NS


def _period(steps: Sequence[int], about: float | None) -> float:
    """Time from one step to the next.

    Args:
        steps: Their moments, of which some may be missing.
        about: What it was found to be before; else none is missing between those that are closest to each other.
    """
    gaps = [b - a for a, b in pairwise(steps)]
    unit = about or min(gaps)
    # A gap that is no multiple is not of the rhythm: the steps moved there.
    whole = [gap for gap in gaps if gap > unit / 2 and abs(gap / unit - round(gap / unit)) < _OFF_BEAT] or gaps
    return sum(whole) / sum(max(1, round(gap / unit)) for gap in whole)


class _Step(NamedTuple):
    """A step lies between two moments."""

    after: int
    until: int

    @property
    def middle(self) -> int:
        return (self.after + self.until) // 2

    def within(self, former: _Step, later: int) -> _Step:
        """What is known of it if a former step lay so much earlier.

        Two reads about an expected step find it between them, wherever exactly it was expected: expecting it in their
        middle the next time would follow one's own error away from it.
        """
        narrow = _Step(
            max(self.after, former.after + later - _WANDER_NS), min(self.until, former.until + later + _WANDER_NS)
        )
        return narrow if narrow.after < narrow.until else self
