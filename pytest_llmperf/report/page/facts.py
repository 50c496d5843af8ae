"""What the page says of a test or a finding, in words."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sized
from typing import Any

from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import badness, better_of, by_kind, failed_otherwise, plural, value_of, verdict_word
from pytest_llmperf.results import (
    WORST_FIRST,
    Column,
    Finding,
    MetricValue,
    NoiseRecord,
    Outputs,
    Peaks,
    TestRecord,
    VerdictRecord,
)

__all__ = [
    "advisory",
    "answers",
    "cell_text",
    "clock",
    "column_is_number",
    "contents",
    "decided",
    "engine_arguments",
    "gated",
    "launches",
    "length",
    "load",
    "missing",
    "noise",
    "of_launch",
    "of_requests",
    "peaks_alike",
    "served",
    "unexplained",
    "verdict_words",
    "warnings",
    "worst_change",
]


def verdict_words(test: TestRecord) -> str:
    """Its verdict, and whether it failed for another reason."""
    return verdict_word(test) + (", but failed" if failed_otherwise(test) else "")


def gated(test: TestRecord, metric: str) -> VerdictRecord | None:
    """The verdict against the baseline; that against the anchor stands in the table of verdicts."""
    return next((v for v in test.verdicts if v.metric == metric and v.against == "baseline"), None)


def decided(test: TestRecord) -> list[VerdictRecord]:
    """The verdicts that stand on numbers, those that need a reader first."""
    shown = [verdict for verdict in test.verdicts if verdict.change is not None]
    return sorted(shown, key=lambda verdict: WORST_FIRST.index(verdict.verdict))


def worst_change(test: TestRecord) -> VerdictRecord | None:
    """Of the verdicts of the test's own kind the one furthest to the side of worse; ``None`` where none has a change.

    Of a test that improved it is the one that improved most.
    """
    shown = [v for v in test.verdicts if v.change is not None]
    own = [v for v in shown if v.verdict == test.verdict] or shown
    sign = -1 if test.verdict == "improved" else 1
    return max(own, key=lambda v: sign * badness(v, better_of(test.metrics, v.metric)), default=None)


def launches(test: TestRecord) -> str:
    """How many launches were measured; of this run alone, as every metric has them."""
    return plural(max((len(metric.launches) for metric in test.metrics.values()), default=0), "launch")


def noise(noise: NoiseRecord | None) -> str:
    """The spread between launches that was used, and what it is made of."""
    if noise is None or noise.source == "unknown":
        return "unknown"
    parts = [f"{noise.sd:.2%} used"]
    if noise.own_sd is not None:
        parts.append(f"own {noise.own_sd:.2%} ({noise.own_df:g} df)")
    if noise.pooled_sd is not None:
        parts.append(f"pooled {noise.pooled_sd:.2%} ({noise.pooled_df:.0f} df, {plural(noise.tests, 'test')})")
    return ", ".join(parts)


def advisory(test: TestRecord, metric: str) -> float | None:
    """How a metric that gates nothing changed since the baseline."""
    return next((told.change for told in test.advisory if told.metric == metric), None)


def clock(test: TestRecord) -> str:
    """The SM clock it ran at: ``"SM clock locked at 900 MHz"``, ``"SM clock free (1530 to 1980 MHz)"``."""
    record = test.clock
    seen = record.observed_mhz
    if record.locked_mhz is not None:
        return f"SM clock locked at {record.locked_mhz:g} MHz"
    if seen is None:
        return ""
    return f"SM clock free ({seen.min:g} to {seen.max:g} MHz)" if seen.min < seen.max else f"SM clock {seen.max:g} MHz"


def answers(outputs: Outputs) -> str:
    """What became of the fixed prompts."""
    if outputs.prompts is None:
        return f"Answers were not compared: {outputs.reason}."
    text = f"Answers to {plural(outputs.prompts, 'fixed prompt')}, {outputs.tokens} tokens"
    if outputs.token_agreement is None:
        return f"{text}; not compared: {outputs.reason}."
    text += f"; {outputs.token_agreement:.1%} of {outputs.compared_tokens} compared tokens agree with the baseline's"
    if outputs.logprob_difference is not None:
        text += f", log-probabilities differ by {outputs.logprob_difference:.2g} nat on average"
    if outputs.first_difference is not None:
        first = outputs.first_difference
        text += f"; first difference at token {first.token} of prompt {first.prompt}"
    if outputs.ties:
        text += f"; {plural(outputs.ties, 'answer')} parted at a tie"
    return f"{text}."


def warnings(test: TestRecord) -> list[tuple[str, int]]:
    """The first warning of each kind, and how many others differ in their figures only."""
    return by_kind((text, text) for text in test.warnings)


def length(tokens: Any) -> str:
    """A length in tokens, as a number or a distribution, in words."""
    if tokens is None:
        return "unknown"
    if not isinstance(tokens, dict):
        return str(tokens)
    try:
        ((kind, values),) = tokens.items()
        if kind == "choice":
            return " or ".join(f"{value:g}" for value in values)
        return f"{values[-2]:g} to {values[-1]:g}"
    except (ValueError, TypeError, LookupError):  # of a version that describes it otherwise
        return json.dumps(tokens, default=str)


def load(test: TestRecord) -> str:
    """What was sent and how, in words."""
    work: dict[str, Any] = test.workload or {}
    if test.search is not None and test.search.trials:
        offer = f"at rates from {test.search.trials[0].rate:g} requests/s on"
    elif work.get("batch"):
        offer = f"batch {work['batch']}"
    elif work.get("concurrency"):
        offer = f"concurrency {work['concurrency']}"
    elif work.get("rate"):
        offer = f"{work['rate']} requests/s ({work.get('arrival') or 'poisson'})"
    else:
        offer = "a replayed trace"
    if work.get("trace"):
        return offer
    return f"{length(work.get('input_len'))} prompt and {length(work.get('output_len'))} output tokens, {offer}"


def served(test: TestRecord) -> str | None:
    """Requests per second within the limits: found by a search, or of the rate that was offered."""
    for name, words in (("max_rate", "up to {}/s"), ("goodput", "{}/s")):
        if (value := value_of(test, name)) is not None:
            return words.format(f"{value:.3g}")
    return None


def missing(test: TestRecord) -> list[tuple[str, str]]:
    """Why a metric has no value, and the metrics of which that is so."""
    by_reason: dict[str, list[str]] = {}
    for name, metric in test.metrics.items():
        if metric.value is None:
            by_reason.setdefault(metric.reason or "not measured", []).append(name)
    return [(reason, ", ".join(names)) for reason, names in by_reason.items()]


def unexplained(test: TestRecord) -> list[VerdictRecord]:
    """The verdicts with a reason, but for those whose reason :func:`missing` says already."""
    said = {name: metric.reason for name, metric in test.metrics.items() if metric.value is None}
    return [verdict for verdict in test.verdicts if verdict.reason and verdict.reason != said.get(verdict.metric)]


def of_launch(test: TestRecord, name: str, launch: int) -> str:
    """A metric's median over the repeats of one launch; a dash where it has none."""
    metric: MetricValue | None = test.metrics.get(name)
    if metric is None or launch >= len(metric.launches) or not metric.launches[launch]:
        return "-"
    return format_value(statistics.median(metric.launches[launch]), metric.unit)


