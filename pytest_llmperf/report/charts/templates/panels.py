"""Templates with several measures over one axis: the trace of a launch over time, a sweep over the clock.

The panels are one view, each with its own range of pixels, rather than a concatenation: only a single view can be
fitted to a width.
"""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt

from pytest_llmperf.report.charts.templates.parts import HEIGHT, chart, marks, nominal, number

__all__ = ["specs"]

_HEIGHT, _GAP = 92, 22
#: Below the panels of a trace.
_CAPPED = 18


@dataclass(frozen=True)
class _Panel:
    field: str
    title: str
    zero: bool = False


_POWER = _Panel("power_w", "power (W)")
_CLOCK = _Panel("clock_mhz", "SM clock (MHz)")
_ACTIVITY = _Panel("activity_percent", "SM activity (%)", zero=True)
_EFFICIENCY = _Panel("tokens_per_j", "$efficiency_title")
_LATENCY = _Panel("$latency", "$latency_title")


def specs() -> dict[str, alt.LayerChart]:
    """By name."""
    return {
        "trace": _trace(_POWER, _CLOCK),
        "trace_power": _trace(_POWER),
        "trace_activity": _trace(_POWER, _CLOCK, _ACTIVITY),
        "sweet_spot": _sweep(_EFFICIENCY, _POWER, _LATENCY),
        "sweet_spot_energy": _sweep(_EFFICIENCY, _POWER),
    }


def _y(panel: _Panel, place: list[int] | list[str]) -> alt.Y:
    scale = alt.Scale(zero=panel.zero, nice=True, range=place)
    # Left, all of them: Vega-Lite would put the axis of every further scale to the right.
    axis = alt.Axis(orient="left", offset=0, tickCount=4, titlePadding=8, minExtent=42, maxExtent=42)
    if panel is _CLOCK:
        axis.format = ".0f"
    return alt.Y(field=panel.field, type="quantitative", title=panel.title, scale=scale, axis=axis)


def _height(panels: int) -> int:
    return panels * _HEIGHT + (panels - 1) * _GAP


def _trace(*panels: _Panel) -> alt.LayerChart:
    below = _height(len(panels))
    height = below + _CAPPED
    title = "seconds from the first due request"
    x = alt.X(field="seconds", type="quantitative", title=title, scale=alt.Scale(nice=False), axis=alt.Axis(grid=False))
    start = alt.X(field="start", type="quantitative", title=title)
    color = alt.Color(field="phase", type="nominal", scale=alt.Scale(domain=["$phases"], range="category"),
                      legend=alt.Legend(symbolOpacity=0.5, title=None, values=["$shown"]))  # fmt: skip
    told = [nominal("phase", "phase"), number("start", "from (s)"), number("end", "to (s)")]
    phases = chart("phases").mark_rect(opacity=0.17, clip=True).encode(
        x=start, x2=alt.X2(field="end"), y=alt.value(0), y2=alt.value(below), color=color, tooltip=told
    )  # fmt: skip
    # In a lane of their own below the panels, with a name at the first stretch of each reason.
    held = chart("capped").encode(tooltip=[nominal("reason", "clock held down by"), *told[1:]])
    capped = held.mark_rect(style="mark-bar", clip=True).encode(
        x=start, x2=alt.X2(field="end"), y=alt.value(below + 4), y2=alt.value(height - 2)
    )
    named = held.transform_filter("isValid(datum.label)").mark_text(
        style="mark-text", baseline="middle", align=alt.ExprRef("datum.align"),
        dx=alt.ExprRef("datum.align == 'left' ? 5 : -5"),
    ).encode(
        x=alt.X(field="at", type="quantitative", title=title), y=alt.value((below + height) / 2 + 1),
        text=alt.Text(field="label", type="nominal"),
    )  # fmt: skip
    lines = []
    for at, panel in enumerate(panels):
        upper = at * (_HEIGHT + _GAP)
        y = _y(panel, [upper + _HEIGHT, upper])
        told_here = [number("seconds", "time (s)"), *(number(p.field, p.title) for p in panels)]
        base = chart("rows")
        line = base.mark_line(style="trace", interpolate="step" if panel is _CLOCK else "linear")
        # What a pointer finds; the line itself is too thin for one.
        found = base.mark_point(opacity=0, size=120)
        lines.append(alt.layer(line.encode(x=x, y=y), found.encode(x=x, y=y, tooltip=told_here)))
    return alt.layer(phases, *lines, capped, named).resolve_scale(y="independent").properties(height=height)


def _sweep(*panels: _Panel) -> alt.LayerChart:
    scale = alt.Scale(zero=False, nice=False, padding=12)
    axis = alt.Axis(grid=False, format=".0f")
    x = alt.X(field="clock_mhz", type="quantitative", title="SM clock (MHz)", scale=scale, axis=axis)
    lines = []
    told = [number("clock_mhz", "SM clock (MHz)", ".0f"), *(number(p.field, p.title) for p in panels)]
    for at, panel in enumerate(panels):
        y = _y(panel, [f"$bottom_{at}", f"$top_{at}"])  # below the labels of the marks, however many there are
        line = chart("rows").mark_line().encode(x=x, y=y)
        # The clock that ran free is no point of the curve: it moved.
        free = chart("free").mark_point(style="mark-ring", filled=False, size=90).encode(x=x, y=y, tooltip=told)
        lines.append(alt.layer(line, chart("rows").mark_point().encode(x=x, y=y, tooltip=told), free))
    band, rule, text = marks(x)
    return alt.layer(band, rule, *lines, text).resolve_scale(y="independent").properties(height=HEIGHT)
