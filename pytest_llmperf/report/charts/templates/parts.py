"""What the templates share: datasets by name, axes, tooltips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

__all__ = ["DIGITS", "HEIGHT", "by_values", "chart", "legend", "marks", "nominal", "number", "order"]

#: Of a chart whose height goes with its rows; the placeholder ``$height`` takes its place.
HEIGHT = -1
#: Four digits, thousands apart, no trailing zeros.
DIGITS = ",.4~r"


def chart(dataset: str) -> alt.Chart:
    """A chart of a dataset by its name."""
    return alt.Chart(alt.NamedData(dataset))


def by_values(
    name: str, padding: int = 12, *, grid: bool = True, range: Sequence[str] | None = None
) -> dict[str, Any]:  # fmt: skip
    """An axis whose scale and ticks go with the values: what :mod:`~pytest_llmperf.report.charts.scales` chooses.

    Args:
        name: ``"x"`` or ``"y"``, by which its placeholders are called.
        padding: Pixels to its ends.
        grid: Whether lines go across the chart.
        range: Of its pixels, where it is not the whole chart's.
    """
    scale = {"type": f"${name}_scale", "zero": f"${name}_zero", "nice": False, "padding": padding}
    axis = {"values": [f"${name}_ticks"], "labelExpr": f"${name}_label", "grid": grid, "labelOverlap": "greedy"}
    return {
        "field": f"${name}", "type": "quantitative", "title": f"${name}_title", "axis": axis,
        "scale": scale if range is None else {**scale, "range": list(range)},
    }  # fmt: skip


def number(field: str, title: str, digits: str = DIGITS) -> alt.Tooltip:
    """A line of a tooltip with a number."""
    return alt.Tooltip(field=field, type="quantitative", title=title, format=digits)


def nominal(field: str, title: str) -> alt.Tooltip:
    """A line of a tooltip with a text or a category; what is in it is escaped by Vega."""
    return alt.Tooltip(field=field, type="nominal", title=title)


def order(field: str) -> alt.Order:
    """Stack or connect by a field of the rows, so that the rows' own order does not matter."""
    return alt.Order(field=field, type="quantitative")


def legend(title: str | None, each: int, beside: int = 70, *, shown: Sequence[str] = ()) -> alt.Legend:
    """A legend in as many columns as there is room for.

    It goes by the width of the whole chart, the parameter ``whole``: that of the plot is still to be found when the
    legend is laid out.

    Args:
        title: Before its entries.
        each: Room for one entry, pixels.
        beside: Room that labels and title take.
        shown: Its entries where they are not all of the scale: a category keeps its colour where others are missing.
    """
    columns = alt.ExprRef(f"max(1, floor((whole - {beside}) / {each}))")
    found = alt.Legend(title=title, symbolOpacity=1, columns=columns)
    if shown:
        found.values = list(shown)
    return found


def marks(x: alt.X) -> list[alt.Chart]:
    """Places pointed out along x: the interval as a band, a line, and a label in a lane of its own.

    The dataset ``marks`` has ``x``, ``label``, ``lane`` (a number from 0, so that labels do not lie on each other),
    ``align``, and ``line`` (``false`` for the name of an interval); ``intervals`` has ``low``, ``high`` and ``label``.

    Args:
        x: The axis of the chart; the field is replaced.
    """
    band = chart("intervals").mark_rect(style="mark-band")
    # What names an interval has no line of its own.
    line = chart("marks").transform_filter("datum.line !== false").mark_rule(style="mark")
    below = {"y2": alt.Y2Value("height")}
    side = alt.ExprRef("datum.align == 'left' ? 5 : -5")
    text = chart("marks").mark_text(style="mark-text", baseline="top", align=alt.ExprRef("datum.align"), dx=side)
    lanes = alt.Scale(domain=[0, 4], range=[3, 63], nice=False, zero=False)
    lane = alt.Y(field="lane", type="quantitative", axis=None, scale=lanes)
    return [
        band.encode(x=_with_field(x, "low"), x2=alt.X2(field="high"), tooltip=[nominal("label", "mark")]),
        # From its label on: a line above would cross the labels of others.
        line.encode(x=_with_field(x, "x"), y=lane, tooltip=[nominal("label", "mark")], **below),
        text.encode(x=_with_field(x, "x"), y=lane, text=alt.Text(field="label", type="nominal")),
    ]


def _with_field(x: alt.X, field: str) -> alt.X:
    copy = x.copy()
    copy.field = field
    return copy
