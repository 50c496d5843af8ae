"""The metrics: one registry of pure functions from what happened to a number, or to the reason why there is none.

Each function sees one repeat of the workload. It returns the repeat's value and, where the metric belongs to
single requests, one sample a request. A metric's value is the median over requests, then over repeats, then over
launches, so that no number of tokens can outvote a launch. All values are in SI units.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.trace import RepeatTrace, RequestTrace

__all__ = [
    "NOT_MEASURED",
    "REGISTRY",
    "Context",
    "Metric",
    "Missing",
    "Summary",
    "measure",
    "percentile",
    "summarize",
    "window",
]


@dataclass(frozen=True)
class Missing:
    """A quantity that was not measured.

    Attributes:
        reason: Why not, in words; equal reasons in baseline and run make the metric not applicable.
    """

    reason: str


@dataclass(frozen=True)
class Context:
    """What a metric may need besides the trace.

    Attributes:
        slo: Limits in seconds by latency metric.
    """

    slo: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sampled:
    """One repeat's value with the samples it is the median of."""

    value: float
    samples: tuple[float, ...]


Outcome = float | Sampled | Missing


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    Attributes:
        name: As in records and options.
        unit: SI, as printed.
        better: ``"lower"`` or ``"higher"``.
        formula: In words and symbols, for the report.
        source: What the inputs are read from.
        of_repeat: The computation, for one repeat with at least one completed request.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    formula: str
    source: str
    of_repeat: Callable[[RepeatTrace, Context], Outcome]


@dataclass(frozen=True)
class Summary:
    """A metric over all launches of a test.

    Attributes:
        value: Median over launches of the median over repeats; ``None`` when it was not measured.
        launches: The repeats' values, launch by launch.
        percentiles: p50, p90 and p99 over every request of every launch (over repeats for a metric that has no
            samples of its own); ``None`` when it was not measured.
        reason: Why there is no value.
    """

    value: float | None
    launches: tuple[tuple[float, ...], ...]
    percentiles: Mapping[str, float] | None
    reason: str | None


def _seconds(duration_ns: float) -> float:
    return duration_ns / NS_PER_S


def request_ttft(request: RequestTrace) -> float:
    """Seconds from when the request was due to its first output token."""
    return _seconds(request.first_ns - request.due_ns)


def request_e2e_latency(request: RequestTrace) -> float:
    """Seconds from when the request was due to its last output token."""
    return _seconds(request.last_ns - request.due_ns)


def request_tpot(request: RequestTrace) -> float | None:
    """Seconds per output token after the first chunk; ``None`` when nothing came after it."""
    later = request.output_tokens - request.tokens[0]
    elapsed = request.last_ns - request.first_ns
    return _seconds(elapsed) / later if later > 0 and elapsed > 0 else None


def request_itl(request: RequestTrace) -> tuple[float, ...]:
    """Seconds between successive tokens: N tokens have N - 1 gaps; tokens of one chunk came together (0 s)."""
    gaps: list[float] = [0.0] * (request.tokens[0] - 1)
    for (earlier, later), tokens in zip(pairwise(request.received_ns), request.tokens[1:], strict=True):
        gaps += [_seconds(later - earlier)] + [0.0] * (tokens - 1)
    return tuple(gaps)


def request_chunk_gaps(request: RequestTrace) -> tuple[float, ...]:
    """Seconds between successive chunks, however many tokens they hold."""
    return tuple(_seconds(later - earlier) for earlier, later in pairwise(request.received_ns))


def window(repeat: RepeatTrace) -> tuple[int, int]:
    """The span in which throughput is counted, in nanoseconds.

    A batch is counted whole, from when it was due to its last token. A loop is counted while the load is at its
    plateau: from the first completion to the last submission (closed loop) or the last arrival (open loop). When
    these do not lie in that order, the loop never reached a plateau and is counted whole. Failed requests neither
    count nor stretch the window.
    """
    done = repeat.completed
    whole = min(r.due_ns for r in done), max(r.last_ns for r in done)
    if repeat.loop == "batch":
        return whole
    start = min(r.last_ns for r in done)
    end = max(r.sent_ns if repeat.loop == "closed" else r.due_ns for r in done)
    return (start, end) if end > start else whole


