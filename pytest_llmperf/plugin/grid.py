"""At which clocks to sweep the boards in use, known when tests are collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_llmperf.errors import OptionError
from pytest_llmperf.plugin.keys import BOARDS

if TYPE_CHECKING:
    import pytest

__all__ = ["clock_grid", "grid_within"]


def clock_grid(config: pytest.Config, *, low: int = 750, high: int = 1300, step: int = 50) -> list[int]:
    """SM clocks in MHz over which to sweep the boards in use, ascending.

    Those from ``low`` to ``high`` that all boards reach. Boards that reach none of them are swept over their own range,
    and where nothing is known of the boards it is all of them. For a ``pytest_generate_tests`` of your own::

        from pytest_llmperf.plugin import clock_grid

        def pytest_generate_tests(metafunc):
            if "gpu_clock" in metafunc.fixturenames:
                metafunc.parametrize("gpu_clock", clock_grid(metafunc.config), indirect=True)

    Args:
        config: Of the session: it knows the engine and its boards.
        low: The first, in MHz.
        high: The last, in MHz.
        step: From one to the next, in MHz; the boards lock at the nearest that they support.

    Raises:
        OptionError: these are no clocks.
    """
    return grid_within(config.stash[BOARDS].supported_clocks(), low, high, step)


def grid_within(supported: Sequence[int], low: int, high: int, step: int) -> list[int]:
    """The same for boards that support these clocks, ascending; none: nothing is known of them.

    Raises:
        OptionError: these are no clocks.
    """
    if not (0 < low <= high and step > 0):
        raise OptionError(
            f"A grid of clocks runs from a low to a high one by a step, not {low} to {high} by {step} MHz."
        )
    asked = range(low, high + 1, step)
    if not supported:
        return list(asked)
    lowest, highest = supported[0], supported[-1]
    within = [clock for clock in asked if lowest <= clock <= highest]
    return within or list(range(-(-lowest // step) * step, highest + 1, step)) or [highest]
