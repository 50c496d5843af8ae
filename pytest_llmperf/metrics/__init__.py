"""The metrics: one registry of pure functions from what happened to a number, or to the reason why there is none.

A function of latency or throughput sees one repeat of the workload. It returns the repeat's value and, where the
metric belongs to single requests, one sample a request. What a board's sensors tell is too slow for that: it has one
window a launch, over all its repeats, and one value. A metric's value is the median over requests, then over repeats,
then over launches, so that no number of tokens can outvote a launch. All values are in SI units.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pytest_llmperf.metrics import energy, gauges, latency, throughput, utilization
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
from pytest_llmperf.metrics.types import (
    UNREAD,
    Context,
    LaunchReadings,
    Metric,
    Missing,
    Outcome,
    Sampled,
    Summary,
    ranked,
)
from pytest_llmperf.trace import RepeatTrace

if TYPE_CHECKING:
    from pytest_llmperf.metrics.types import Floats

__all__ = [
    "HARDWARE",
    "IDLE",
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
    "summarize_launches",
    "window",
]

REGISTRY: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *latency.METRICS, *throughput.METRICS, *energy.METRICS, *utilization.METRICS, *gauges.METRICS,
    )
}  # fmt: skip

#: By name, what idle boards draw, and what devices reach: measured without a workload.
IDLE: Mapping[str, Metric] = {metric.name: metric for metric in gauges.IDLE}
HARDWARE: Mapping[str, Metric] = {metric.name: metric for metric in gauges.HARDWARE}

#: Why a repeat of failed requests has no metrics.
NOTHING_COMPLETED = "no request completed"


def measure(metric: Metric, repeat: RepeatTrace, context: Context) -> Outcome:
    """A metric of one repeat; :class:`Missing` when no request completed, or when it belongs to a whole launch."""
    if not repeat.completed:
        return Missing(NOTHING_COMPLETED)
    if metric.of_repeat is None:
        whole = "over all repeats of a launch" if metric.of_launch else "without a workload"
        return Missing(f"it is measured {whole}")
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
    samples: list[Sequence[float] | Floats] = []
    for repeats, read in zip(launches, readings or [UNREAD] * len(launches), strict=True):
        of_launch: list[float] = []
        for outcome in _outcomes(metric, repeats, context, read):
            if isinstance(outcome, Missing):
                return Summary(None, (), None, outcome.reason)
            value = outcome.value if isinstance(outcome, Sampled) else outcome
            samples.append(outcome.samples if isinstance(outcome, Sampled) else [value])
            of_launch.append(value)
        values.append(tuple(of_launch))
    if not samples:
        return Summary(None, (), None, "nothing was measured")
    value = statistics.median(statistics.median(launch) for launch in values)
    return Summary(value, tuple(values), _percentiles(samples), None)


def summarize_launches(launches: Sequence[float | Missing]) -> Summary:
    """What was measured once a launch; one launch without a value leaves the whole without one."""
    values: list[float] = []
    for value in launches:
        if isinstance(value, Missing):
            return Summary(None, (), None, value.reason)
        values.append(value)
    if not values:
        return Summary(None, (), None, "nothing was measured")
    return Summary(statistics.median(values), tuple((value,) for value in values), _percentiles([values]), None)


def _percentiles(samples: Sequence[Sequence[float] | Floats]) -> dict[str, float]:
    """p50, p90 and p99 of all samples together."""
    shares = {f"p{p}": p / 100 for p in (50, 90, 99)}
    if all(isinstance(some, list | tuple) for some in samples):
        ascending = sorted(chain.from_iterable(samples))
        return {name: percentile(ascending, share) for name, share in shares.items()}
    import numpy as np

    joined = np.concatenate([np.asarray(some, np.float64) for some in samples])
    ranks = {name: _ranks(len(joined), share) for name, share in shares.items()}
    found = ranked(joined, {place for below, above, _ in ranks.values() for place in (below, above)})
    return {name: _between(found, *of_share) for name, of_share in ranks.items()}


def percentile(ascending: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two nearest ranks of an ascending sequence (Hyndman and Fan's type 7)."""
    return _between(ascending, *_ranks(len(ascending), fraction))


def _ranks(count: int, fraction: float) -> tuple[int, int, float]:
    """The two nearest ranks, and how far a percentile lies from the first to the second."""
    position = fraction * (count - 1)
    below = int(position)
    return below, min(below + 1, count - 1), position - below


def _between(by_rank: Sequence[float] | Mapping[int, float], below: int, above: int, share: float) -> float:
    return by_rank[below] + (by_rank[above] - by_rank[below]) * share
