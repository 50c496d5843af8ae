"""Two runs as lines of at most 80 columns: in what they differ, what changed most, then test by test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmperf.explanation.comparison import ComparedMetric, ComparedRuns, ComparedTest
from pytest_llmperf.explanation.most import Extremes, extremes, told_by_another
from pytest_llmperf.explanation.printing import WIDTH, wrapped
from pytest_llmperf.explanation.statistics import CONFIDENCE
from pytest_llmperf.report.cells import before_parameters, labels
from pytest_llmperf.report.units import format_change, format_value, shortened
from pytest_llmperf.report.wording import plural
from pytest_llmperf.results import Results

__all__ = ["compared_lines"]

#: Columns of a metric's name with its unit, and of the values.
_NAME, _BEFORE, _NOW, _CHANGE, _INTERVAL = 25, 10, 11, 9, 14
#: Metrics of which the summary tells the changes, and columns of a test's name there.
_METRICS, _TEST = 12, 19
#: Tests of one run only that are named one by one.
_NAMED = 5
#: What is true of this share of the tests is told once.
_MOST = 0.75


def compared_lines(a: Results, b: Results, compared: ComparedRuns) -> Iterator[str]:
    """What two runs have in common, and what not."""
    for side, run in (("A", a), ("B", b)):
        yield from wrapped(f"{side}: {run.run.id}, {run.run.started_at}: {run.run.command}", hanging=3)
    for difference in compared.environment:
        yield from wrapped(difference, 3)
    if any(test.engine and test.engine.simulated for run in (a, b) for test in run.tests):
        yield from wrapped("SIMULATED: figures of one run or both are computed, and are of no real board")
    shared = _shared(compared.tests)
    for told, of_most in (
        ("Not comparable", shared.incomparable),
        ("Different", shared.differences),
        ("Not in both", shared.only_one),
    ):
        yield from _once(told, of_most, len(compared.tests))
    if len(compared.tests) > 1:
        yield ""
        yield from _summary(compared.tests)
    same = [test.nodeid for test in compared.tests if _nothing_to_tell(test, shared)]
    for test in compared.tests:
        if test.nodeid not in same:
            yield ""
            yield from _test(test, shared)
    if same:
        yield ""
        names_of_same = ", ".join(map(shortened, labels(same)))
        yield from wrapped(f"As in A, every figure of {plural(len(same), 'test')}: {names_of_same}")
    for side, names in (("A", compared.only_a), ("B", compared.only_b)):
        if len(names) > _NAMED:
            yield ""
            yield from wrapped(f"only in {side}, {len(names)} tests: {', '.join(map(shortened, labels(names)))}")
            continue
        for name in names:
            yield from wrapped(f"only in {side}: {shortened(name)}")
    if any(metric.other_board for test in compared.tests for metric in test.metrics):
        yield ""
        yield from wrapped("* of other boards: two boards of one product differ by 8 to 12 % in energy.")
    if any(metric.outside_noise for test in compared.tests for metric in test.metrics):
        yield ""
        yield from wrapped(
            f"Each interval stands for itself: of values that did not change, {1 - CONFIDENCE:.0%} would lie outside."
        )
    if not compared.tests:
        yield "No test is in both runs."


@dataclass(frozen=True)
class _Shared:
    """What is the same of all or most tests and told once: each with the number of tests of which it is true."""

    incomparable: Mapping[str, int]
    differences: Mapping[str, int]
    only_one: Mapping[str, int]


def _shared(tests: Sequence[ComparedTest]) -> _Shared:
    return _Shared(
        _of_most([test.incomparable for test in tests]),
        _of_most([test.differences for test in tests]),
        _of_most([_only_one(test) for test in tests]),
    )


def _of_most(said: Sequence[Sequence[str]]) -> dict[str, int]:
    """What is said of all tests but a few, of at least two."""
    counts = Counter(text for texts in said for text in dict.fromkeys(texts))
    return {text: count for text, count in counts.items() if count > 1 and count >= _MOST * len(said)}


def _once(told: str, of_most: Mapping[str, int], tests: int) -> Iterator[str]:
    """What is true of so many tests as one paragraph, those of all first."""
    for count in sorted(set(of_most.values()), reverse=True):
        texts = [text for text, true_of in of_most.items() if true_of == count]
        where = f"in all {tests} tests" if count == tests else f"in {count} of {tests} tests"
        yield from wrapped(f"{told}, {where}: {'; '.join(texts)}")


def _rest(told: str, texts: Sequence[str], of_most: Mapping[str, int]) -> Iterator[str]:
    """What is true of a test beside what was told of most, and what of that is not."""
    if own := [text for text in texts if text not in of_most]:
        yield from wrapped(f"{told}: {'; '.join(own)}", 2)
    if without := [text for text in of_most if text not in texts]:
        yield from wrapped(f"Not so here: {'; '.join(without)}", 2)


def _only_one(test: ComparedTest) -> list[str]:
    return [f"{name}: {reason}" for name, reason in test.only_one]


def _summary(tests: Sequence[ComparedTest]) -> Iterator[str]:
    """What changed most, by metric."""
    comparable = [test for test in tests if not test.incomparable]
    head = f"{len(tests)} tests are in both"
    if len(comparable) < len(tests):
        head += f", {len(tests) - len(comparable)} of them not comparable"
    counted = comparable or tests  # two machines: what they are, and no verdict
    found = extremes(counted)
    if not found:
        yield from wrapped(f"{head}. No figure changed.")
        return
    what = "changed" if comparable else "differs"
    noise = " outside the noise" if _noise_known(counted) else ""
    yield from wrapped(f"{head}. What {what} most{noise}, by metric:")
    yield f"  {'':<14}{'tests':>6}{'worst':>10}  {'':<{_TEST}}{'best':>8}"
    names = dict(zip((test.nodeid for test in tests), labels([test.nodeid for test in tests]), strict=True))
    for one in found[:_METRICS]:
        yield _extremes(one, names)
    if len(found) > _METRICS:
        yield f"  and {plural(len(found) - _METRICS, 'more metric')} below"


def _noise_known(tests: Sequence[ComparedTest]) -> bool:
    return all(metric.interval is not None for test in tests for metric in test.metrics if metric.moved)


def _extremes(one: Extremes, names: dict[str, str]) -> str:
    told = []
    for place, extreme in enumerate((one.worst, one.best)):
        change = "-" if extreme is None else format_change(extreme[1])
        name = "" if extreme is None else before_parameters(names[extreme[0]], (_TEST - 1, _TEST - 2)[place])
        told.append((change, name))
    (worst, where), (best, there) = told
    return f"  {one.metric:<14}{one.tests:>6}{worst:>10}  {where:<{_TEST}}{best:>8}  {there}"[:WIDTH].rstrip()


def _test(test: ComparedTest, shared: _Shared) -> Iterator[str]:
    yield from wrapped(shortened(test.nodeid))
    yield from _rest("Not comparable", test.incomparable, shared.incomparable)
    yield from _rest("Different", test.differences, shared.differences)
    left_out = told_by_another(test.metrics)
    still = [m.name for m in test.metrics if _still(m) and m.name not in left_out]
    shown = [metric for metric in test.metrics if metric.name not in left_out and metric.name not in still]
    reasons = {metric.without_interval for metric in shown}
    alike = reasons.pop() if len(reasons) == 1 else None
    if shown:
        column = f"{CONFIDENCE:.0%} interval" if alike is None else f"no interval: {alike}"
        yield f"  {'':<{_NAME}}{'A':>{_BEFORE}}{'B':>{_NOW}}{'change':>{_CHANGE}}  {column}"[:WIDTH]
    for metric in shown:
        yield _line(metric, reason=alike is None)
    for moved in test.conditions:
        if any(metric.name == moved.name for metric in test.metrics):
            continue
        change = moved.now / moved.before - 1 if moved.before and moved.unit != "1" and moved.unit != "°C" else None
        values = [format_value(value, moved.unit, bare=moved.unit == "requests") for value in (moved.before, moved.now)]
        yield f"  {moved.name:<{_NAME}}{values[0]:>{_BEFORE}}{values[1]:>{_NOW}}{format_change(change):>{_CHANGE}}"
    if still:
        yield from wrapped(f"as in A: {', '.join(still)}", 2)
    for other in dict.fromkeys(left_out.values()):
        yield from wrapped(f"as {other}: {', '.join(name for name, told in left_out.items() if told == other)}", 2)
    for text in _only_one(test):
        if text not in shared.only_one:
            yield from wrapped(text, 2)
    if any(metric.other_rate for metric in test.metrics):
        yield from wrapped("All but max_rate was measured at another rate: that found by the search.", 2)


def _nothing_to_tell(test: ComparedTest, shared: _Shared) -> bool:
    """Whether a test that has figures is in both runs the same, but for what is told of all tests at once."""
    differs = (
        set(test.incomparable) != shared.incomparable.keys()
        or set(test.differences) != shared.differences.keys()
        or test.conditions
        or not shared.only_one.keys() >= set(_only_one(test))
    )
    return bool(test.metrics) and not differs and all(_still(metric) for metric in test.metrics)


def _still(metric: ComparedMetric) -> bool:
    """Whether a change is printed as none, and called none."""
    if metric.change is None:
        return metric.before == metric.now
    return metric.outside_noise is None and f"{abs(metric.change):.1%}" == "0.0%"


def _line(metric: ComparedMetric, *, reason: bool) -> str:
    name = metric.name + ("*" if metric.other_board else "")
    values = [format_value(value, metric.unit, bare=len(metric.unit) > 3) for value in (metric.before, metric.now)]
    if len(metric.unit) > 3:  # beside its value it is wider than the column
        name, values = f"{name} {metric.unit}", [value.removesuffix(metric.unit) for value in values]
    interval = (metric.without_interval or "") if reason else ""
    if metric.interval is not None:
        interval = f"{_bound(metric.interval[0])} to {_bound(metric.interval[1])}"
    figures = f"{values[0]:>{_BEFORE}}{values[1]:>{_NOW}}{format_change(metric.change):>{_CHANGE}}"
    return f"  {name:<{_NAME}}{figures}  {interval:<{_INTERVAL}} {metric.outside_noise or ''}"[:WIDTH].rstrip()


def _bound(change: float) -> str:
    return f"{change * 100:+.1f}"
