"""Small charts as inline SVG: numbers in, text out, nothing to download."""

from __future__ import annotations

from pytest_llmperf.report.results import MetricValue, VerdictRecord
from pytest_llmperf.report.units import format_value

__all__ = ["strip"]

_WIDTH, _HEIGHT, _MARGIN = 240, 34, 6


def strip(metric: MetricValue, verdict: VerdictRecord | None) -> str:
    """A metric's repeats as dots on one axis, the baseline's as rings, with the tolerance as a band.

    Args:
        metric: One dot a repeat, one row a launch.
        verdict: Brings the baseline and the tolerance; ``None`` when the metric was not gated.
    """
    values = [v for launch in metric.launches for v in launch]
    if not values:
        return ""
    before = [v for launch in verdict.baseline_launches for v in launch] if verdict else []
    band = None
    if verdict is not None and verdict.baseline is not None:
        factor = 1 + verdict.tolerance
        band = (verdict.baseline / factor, verdict.baseline * factor)
    everything = values + before + list(band or ())
    low, high = min(everything), max(everything)
    # Noise of a few per cent should look small: the axis spans at least a tenth of the value.
    short = 0.1 * abs(high) - (high - low)
    if short > 0:
        low, high = low - short / 2, high + short / 2
    span = high - low or 1.0

    def x(value: float) -> str:
        return f"{_MARGIN + (value - low) / span * (_WIDTH - 2 * _MARGIN):.1f}"

    label = f"{len(values)} repeats in {len(metric.launches)} launches from {format_value(min(values), metric.unit)} "
    label += f"to {format_value(max(values), metric.unit)}"
    parts = [
        f'<svg class="strip" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}"><title>{label}</title>'
    ]
    if band is not None and verdict is not None and verdict.baseline is not None:
        left, right = float(x(band[0])), float(x(band[1]))
        parts.append(f'<rect class="band" x="{left}" y="2" width="{right - left:.1f}" height="{_HEIGHT - 4}"/>')
        centre = x(verdict.baseline)
        parts.append(f'<line class="centre" x1="{centre}" x2="{centre}" y1="2" y2="{_HEIGHT - 2}"/>')
    parts += [f'<circle class="before" cx="{x(v)}" cy="{_HEIGHT * 0.3:.1f}" r="2.6"/>' for v in before]
    parts += [f'<circle class="now" cx="{x(v)}" cy="{_HEIGHT * 0.7:.1f}" r="3"/>' for v in values]
    return "".join([*parts, "</svg>"])
