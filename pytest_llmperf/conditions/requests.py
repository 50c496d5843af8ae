"""Where the time of a request went, and how many ran at once.

A request waits to be sent, waits in the engine's queue, is prefilled, decodes, and is handed over: the times between
the stamps of client and engine. They add up to its latency. A server keeps no stamps; its own metrics hold the means
of three of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.conditions.types import Condition
from pytest_llmperf.engines.account import ServerSide
from pytest_llmperf.metrics import Missing
from pytest_llmperf.overhead import client_overhead
from pytest_llmperf.runner import Launch
from pytest_llmperf.trace import EngineStamps, RepeatTrace, RequestTrace

__all__ = ["CONDITIONS"]

_NOTHING = Missing("no request completed")
_NO_STAMPS = "the engine tells neither stamps of a request nor metrics of its own"


def _typical(launch: Launch, of_request: Callable[[RequestTrace], float]) -> float | Missing:
    """Median over the repeats of the median over requests; from nanoseconds to seconds."""
    repeats = [[of_request(request) for request in repeat.completed] for repeat in launch.repeats]
    if not repeats or not all(repeats):
        return _NOTHING
    return statistics.median(statistics.median(values) for values in repeats) / NS_PER_S


def _stamped(launch: Launch) -> bool:
    done = [request for repeat in launch.repeats for request in repeat.completed]
    return bool(done) and all(request.engine is not None for request in done)


def _phase(
    between: Callable[[RequestTrace, EngineStamps], float], by_server: Callable[[ServerSide], float | None]
) -> Callable[[Launch], float | Missing]:
    """A time between two of the engine's stamps; without stamps the mean that a server's own metrics tell."""

    def of_request(request: RequestTrace) -> float:
        assert request.engine is not None
        return between(request, request.engine)

    def of_launch(launch: Launch) -> float | Missing:
        if _stamped(launch):
            return _typical(launch, of_request)
        server = launch.account.server
        if server is None:
            return Missing(_NO_STAMPS)
        told = by_server(server)
        return Missing(server.reason or "the server's metrics do not tell it") if told is None else told

    return of_launch


_engine_decode = _phase(lambda _, stamps: stamps.last_token_ns - stamps.first_token_ns, lambda s: s.decode_time_mean)


def _decode(launch: Launch) -> float | Missing:
    told = _engine_decode(launch)
    return _typical(launch, lambda r: r.last_ns - r.first_ns) if isinstance(told, Missing) else told


def _overhead(launch: Launch) -> float | Missing:
    stamped = client_overhead(launch.repeats)
    if stamped is not None:
        return stamped.first_token_p50
    server = launch.account.server
    if server is None or server.ttft_mean is None:
        return Missing(_NO_STAMPS if server is None else server.reason or "the server's metrics do not tell its TTFT")
    sent = [request for repeat in launch.watched for request in repeat.requests]
    done = [request for request in sent if request.completed]
    if not done or len(done) < len(sent) or server.requests != len(sent):
        return Missing("the server's mean TTFT is not of these requests alone")
    return statistics.fmean(r.first_ns - r.sent_ns for r in done) / NS_PER_S - server.ttft_mean


def _occupancy(launch: Launch) -> float | Missing:
    shares = [_running(repeat) for repeat in launch.repeats]
    if not shares or not all(repeat.completed for repeat in launch.repeats):
        return _NOTHING
    if not all(shares):
        return Missing("one output token and no stamps of the engine: when a request ran is not known")
    return statistics.median(shares)


def _running(repeat: RepeatTrace) -> float:
    """Mean number of requests that ran, from the first one's start to the last one's end.

    Not :func:`~pytest_llmperf.metrics.steps.mean_running`, which takes a single batch by its size: here an engine
    that serves the batch in two halves has to show.
    """
    spans = [(r.engine.scheduled_ns if r.engine else r.first_ns, r.last_ns) for r in repeat.completed]
    window = max((end for _, end in spans), default=0) - min((start for start, _ in spans), default=0)
    return sum(end - start for start, end in spans) / window if window > 0 else 0.0


def _spread(launch: Launch) -> float | Missing:
    lengths = [span[1] - span[0] for repeat in launch.repeats if (span := repeat.span) is not None]
    if len(lengths) < 2:
        return Missing("a single repeat has no spread")
    return (max(lengths) - min(lengths)) / statistics.median(lengths)


_STAMPS = "median by the engine's stamps; else the mean by the server's own metrics"

CONDITIONS = (
    Condition(
        "send_delay", "s", "sent - due, median: a late client, or the wait of a static or dynamic policy",
        lambda launch: _typical(launch, lambda r: r.sent_ns - r.due_ns),
    ),
    Condition(
        "queue_time", "s", f"first scheduled - sent, {_STAMPS} (from its arrival there)",
        _phase(lambda r, stamps: stamps.scheduled_ns - r.sent_ns, lambda s: s.queue_time_mean),
    ),
    Condition(
        "prefill_time", "s", f"first token - first scheduled, {_STAMPS}",
        _phase(lambda _, stamps: stamps.first_token_ns - stamps.scheduled_ns, lambda s: s.prefill_time_mean),
    ),
    Condition(
        "decode_time", "s", f"last - first token, {_STAMPS}; else the median by the client's receive times", _decode
    ),
    Condition(
        "client_overhead", "s",
        "first token received - the engine's stamp, median; of a server mean TTFT from sending - that by its metrics",
        _overhead,
    ),
    Condition(
        "batch_occupancy", "requests",
        "sum of (last token - first scheduled) / (last token of all - first scheduled of all), median over repeats; "
        "without the engine's stamps from the first token",
        _occupancy,
    ),
    Condition("repeat_spread", "1", "(longest - shortest repeat) / median repeat", _spread),
)  # fmt: skip
