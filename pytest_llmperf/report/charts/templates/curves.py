"""Templates of one figure over another: curves, points on a path, the roofline."""

from __future__ import annotations

import altair as alt

from pytest_llmperf.report.charts.templates.parts import HEIGHT, by_values, chart, legend, marks, nominal, number, order

__all__ = ["specs"]

_HEIGHT = 260


def specs() -> dict[str, alt.LayerChart]:
    """By name; ``$x`` and ``$y`` are fields, ``$series`` tells curves apart."""
    return {
        "curves": _curves(),
        "policies": _policies(),
        "path": _path(),
        "line": _line(),
        "corner": _corner(),
        "proportion": _proportion(),
        "roofline": _roofline(),
    }


def _x(padding: int = 12) -> alt.X:
    return alt.X(**by_values("x", padding))


def _y(padding: int = 12) -> alt.Y:
    return alt.Y(**by_values("y", padding))


def _told() -> list[alt.Tooltip]:
    return [number("$x", "$x_title"), number("$y", "$y_title")]


def _curves() -> alt.LayerChart:
    """A curve for each size of an ordinal series, by lightness."""
    color = alt.Color(field="$series", type="ordinal", legend=legend("$series_title", 45, beside=130))
    base = chart("rows").encode(x=_x(), y=_y(), color=color)
    told = [nominal("$series", "$series_title"), *_told()]
    return alt.layer(base.mark_line(), base.mark_point(size=44).encode(tooltip=told)).properties(height=_HEIGHT)


def _policies() -> alt.LayerChart:
    """A curve for each batching policy, by hue and shape; only where both have one domain they have one legend."""
    entries, policies = legend(None, 95), ["continuous", "dynamic", "static"]
    color = alt.Color(
        field="policy", type="nominal", legend=entries, scale=alt.Scale(domain=policies, range="category")
    )
    shape = alt.Shape(field="policy", type="nominal", legend=entries, scale=alt.Scale(domain=policies))
    base = chart("rows").encode(x=_x(), y=_y(), color=color)
    points = base.mark_point(size=44).encode(shape=shape, tooltip=[nominal("policy", "policy"), *_told()])
    return alt.layer(base.mark_line(), points).properties(height=_HEIGHT)


def _path() -> alt.LayerChart:
    """Points in the order in which the load grows, each with its load beside it."""
    base = chart("rows").encode(x=_x(), y=_y())
    line = base.mark_line().encode(order=order("order"))
    points = base.mark_point().encode(tooltip=[number("$label", "$label_title"), *_told()])
    # To the left of a curve that rises; but within the chart at its left edge.
    side = alt.ExprRef("datum.align == 'left' ? -4 : -6")
    text = base.transform_filter("isValid(datum.label)").mark_text(
        align=alt.ExprRef("datum.align"), dx=side, dy=-9
    ).encode(text=alt.Text(field="label", type="nominal"))  # fmt: skip
    marked = chart("marks").encode(x=_x(), y=_y())
    ring = marked.mark_point(style="mark-ring", size=190, filled=False).encode(
        tooltip=[nominal("note", "mark"), *_told()]
    )
    beside = alt.ExprRef("datum.align == 'left' ? 12 : -14")
    below = alt.ExprRef("datum.align == 'left' ? 14 : -9")
    note = marked.mark_text(style="mark-text", align=alt.ExprRef("datum.align"), dx=beside, dy=below).encode(
        text=alt.Text(field="note", type="nominal")
    )  # fmt: skip
    return alt.layer(line, points, text, ring, note).properties(height=_HEIGHT)


def _line() -> alt.LayerChart:
    """A share over sizes that double: from zero on, over a log axis."""
    y = alt.Y(field="$y", type="quantitative", title="$y_title", scale=alt.Scale(zero=True))
    base = chart("rows").encode(x=_x(), y=y)
    return alt.layer(base.mark_line(), base.mark_point().encode(tooltip=_told())).properties(height=180)


