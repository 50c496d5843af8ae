"""Which scale an axis has, and where its ticks are: a template cannot know, because it depends on the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_llmperf.report.charts.chart import Param, shown
from pytest_llmperf.report.charts.quantities import Quantity

__all__ = ["of_figures", "of_sizes"]

#: Sizes that were chosen (batches, rates, lengths) go by doubling, and need no more to be put on a log axis.
_DECADE = 10.0
#: Figures are put on one where a linear axis would hide the small ones.
_WIDE = 30.0
#: Ticks of sizes on a log axis are that much apart.
_DOUBLE = 1.8
#: More sizes than these are not told one by one.
_MANY = 16
#: The leading digits of ticks on a log axis, where it spans many decades, some, and less than one.
_DIGITS: tuple[tuple[float, Sequence[float]], ...] = (
    (1e4, (1.0,)), (30.0, (1.0, 2.0, 5.0)), (4.0, (1.0, 2.0, 3.0, 5.0, 7.0)),
    (0.0, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)),
)  # fmt: skip


def of_sizes(name: str, of: Quantity, values: Iterable[float]) -> dict[str, Param]:
    """The parameters of an axis of sizes that were chosen: log from a decade on, with a tick at each.

    Args:
        name: Of the axis, ``"x"`` or ``"y"``.
        of: What it shows.
        values: All of them, in the chart's unit.
    """
    sizes = sorted({value for value in values if math.isfinite(value)})
    log = _is_log(sizes, _DECADE)
    ticks = _apart(sizes) if log else sizes if len(sizes) <= _MANY else []
    return _axis(name, of, log, ticks)


def of_figures(name: str, of: Quantity, values: Iterable[float], *, log: bool | None = None) -> dict[str, Param]:
    """The parameters of an axis of what was measured.

    Args:
        name: Of the axis.
        of: What it shows.
        values: All of them, in the chart's unit.
        log: Whether it is a log axis; by the values if it is not said.
    """
    figures = sorted(value for value in values if math.isfinite(value))
    chosen = _is_log(figures, _WIDE) if log is None else log
    found = _axis(name, of, chosen, _ticks(figures) if chosen else [])
    return {**found, f"{name}_title": f"{of.axis}, log scale"} if chosen else found


def _axis(name: str, of: Quantity, log: bool, ticks: Sequence[float]) -> dict[str, Param]:
    return {
        name: of.field,
        f"{name}_title": of.axis,
        f"{name}_scale": "log" if log else "linear",
        f"{name}_zero": None if log else False,
        f"{name}_ticks": [shown(tick) for tick in ticks],
        f"{name}_label": of.label,
    }


def _apart(sizes: Sequence[float]) -> list[float]:
    """Those that nearly double: between them a log axis has no room for a label."""
    kept: list[float] = []
    for size in sizes:
        if not kept or size >= _DOUBLE * kept[-1]:
            kept.append(size)
    return kept if len(kept) <= _MANY else _ticks(sizes)


def _is_log(values: Sequence[float], wide: float) -> bool:
    return bool(values) and values[0] > 0 and values[-1] >= wide * values[0]


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers between the least and the greatest of some above 0."""
    low, high = values[0], values[-1]
    digits = next(digits for wide, digits in _DIGITS if high >= wide * low)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    round_numbers = [float(f"{digit:g}e{exponent}") for exponent in exponents for digit in digits]
    return [tick for tick in round_numbers if 0.97 * low <= tick <= 1.03 * high]