def _in_window(repeat: RepeatTrace, count: Callable[[RequestTrace, int, int], int]) -> Outcome:
    start, end = window(repeat)
    if end <= start:
        return Missing("no time passed between the first request and the last token")
    # Half open on the left, so that the completion which opens a plateau is not counted into it; a whole run
    # opens when its first request was due, before any token.
    return sum(count(r, start, end) for r in repeat.completed) / _seconds(end - start)


def _output_tokens(request: RequestTrace, start: int, end: int) -> int:
    counted = sum(n for at, n in zip(request.received_ns, request.tokens, strict=True) if start < at <= end)
    if counted == sum(request.tokens):
        return request.output_tokens  # all inside: the server's count is the better one
    return counted


def _all_tokens(request: RequestTrace, start: int, end: int) -> int:
    prompt = request.input_tokens if start < request.first_ns <= end else 0
    return prompt + _output_tokens(request, start, end)


def _sampled(samples: Iterable[float | None], missing: str) -> Outcome:
    present = tuple(s for s in samples if s is not None)
    return Sampled(statistics.median(present), present) if present else Missing(missing)


_ONE_TOKEN = "no output token came after the first chunk"


def _ttft(repeat: RepeatTrace, _: Context) -> Outcome:
    return _sampled((request_ttft(r) for r in repeat.completed), "no request completed")


def _tpot(repeat: RepeatTrace, _: Context) -> Outcome:
    return _sampled((request_tpot(r) for r in repeat.completed), _ONE_TOKEN)


def _itl(repeat: RepeatTrace, _: Context) -> Outcome:
    return _sampled((gap for r in repeat.completed for gap in request_itl(r)), _ONE_TOKEN)


def _chunk_gap(repeat: RepeatTrace, _: Context) -> Outcome:
    return _sampled((gap for r in repeat.completed for gap in request_chunk_gaps(r)), _ONE_TOKEN)


def _e2e_latency(repeat: RepeatTrace, _: Context) -> Outcome:
    return _sampled((request_e2e_latency(r) for r in repeat.completed), "no request completed")


def _throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return _in_window(repeat, _output_tokens)


def _total_throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return _in_window(repeat, _all_tokens)


def _request_throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return _in_window(repeat, lambda r, start, end: int(start < r.last_ns <= end))


def _meets(request: RequestTrace, slo: Mapping[str, float]) -> bool:
    gaps = request_itl(request)
    seen: dict[str, float | None] = {
        "ttft": request_ttft(request),
        "tpot": request_tpot(request),
        "itl": max(gaps, default=None),
        "e2e_latency": request_e2e_latency(request),
    }
    # A request of one token has no TPOT and meets a limit on it vacuously.
    return all(value is None or value <= slo[name] for name, value in seen.items() if name in slo)


def _goodput(repeat: RepeatTrace, context: Context) -> Outcome:
    if not context.slo:
        return Missing("the workload sets no SLO")
    return _in_window(repeat, lambda r, start, end: int(start < r.last_ns <= end and _meets(r, context.slo)))


_CLIENT = "the client's receive times"
_WINDOW = "the client's receive times; window: the whole batch, or a loop's plateau"

REGISTRY: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", "s", "lower", "first output token received - due time", _CLIENT, _ttft),
        Metric(
            "tpot", "s", "lower", "(t_last - t_first chunk) / (N - tokens in the first chunk)", _CLIENT, _tpot
        ),
        Metric("itl", "s", "lower", "gaps between successive tokens; 0 within a chunk", _CLIENT, _itl),
        Metric("chunk_gap", "s", "lower", "gaps between successive chunks", _CLIENT, _chunk_gap),
        Metric("e2e_latency", "s", "lower", "last output token received - due time", _CLIENT, _e2e_latency),
        Metric("throughput", "tokens/s", "higher", "output tokens / window", _WINDOW, _throughput),
        Metric(
            "total_throughput", "tokens/s", "higher", "(prompt + output tokens) / window", _WINDOW, _total_throughput
        ),
        Metric(
            "request_throughput", "1/s", "higher", "requests completed / window", _WINDOW, _request_throughput
        ),
        Metric("goodput", "1/s", "higher", "requests that met every SLO / window", _WINDOW, _goodput),
    )
}  # fmt: skip


#: Metrics that a baseline may one day hold and that this version does not measure, with the reason it gives.
NOT_MEASURED: Mapping[str, str] = {
    "tpj": "power is not read by this version",
    "mbu": "not computed by this version",
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
