"""What of the reported times is the client's.

An engine in this process that tells when it had the first and the last token lets the client be checked: the
difference to the client's receive times is the client's (and its event loop's) doing. The client of a server was
checked on a loopback server before: a figure within the errors found there is not the server's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines.account import Calibration
from pytest_llmperf.metrics import Summary, percentile, request_tpot
from pytest_llmperf.trace import RepeatTrace

__all__ = ["ClientOverhead", "beyond_floor", "client_overhead"]


@dataclass(frozen=True)
class ClientOverhead:
    """Over all completed requests with engine stamps; seconds.

    Attributes:
        requests: How many.
        first_token_p50: Median of first token received - the engine's first-token stamp.
        first_token_p99: 99th percentile of the same.
        engine_ttft: Median of the engine's first-token stamp - due time.
        engine_tpot: Median of (last - first token stamp) / (N - 1); ``None`` when every request had one token.
        tpot_ratio: Our TPOT / the engine's, each the median; ``None`` likewise.
    """

    requests: int
    first_token_p50: float
    first_token_p99: float
    engine_ttft: float
    engine_tpot: float | None
    tpot_ratio: float | None


def client_overhead(repeats: Iterable[RepeatTrace]) -> ClientOverhead | None:
    """The client's share, or ``None`` when no request carries stamps of the engine."""
    stamped = [(r, r.engine) for repeat in repeats for r in repeat.completed if r.engine is not None]
    if not stamped:
        return None
    first = sorted((r.first_ns - e.first_token_ns) / NS_PER_S for r, e in stamped)
    theirs = [
        (e.last_token_ns - e.first_token_ns) / NS_PER_S / (r.output_tokens - 1)
        for r, e in stamped
        if r.output_tokens > 1
    ]
    ours = [tpot for r, _ in stamped if (tpot := request_tpot(r)) is not None]
    engine_tpot = statistics.median(theirs) if theirs else None
    return ClientOverhead(
        requests=len(stamped),
        first_token_p50=statistics.median(first),
        first_token_p99=percentile(first, 0.99),
        engine_ttft=statistics.median((e.first_token_ns - r.due_ns) / NS_PER_S for r, e in stamped),
        engine_tpot=engine_tpot,
        tpot_ratio=statistics.median(ours) / engine_tpot if ours and engine_tpot else None,
    )


def beyond_floor(
    name: str, summary: Summary, calibration: Calibration | None, launches: Sequence[Sequence[RepeatTrace]]
) -> Summary:
    """The summary of a latency, or of its absence when it lies within the client's own error.

    Args:
        name: Of the metric.
        summary: Its values.
        calibration: The client's errors; ``None`` leaves the summary as it is.
        launches: The traces, for the number of tokens over which TPOT spreads an error.
    """
    if calibration is None or summary.value is None:
        return summary
    if name in ("ttft", "e2e_latency"):
        floor = calibration.first_p99
    elif name in ("itl", "chunk_gap"):
        floor = calibration.gap_p99
    elif name == "tpot":
        counts = [r.output_tokens for launch in launches for repeat in launch for r in repeat.completed]
        floor = calibration.gap_p99 / max(1, statistics.median(counts) - 1)
    else:
        return summary
    if summary.value > floor:
        return summary
    return Summary(
        None,
        (),
        None,
        f"{summary.value * 1e6:.1f} µs is within the client's own error on this machine ({floor * 1e6:.1f} µs)",
    )
