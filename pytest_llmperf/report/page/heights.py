"""How high a chart will be: its place is kept before it is drawn, so that nothing moves when it is."""

from __future__ import annotations

from pytest_llmperf.report import charts
from pytest_llmperf.report.charts import Chart

__all__ = ["height_of"]

#: Pixels of axes, titles and legends above and below the plot, by template; a legend that wraps takes more.
_BESIDE = {
    "bars": 52, "corner": 52, "curves": 70, "distribution": 70, "dots": 52, "grouped": 83, "heatmap": 54,
    "policies": 70, "proportion": 70, "roofline": 70, "stacked": 69, "sweet_spot": 52, "trace": 69,
    "trace_activity": 69,
}  # fmt: skip
_USUAL = 56
#: Of a plot whose height its template leaves open.
_UNKNOWN = 240


def height_of(chart: Chart) -> int:
    """The height of a drawn chart in pixels, within a line of text or two."""
    height = charts.templates()[chart.template].get("height", _UNKNOWN)
    if height == "$height":
        height = chart.params.get("height", _UNKNOWN)
    plot = height if isinstance(height, (int, float)) else _UNKNOWN
    return round(plot + _BESIDE.get(chart.template, _USUAL))
