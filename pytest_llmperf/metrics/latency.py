"""Latency: of single requests, then of a repeat.

Times count from when a request was due, not from when the client got round to sending it.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.metrics.types import Context, Metric, Outcome, sampled, sampled_array
from pytest_llmperf.trace import RepeatTrace, RequestTrace

if TYPE_CHECKING:
    from pytest_llmperf.metrics.types import Floats

__all__ = [
    "METRICS",
    "ONE_TOKEN",
    "request_chunk_gaps",
    "request_e2e_latency",
    "request_itl",
    "request_tpot",
    "request_ttft",
]


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
    if len(request.tokens) == sum(request.tokens):
        return request_chunk_gaps(request)
    gaps: list[float] = [0.0] * (request.tokens[0] - 1)
    for gap, tokens in zip(request_chunk_gaps(request), request.tokens[1:], strict=True):
        gaps += [gap] + [0.0] * (tokens - 1)
    return tuple(gaps)


def request_chunk_gaps(request: RequestTrace) -> tuple[float, ...]:
    """Seconds between successive chunks, however many tokens they hold."""
    return tuple([(later - earlier) / NS_PER_S for earlier, later in pairwise(request.received_ns)])


ONE_TOKEN = "no output token came after the first chunk"


def _ttft(repeat: RepeatTrace, _: Context) -> Outcome:
    return sampled((request_ttft(r) for r in repeat.completed), "no request completed")


def _tpot(repeat: RepeatTrace, _: Context) -> Outcome:
    return sampled((request_tpot(r) for r in repeat.completed), ONE_TOKEN)


def _itl(repeat: RepeatTrace, context: Context) -> Outcome:
    together = sum(sum(r.tokens) - len(r.tokens) for r in repeat.completed)
    if not together:
        return _chunk_gap(repeat, context)
    import numpy as np

    return sampled_array(np.concatenate([_gaps(repeat), np.zeros(together)]), ONE_TOKEN)


def _chunk_gap(repeat: RepeatTrace, _: Context) -> Outcome:
    return sampled_array(_gaps(repeat), ONE_TOKEN)


def _gaps(repeat: RepeatTrace) -> Floats:
    """Seconds between successive chunks of every request, request by request.

    A trace may hold millions: here they are differences of one array, equal to :func:`request_chunk_gaps` to the bit.
    """
    import numpy as np

    stamps = [r.received_ns for r in repeat.completed]
    lengths = np.fromiter(map(len, stamps), np.int64, len(stamps))
    flat = np.fromiter(chain.from_iterable(stamps), np.int64, int(lengths.sum()))
    # What lies before a first chunk is the end of another request.
    return np.delete(np.diff(flat), np.cumsum(lengths[:-1]) - 1) / NS_PER_S


def _e2e_latency(repeat: RepeatTrace, _: Context) -> Outcome:
    return sampled((request_e2e_latency(r) for r in repeat.completed), "no request completed")


_CLIENT = "the client's receive times"

METRICS = (
    Metric("ttft", "s", "lower", "first output token received - due time", _CLIENT, _ttft),
    Metric("tpot", "s", "lower", "(t_last - t_first chunk) / (N - tokens in the first chunk)", _CLIENT, _tpot),
    Metric("itl", "s", "lower", "gaps between successive tokens; 0 within a chunk", _CLIENT, _itl),
    Metric("chunk_gap", "s", "lower", "gaps between successive chunks", _CLIENT, _chunk_gap),
    Metric("e2e_latency", "s", "lower", "last output token received - due time", _CLIENT, _e2e_latency),
)
