"""Templates of the charts of one test, but for its trace."""

from __future__ import annotations

import altair as alt

from pytest_llmperf.report.charts.templates.parts import HEIGHT, chart, legend, nominal, number, order

__all__ = ["specs"]

_LANES = ["baseline", "this run", "interval of the change"]
#: In the order of colours: what is new in the first.
_SERIES = ["this run", "baseline", "interval of the change"]


def specs() -> dict[str, alt.LayerChart]:
    """By name."""
    return {"distribution": _distribution(), "launches": _launches(), "stacked": _stacked()}


def _distribution() -> alt.LayerChart:
    """A row a gated metric, in percent of its baseline; in each row the baseline, the run and the interval."""
    y = alt.Y(
        field="label", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=220, labelPadding=8),
        scale=alt.Scale(paddingInner=0.28, paddingOuter=0.1),
    )  # fmt: skip
    lane = alt.YOffset(field="series", type="nominal", sort=_LANES, scale=alt.Scale(domain=_LANES, padding=0.5))
    told = legend(None, 145, beside=170)
    color = alt.Color(field="series", type="nominal", scale=alt.Scale(domain=_SERIES, range="category"), legend=told)
    shape = alt.Shape(
        field="series",
        type="nominal",
        legend=told,
        scale=alt.Scale(domain=_SERIES, range=["circle", "square", "stroke"]),
    )
    x = alt.X(field="change_percent", type="quantitative", title="$x_title", scale=alt.Scale(zero=False, padding=14))
    percent = "+.3~r"
    band = chart("band").mark_rect(style="band").encode(
        x=alt.X(field="low_percent", type="quantitative"), x2=alt.X2(field="high_percent"), y=y,
        tooltip=[nominal("metric", "metric"), nominal("tolerance", "tolerance")],
    )  # fmt: skip
    centre = chart("band").mark_tick(style="centre", thickness=1).encode(
        x=alt.X(field="centre_percent", type="quantitative"), y=y
    )  # fmt: skip
    interval = chart("interval").mark_rule(strokeWidth=2.5).encode(
        x=alt.X(field="low_percent", type="quantitative"), x2=alt.X2(field="high_percent"), y=y, yOffset=lane,
        color=color,
        tooltip=[nominal("metric", "metric"), nominal("interval", "interval"), nominal("verdict", "verdict")],
    )  # fmt: skip
    cuts = chart("cuts").mark_point(size=44, shape=alt.ExprRef("datum.shape")).encode(
        x=alt.X(field="change_percent", type="quantitative"), y=y, yOffset=lane, color=color
    )  # fmt: skip
    repeats = chart("repeats").mark_point(size=14, filled=True, opacity=0.45).encode(
        x=x, y=y, yOffset=lane, color=color, shape=shape,
        tooltip=[nominal("metric", "metric"), nominal("series", "of"), nominal("launch", "launch"),
                 nominal("value", "repeat"), number("change_percent", "change (%)", percent)],
    )  # fmt: skip
    launches = chart("rows").mark_point(size=58, filled=True, opacity=0.9).encode(
        x=x, y=y, yOffset=lane, color=color, shape=shape,
        tooltip=[nominal("metric", "metric"), nominal("series", "of"), nominal("launch", "launch"),
                 nominal("value", "median of its repeats"), number("change_percent", "change (%)", percent)],
    )  # fmt: skip
    return alt.layer(band, centre, interval, cuts, repeats, launches).properties(height=HEIGHT)


def _launches() -> alt.LayerChart:
    """A row a metric that was only measured, in percent of its own median."""
    y = alt.Y(field="label", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=220, labelPadding=8))
    x = alt.X(field="change_percent", type="quantitative", title="$x_title", scale=alt.Scale(zero=False, padding=14))
    told = [nominal("metric", "metric"), nominal("launch", "launch")]
    repeats = chart("repeats").mark_point(size=14, filled=True, opacity=0.45).encode(
        x=x, y=y, tooltip=[*told, nominal("value", "repeat"), number("change_percent", "from the median (%)", "+.3~r")]
    )  # fmt: skip
    launches = chart("rows").mark_point(size=58, filled=True, opacity=0.85).encode(
        x=x, y=y,
        tooltip=[*told, nominal("value", "median of its repeats"),
                 number("change_percent", "from the median (%)", "+.3~r")],
    )  # fmt: skip
    return alt.layer(repeats, launches).properties(height=HEIGHT)


def _stacked() -> alt.LayerChart:
    """A bar a row, divided into parts: where a request's time went, or what joules went into."""
    y = alt.Y(field="$y", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=220))
    x = alt.X(
        field="$x", type="quantitative", title="$x_title", stack="zero", axis=alt.Axis(values=["$x_ticks"])
    )  # fmt: skip
    bars = chart("rows").mark_bar(size=20).encode(
        x=x, y=y, order=order("order"),
        color=alt.Color(field="part", type="nominal", sort=["$parts"],
                        legend=legend(None, 85, beside=150, shown=["$shown"]),
                        scale=alt.Scale(domain=["$parts"], range="category")),
        tooltip=[nominal("$y", "of"), nominal("part", "part"), number("$x", "$x_title"),
                 number("share_percent", "share (%)", ".3~r")],
    )  # fmt: skip
    total = chart("totals").mark_text(align="left", dx=6).encode(
        x=alt.X(field="$x", type="quantitative"), y=y, text=alt.Text(field="label", type="nominal")
    )  # fmt: skip
    # Not seen: the axis reaches far enough for the labels.
    space = chart("totals").mark_point(opacity=0).encode(x=alt.X(field="room", type="quantitative"), y=y)
    return alt.layer(bars, total, space).properties(height=HEIGHT)
