"""What the tests of a run say together: one module a question, all pure functions of the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pytest_llmperf.findings.batch_and_clock import batch_and_clock
from pytest_llmperf.findings.batching_policies import batching_policies
from pytest_llmperf.findings.energy_split import energy_split
from pytest_llmperf.findings.formats import formats
from pytest_llmperf.findings.hardware import hardware
from pytest_llmperf.findings.idle import idle
from pytest_llmperf.findings.kv_cache import kv_cache
from pytest_llmperf.findings.latency_throughput import latency_throughput
from pytest_llmperf.findings.left_out import with_left_out
from pytest_llmperf.findings.lengths import lengths
from pytest_llmperf.findings.phases import phases
from pytest_llmperf.findings.points import Point, invalid_points, points_of
from pytest_llmperf.findings.roofline import roofline
from pytest_llmperf.findings.scaling import model_size, scaling
from pytest_llmperf.findings.sweet_spot import sweet_spot
from pytest_llmperf.findings.telling import Labels
from pytest_llmperf.results import Finding, FindingKind, Results

__all__ = ["find", "with_findings"]

Question = Callable[[Results, Sequence[Point], Labels], list[Finding]]

#: In the order in which a report tells them.
_QUESTIONS: tuple[tuple[FindingKind, Question], ...] = (
    ("sweet_spot", sweet_spot),
    ("batch_and_clock", batch_and_clock),
    ("phases", phases),
    ("latency_throughput", latency_throughput),
    ("lengths", lengths),
    ("scaling", scaling),
    ("model_size", model_size),
    ("batching_policies", batching_policies),
    ("formats", formats),
    ("idle", idle),
    ("energy_split", energy_split),
    ("roofline", roofline),
    ("kv_cache", kv_cache),
    ("hardware", hardware),
)


def find(results: Results) -> list[Finding]:
    """Ask every question that the tests of a run can answer, whichever files they come from.

    It never fails: of a question that a record defeats, there is a finding that says so and holds nothing.

    Args:
        results: A run's record; findings that it holds already are not looked at.

    Returns:
        They do not depend on the order of the tests; names are unique within a kind.
    """
    points = points_of(results)
    labels = Labels(points)
    found = []
    for kind, question in _QUESTIONS:
        try:
            found += _main_first(question(results, points, labels), points)
        except Exception as error:  # one odd record must not lose the others, nor the report
            found.append(_defeated(kind, error))
    return _uniquely_named(with_left_out(found, points, invalid_points(results), results.tests))


def _main_first(found: list[Finding], points: Sequence[Point]) -> list[Finding]:
    """Of findings of several models those of the model of most tests first; else in their own order."""
    tests = Counter(point.axes.model for point in points)
    model = {point.test.nodeid: point.axes.model for point in points}
    return sorted(found, key=lambda one: -max((tests[model[test]] for test in one.tests if test in model), default=0))


def with_findings(results: Results) -> Results:
    """The same record with the findings that its tests give."""
    return results.model_copy(update={"findings": find(results)})


def _defeated(kind: FindingKind, error: Exception) -> Finding:
    told = f"The record of this run could not be read for this question ({type(error).__name__}: {error})."
    return Finding(
        kind=kind, name="unread", title="Not worked out", sentences=[told], columns=[], rows=[], marks=[], tests=[]
    )


def _uniquely_named(found: Sequence[Finding]) -> list[Finding]:
    seen: set[tuple[str, str]] = set()
    named = []
    for one in found:
        name, count = one.name, 1
        while (one.kind, name) in seen:
            count += 1
            name = f"{one.name}-{count}"
        seen.add((one.kind, name))
        named.append(one if name == one.name else one.model_copy(update={"name": name}))
    return named
