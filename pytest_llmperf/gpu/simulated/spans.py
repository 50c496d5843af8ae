"""What a simulated board works on, written into its history.

A server works in steps of a few milliseconds, hundreds of thousands in a long run, and no sensor looks that closely. So
steps that follow one another without a pause, at one clock, become one level with their means: the integrals stay what
they were. No level that is more than one step goes past a moment at which a reading of power or energy begins or ends,
so that these readings are to the digit those of the steps. Where steps that grow evenly come all at once, their levels
go from one such moment to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytest_llmperf.gpu.simulated.history import History, Level
from pytest_llmperf.simulation.power import Draw
from pytest_llmperf.simulation.ramp import Course

__all__ = ["Clocked", "Spans"]

#: A level of several steps is no longer than this: so often a sampler looks.
_LONGEST_NS = 10_000_000


class Clocked(NamedTuple):
    """What does not change within a level beside what is in use."""

    sm_mhz: int
    memory_mhz: int
    memory_used: int
    capped: bool = False


class Spans:
    """Takes what a board does, in the order of time; between two works it rests.

    The last level stays open, because what comes next may join it: :meth:`settle` before the history is read.

    Args:
        history: Where it goes.
        rest: What holds while nothing is worked on.
        edge: The first moment after a given one that no level of several works may go past.
    """

    def __init__(self, history: History, rest: Level, edge: Callable[[int], int]) -> None:
        self._history, self._rest, self._edge = history, rest, edge
        self.end_ns = history.end_ns
        self._open = self._written = False
        self._start_ns = self._stop_ns = 0
        self._clocked = Clocked(0, 0, 0)
        # Of the level that is open: the integrals over nanoseconds.
        self._energy = self._memory = self._compute = 0.0

    def work(self, start_ns: int, end_ns: int, clocked: Clocked, watts: float, memory: float, compute: float) -> None:
        """Something is worked on.

        Args:
            start_ns: In ns of the board's life.
            end_ns: Likewise.
            clocked: At which clocks, and in which state.
            watts: Mean power.
            memory: Share of the peak bandwidth.
            compute: Share of the FLOPs that the clock allows.

        Raises:
            ValueError: it begins before the end of the last one.
        """
        lasts = end_ns - start_ns
        if start_ns == self.end_ns and end_ns <= self._stop_ns and self._open and clocked == self._clocked:
            if self._written:
                self._history.cut(self._start_ns)
                self._written = False
            self._energy += watts * lasts
            self._memory += memory * lasts
            self._compute += compute * lasts
            self.end_ns = end_ns
            return
        if start_ns < self.end_ns:
            raise ValueError(f"a work at {start_ns} ns comes before the end of the last one at {self.end_ns} ns")
        if start_ns > self.end_ns:
            self.settle()
        elif self._open and not self._written:
            self._write()
        self._open, self._written = True, False
        self._start_ns, self.end_ns = start_ns, end_ns
        self._stop_ns = min(start_ns + _LONGEST_NS, self._edge(start_ns))
        self._clocked = clocked
        self._energy, self._memory, self._compute = watts * lasts, memory * lasts, compute * lasts

    def follow(self, course: Course, end_ns: int, shift_ns: int, clocked: Clocked, draw: Draw) -> None:
        """Steps that grow evenly are worked on.

        Args:
            course: How they go.
            end_ns: When they end, in the time of the course.
            shift_ns: From that time to the board's life.
            clocked: At which clocks, and in which state.
            draw: The power at these.
        """
        self.settle()
        start, end = course.start_ns + shift_ns, end_ns + shift_ns
        sm_mhz, memory_mhz, memory_used, _ = clocked
        busy = memory = compute = 0.0
        while start < end:
            stop = self._edge(start)
            # Within a step the power is what it is: there is nothing to be cut.
            stop = min(end, max(stop, course.ends_ns[course.step_at(start - shift_ns)] + shift_ns))
            ran, moved, computed = course.used(stop - shift_ns)
            lasts = stop - start
            dram, tensor = (moved - memory) / lasts, (computed - compute) / lasts
            watts = draw.watts((ran - busy) / lasts, dram, tensor)
            self._history.change(start, Level(watts, sm_mhz, memory_mhz, memory_used, True, False, dram, tensor))
            start, busy, memory, compute = stop, ran, moved, computed
        self._open, self.end_ns = False, end
        self._history.change(end, self._rest)

    def settle(self) -> None:
        """Let the history say all that was worked on, and that it rests after it."""
        if self._open and not self._written:
            self._write()
            self._written = True
            self._history.change(self.end_ns, self._rest)

    def close(self) -> None:
        """Let nothing that comes join what was worked on so far."""
        self.settle()
        self._open = False

    def rest(self, at_ns: int, level: Level) -> None:
        """From a moment on, not before the end of what was worked on, it rests like this."""
        self.close()
        self._rest, self.end_ns = level, max(at_ns, self.end_ns)
        self._history.change(self.end_ns, level)

    def cut(self, at_ns: int) -> None:
        """What was to be worked on after a moment is not."""
        self.settle()
        if self.end_ns > at_ns:
            self._open, self.end_ns = False, at_ns
            self._history.cut(at_ns)
            self._history.change(at_ns, self._rest)

    def _write(self) -> None:
        lasts, clocked = self.end_ns - self._start_ns, self._clocked
        if lasts == 0:
            return
        level = Level(
            self._energy / lasts, clocked.sm_mhz, clocked.memory_mhz, clocked.memory_used, True, clocked.capped,
            self._memory / lasts, self._compute / lasts,
        )  # fmt: skip
        self._history.change(self._start_ns, level)
