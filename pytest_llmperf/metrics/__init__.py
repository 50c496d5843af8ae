"""The metrics: one registry of pure functions from what happened to a number, or to the reason why there is none.

A function of latency or throughput sees one repeat of the workload. It returns the repeat's value and, where the
metric belongs to single requests, one sample a request. What a board's sensors tell is too slow for that: it has one
window a launch, over all its repeats, and one value. A metric's value is the median over requests, then over repeats,
then over launches, so that no number of tokens can outvote a launch. All values are in SI units.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pytest_llmperf.metrics import energy, latency, throughput, utilization
from pytest_llmperf.metrics.energy import joules_of_repeat
from pytest_llmperf.metrics.latency import (
    request_chunk_gaps,
    request_e2e_latency,
    request_itl,
    request_tpot,
    request_ttft,
)
from pytest_llmperf.metrics.roof import Roof, roof_of
from pytest_llmperf.metrics.throughput import attainment, backlog, meets_slo, window
from pytest_llmperf.metrics.types import UNREAD, Context, LaunchReadings, Metric, Missing, Outcome, Sampled, Summary
from pytest_llmperf.trace import RepeatTrace

__all__ = [
    "REGISTRY",
    "UNREAD",
    "Context",
    "LaunchReadings",
    "Metric",
    "Missing",
    "Roof",
    "Summary",
    "attainment",
    "backlog",
    "joules_of_repeat",
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
    metric.name: metric for metric in (*latency.METRICS, *throughput.METRICS, *energy.METRICS, *utilization.METRICS)
}

#: Why a repeat of failed requests has no metrics.
NOTHING_COMPLETED = "no request completed"


def measure(metric: Metric, repeat: RepeatTrace, context: Context) -> Outcome:
    """A metric of one repeat; :class:`Missing` when no request completed, or when it belongs to a whole launch."""
    if not repeat.completed:
        return Missing(NOTHING_COMPLETED)
    if metric.of_repeat is None:
        return Missing("it is measured over all repeats of a launch")
    return metric.of_repeat(repeat, context)


def _outcomes(
    metric: Metric, repeats: Sequence[RepeatTrace], context: Context, readings: LaunchReadings
) -> list[Outcome]:
    """A metric of one launch: an outcome a repeat, or one for them all."""
    if metric.of_launch is None:
        return [measure(metric, repeat, context) for repeat in repeats]
    if not all(repeat.completed for repeat in (*repeats, *readings.repeats)):
        return [Missing(NOTHING_COMPLETED)]
    return [metric.of_launch(readings)] if repeats else []


def summarize(
    metric: Metric,
    launches: Sequence[Sequence[RepeatTrace]],
    context: Context,
    readings: Sequence[LaunchReadings] = (),
) -> Summary:
    """A metric over all launches; one repeat without a value leaves the whole metric without one.

    Args:
        metric: Of the registry.
        launches: The repeats, launch by launch.
        context: What a metric may need besides.
        readings: What the boards said, launch by launch; nothing when nobody read them.
    """
    values: list[tuple[float, ...]] = []
    samples: list[float] = []
    for repeats, read in zip(launches, readings or [UNREAD] * len(launches), strict=True):
        of_launch: list[float] = []
        for outcome in _outcomes(metric, repeats, context, read):
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
