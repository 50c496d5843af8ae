"""The charts of one test: its launches, what its boards did meanwhile, where the time of a request went."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart
from pytest_llmperf.report.charts.of_tests.breakdown import breakdown
from pytest_llmperf.report.charts.of_tests.distribution import distribution
from pytest_llmperf.report.charts.of_tests.trace import trace
from pytest_llmperf.results import TestRecord

__all__ = ["charts_of_test"]


def charts_of_test(test: TestRecord) -> list[Chart]:
    """Those for which the record holds something to show."""
    return [chart for chart in (distribution(test), trace(test), breakdown(test)) if chart is not None]
