"""summary.md: what a reviewer of a pull request should read, the verdicts first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_llmperf.report import notices
from pytest_llmperf.report.commands import item_of, saving
from pytest_llmperf.report.exporters.markdown import code, fence, keep_within, table, text
from pytest_llmperf.report.exporters.pictures import FOLDER, Picture
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.wording import (
    against,
    better_of,
    by_word,
    engine_name,
    evidence,
    failed_otherwise,
    improved,
    judged,
    plural,
    serving_engines,
    under_test,
    unit_of,
    value_of,
    values,
    verdict_word,
    worst_regression,
)
from pytest_llmperf.results import Results, TestRecord, VerdictRecord

__all__ = ["LONGEST", "summary"]

#: GitHub takes comments of 65,536 characters.
LONGEST = 60_000
#: So much of it a section may take besides the table of tests.
_SECTION = 7_000
_COLUMNS = (("ttft", "TTFT", False), ("tpot", "TPOT", False), ("throughput", "tokens/s", True),
            ("tpj", "tokens/J", True))  # fmt: skip
#: A longer table stands below what has to be read and what the tests say together, and this many of its rows are seen
#: without opening it.
_MANY, _SEEN = 30, 50
#: So many engines with their models and devices are named.
_ENGINES = 4
_QUIET = ("pass", "improved", "not-applicable", "measured")
_UNJUDGED = ("invalid", "incomparable", "no-baseline")


def summary(results: Results, pictures: Sequence[Picture] = (), undrawn: str | None = None) -> str:
    """The summary of a run as Markdown, of at most :data:`LONGEST` characters; what was cut is said.

    Args:
        results: Of the run.
        pictures: Charts that lie beside the summary. Each takes one line, which a comment of a pull request has to
            leave out: there is no folder beside one.
        undrawn: Why there are no more of them.
    """
    tests = results.worst_first()
    many = len(tests) > _MANY
    before = [*_head(tests), *_worst(tests), *_environment(results)]
    after = [
        *(_section("Regressed", _regressed(tests)) if many else []),
        *_section("Inconclusive", _inconclusive(tests)),
        *_section("Not judged", _unjudged(tests), _remedy(results, tests)),
        *_section("Improved", _improved(tests), _acceptance(results, tests)),
        *_section("Findings", _findings(results)),
        *_charts(pictures, undrawn),
    ]
    last = [*_section("Baselines", _baselines(results)), *_section("How it was judged", _judged(results))]
    taken = sum(len(line) + 1 for line in (*before, *after, *last))
    table_of_tests = _table(tests, LONGEST - taken - 600)
    if many:
        parts = [*before, *after, "#### Tests", "", *table_of_tests, *last]
    else:
        parts = [*before, *table_of_tests, *after, *last]
    return "\n".join(parts).strip() + "\n"


def _head(tests: Sequence[TestRecord]) -> list[str]:
    counts = by_word(tests)
    bold = ("regressed", "inconclusive", *_UNJUDGED)
    said = [f"**{n} {verdict}**" if verdict in bold else f"{n} {verdict}" for verdict, n in counts.items()]
    if partly := sum(test.verdict == "pass" and improved(test) is not None for test in tests):
        said.append(f"{partly} of the passes with an improvement")
    if failed := sum(map(failed_otherwise, tests)):
        said.append(f"**{failed} failed for another reason**")
    if not tests:
        said = ["No test measured anything."]
    elif set(counts) <= {"measured", "simulated"}:
        said.append("nothing was gated")
    lines = ["### LLM inference performance", "", ", ".join(said), ""]
    if any(test.engine and test.engine.simulated for test in tests):
        lines += ["**Simulated: the figures are computed, and are of no real board.**", ""]
    return lines


def _worst(tests: Sequence[TestRecord]) -> list[str]:
    """One paragraph on the worst regression."""
    worst = worst_regression(tests)
    if worst is None:
        return []
    test, verdict = worst
    others = len({t.nodeid for t in tests if t.verdict == "regressed"} - {test.nodeid})
    lines = [f"{code(test.nodeid)} regressed: {_sentence(test, verdict)}."]
    lines += [text(sentence, 600) for sentence in test.explanation[:1]]
    if others:
        lines.append(f"{plural(others, 'more test')} regressed.")
    return [" ".join(lines), ""]


def _sentence(test: TestRecord, verdict: VerdictRecord) -> str:
    name = verdict.metric
    if verdict.change is None or verdict.reason:
        return f"{code(name)}: {text(verdict.reason or verdict.verdict)}"
    return (
        f"{code(name)} {text(values(verdict, unit_of(test.metrics, name)))}, "
        f"{text(evidence(verdict, better_of(test.metrics, name)))}"
    )


def _environment(results: Results) -> list[str]:
    """Engine, hardware, treatment and clock: one line each."""
    engines = serving_engines(results.tests)
    said = [f"{engine_name(e)}, {e.model} ({e.dtype}) on {e.device}" for e in engines]
    distinct = list(dict.fromkeys(said))
    # One that would be left out alone is named as well.
    named = distinct[: _ENGINES if len(distinct) > _ENGINES + 1 else None]
    lines = [f"- {text(one)}" for one in named]
    if more := distinct[len(named) :]:
        lines.append(f"- and {len(more)} more")
    lines += [f"- arguments under test: {text(one)}" for one in under_test(results.tests)]
    if clocks := sorted({test.clock.locked_mhz for test in results.tests if test.clock.locked_mhz}):
        lines.append(f"- SM clock locked at {', '.join(f'{mhz:g}' for mhz in clocks[:20])} MHz")
    elif results.environment.gpus and engines:
        lines.append("- SM clock not locked")
    return [*lines, ""] if lines else []


def _table(tests: Sequence[TestRecord], room: int) -> list[str]:
    if not tests:
        return []
    columns = [column for column in _COLUMNS if any(value_of(test, column[0]) is not None for test in tests)]
    head = ["Test", "Verdict", *(title for _, title, _ in columns)]
    rows = [[code(t.nodeid), _verdict(t), *(_cell(t, name, bare) for name, _, bare in columns)] for t in tests]
    lines = table(head, rows, numbers=len(columns))
    kept, left_out = keep_within(lines, room)
    more = [f"{plural(left_out, 'more test')}, less bad than these, in the report.", ""] if left_out else []
    if len(kept) <= _SEEN + 2:
        return [*kept, "", *more]
    above, rule, *shown = kept
    folded = shown[_SEEN:]
    opened = ["<details>", f"<summary>{plural(len(folded), 'more test')}</summary>", "", above, rule, *folded, ""]
    return [above, rule, *shown[:_SEEN], "", *opened, *more, "</details>", ""]


def _verdict(test: TestRecord) -> str:
    if test.verdict == "pass" and improved(test) is not None:
        return "pass, improved"
    if test.verdict in _QUIET:
        return f"{verdict_word(test)}, **but failed**" if failed_otherwise(test) else verdict_word(test)
    return f"**{test.verdict}**"


def _cell(test: TestRecord, name: str, bare: bool) -> str:
    value = value_of(test, name)
    if value is None:
        return "-"
    said = format_value(value, unit_of(test.metrics, name), bare=bare)
    changes: dict[str, float | None] = {told.metric: told.change for told in test.advisory}
    changes |= {verdict.metric: verdict.change for verdict in test.verdicts if verdict.against == "baseline"}
    change = changes.get(name)
    return said if change is None else f"{said} ({format_change(change)})"


def _section(title: str, entries: Sequence[str], remedy: Sequence[str] = ()) -> list[str]:
    """A heading, as many entries as have room, how many have not, and what to do."""
    if not entries:
        return []
    kept, left_out = keep_within([f"- {entry}" for entry in entries], _SECTION)
    if left_out:
        kept.append(f"- and {left_out} more, in the report")
    return [f"#### {title}", "", *kept, "", *remedy]


def _of_verdict(tests: Iterable[TestRecord], *wanted: str) -> Iterable[tuple[TestRecord, VerdictRecord]]:
    return ((test, verdict) for test in tests for verdict in test.verdicts if verdict.verdict in wanted)


def _regressed(tests: Sequence[TestRecord]) -> list[str]:
    """Of each test that regressed the metric that is furthest beyond its tolerance; the worst test comes first."""
    return [
        f"{code(test.nodeid)}: {_sentence(test, worst[1])}"
        for test in tests
        if (worst := worst_regression([test])) is not None
    ]


def _inconclusive(tests: Sequence[TestRecord]) -> list[str]:
    """What was inconclusive, and what would decide it."""
    lines = []
    for test, verdict in _of_verdict(tests, "inconclusive"):
        if verdict.reason and not verdict.advice:
            continue  # nobody went on to decide it: the test had failed
        advice = f". {text(verdict.advice, 600)}" if verdict.advice else ""
        lines.append(f"{code(test.nodeid)}: {_sentence(test, verdict)}{advice}")
    return lines


def _unjudged(tests: Sequence[TestRecord]) -> list[str]:
    """Why a test could not be judged; one line for metrics that share the reason."""
    lines: dict[str, list[str]] = {}
    for test in tests:
        if test.invalid:
            lines[f"{code(test.nodeid)}: {text(test.invalid, 600)}"] = []
            continue
        for verdict in test.verdicts:
            if verdict.verdict in _UNJUDGED:
                why = f"{verdict.verdict}: {text(verdict.reason or 'no reason was kept', 600)}"
                lines.setdefault(f"{code(test.nodeid)}: {why}", []).append(code(verdict.metric))
    return [f"{line} ({', '.join(metrics)})" if metrics else line for line, metrics in lines.items()]


def _remedy(results: Results, tests: Sequence[TestRecord]) -> list[str]:
    if not any(test.verdict in ("no-baseline", "incomparable") for test in tests):
        return []
    return ["Baselines of what this run measured would be stored by:", "", *_command(results), ""]


def _improved(tests: Sequence[TestRecord]) -> list[str]:
    return [f"{code(test.nodeid)}: {_sentence(test, verdict)}" for test, verdict in _of_verdict(tests, "improved")]


def _acceptance(results: Results, tests: Sequence[TestRecord]) -> list[str]:
    """The command that would make improvements the new baseline; it is for a person to decide."""
    better = list(dict.fromkeys(item_of(test.nodeid) for test in tests if improved(test) is not None))
    if not better:
        return []
    few = better if len(better) <= 5 and len(" ".join(better)) <= 1000 else []
    what = "these tests" if few else "all tests of this run"
    said = f"Improvements change no baseline. To accept them, measure {what} again and store:"
    return [said, "", *_command(results, few), ""]


def _command(results: Results, tests: Sequence[str] = ()) -> list[str]:
    command = saving(results.run.command, tests)
    return fence(command) if len(command) <= 2000 else ["(the command of the run, with `--llmperf-save`)"]


def _findings(results: Results) -> list[str]:
    """What several tests say together, of each finding the first sentence."""
    return [
        f"**{text(finding.title.partition(':')[0])}**: {text(finding.sentences[0], 600)}"
        for finding in results.findings
        if finding.sentences
    ]


def _charts(pictures: Sequence[Picture], undrawn: str | None) -> list[str]:
    if not pictures and undrawn is None:
        return []
    lines = ["#### Charts", ""]
    if pictures:
        lines += [f"In the folder `{FOLDER}` beside this file; all others, with their data, in report.html.", ""]
    for picture in pictures:
        lines += [f"**{text(picture.caption, 200)}** ![{text(picture.chart.description, 500)}]({picture.path})", ""]
    return [*lines, text(undrawn, 600), ""] if undrawn else lines


def _baselines(results: Results) -> list[str]:
    """Missing and stale baselines, where the record names them."""
    found = results.baselines
    if found is None:
        return []
    lines = [f"missing: {code(test)}" for test in found.missing]
    lines += [f"stale, its test is gone: {code(entry.test)} in {code(entry.path)}" for entry in found.stale]
    if lines and found.not_run:
        lines.append(f"{plural(found.not_run, 'stored baseline')} of tests that did not run")
    return lines


def _judged(results: Results) -> list[str]:
    gate, run = results.gate, results.run
    lines = []
    if gate is not None and (said := judged(results)) is not None:
        lines.append(said)
        lines.append(
            f"a change beyond its tolerance passes with a probability of at most {gate.pass_alpha:.3g} a metric; looks "
            f"after {', '.join(map(str, gate.looks))} launches"
        )
    anchors = {against(v) for t in results.tests for v in t.verdicts if v.against == "anchor"}
    if anchors:
        lines.append(f"compared with {text(', '.join(sorted(anchors)))} too, whose tolerance is the budget")
    quietest = [v.minimum_detectable for t in results.tests for v in t.verdicts if v.minimum_detectable is not None]
    if quietest and math.isfinite(max(quietest)):
        lines.append(
            f"smallest worsening that would have been called regressed: {format_change(min(quietest))} to "
            f"{format_change(max(quietest))}, by metric"
        )
    lines += [text(sentence) for sentence in notices.of_run(results)]
    commit = f"commit {code(run.commit[:12])}" if run.commit else "no commit"
    dirty = " with uncommitted changes" if run.dirty else ""
    version = f"pytest-llmperf {text(run.plugin_version)}"
    return [*lines, f"run {code(run.id)}, {text(run.started_at)}, {commit}{dirty}, {version}"]
