"""The terminal's view of a run: one line a test, the worst first, what the tests come to, and a failure's paragraph.

What is the same for many tests is told once, in the summary; a paragraph says it all by itself, as JUnit has it, and
has a shorter form for where the summary follows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pytest_llmperf.report import notices
from pytest_llmperf.report.cells import verdict_cell
from pytest_llmperf.report.commands import command_lines, saving
from pytest_llmperf.report.outcome import common_cause, verdict_line, without_cause
from pytest_llmperf.report.rows import Line, rows, told_in_rows
from pytest_llmperf.report.units import format_change, printable, shortened
from pytest_llmperf.report.wording import (
    acceptance,
    better_of,
    echoed,
    engine_name,
    evidence,
    judged,
    plural,
    serving_engines,
    unit_of,
    values,
)
from pytest_llmperf.results import Results, TestRecord, VerdictRecord

__all__ = ["failure_paragraph", "table", "verdict_lines"]

_YELLOW = {"yellow": True}
#: Findings of which the answer is printed; the report has them all.
_FINDINGS = 8
#: Words of a title that name nothing.
_EMPTY = frozenset(["and", "the", "what", "with", "for", "over", "under"])
#: Of a failure's paragraph; reasons, which hold paths to be copied, are not wrapped.
_PARAGRAPH = 80


def table(results: Results, width: int) -> Iterator[Line]:
    """The lines of the summary with their markup; at most ``width`` columns each, but for paths that are longer."""
    engines = {printable(f"{engine_name(e)}, {e.model}, {e.device}") for e in serving_engines(results.tests)}
    for engine in sorted(engines or {printable(t.engine.device) for t in results.tests if t.engine}):
        yield from _wrapped(engine, width)
    if any(t.engine and t.engine.simulated for t in results.tests):
        yield from _wrapped("SIMULATED: the figures are computed, and are of no real board", width, _YELLOW)
    yield from rows(results, width)
    said = judged(results)
    shown = told_in_rows(results, width)
    for sentence in [*notices.other_metrics(results, shown), *([said] if said else [])]:
        yield from _wrapped(sentence, width)
    if (common := common_cause(results)) is not None:
        cause, count = common
        yield from _wrapped(printable(f"under test in all {count} that moved: {cause}"), width, {"bold": True})
    yield from _found(results, width)
    for sentence in notices.measurement(results):
        yield from _wrapped(sentence, width)
    yield from _to_accept(results, width)
    for sentence in notices.concerns(results):
        yield from _wrapped(sentence, width, _YELLOW)


def verdict_lines(results: Results, width: int) -> Iterator[Line]:
    """The run in one line, which is the last before where the report is: of a narrow terminal in more."""
    text, markup = verdict_line(results)
    yield from _wrapped(text, width, markup)


def _found(results: Results, width: int) -> Iterator[Line]:
    """What several tests say together: of each finding the answer, its first sentence, which names its load."""
    told = [_answer(finding.title, finding.sentences[0]) for finding in results.findings if finding.sentences]
    if told:
        yield "what the tests say together:"[:width], {"bold": True}
    for text in told[:_FINDINGS]:
        yield from _wrapped(printable(text), width, indent="  ")
    if (more := len(told) - _FINDINGS) > 0:
        yield from _wrapped(
            f"{plural(more, 'more finding')} {'is' if more == 1 else 'are'} in the report", width, indent="  "
        )


def _answer(title: str, sentence: str) -> str:
    """A finding's first sentence, after its title where that names something else than the sentence does."""
    subject, named = _words(title.rpartition(": ")[2]), set(_words(sentence))
    return sentence if subject and named.issuperset(subject) else f"{title}: {sentence}"


def _words(text: str) -> list[str]:
    """The words that carry a meaning, and the figures."""
    return [word for word in re.findall(r"[^\W_][\w.+-]*", text.lower()) if len(word) > 2 or word.isdigit()
            if word not in _EMPTY]  # fmt: skip


def _to_accept(results: Results, width: int) -> Iterator[Line]:
    """How improvements become the baseline."""
    if (wanted := acceptance(results)) is not None:
        sentence, command = wanted
        yield from _wrapped(sentence, width)
        for line in command_lines(printable(command), width):
            yield line, {}


