"""Which tests a finding leaves out because they are invalid, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pytest_llmperf.findings.points import Point
from pytest_llmperf.findings.telling import listed, megahertz, size
from pytest_llmperf.report.units import printable
from pytest_llmperf.report.wording import short_name
from pytest_llmperf.results import Finding, FindingKind, TestRecord

__all__ = ["with_left_out"]

#: In what the points of a finding differ, by its kind; of others it is not told what they leave out.
_VARYING: dict[FindingKind, tuple[str, ...]] = {
    "sweet_spot": ("clock",),
    "batch_and_clock": ("size", "clock"),
    "phases": ("input_len", "output_len"),
    "latency_throughput": ("size",),
    "lengths": ("input_len", "output_len"),
    "scaling": ("tensor_parallel_size", "size"),
    "model_size": ("model", "dtype", "size"),
    "batching_policies": ("policy", "max_batch", "max_wait", "size"),
    "formats": ("quantization", "kv_cache_dtype", "enforce_eager", "dtype", "size"),
    "energy_split": ("size", "input_len", "output_len", "clock"),
}
#: Of tests that measured without a workload: the metrics that the finding tells.
_GAUGED: dict[FindingKind, tuple[str, ...]] = {
    "idle": ("bare_power", "context_power", "loaded_power", "locked_power"),
    "hardware": ("copy_bandwidth", "matmul_flops", "peer_to_peer"),
}
#: What verifying a clock says of one that was not held, and the causes in it.
_NOT_HELD, _CAUSE = (
    re.compile(r"that the SM clock was held at .*? is refuted or unproven: "),
    re.compile(r"throttled \(([^)]*)\)"),
)
#: A reason is cut there.
_LONGEST = 160
#: More names are told by their ends.
_MANY = 6


def with_left_out(
    found: Sequence[Finding], points: Sequence[Point], invalid: Sequence[Point], tests: Iterable[TestRecord]
) -> list[Finding]:
    """The findings, each with a sentence about those invalid tests that would have been part of it.

    Args:
        found: Of the run.
        points: From which they were made.
        invalid: Where its invalid tests would lie.
        tests: All of the run.
    """
    gauges = [test for test in tests if test.invalid is not None and test.workload is None]
    return [_with(one, points, invalid, gauges) for one in found]


def _with(
    one: Finding, points: Sequence[Point], invalid: Sequence[Point], gauges: Sequence[TestRecord]
) -> Finding:  # fmt: skip
    told: list[tuple[str, TestRecord]] = []
    if (varying := _VARYING.get(one.kind)) is not None:
        within = set(one.tests)
        places = {point.axes.without(*varying, "other") for point in points if point.test.nodeid in within}
        left = [point for point in invalid if point.axes.without(*varying, "other") in places]
        told = [(_NAMED.get(one.kind, _name)(point), point.test) for point in left]
    elif (metrics := _GAUGED.get(one.kind)) is not None:
        told = [(short_name(test.nodeid), test) for test in gauges if set(metrics) & set(test.metrics)]
    if not told:
        return one
    return one.model_copy(update={"sentences": [*one.sentences, *_sentences(told)]})


def _sentences(told: Sequence[tuple[str, TestRecord]]) -> list[str]:
    """A sentence for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, test in told:
        by_reason.setdefault(_reason(test.invalid or ""), []).append(name)
    return [
        f"Left out: {_counted(list(dict.fromkeys(names)))}, {reason}." for reason, names in sorted(by_reason.items())
    ]


def _counted(names: Sequence[str]) -> str:
    """Some by name, many by their ends and number."""
    if len(names) <= _MANY:
        return listed(names)
    return f"{len(names)} tests from {names[0]} to {names[-1]}"


def _reason(invalid: str) -> str:
    """Why a test is invalid: of a clock that was not held the cause, without the figures of one test."""
    told = printable(" ".join(invalid.split()))
    if (start := _NOT_HELD.search(told)) is None:
        return f"invalid: {told[:_LONGEST].rstrip('.')}"
    causes = list(dict.fromkeys(_CAUSE.findall(told)))
    if causes:
        return f"which could not be held: {listed(causes)}"
    return f"not seen to be held: {told[start.end() :][:_LONGEST].rstrip('.')}"


def _clock(point: Point) -> str:
    return megahertz(point.requested_mhz if point.requested_mhz is not None else point.axes.clock)


def _size(point: Point) -> str:
    return size(point.axes)


def _name(point: Point) -> str:
    return short_name(point.test.nodeid)


_NAMED: dict[FindingKind, Callable[[Point], str]] = {"sweet_spot": _clock, "latency_throughput": _size}
