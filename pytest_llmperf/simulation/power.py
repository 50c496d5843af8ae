"""What a board draws, as a function of its SM clock and of what is in use.

::

    P = idle + loaded (or context) + memory share x dram
        + (busy + memory share x memory + compute share x compute) x f/fmax x (V(f)/Vmax)^2

``idle`` and ``loaded`` are there whatever the board does: a longer run pays them longer; ``busy`` while a kernel runs.
With a CUDA context and nothing loaded ``context`` stands in the place of ``loaded``.
What the SMs do for it goes with V^2 f, what the memory itself draws does not. The voltage is flat up to a knee and
rises from there in a straight line. The memory share is of the peak bandwidth, the compute share of the FLOPs that the
SM clock allows (:class:`~pytest_llmperf.simulation.steps.Pace`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_llmperf.simulation.board import BoardModel

__all__ = ["Draw", "draw", "highest_clock", "voltage", "watts"]


class Draw(NamedTuple):
    """Power of a board in watts at one clock, as a linear function of what is in use.

    Attributes:
        still: With nothing in use.
        busy: More while a kernel runs.
        memory: More for each share of the peak bandwidth.
        compute: More for each share of the FLOPs that the clock allows.
    """

    still: float
    busy: float
    memory: float
    compute: float

    def watts(self, busy: float, memory: float, compute: float) -> float:
        """Without a limit; ``busy`` is the share of the time in which a kernel runs."""
        return self.still + busy * self.busy + memory * self.memory + compute * self.compute


def voltage(board: BoardModel, sm_mhz: float) -> float:
    """The voltage over the highest."""
    power, top = board.power, board.product.sm_clocks_mhz[1]
    above = max(0.0, sm_mhz - power.voltage_knee_mhz) / (top - power.voltage_knee_mhz)
    return power.voltage_floor + (1 - power.voltage_floor) * above


def draw(board: BoardModel, sm_mhz: float, *, loaded: bool, context: bool = False, scale: float = 1.0) -> Draw:
    """The power at a clock.

    Args:
        board: Which.
        sm_mhz: The SM clock in MHz.
        loaded: Whether a model is.
        context: Whether a process holds a CUDA context; of a loaded model one always does.
        scale: A factor on everything.
    """
    power = board.power
    switching = sm_mhz / board.product.sm_clocks_mhz[1] * voltage(board, sm_mhz) ** 2
    resident_w = power.loaded_w if loaded else context * power.context_w
    return Draw(
        scale * (power.idle_w + resident_w),
        scale * power.busy_w * switching,
        scale * (power.dram_w + power.memory_w * switching),
        scale * power.compute_w * switching,
    )


def watts(
    board: BoardModel, sm_mhz: float, *, loaded: bool, busy: float = 0.0, memory: float = 0.0, compute: float = 0.0
) -> float:
    """Power in watts without a limit.

    Args:
        board: Which.
        sm_mhz: The SM clock in MHz.
        loaded: Whether a model is.
        busy: Share of the time in which a kernel runs.
        memory: Share of the peak bandwidth in use.
        compute: Share of the FLOPs in use that this clock allows.
    """
    return draw(board, sm_mhz, loaded=loaded).watts(busy, memory, compute)


def highest_clock(
    clocks: Sequence[int], asked_mhz: int, limit: float, reached: Callable[[int], float], *, near_mhz: int | None = None
) -> int:
    """The highest of some clocks, up to the one asked for, at which a figure keeps within a limit; else the lowest.

    Args:
        clocks: In MHz, ascending.
        asked_mhz: The clock asked for.
        limit: Of the figure.
        reached: The figure at a clock; it does not fall with the clock.
        near_mhz: Where to begin to look: the nearer to the result, the less is looked at.
    """
    low, high = -1, bisect_right(clocks, asked_mhz)  # within the limit up to ``low``, beyond it from ``high`` on
    place = (bisect_right(clocks, near_mhz) if near_mhz is not None else high) - 1
    stride = 1
    while high - low > 1:
        if not low < place < high:
            place = (low + high) // 2
        if reached(clocks[place]) <= limit:
            low, place = place, place + stride
        else:
            high, place = place, place - stride
        stride *= 2
    return clocks[max(0, low)]
