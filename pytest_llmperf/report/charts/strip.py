"""Small charts as inline SVG: numbers in, text out, nothing to download."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import format_interval, plural
from pytest_llmperf.results import MetricValue, VerdictRecord

__all__ = ["strip"]

_WIDTH, _HEIGHT, _MARGIN = 240, 42, 6
#: Heights of the rows: the baseline's repeats, the run's, the interval.
_BEFORE, _NOW, _INTERVAL = 11, 23, 34
#: An interval is drawn as far as it reaches at most so many widths of everything else to either side.
_REACH = 1.0


def strip(metric: MetricValue, verdict: VerdictRecord | None) -> str:
    """A metric's repeats as dots on one axis, the baseline's in another row, with the tolerance as a band.

    Below them a bar spans the values that the interval of the change leaves possible, on the same axis: a pass lies
    within the band on the side of worse, a regression outside. An end that is cut off is an arrow.

    Args:
        metric: One dot a repeat, one row a launch.
        verdict: Brings the baseline, the tolerance and the interval; ``None`` when the metric was not gated.
    """
    values = [v for launch in metric.launches for v in launch]
    if not values:
        return ""
    before = [v for launch in verdict.baseline_launches for v in launch] if verdict else []
    band = None
    if verdict is not None and verdict.baseline is not None and verdict.tolerance > -1:
        factor = 1 + verdict.tolerance
        band = (verdict.baseline / factor, verdict.baseline * factor)
    low, high = _axis([*values, *before, *(band or ())], _possible(verdict))
    span = high - low or 1.0

    def x(value: float) -> int:
        share = (value - low) / span
        return round(_MARGIN + share * (_WIDTH - 2 * _MARGIN)) if math.isfinite(share) else _MARGIN

    label = f"{plural(len(values), 'repeat')} in {plural(len(metric.launches), 'launch')} from "
    label += f"{format_value(min(values), metric.unit)} to {format_value(max(values), metric.unit)}"
    if verdict is not None and verdict.interval is not None:
        label += f"; change {format_interval(verdict.interval)}"
    parts = [f'<svg class="strip" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{label}</title>']
    if band is not None and verdict is not None and verdict.baseline is not None:
        left, right = x(band[0]), x(band[1])
        parts.append(f'<path class="band" d="M{left} 2H{right}V{_HEIGHT - 2}H{left}z"/>')
        parts.append(f'<path class="centre" d="M{x(verdict.baseline)} 2V{_HEIGHT - 2}"/>')
    # A stroke without length and with round caps is a dot; those at one place are one.
    if before:
        parts.append(f'<path class="before" d="{_dots(map(x, before), _BEFORE)}"/>')
    parts.append(f'<path class="now" d="{_dots(map(x, values), _NOW)}"/>')
    if (possible := _possible(verdict)) is not None:
        parts.append(f'<path class="interval" d="{_bar(*possible, low, high, x)}"/>')
    return "".join([*parts, "</svg>"])


def _dots(places: Iterable[int], height: int) -> str:
    return "".join(f"M{place} {height}h0" for place in sorted(set(places)))


def _possible(verdict: VerdictRecord | None) -> tuple[float, float] | None:
    """The values that the interval leaves possible, in the metric's unit."""
    if verdict is None or verdict.interval is None or verdict.baseline is None:
        return None
    least, most = verdict.interval
    return verdict.baseline * (1 + least), verdict.baseline * (1 + most)


def _axis(shown: list[float], interval: tuple[float, float] | None) -> tuple[float, float]:
    """Both ends of the axis. Noise of a few per cent should look small: it spans at least a tenth of the value."""
    low, high = min(shown), max(shown)
    short = 0.1 * abs(high) - (high - low)
    if short > 0:
        low, high = low - short / 2, high + short / 2
    if interval is not None:
        room = _REACH * (high - low)
        low, high = min(low, max(interval[0], low - room)), max(high, min(interval[1], high + room))
    return low, high


def _bar(least: float, most: float, low: float, high: float, x: Callable[[float], int]) -> str:
    """A line from end to end with a tick at each, or an arrow where the axis ends before."""
    left, right = x(max(least, low)), x(min(most, high))
    top, bottom = _INTERVAL - 4, _INTERVAL + 4
    path = f"M{left} {_INTERVAL}H{right}"
    for at, cut, inwards in ((left, least < low, 4), (right, most > high, -4)):
        path += f"M{at + inwards} {top}L{at} {_INTERVAL}L{at + inwards} {bottom}" if cut else f"M{at} {top}V{bottom}"
    return path
