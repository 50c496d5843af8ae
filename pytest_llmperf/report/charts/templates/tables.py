"""Templates of figures by categories: cells of a grid, bars, points on a log axis."""

from __future__ import annotations

import altair as alt

from pytest_llmperf.report.charts.templates.parts import HEIGHT, by_values, chart, legend, nominal, number

__all__ = ["specs"]


def specs() -> dict[str, alt.LayerChart]:
    """By name."""
    return {"heatmap": _heatmap(), "grouped": _grouped(), "bars": _bars(), "dots": _dots()}


def _heatmap() -> alt.LayerChart:
    """The value in the cell; its shade from the least (0) to the most (1) of the grid."""
    base = chart("rows").encode(
        x=alt.X(field="$x", type="ordinal", title="$x_title", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(field="$y", type="ordinal", title="$y_title", sort="descending"),
    )  # fmt: skip
    shade = alt.Color(field="shade", type="quantitative", legend=None, scale=alt.Scale(domain=[0, 1], range="heatmap"))
    cells = base.mark_rect(style="cell").encode(
        color=shade, tooltip=[number("$x", "$x_title"), number("$y", "$y_title"), number("$value", "$value_title")]
    )  # fmt: skip
    # As large as the longest label of the grid allows, and none where it could not be read.
    size = "bandwidth('x') / (datum.chars * 0.58)"
    text = base.mark_text(fontSize=alt.ExprRef(f"min(11.5, {size})"), opacity=alt.ExprRef(f"{size} < 6.5 ? 0 : 1"))
    text = text.encode(text=alt.Text(field="label", type="nominal"))
    return alt.layer(cells, text).properties(height=HEIGHT)


def _grouped() -> alt.LayerChart:
    """Bars side by side within a category."""
    # All are named: a word a line, as wide as a category with the space beside it.
    axis = alt.Axis(
        labelAngle=0, labelOverlap=False, labelExpr="split(datum.label, ' ')", labelFontSize=10,
        labelLimit=alt.ExprRef("bandwidth('x') / 0.75"),
    )  # fmt: skip
    x = alt.X(field="$x", type="ordinal", title="$x_title", axis=axis, sort=None, scale=alt.Scale(paddingInner=0.25))
    offset = alt.XOffset(field="$series", type="ordinal")
    y = alt.Y(field="$y", type="quantitative", title="$y_title", scale=alt.Scale(zero=True))
    entries = legend("$series_title", 45, beside=130)
    entries.offset = 20
    color = alt.Color(field="$series", type="ordinal", legend=entries)
    base = chart("rows").encode(x=x, xOffset=offset, y=y)
    told = [nominal("$x", "$x_title"), nominal("$series", "$series_title"), number("$y", "$y_title")]
    bars = base.mark_bar().encode(color=color, tooltip=told)
    # As large as the longest label allows, and none where it could not be read.
    size = "(bandwidth('xOffset') + 2) / (datum.chars * 0.66)"
    text = base.mark_text(
        baseline="bottom", dy=-3, fontSize=alt.ExprRef(f"min(11, {size})"),
        opacity=alt.ExprRef(f"{size} < 7.5 ? 0 : 1"),
    ).encode(text=alt.Text(field="label", type="nominal"))  # fmt: skip
    return alt.layer(bars, text).properties(height=230)


def _bars() -> alt.LayerChart:
    y = alt.Y(field="name", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=220))
    x = alt.X(field="$x", type="quantitative", title="$x_title", scale=alt.Scale(zero=True))
    base = chart("rows").encode(x=x, y=y)
    bars = base.mark_bar(size=17).encode(tooltip=[nominal("name", "$name_title"), number("$x", "$x_title")])
    text = base.mark_text(align="left", dx=5).encode(text=alt.Text(field="label", type="nominal"))
    # Not seen: the axis reaches far enough for the labels.
    space = base.mark_point(opacity=0).encode(x=alt.X(field="room", type="quantitative"))
    return alt.layer(bars, text, space).properties(height=HEIGHT)


def _dots() -> alt.LayerChart:
    """On a log axis, which has no zero for a bar to begin at."""
    y = alt.Y(field="name", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=220, grid=True))
    base = chart("rows").encode(x=alt.X(**by_values("x", 34)), y=y)
    points = base.mark_point(size=90, filled=True).encode(
        tooltip=[nominal("name", "$name_title"), number("$x", "$x_title")]
    )  # fmt: skip
    text = base.mark_text(dy=-13).encode(text=alt.Text(field="label", type="nominal"))
    return alt.layer(points, text).properties(height=HEIGHT)
