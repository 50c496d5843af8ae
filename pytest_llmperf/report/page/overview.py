"""The first screen: the verdict in one line, what was measured on what, what changed and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pytest_llmperf.report.notices import power_capped
from pytest_llmperf.report.units import format_change, format_value, shortened
from pytest_llmperf.report.wording import (
    badness,
    better_of,
    by_kind,
    by_word,
    engine_name,
    evidence,
    format_interval,
    plural,
    serving_engines,
    under_test,
    unit_of,
    values,
    worst_regression,
)
from pytest_llmperf.results import WORST_FIRST, Engine, Finding, Results, TestRecord, VerdictRecord

__all__ = [
    "Change",
    "Headline",
    "Reason",
    "changes",
    "first_findings",
    "first_line",
    "headline",
    "measured",
    "reasons",
    "simulated",
]

#: Verdicts after which nobody knows how the engine does.
_UNKNOWN = ("invalid", "incomparable", "no-baseline", "inconclusive")
#: The first sentences of explanations that are told on the first screen.
_REASONS = 3
#: Further metrics of a test that are named there, and findings.
_OTHERS = 3
_FINDINGS = 7
#: So many models, engines or devices are named; of more the first, and their number.
_FEW = 3


@dataclass(frozen=True)
class Headline:
    """The verdict of the run.

    Attributes:
        tone: ``bad``, ``warn``, ``good`` or ``plain``: the icon and the colour beside the words.
        text: The verdict, in plain words.
    """

    tone: str
    text: str


@dataclass(frozen=True)
class Change:
    """One test of which a metric changed.

    Attributes:
        test: The test.
        verdict: The one of its verdicts that is furthest beyond the tolerance.
        before: The baseline's value with its unit; a dash where there is none.
        now: This run's.
        change: With its sign, in percent.
        interval: Where it lies but for the error allowed.
        others: The test's other metrics of the same verdict, three at most, and how many more there are.
        sentence: All of that as one sentence.
    """

    test: TestRecord
    verdict: VerdictRecord
    before: str
    now: str
    change: str
    interval: str
    others: list[str]
    sentence: str


@dataclass(frozen=True)
class Reason:
    """Why tests changed.

    Attributes:
        test: The first test of which it is said.
        text: The first sentence of its explanation.
        others: Of how many more tests the same is said with other figures.
    """

    test: TestRecord
    text: str
    others: int


def headline(tests: Sequence[TestRecord]) -> Headline:
    """The verdict in one line."""
    regressed = sum(test.verdict == "regressed" for test in tests)
    unknown = sum(test.verdict in _UNKNOWN for test in tests)
    failed = sum(test.outcome == "failed" and test.verdict not in ("regressed", *_UNKNOWN) for test in tests)
    if not tests:
        return Headline("plain", "No test measured anything.")
    if regressed:
        text = f"{regressed} of {plural(len(tests), 'test')} regressed"
        if unknown:
            text += f", {unknown} could not be judged"
        return Headline("bad", text + ".")
    if failed:
        return Headline("bad", f"{failed} of {plural(len(tests), 'test')} failed for another reason than a verdict.")
    if unknown:
        return Headline("warn", f"{unknown} of {plural(len(tests), 'test')} could not be judged.")
    if all(test.verdict in ("measured", "not-applicable") for test in tests):
        done = "simulated" if "simulated" in by_word(tests) else "measured"
        return Headline("plain", f"{plural(len(tests), 'test')} {done}; nothing was gated.")
    improved = sum(test.verdict == "improved" for test in tests)
    better = f", {improved} improved" if improved else ""
    ungated = sum(test.verdict in ("measured", "not-applicable") for test in tests)
    judged = len(tests) - ungated
    if judged == 1:
        text = f"The one test {'that was gated ' if ungated else ''}is within tolerance"
    else:
        text = f"All {judged} tests {'that were gated ' if ungated else ''}are within tolerance"
    return Headline("good", f"{text}{better}.")


def first_line(tests: Sequence[TestRecord]) -> str:
    """What someone who reads one sentence should read: the worst regression with its figures, or the headline."""
    worst = worst_regression(tests)
    if worst is None:
        return headline(tests).text
    test, verdict = worst
    others = len({t.nodeid for t in tests if t.verdict == "regressed"} - {test.nodeid})
    more = f", and {plural(others, 'more test')}" if others else ""
    why = f" {test.explanation[0]}" if test.explanation else ""
    return f"{_sentence(test, verdict)}{more}.{why}"


def _sentence(test: TestRecord, verdict: VerdictRecord) -> str:
    head = f"{shortened(test.nodeid)} {verdict.verdict}: {verdict.metric}"
    if verdict.change is None or verdict.reason:
        return f"{head}: {verdict.reason}" if verdict.reason else head
    said = values(verdict, unit_of(test.metrics, verdict.metric))
    return f"{head} {said}: {evidence(verdict, better_of(test.metrics, verdict.metric))}"


def changes(tests: Iterable[TestRecord]) -> list[Change]:
    """Of every test that regressed, improved or stayed undecided the metric that changed most, the worst test first."""
    found = []
    for test in tests:
        if test.verdict not in ("regressed", "inconclusive", "improved"):
            continue
        own = [verdict for verdict in test.verdicts if verdict.verdict == test.verdict]
        sign = -1 if test.verdict == "improved" else 1
        size = {id(v): sign * badness(v, better_of(test.metrics, v.metric)) for v in own}
        if own:
            worst = max(own, key=lambda v: size[id(v)])
            others = list(dict.fromkeys(v.metric for v in own if v.metric != worst.metric))
            found.append((test, worst, others, size[id(worst)]))
    found.sort(key=lambda one: (WORST_FIRST.index(one[0].verdict), -one[3]))
    return [_change(test, verdict, others) for test, verdict, others, _ in found]


def _change(test: TestRecord, verdict: VerdictRecord, others: list[str]) -> Change:
    if len(others) > _OTHERS:
        others = [*others[:_OTHERS], f"{len(others) - _OTHERS} more"]
    unit = unit_of(test.metrics, verdict.metric)
    return Change(
        test=test,
        verdict=verdict,
        before=format_value(verdict.baseline, unit),
        now=format_value(verdict.current, unit),
        change=format_change(verdict.change),
        interval="" if verdict.interval is None else format_interval(verdict.interval),
        others=others,
        sentence=_sentence(test, verdict),
    )


def reasons(found: Iterable[Change]) -> list[Reason]:
    """Why, in as few sentences as there are kinds of reasons."""
    told = [(change.test, change.test.explanation[0]) for change in found if change.test.explanation]
    kinds = by_kind((text.partition(" (")[0], text) for _, text in told)
    first = {text: test for test, text in reversed(told)}
    return [Reason(first[text], text, others) for text, others in kinds[:_REASONS]]


def first_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Of each kind the first: a sweep over many loads says the same of each."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.kind, finding)
    return list(first.values())[:_FINDINGS]


def simulated(results: Results) -> str | None:
    """That, and of how many tests, the figures come from a simulated engine; ``None`` where none do."""
    of_engines = [test.engine.simulated for test in results.tests if test.engine is not None]
    if not any(of_engines):
        # A board without an engine is measured by tests of its own.
        boards = [gpu.simulated for gpu in results.environment.gpus]
        if of_engines or not boards or not all(boards):
            return None
        of_engines = boards
    if all(of_engines):
        return "Simulated: the figures are computed, and are of no real board."
    some = f"{sum(of_engines)} of {plural(len(results.tests), 'test')}"
    return f"Simulated in {some}: their figures are computed, and are of no real board."


def measured(results: Results) -> list[tuple[str, str]]:
    """What was measured on what, at which clock, when, at which commit: pairs of a title and a text."""
    engines = serving_engines(results.tests)
    facts = [
        ("Model", _models(engines)),
        ("Engine", _either((engine_name(engine) for engine in engines), "engine")),
        ("Board", _either((_board(engine) for engine in engines), "device") or _boards(results)),
        ("Arguments under test", ", ".join(under_test(results.tests))),
        ("SM clock", _clocks(results.tests)),
        ("Started", _when(results.run.started_at)),
        ("Commit", _commit(results)),
    ]
    return [(title, text) for title, text in facts if text]


def _models(engines: Iterable[Engine]) -> str:
    """The models with their formats; where these are many, of how many models they are."""
    kinds = {_model(engine): engine.model for engine in engines}
    models = len(set(kinds.values()))
    if len(kinds) <= _FEW or models == len(kinds):
        return _either(kinds, "model")
    return f"{next(iter(kinds))} and {len(kinds) - 1} more, formats of {plural(models, 'model')}"


def _either(texts: Iterable[str], noun: str) -> str:
    """All texts where they are few, else the first and how many there are."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) <= _FEW:
        return ", ".join(distinct)
    return f"{distinct[0]} and {plural(len(distinct) - 1, f'more {noun}')}"


