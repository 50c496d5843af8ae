"""What a client reported against what the server did: pure functions of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.load_client.clients import RequestTiming
from benchmarks.load_client.server import Truth

__all__ = ["Comparison", "Errors", "compare"]


@dataclass(frozen=True, slots=True)
class Errors:
    """The distribution of (reported - true), in seconds; the percentiles are of its magnitude.

    Attributes:
        count: How many values were compared.
        p50: Median magnitude.
        p99: 99th percentile of the magnitude.
        maximum: Largest magnitude.
        bias: Median with its sign: positive when the client reports too much.
    """

    count: int
    p50: float
    p99: float
    maximum: float
    bias: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One client's run against the server's log.

    Attributes:
        matched: ``"request id"``, or ``"sorted"`` when the client tells none: then the k-th smallest reported value
            is compared with the k-th smallest true one, which hides errors that only swap requests.
        requests: How many the client reported as completed.
        ttft: Errors of time to first token; ``None`` without any value.
        itl: Errors of inter-token times; ``None`` without any value.
        gaps_missing: True gaps that the client has no value for.
        rate: Tokens a second that the client's own times amount to, over those of the server: 1 when it kept up.
    """

    matched: str
    requests: int
    ttft: Errors | None
    itl: Errors | None
    gaps_missing: int
    rate: float | None

    def record(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def compare(
    reported: Sequence[RequestTiming], truth: Sequence[Truth], *, mean_only: bool, steady: bool = False
) -> Comparison:
    """Compare a client's report with the server's log.

    Args:
        reported: One for each request the client completed.
        truth: The requests of the load, without probes.
        mean_only: Whether the client reports one inter-token time a request, its mean, to compare with the true mean.
        steady: Leave out each request's last gap. Where all streams end together, the work that a client does for a
            request that has ended falls into the last gaps of the others, and is no part of the rate it can take.
            A mean holds it all the same.
    """
    relative_rate = _relative_rate(reported, truth, mean_only)
    if steady and not mean_only:
        reported = [r._replace(itl_s=r.itl_s[:-1]) for r in reported]
        truth = [replace(t, sent_ns=t.sent_ns[:-1]) for t in truth]
    true_itls = {t.request_id: _itls(t, mean_only) for t in truth}
    gaps = sum(len(itls) for itls in true_itls.values())
    by_id = {t.request_id: t for t in truth}
    pairs = [(r, by_id[r.request_id]) for r in reported if r.request_id in by_id]
    if pairs and len(pairs) == len(reported):
        matched = "request id"
        ttft = [r.ttft_s - t.ttft_s for r, t in pairs]
        whole = [(r, t) for r, t in pairs if len(r.itl_s) == len(true_itls[t.request_id])]
        itl = [a - b for r, t in whole for a, b in zip(r.itl_s, true_itls[t.request_id], strict=True)]
    else:
        matched = "sorted"
        ttft = _sorted_differences([r.ttft_s for r in reported], [t.ttft_s for t in truth])
        itl = _sorted_differences(
            [g for r in reported for g in r.itl_s], [g for itls in true_itls.values() for g in itls]
        )
    return Comparison(matched, len(reported), _errors(ttft), _errors(itl), gaps - len(itl), relative_rate)


def _itls(truth: Truth, mean_only: bool) -> tuple[float, ...]:
    itls = truth.itl_s
    return (sum(itls) / len(itls),) if mean_only and itls else itls


def _sorted_differences(reported: list[float], true: list[float]) -> list[float]:
    """Rank by rank; none when the counts differ, for then the ranks are not of the same values."""
    if len(reported) != len(true):
        return []
    return [a - b for a, b in zip(sorted(reported), sorted(true), strict=True)]


def _relative_rate(reported: Sequence[RequestTiming], truth: Sequence[Truth], mean_only: bool) -> float | None:
    """True streaming time over reported streaming time, each a mean over requests."""
    if not reported or not truth:
        return None
    true = sum((t.sent_ns[-1] - t.sent_ns[0]) / 1e9 for t in truth) / len(truth)
    gaps = len(truth[0].sent_ns) - 1
    seen = sum(sum(r.itl_s) * (gaps if mean_only else 1) for r in reported) / len(reported)
    return true / seen if seen > 0 else None


def _errors(differences: list[float]) -> Errors | None:
    if not differences:
        return None
    magnitudes = sorted(abs(d) for d in differences)
    return Errors(
        len(magnitudes),
        _quantile(magnitudes, 0.5),
        _quantile(magnitudes, 0.99),
        magnitudes[-1],
        _quantile(sorted(differences), 0.5),
    )


def _quantile(ordered: list[float], fraction: float) -> float:
    """Linear between the two nearest ranks."""
    place = (len(ordered) - 1) * fraction
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
