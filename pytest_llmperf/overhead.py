"""Ours beside the engine's own: what the client adds to the times that it reports.

An engine that tells when it had the first and the last token lets the client be checked: the difference to the
client's receive times is the client's (and its event loop's) doing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.metrics import percentile, request_tpot
from pytest_llmperf.trace import RepeatTrace

__all__ = ["ClientOverhead", "client_overhead"]


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
