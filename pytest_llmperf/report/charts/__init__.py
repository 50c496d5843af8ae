"""The charts of a run: data, and Vega-Lite specs that draw it, the same in the page and as PNG.

Vega-Lite is kept as text in the record's own words (data and encodings), and is drawn by a script of 0.9 MB in the page
and by vl-convert without browser or network; Altair checks what is written here against its schema. Plotly's script
alone has 3.5 MB, more than a whole report may, and its PNGs need a browser, as do those of ECharts and Bokeh (a web
driver); matplotlib draws neither tooltips nor a second theme.

A spec is a template without data, one for all charts of its kind, filled with the chart's parameters and datasets.
Templates and their parameters are constants: what a test, an engine or a server calls itself is only ever a value in a
dataset, never a field, an expression, an address or another part of a spec.
"""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, complete
from pytest_llmperf.report.charts.drawing import javascript, png, svg
from pytest_llmperf.report.charts.of_findings import charts_of_finding
from pytest_llmperf.report.charts.of_tests import charts_of_test
from pytest_llmperf.report.charts.strip import strip
from pytest_llmperf.report.charts.templates import templates
from pytest_llmperf.report.charts.theme import theme

__all__ = [
    "Chart",
    "charts_of_finding",
    "charts_of_test",
    "complete",
    "javascript",
    "png",
    "strip",
    "svg",
    "templates",
    "theme",
]
