"""The charts of one test: its launches, what its boards did meanwhile, where the time of a request went."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart
from pytest_llmperf.report.charts.of_tests.breakdown import breakdown
from pytest_llmperf.report.charts.of_tests.distribution import distribution
from pytest_llmperf.report.charts.of_tests.trace import trace
from pytest_llmperf.results import TestRecord

__all__ = ["charts_of_test"]


def charts_of_test(test: TestRecord, *, repeats: bool = True) -> list[Chart]:
    """Those for which the record holds something to show.

    Args:
        test: The test.
        repeats: Whether single repeats are among the launches; they are most of what a chart of them holds.
    """
    found = (distribution(test, repeats=repeats), trace(test), breakdown(test))
    return [chart for chart in found if chart is not None]
