"""The charts of what several tests say together; which columns they need is said where they are made.

A chart is made of the columns and marks that a finding has: where one that it needs is missing, or holds no number, the
chart is not made; what was not measured is never a zero.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_llmperf.report.charts.chart import Chart
from pytest_llmperf.report.charts.of_findings import clock, energy, load, machine, roof
from pytest_llmperf.report.charts.of_findings.table import Table
from pytest_llmperf.results import Finding, FindingKind, Results

__all__ = ["charts_of_finding"]

_MAKERS: dict[FindingKind, Callable[[Table], list[Chart]]] = {
    "phases": energy.phases,
    "batch_and_clock": clock.batch_and_clock,
    "sweet_spot": clock.sweet_spot,
    "idle": energy.idle,
    "latency_throughput": load.latency_throughput,
    "lengths": load.lengths,
    "scaling": machine.scaling,
    "model_size": machine.model_size,
    "batching_policies": load.batching_policies,
    "formats": machine.formats,
    "hardware": machine.hardware,
    "roofline": roof.roofline,
    "kv_cache": roof.kv_cache,
    "energy_split": energy.energy_split,
}


def charts_of_finding(finding: Finding, results: Results) -> list[Chart]:
    """The charts of a finding, the one that says most first.

    Args:
        finding: Its table and marks.
        results: The run that it belongs to.
    """
    del results  # a finding holds all that its charts show
    return _MAKERS[finding.kind](Table(finding))
