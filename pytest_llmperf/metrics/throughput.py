"""Throughput: what came back in a window of time.

What lies across an end of the window has to be counted by a part of it. In an open loop requests come and go at
random, and it is enough to count the tokens, and the completions, that fall into it. A closed loop goes in waves
instead: requests of equal length that began together end together, so that whole waves of tokens or of completions lie
just inside or just outside. There each request counts by the part of its time that lies within: with c requests in
flight that take L seconds each, this is c / L a second (Little 1961), wherever the window begins and ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.metrics.latency import request_e2e_latency, request_itl, request_tpot, request_ttft
from pytest_llmperf.metrics.types import Context, Metric, Missing, Outcome
from pytest_llmperf.trace import RepeatTrace, RequestTrace

__all__ = ["METRICS", "attainment", "backlog", "meets_slo", "per_second", "plateau", "tokens_within", "window"]


def window(repeat: RepeatTrace) -> tuple[int, int]:
    """The span in which throughput is counted, in nanoseconds.

    A batch is counted whole, from when it was due to its last token, and so are requests that were gathered into
    batches: their tokens come in waves, of which a part says little. A loop is counted while the load is at its
    plateau: from the first completion to the last submission (closed loop) or the last arrival (open loop). When
    these do not lie in that order, or no request ends between them, the loop never reached a plateau and is counted
    whole; and so is an open loop of which the plateau is less than half: more came than the server could carry, most
    of its work lay behind the last arrival, and what came before is the ramp to it. Failed requests neither count nor
    stretch the window.
    """
    done = repeat.completed
    whole = min(r.due_ns for r in done), max(r.last_ns for r in done)
    if repeat.loop in ("batch", "gathered"):
        return whole
    start, end = plateau(repeat)
    if repeat.loop == "open" and 2 * (end - start) < whole[1] - whole[0]:
        return whole
    return start, end


def plateau(repeat: RepeatTrace) -> tuple[int, int]:
    """From the first completion to the last submission or arrival, in nanoseconds; the whole span without such."""
    done = repeat.completed
    start = min(r.last_ns for r in done)
    end = max(r.sent_ns if repeat.loop == "closed" else r.due_ns for r in done)
    if any(start < r.last_ns <= end for r in done):
        return start, end
    return min(r.due_ns for r in done), max(r.last_ns for r in done)


def per_second(
    repeat: RepeatTrace,
    count: Callable[[RequestTrace, int, int], float],
    whole: Callable[[RequestTrace], float],
) -> float | Missing:
    """Something that is counted in the window of a repeat, per second.

    Args:
        repeat: One run of the workload, with at least one completed request.
        count: What a request brings within a window of nanoseconds, open at its start.
        whole: What it brings in all, of which a closed loop takes the part of its time that lies within the window.
    """
    start, end = window(repeat)
    if end <= start:
        return Missing("no time passed between the first request and the last token")
    if repeat.loop == "closed":
        return sum(whole(r) * _part(r, start, end) for r in repeat.completed) / ((end - start) / NS_PER_S)
    # Half open on the left, so that the completion which opens a plateau is not counted into it; a whole run
    # opens when its first request was due, before any token.
    return sum(count(r, start, end) for r in repeat.completed) / ((end - start) / NS_PER_S)


def _part(request: RequestTrace, start: int, end: int) -> float:
    """The part of a request's time, from when it was due to its last token, that lies within a window."""
    lasted = request.last_ns - request.due_ns
    within = min(request.last_ns, end) - max(request.due_ns, start)
    return max(0, within) / lasted if lasted > 0 else float(start < request.last_ns <= end)


def tokens_within(request: RequestTrace, start: int, end: int) -> int:
    """Output tokens that came within a window, open at its start."""
    stamps = request.received_ns
    if start < stamps[0] and stamps[-1] <= end:
        return request.output_tokens  # all inside: the server's count is the better one
    return sum(request.tokens[bisect_right(stamps, start) : bisect_right(stamps, end)])


