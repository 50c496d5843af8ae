"""What of a test's record contradicts the rest of it, beside the verdicts themselves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from pytest_llmperf.fingerprint import DEFINITIONS
from pytest_llmperf.results import MetricValue, Results, TestRecord, VerdictRecord

__all__ = ["contradictions", "same", "told", "tolerance_differs"]

_RELATIVE, _ABSOLUTE = 1e-6, 1e-12


def contradictions(test: TestRecord, results: Results) -> tuple[str, ...]:
    """Each as a sentence without its full stop.

    Args:
        test: Its record.
        results: Of the run: one that saved baselines has tolerances without verdicts, and no gate.
    """
    return (*_values(test), *_gating(test, results))


def tolerance_differs(verdict: VerdictRecord, test: TestRecord) -> str | None:
    """That a verdict against the baseline has another tolerance than the test; ``None`` where they agree."""
    if verdict.against != "baseline" or verdict.metric in DEFINITIONS:
        return None
    if verdict.metric not in test.tolerances:
        kept = bool(test.tolerances) or verdict.looks is not None
        return "the test's tolerances do not hold the metric" if kept else None
    tolerance = test.tolerances[verdict.metric]
    if same(verdict.tolerance, tolerance):
        return None
    return f"its tolerance is stored as {verdict.tolerance:g}, and that of the test as {tolerance:g}"


def same(one: Any, other: Any) -> bool:
    """Whether two stored numbers, intervals or texts are the same but for rounding."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def told(value: Any) -> str:
    """A stored value as it stands in the file."""
    return "null" if value is None else str(value)


def _values(test: TestRecord) -> Iterator[str]:
    for name, metric in test.metrics.items():
        if not same(metric.value, middle := _middle(metric)):
            stored = told(metric.value)
            yield f"the value of {name} is stored as {stored}, and the median over its launches is {told(middle)}"


def _middle(metric: MetricValue) -> float | None:
    if not metric.launches or not all(metric.launches):
        return None
    return statistics.median(statistics.median(launch) for launch in metric.launches)


def _gating(test: TestRecord, results: Results) -> Iterator[str]:
    judged = {verdict.metric for verdict in test.verdicts if verdict.against == "baseline"}
    unjudged = [name for name in test.tolerances if name not in judged]
    if unjudged and (test.verdicts or results.gate is not None):
        yield f"no verdict against the baseline is stored for {', '.join(unjudged)}, by which the test is gated"
    elif test.verdict == "measured" and not test.verdicts and test.provenance is not None:
        yield "the test is stored as measured, and with what a baseline is compared by"