def of_requests(metric: MetricValue) -> bool:
    """Whether it has more than one value a launch; the boards' own figures have one, which is its own percentile."""
    return any(len(launch) > 1 for launch in metric.launches)


def column_is_number(finding: Finding, column: int) -> bool:
    """Whether no cell of a finding's column is text."""
    return not any(isinstance(row[column], str) for row in finding.rows if column < len(row))


def contents(finding: Finding, figures: Sized) -> str:
    """What is kept closed of a finding: ``"2 charts, a table of 12 rows"``."""
    parts = [plural(len(figures), "chart")] if figures else []
    parts += [f"a table of {plural(len(finding.rows), 'row')}"] if finding.rows else []
    return ", ".join(parts) or "its tests"


def cell_text(cell: float, column: Column) -> str:
    """A number of a finding's table: a quantity with its unit, a count as it is."""
    if column.unit is None:
        return f"{cell:,.4g}" if cell != int(cell) else f"{cell:,.0f}"
    if column.unit == "MHz":
        return f"{cell:,.0f} MHz"
    return format_value(cell, column.unit)


def peaks_alike(found: Iterable[Peaks]) -> list[tuple[Peaks, int]]:
    """The first of the devices that reach the same, and how many these are."""
    kinds: dict[str, list[Peaks]] = {}
    for one in found:
        kinds.setdefault(repr((one.device, one.copy_bandwidth, one.matmul_flops, one.method)), []).append(one)
    return [(same[0], len(same)) for same in kinds.values()]


def engine_arguments(tests: Iterable[TestRecord]) -> list[tuple[str, list[str]]]:
    """The different sets of arguments that engines had, as JSON, each with the tests that were measured with it."""
    found: dict[str, list[str]] = {}
    for test in tests:
        if test.engine is not None:
            text = json.dumps(test.engine.args, default=str, ensure_ascii=False)
            found.setdefault(text, []).append(test.nodeid)
    return list(found.items())
