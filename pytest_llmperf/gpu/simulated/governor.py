"""The power limit of a simulated board: it acts on a running mean of the power, by way of the SM clock.

The mean is of first order: it follows the power with a time constant. While it is below the limit the board runs at
the clock that it was asked for, whatever it draws. From the moment at which it would exceed the limit, the board runs
at the highest clock that keeps it there, until the mean would keep below the limit at the clock asked for, or the board
rests. That is what a real one does with a burst: on an H200 prefill was seen to draw 890 W for less than a tenth of a
second and about 700 W from there on, at a lower clock, and to do so again after a decode or a pause.
"""

from __future__ import annotations

from math import exp, log

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.simulation.power import Draw
from pytest_llmperf.simulation.ramp import Course

__all__ = ["Governor"]

#: After so many time constants of rest nothing of what was before is left in the mean.
_FORGOTTEN = 20
#: Of the limit: rounding is no excess.
_ROUNDING = 1e-9


class Governor:
    """The running mean of a board's power.

    Args:
        limit_w: The power limit.
        constant_s: The mean's time constant.
        mean_w: What it begins with.

    Attributes:
        mean_w: The running mean right now.
        capped: Whether the limit takes from the clock.
        most_w: What the mean keeps below: the limit, but for rounding.
    """

    def __init__(self, limit_w: float, constant_s: float, mean_w: float) -> None:
        self.limit_w = limit_w
        self.most_w = limit_w * (1 + _ROUNDING)
        self.mean_w, self.capped = mean_w, False
        self._constant_s = constant_s

    def begin(self, watts: float) -> None:
        """So much has been drawn for long."""
        self.mean_w, self.capped = watts, False

    def after(self, watts: float, seconds: float) -> float:
        """The running mean when so much was drawn for so long, in W."""
        return watts + (self.mean_w - watts) * exp(-seconds / self._constant_s)

    def rest(self, watts: float, seconds: float) -> None:
        """The board rests, and draws so much, no more than the limit: nothing is capped any more."""
        self.capped = False
        forgotten = seconds > _FORGOTTEN * self._constant_s
        self.mean_w = watts if forgotten else self.after(watts, seconds)

    def follow(self, course: Course, count: int, draw: Draw) -> None:
        """The board has done so many steps of a course that keeps below the limit.

        Args:
            course: How they went; the limit looks at it as if nothing stretched it.
            count: How many of them.
            draw: The power at the clocks at which they did.
        """
        self.capped = False
        lasts, constant_ns = course.lasts_ns, self._constant_s * NS_PER_S * course.stretch
        first = max(0, count - 1 - int(_FORGOTTEN * constant_ns / lasts[0]))
        # Of all steps in nanoseconds times watts, but for what is drawn at rest.
        busy, memory, compute = course.busy, course.memory, course.compute
        busy_w, memory_w, compute_w = (
            draw.busy * max(1.0, course.stretch), draw.memory * course.stretch, draw.compute * course.stretch
        )  # fmt: skip
        joules = busy_w * busy.at(first) + memory_w * memory.at(first) + compute_w * compute.at(first)
        growth = busy_w * busy.growth + memory_w * memory.growth + compute_w * compute.growth
        mean_w, still, rate = self.mean_w - draw.still, draw.still, -1 / constant_ns
        for lasted in lasts[first:count]:
            watts = joules / lasted
            mean_w = watts + (mean_w - watts) * exp(lasted * rate)
            joules += growth
        self.mean_w = mean_w + still

    def free_s(self, watts: float) -> float:
        """How long the board can draw so much, more than the limit, until the mean has reached the limit, in s."""
        if self.mean_w >= self.limit_w:
            return 0.0
        return self._constant_s * log((watts - self.mean_w) / (watts - self.limit_w))
