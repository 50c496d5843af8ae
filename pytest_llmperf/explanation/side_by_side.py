"""Two runs as lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmperf.explanation.comparison import ComparedMetric, ComparedRuns, ComparedTest
from pytest_llmperf.explanation.printing import WIDTH, wrapped
from pytest_llmperf.explanation.statistics import CONFIDENCE
from pytest_llmperf.report.units import format_change, format_value, shortened
from pytest_llmperf.results import Results

__all__ = ["compared_lines"]


def compared_lines(a: Results, b: Results, compared: ComparedRuns) -> Iterator[str]:
    """What two runs have in common, and what not."""
    for side, run in (("A", a), ("B", b)):
        yield from wrapped(f"{side}: {run.run.id}, {run.run.started_at}: {run.run.command}", hanging=3)
    for difference in compared.environment:
        yield from wrapped(difference, 3)
    if any(test.engine and test.engine.simulated for run in (a, b) for test in run.tests):
        yield from wrapped("SIMULATED: figures of one run or both are computed, and are of no real board")
    for test in compared.tests:
        yield ""
        yield from _test(test)
    for side, names in (("A", compared.only_a), ("B", compared.only_b)):
        for name in names:
            yield from wrapped(f"only in {side}: {shortened(name)}")
    if any(metric.outside_noise for test in compared.tests for metric in test.metrics):
        yield ""
        yield from wrapped(
            f"Each interval stands for itself: of values that did not change, {1 - CONFIDENCE:.0%} would lie outside."
        )
    if not compared.tests:
        yield "No test is in both runs."


def _test(test: ComparedTest) -> Iterator[str]:
    yield from wrapped(shortened(test.nodeid))
    if test.incomparable:
        yield from wrapped(f"Not comparable: {'; '.join(test.incomparable)}", 2)
    if test.differences:
        yield from wrapped(f"Different: {'; '.join(test.differences)}", 2)
    if test.metrics:
        yield f"  {'':<21}{'A':>11}{'B':>11}{'change':>10}  {CONFIDENCE:.0%} interval"
    for metric in test.metrics:
        yield _line(metric)
    for moved in test.conditions:
        if any(metric.name == moved.name for metric in test.metrics):
            continue
        change = moved.now / moved.before - 1 if moved.before and moved.unit != "1" and moved.unit != "°C" else None
        values = [format_value(value, moved.unit, bare=moved.unit == "requests") for value in (moved.before, moved.now)]
        yield f"  {moved.name:<21}{values[0]:>11}{values[1]:>11}{format_change(change):>10}"
    for name, reason in test.only_one:
        yield from wrapped(f"{name}: {reason}", 2)
    if any(metric.other_board for metric in test.metrics):
        yield from wrapped("* of other boards: two boards of one product differ by 8 to 12 % in energy.", 2)


def _line(metric: ComparedMetric) -> str:
    name = metric.name + ("*" if metric.other_board else "")
    values = [format_value(value, metric.unit, bare=len(metric.unit) > 3) for value in (metric.before, metric.now)]
    if metric.unit == "FLOP/s":  # with its prefix it is wider than the column
        name, values = f"{name} (FLOP/s)", [value.removesuffix(metric.unit) for value in values]
    interval = "" if metric.interval is None else f"{_bound(metric.interval[0])} to {_bound(metric.interval[1])}"
    figures = f"{values[0]:>11}{values[1]:>11}{format_change(metric.change):>10}"
    return f"  {name:<21}{figures}  {interval:<16} {metric.outside_noise or ''}"[:WIDTH].rstrip()


def _bound(change: float) -> str:
    return f"{change * 100:+.1f}"
