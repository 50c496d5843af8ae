"""benchmark.json: the format ``customSmallerIsBetter`` of github-action-benchmark, which draws values over commits.

A file is read with one direction for all its entries. So it holds the metrics of which less is better; of tokens per
joule its inverse, joules a token. A history is no place for what was not measured or cannot be trusted: such entries
are left out, never null or 0.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from pytest_llmperf.report.units import format_change, printable
from pytest_llmperf.report.wording import engine_name, format_interval, format_tolerance, plural
from pytest_llmperf.results import MetricValue, Results, TestRecord

__all__ = ["METRICS", "benchmark"]

#: In this order for every test.
METRICS = ("ttft", "tpot", "e2e_latency", "jpt", "prefill_jpt", "decode_jpt")

_LARGEST = 1e150


def benchmark(results: Results) -> str:
    """The file's text: a list of ``name``, ``unit``, ``value`` and, where they exist, ``range`` and ``extra``."""
    entries = [
        _entry(test, name, metric)
        for test in results.tests
        if not test.invalid
        for name in METRICS
        if (metric := test.metrics.get(name)) is not None and metric.value is not None and metric.better == "lower"
    ]
    return json.dumps(entries, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _entry(test: TestRecord, name: str, metric: MetricValue) -> dict[str, Any]:
    assert metric.value is not None
    entry: dict[str, Any] = {"name": _name(test, name), "unit": metric.unit, "value": float(f"{metric.value:.7g}")}
    if (spread := _spread(metric)) is not None:
        entry["range"] = spread
    entry["extra"] = "\n".join(_extra(test, name, metric))
    return entry


def _name(test: TestRecord, metric: str) -> str:
    """A series' name: the action puts it between backticks in a table, and a simulation is no measurement's sequel."""
    simulated = " (simulated)" if test.engine and test.engine.simulated else ""
    return f"{printable(test.nodeid)} {metric}{simulated}".replace("`", r"\x60").replace("|", r"\x7c")


def _spread(metric: MetricValue) -> str | None:
    """The standard deviation between launches, in the metric's unit; ``None`` of fewer than two."""
    launches = [statistics.median(launch) for launch in metric.launches if launch]
    # Beyond this the squares of the deviations have no number.
    if len(launches) < 2 or not max(map(abs, launches)) < _LARGEST:
        return None
    # The action reads two characters of a number at least.
    deviation = f"{statistics.stdev(launches):.3g}"
    return f"± {deviation if len(deviation) > 1 else deviation + '.0'}"


def _extra(test: TestRecord, name: str, metric: MetricValue) -> list[str]:
    lines = [f"verdict of the test: {test.verdict}", plural(len(metric.launches), "launch")]
    for verdict in test.verdicts:
        if verdict.metric == name and verdict.change is not None:
            change = f"{verdict.verdict} against the {verdict.against}: {format_change(verdict.change)}"
            interval = "" if verdict.interval is None else f" ({format_interval(verdict.interval)})"
            lines.append(f"{change}{interval}, tolerance {format_tolerance(verdict.tolerance, metric.better)}")
    if test.engine is not None:
        lines.append(printable(f"{engine_name(test.engine)}, {test.engine.model}, {test.engine.device}"))
    return lines
