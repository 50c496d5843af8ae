"""The metrics: one registry of pure functions from what happened to a number, or to the reason why there is none.

Each function sees one repeat of the workload. It returns the repeat's value and, where the metric belongs to
single requests, one sample a request. A metric's value is the median over requests, then over repeats, then over
launches, so that no number of tokens can outvote a launch. All values are in SI units.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pytest_llmperf.metrics import latency, throughput, utilization
from pytest_llmperf.metrics.latency import (
    request_chunk_gaps,
    request_e2e_latency,
    request_itl,
    request_tpot,
    request_ttft,
)
from pytest_llmperf.metrics.roof import Roof, roof_of
from pytest_llmperf.metrics.throughput import attainment, backlog, meets_slo, window
from pytest_llmperf.metrics.types import Context, Metric, Missing, Outcome, Sampled, Summary
from pytest_llmperf.trace import RepeatTrace

__all__ = [
    "NOT_MEASURED",
    "REGISTRY",
    "Context",
    "Metric",
    "Missing",
    "Roof",
    "Summary",
    "attainment",
    "backlog",
    "measure",
    "meets_slo",
    "percentile",
    "request_chunk_gaps",
    "request_e2e_latency",
    "request_itl",
    "request_tpot",
    "request_ttft",
    "roof_of",
    "summarize",
    "window",
]

REGISTRY: Mapping[str, Metric] = {
    metric.name: metric for metric in (*latency.METRICS, *throughput.METRICS, *utilization.METRICS)
}

#: Metrics that a baseline may one day hold and that this version does not measure, with the reason it gives.
NOT_MEASURED: Mapping[str, str] = {
    "tpj": "power is not read by this version",
}


def measure(metric: Metric, repeat: RepeatTrace, context: Context) -> Outcome:
    """A metric of one repeat; :class:`Missing` when no request completed."""
    if not repeat.completed:
        return Missing("no request completed")
    return metric.of_repeat(repeat, context)


def summarize(metric: Metric, launches: Sequence[Sequence[RepeatTrace]], context: Context) -> Summary:
    """A metric over all launches; one repeat without a value leaves the whole metric without one."""
    values: list[tuple[float, ...]] = []
    samples: list[float] = []
    for launch in launches:
        of_launch: list[float] = []
        for repeat in launch:
            outcome = measure(metric, repeat, context)
            if isinstance(outcome, Missing):
                return Summary(None, (), None, outcome.reason)
            value = outcome.value if isinstance(outcome, Sampled) else outcome
            samples += outcome.samples if isinstance(outcome, Sampled) else [value]
            of_launch.append(value)
        values.append(tuple(of_launch))
    if not samples:
        return Summary(None, (), None, "nothing was measured")
    value = statistics.median(statistics.median(launch) for launch in values)
    samples.sort()
    percentiles = {f"p{p}": percentile(samples, p / 100) for p in (50, 90, 99)}
    return Summary(value, tuple(values), percentiles, None)


def percentile(ascending: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two nearest ranks of an ascending sequence (Hyndman and Fan's type 7)."""
    position = fraction * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)