def _all_tokens(request: RequestTrace, start: int, end: int) -> int:
    prompt = request.input_tokens if start < request.first_ns <= end else 0
    return prompt + tokens_within(request, start, end)


def _throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return per_second(repeat, tokens_within, lambda r: r.output_tokens)


def _total_throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return per_second(repeat, _all_tokens, lambda r: r.input_tokens + r.output_tokens)


def _request_throughput(repeat: RepeatTrace, _: Context) -> Outcome:
    return per_second(repeat, lambda r, start, end: int(start < r.last_ns <= end), lambda _: 1)


def meets_slo(request: RequestTrace, slo: Mapping[str, float]) -> bool:
    """Whether a completed request kept every limit; one of a single token has no TPOT and keeps a limit on it."""
    return all((value := _SLO_METRICS[name](request)) is None or value <= limit for name, limit in slo.items())


#: What a request's limits are held against; ``None`` where it has no such time.
_SLO_METRICS: Mapping[str, Callable[[RequestTrace], float | None]] = {
    "ttft": request_ttft,
    "tpot": request_tpot,
    "itl": lambda request: max(request_itl(request), default=None),
    "e2e_latency": request_e2e_latency,
}


def attainment(repeats: Iterable[RepeatTrace], slo: Mapping[str, float]) -> float:
    """The share of requests that met every SLO, of those that were due while the load was at its plateau.

    Requests that failed count as not met, whenever they were due. Without a plateau all requests are counted.
    """
    met = due = 0
    for repeat in repeats:
        counted = repeat.requests
        if repeat.completed:
            start, end = plateau(repeat)
            counted = tuple(r for r in repeat.requests if not r.completed or start < r.due_ns <= end)
        due += len(counted)
        met += sum(r.completed and meets_slo(r, slo) for r in counted)
    return met / due if due else 0.0


def backlog(repeats: Iterable[RepeatTrace]) -> tuple[int, int]:
    """How many requests were due in the second half of the time in which requests came, and how many ended in it.

    A server that keeps up ends as many as come, whatever its latency is; one that does not piles them up, and an offer
    of a few seconds may be over before the pile shows in any latency.
    """
    due = ended = 0
    for repeat in repeats:
        last = max(r.due_ns for r in repeat.requests)
        middle = (min(r.due_ns for r in repeat.requests) + last) // 2
        due += sum(middle < r.due_ns <= last for r in repeat.requests)
        ended += sum(middle < r.last_ns <= last for r in repeat.completed)
    return due, ended


def _goodput(repeat: RepeatTrace, context: Context) -> Outcome:
    if not context.slo:
        return Missing("the workload sets no SLO")
    slo = context.slo
    return per_second(
        repeat,
        lambda r, start, end: int(start < r.last_ns <= end and meets_slo(r, slo)),
        lambda r: int(meets_slo(r, slo)),
    )


def _max_rate(_: RepeatTrace, __: Context) -> Outcome:
    return Missing("no rate was searched for")


_SOURCE = (
    "the client's receive times; window: the whole batch, or a loop's plateau where it lasts; in a closed loop each "
    "request by the part of its time within the window"
)

METRICS = (
    Metric("throughput", "tokens/s", "higher", "output tokens / window", _SOURCE, _throughput),
    Metric("total_throughput", "tokens/s", "higher", "(prompt + output tokens) / window", _SOURCE, _total_throughput),
    Metric("request_throughput", "1/s", "higher", "requests completed / window", _SOURCE, _request_throughput),
    Metric("goodput", "1/s", "higher", "requests that met every SLO / window", _SOURCE, _goodput),
    Metric(
        "max_rate", "1/s", "higher", "highest request rate kept up with, the asked share of requests meeting every SLO",
        "a search over open loops at rising rates", _max_rate,
    ),
)  # fmt: skip