def _model(engine: Engine) -> str:
    kinds = [engine.dtype]
    if engine.quantization:
        kinds.append(engine.quantization)
    if engine.kv_cache_dtype != "auto":
        kinds.append(f"KV cache {engine.kv_cache_dtype}")
    return f"{engine.model} ({', '.join(kinds)})"


def _board(engine: Engine) -> str:
    return _several(engine.tensor_parallel_size, engine.device)


def _several(count: int, name: str) -> str:
    return name if count == 1 else f"{count}x {name}"


def _boards(results: Results) -> str:
    names = [gpu.name for gpu in results.environment.gpus]
    distinct = {name: names.count(name) for name in names}
    return ", ".join(_several(count, name) for name, count in distinct.items())


def _clocks(tests: Iterable[TestRecord]) -> str:
    """``"900 MHz, locked"``, ``"750 to 1300 MHz, 12 locked clocks"``, ``"free, held down by ..."``."""
    tests = list(tests)
    locked = sorted({test.clock.locked_mhz for test in tests if test.clock.locked_mhz is not None})
    free = any(test.clock.locked_mhz is None and test.clock.observed_mhz is not None for test in tests)
    freely = "free"
    if capped := len(power_capped(tests)):
        freely += f", held down by the power cap in {capped} of {plural(len(tests), 'test')}"
    if not locked:
        return freely if free else ""
    if len(locked) == 1:
        text = f"{locked[0]:g} MHz, locked"
    else:
        text = f"{locked[0]:g} to {locked[-1]:g} MHz, locked at {len(locked)} clocks"
    return f"{text}, and {freely}" if free else text


def _when(started_at: str) -> str:
    try:
        return f"{datetime.fromisoformat(started_at):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return started_at


def _commit(results: Results) -> str:
    run = results.run
    if run.commit is None:
        return "not in a repository"
    return run.commit[:10] + (" with uncommitted changes" if run.dirty else "")
