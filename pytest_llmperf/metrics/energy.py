"""Energy: joules of all boards of an engine over one window a launch, and what they bought.

The window is the time from a launch's first due request to its last token, and all of its tokens count. One that is cut
at the steps of the energy counter would hold parts of repeats: a prefill more or less, whose joules bring no output.
Gross, unless a name begins with ``net_``: then what the boards draw with the model loaded and nothing to do is taken
off.

A window that holds prefill and decode alike cannot tell the two apart. A prefill alone is a workload of one output
token, a decode alone one of one prompt token; of both together a regression over several workloads tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy
from pytest_llmperf.metrics.throughput import tokens_within
from pytest_llmperf.metrics.types import LaunchReadings, Metric, Missing, OfLaunch, Outcome
from pytest_llmperf.trace import RequestTrace

__all__ = ["METRICS", "joules_of_repeat", "prompt_tokens_within"]

#: What is counted: of one request, within a window of nanoseconds.
Count = Callable[[RequestTrace, int, int], float]


def prompt_tokens_within(request: RequestTrace, start: int, end: int) -> float:
    """Prompt tokens that were worked on within a window: spread evenly from the sending to the first output token."""
    if request.first_ns <= request.sent_ns:
        return float(request.input_tokens) if start < request.first_ns <= end else 0.0
    overlap = min(end, request.first_ns) - max(start, request.sent_ns)
    return request.input_tokens * max(0, overlap) / (request.first_ns - request.sent_ns)


def joules_of_repeat(readings: LaunchReadings) -> float | Missing:
    """What running the whole workload once takes: mean power times the mean distance of two repeats."""
    energy = readings.window.energy
    if isinstance(energy, NoEnergy):
        return Missing(energy.reason)
    return energy.watts * readings.seconds / len(readings.repeats)


def _counted(count: Count, readings: LaunchReadings, energy: Joules) -> float:
    return sum(count(r, energy.start_ns, energy.end_ns) for repeat in readings.repeats for r in repeat.completed)


def _gross(readings: LaunchReadings) -> Joules | Missing:
    energy = readings.window.energy
    return Missing(energy.reason) if isinstance(energy, NoEnergy) else energy


def _net_joules(energy: Joules, readings: LaunchReadings) -> float | Missing:
    if isinstance(readings.idle_w, Unreadable):
        return Missing(readings.idle_w.reason)
    net = energy.value - readings.idle_w * energy.seconds
    if net <= 0:
        return Missing("the boards drew no more than when they idle")
    return net


def _per_joule(*, net: bool, inverse: bool) -> OfLaunch:
    """Output tokens per joule, or joules per output token."""

    def of_launch(readings: LaunchReadings) -> Outcome:
        energy = _gross(readings)
        if isinstance(energy, Missing):
            return energy
        joules = _net_joules(energy, readings) if net else energy.value
        if isinstance(joules, Missing):
            return joules
        return _ratio(joules, _counted(tokens_within, readings, energy), inverse=inverse)

    return of_launch


def _ratio(joules: float, tokens: float, *, inverse: bool) -> Outcome:
    if tokens <= 0:
        return Missing("no token came within the energy window")
    if joules <= 0:
        return Missing("the boards counted no energy within the window")
    return joules / tokens if inverse else tokens / joules


def _power(readings: LaunchReadings) -> Outcome:
    energy = _gross(readings)
    return energy if isinstance(energy, Missing) else energy.watts


def _phase(single: Callable[[RequestTrace], int], count: Count, otherwise: str) -> OfLaunch:
    """Joules per token of a phase that is alone in the window."""

    def of_launch(readings: LaunchReadings) -> Outcome:
        if any(single(r) != 1 for repeat in readings.repeats for r in repeat.completed):
            return Missing(otherwise)
        energy = _gross(readings)
        if isinstance(energy, Missing):
            return energy
        return _ratio(energy.value, _counted(count, readings, energy), inverse=True)

    return of_launch


_SOURCE = "the boards' energy counters (else their power readings), the client's receive times"
_BOTH = "the window holds prefill and decode: "

METRICS = (
    Metric(
        "power", "W", "lower", "energy / time, of all boards, from a launch's first due request to its last token",
        _SOURCE, of_launch=_power, bound_to_board=True,
    ),
    Metric(
        "energy", "J", "lower", "power x time / repeats: the whole workload once",
        _SOURCE, of_launch=joules_of_repeat, bound_to_board=True,
    ),
    Metric(
        "tpj", "tokens/J", "higher", "output tokens / energy of the same window",
        _SOURCE, of_launch=_per_joule(net=False, inverse=False), bound_to_board=True,
    ),
    Metric(
        "jpt", "J/token", "lower", "energy / output tokens of the same window",
        _SOURCE, of_launch=_per_joule(net=False, inverse=True), bound_to_board=True,
    ),
    Metric(
        "net_tpj", "tokens/J", "higher", "output tokens / (energy - idle power with the model loaded x time)",
        _SOURCE, of_launch=_per_joule(net=True, inverse=False), bound_to_board=True,
    ),
    Metric(
        "net_jpt", "J/token", "lower", "(energy - idle power with the model loaded x time) / output tokens",
        _SOURCE, of_launch=_per_joule(net=True, inverse=True), bound_to_board=True,
    ),
    Metric(
        "prefill_jpt", "J/token", "lower", "energy / prompt tokens, of requests for one output token",
        _SOURCE, bound_to_board=True,
        of_launch=_phase(
            lambda r: r.output_tokens, prompt_tokens_within, f"{_BOTH}ask for one output token, or use check_phases"
        ),
    ),
    Metric(
        "decode_jpt", "J/token", "lower", "energy / output tokens, of requests with one prompt token",
        _SOURCE, bound_to_board=True,
        of_launch=_phase(
            lambda r: r.input_tokens, tokens_within, f"{_BOTH}send a prompt of one token, or use check_phases"
        ),
    ),
)  # fmt: skip