def _corner() -> alt.LayerChart:
    """Over the load on log axes, with places pointed out, and the two limits whose corner was fitted."""
    x, y = alt.X(**by_values("x", grid=False)), alt.Y(**by_values("y", range=["$bottom_0", "$top_0"]))
    base = chart("rows").encode(x=x, y=y)
    curve = alt.layer(base.mark_line(), base.mark_point().encode(tooltip=_told()))
    bounds = chart("envelope").encode(x=x, y=y).mark_line(style="centre").encode(order=order("order"))
    band, rule, text = marks(x)
    return (
        alt.layer(band, rule, alt.layer(bounds, curve), text).resolve_scale(y="independent").properties(height=HEIGHT)
    )


def _proportion() -> alt.LayerChart:
    """How one figure grows with another on log axes, a curve for each load, beside growing in proportion."""
    x, y = _x(44), _y(36)
    color = alt.Color(field="$series", type="ordinal", legend=legend("$series_title", 45, beside=130))
    base = chart("rows").encode(x=x, y=y, color=color)
    told = [nominal("name", "$label_title"), nominal("$series", "$series_title"), *_told()]
    points = base.mark_point().encode(tooltip=told)
    even = chart("proportion").encode(x=x, y=y, detail=alt.Detail(field="$series", type="nominal"))
    straight = even.mark_line(style="centre").encode(order=order("order"))
    note = even.transform_filter("isValid(datum.note)").mark_text(style="note", align="right", dx=-8, dy=-6).encode(
        text=alt.Text(field="note", type="nominal")
    )  # fmt: skip
    # Below the curve of the smallest load; models of nearly one size share a place.
    names = chart("names").encode(x=x, y=y).mark_text(baseline="top", lineBreak="\n", dy=10, limit=150).encode(
        text=alt.Text(field="name", type="nominal")
    )  # fmt: skip
    return alt.layer(straight, note, base.mark_line(), points, names).properties(height=_HEIGHT)


def _roofline() -> alt.LayerChart:
    decades = [10.0**exponent for exponent in range(-3, 7)]
    # Labels at the edges stay within the chart.
    ticks = alt.Axis(values=decades, labelExpr="format(datum.value, ',.4~r')", labelFlush=16)
    x = alt.X(
        field="intensity", type="quantitative", title="arithmetic intensity (FLOP/B)",
        scale=alt.Scale(type="log", nice=False, padding=8), axis=ticks,
    )  # fmt: skip
    y = alt.Y(
        field="tflop_per_s", type="quantitative", title="reached (TFLOP/s)",
        scale=alt.Scale(type="log", nice=False, padding=8), axis=ticks,
    )  # fmt: skip
    roofs = chart("roofs").encode(x=x, y=y)
    lines = roofs.mark_line(style="roof").encode(detail=alt.Detail(field="roof", type="nominal"), order=order("order"))
    named = roofs.transform_filter("isValid(datum.label)").mark_text(
        style="note", baseline="bottom", align=alt.ExprRef("datum.align"), dy=-5
    ).encode(text=alt.Text(field="label", type="nominal"))  # fmt: skip
    # Dashed, what the board itself reached: a copy and a matrix product.
    reached = chart("reached").encode(x=x, y=y, tooltip=[nominal("note", "reached")])
    own = reached.mark_line(style="centre").encode(
        detail=alt.Detail(field="roof", type="nominal"), order=order("order")
    )
    entries, phases = legend(None, 80), ["prefill", "decode"]
    points = chart("rows").mark_point(size=52, opacity=0.85).encode(
        x=x, y=y,
        color=alt.Color(
            field="phase", type="nominal", legend=entries, scale=alt.Scale(domain=phases, range="category")
        ),
        shape=alt.Shape(field="phase", type="nominal", legend=entries, scale=alt.Scale(domain=phases)),
        tooltip=[nominal("test", "test"), nominal("phase", "phase"), number("intensity", "FLOP/B"),
                 number("tflop_per_s", "TFLOP/s"), number("share_percent", "of the roof (%)", ".3~r")],
    )  # fmt: skip
    return alt.layer(own, lines, named, points).properties(height=300)