def _wrapped(text: str, width: int, markup: Mapping[str, bool] | None = None, *, indent: str = "") -> Iterable[Line]:
    lines = textwrap.wrap(_tied(text), width, initial_indent=indent, subsequent_indent=indent + "  ")
    return [(line.replace("\xa0", " "), dict(markup or {})) for line in lines]


def failure_paragraph(
    record: Mapping[str, Any], command: str | None = None, *, cause: str = "", advised: Collection[str] = ()
) -> str:
    """Why a gated test failed, from its record: the metrics that matter, then what to do.

    Args:
        record: As results.json keeps it.
        command: That of the run, so that what it recommends is what the user would type.
        cause: In what the run differs from its baseline, where the summary tells it of all tests: it is left out.
        advised: Likewise the advice that the summary gives.
    """
    lines = [f"{_decided_by(record)}: {shortened(record['nodeid'])}"]
    if record["invalid"]:
        lines += _indented(f"The measurement cannot be trusted: {record['invalid']}", "  ")
    first, *others = without_cause(record.get("explanation") or (), cause) or (None,)
    if first:  # before the figures: what a reader wants to know
        lines += _indented(printable(first), "  ")
    shown = [v for v in record["verdicts"] if v["verdict"] not in ("pass", "improved", "not-applicable")]
    told = [VerdictRecord.model_construct(**verdict) for verdict in _grouped(shown or record["verdicts"])]
    echo = echoed(told)
    for verdict in told:
        if verdict is echo:
            lines.append(f"  mbu moves with tpot: {format_change(verdict.change)}")
        else:
            lines += _sentences(verdict, record["metrics"], advised)
    for sentence in others:
        lines += _indented(printable(sentence), "  ")
    if any(v["verdict"] == "regressed" and v.get("against") == "anchor" for v in record["verdicts"]):
        lines.append("  To hold later runs to the present baseline instead of the anchor:")
        lines.append("    python -m pytest_llmperf baselines FOLDER --pin")
    if advice := _ADVICE.get(record["verdict"]):
        lines += [f"  {advice}", f"    {printable(saving(command))}"]
    elif not record["invalid"] and not shown:
        lines.append("  No gated metric could be compared; a test that compares nothing does not pass.")
    return "\n".join(lines)


def _decided_by(record: Mapping[str, Any]) -> str:
    """The verdict and what decided it: pytest's summary has room for the first words of a failure only."""
    verdicts = [VerdictRecord.model_construct(**verdict) for verdict in record["verdicts"]]
    return verdict_cell(TestRecord.model_construct(**{**record, "verdicts": verdicts, "engine": None}))


_ADVICE = {
    "no-baseline": "Store one with:",
    "incomparable": "Run on what the baseline was measured on, or store one for this:",
}


def _grouped(verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for all metrics that have the same verdict for the same reason."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    result = []
    for verdict in verdicts:
        key = (verdict["verdict"], verdict["reason"])
        if verdict["reason"] is None or key not in groups:
            groups[key] = dict(verdict)
            result.append(groups[key])
        else:
            groups[key]["metric"] += f", {verdict['metric']}"
    return result


def _sentences(verdict: VerdictRecord, metrics: Mapping[str, Any], advised: Collection[str]) -> list[str]:
    name = verdict.metric
    if verdict.change is None or verdict.reason:
        return [f"  {name}: {verdict.verdict}: {verdict.reason}"]
    better = better_of(metrics, name)
    said = f"{name}: {verdict.verdict}: {values(verdict, unit_of(metrics, name))}: {evidence(verdict, better)}"
    lines = _indented(f"{said}, {better} is better", "  ")
    return [*lines, *(_indented(verdict.advice, "    ") if verdict.advice and verdict.advice not in advised else ())]


def _indented(text: str, indent: str) -> list[str]:
    """Lines in which paths stay whole."""
    wrapped = textwrap.wrap(
        _tied(text), _PARAGRAPH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\xa0", " ") for line in wrapped]


def _tied(text: str) -> str:
    """Text that does not break between a number and its unit or within an interval."""
    return re.sub(
        r"(?<=\d) (?=%|to |[kMGT]?[WJB]\b|[mµn]?s\b)|(?<=\bto) (?=[+-]?\d)|(?<=tolerance) |(?<=down) |(?<=budget) ",
        "\xa0",
        text,
    )
