"""The terminal's view of a run: one line a test, the worst first, and the paragraph of a failure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_llmperf.report.commands import saving
from pytest_llmperf.report.units import format_change, format_value, printable
from pytest_llmperf.report.wording import (
    badness,
    better_of,
    by_kind,
    engine_name,
    evidence,
    failed_otherwise,
    improved,
    judged,
    short_name,
    unit_of,
    value_of,
    values,
)
from pytest_llmperf.results import Results, TestRecord, VerdictRecord

__all__ = ["failure_paragraph", "table"]

_MARKUP: Mapping[str, dict[str, bool]] = {
    "pass": {"green": True},
    "improved": {"green": True, "bold": True},
    "measured": {},
    "not-applicable": {},
}
#: Warnings that are printed; the report has them all.
_WARNINGS = 5
#: Metrics on which advice is printed.
_ADVISED = 5
#: Metric, title, whether it is shown also when no test has it, and whether its unit stands in the title.
_COLUMNS = (
    ("ttft", "TTFT", True, False), ("tpot", "TPOT", True, False), ("throughput", "tokens/s", True, True),
    ("power", "power", False, False), ("tpj", "tokens/J", False, True),
)  # fmt: skip

_NARROWEST_NAME = 12
#: Of a failure's paragraph; reasons, which hold paths to be copied, are not wrapped.
_PARAGRAPH = 80


def table(results: Results, width: int) -> Iterable[tuple[str, dict[str, bool]]]:
    """The lines of the summary with their markup; at most ``width`` columns each."""
    engines = {
        printable(f"{engine_name(t.engine)}, {t.engine.model}, {t.engine.device}") for t in results.tests if t.engine
    }
    for engine in sorted(engines):
        yield engine[:width], {}
    if any(t.engine and t.engine.simulated for t in results.tests):
        yield "SIMULATED: no figure here was measured", {"yellow": True}
    verdicts = max((len(_verdict(t)) for t in results.tests), default=0)
    longest = max((len(short_name(t.nodeid)) for t in results.tests), default=0)
    columns = [
        column for column in _COLUMNS if column[2] or any(value_of(t, column[0]) is not None for t in results.tests)
    ]
    room = width - _NARROWEST_NAME - 2 - max(13, verdicts)
    while columns and 12 * len(columns) > room:  # rather than a verdict that is cut off
        columns.remove(next((column for column in columns if not column[2]), columns[-1]))
    name_width = max(_NARROWEST_NAME, min(width - 12 * len(columns) - 2 - max(13, verdicts), longest))
    head = f"{'test':<{name_width}}  " + "  ".join(f"{title:>10}" for _, title, *_ in columns) + "  verdict"
    yield head[:width], {"bold": True}
    for test in results.worst_first():
        cells = [_cell(test, metric, bare) for metric, _, _, bare in columns]
        yield _line(test, cells, name_width, width), _MARKUP.get(test.verdict, {"red": True})
    overheads = [t.client_overhead for t in results.tests if t.client_overhead and t.engine and not t.engine.simulated]
    if overheads:
        first = max(o.first_token_p50 for o in overheads)
        ratios = [o.tpot_ratio for o in overheads if o.tpot_ratio is not None]
        text = f"client overhead: first token at most {format_value(first, 's')} after the engine's stamp (median)"
        if ratios:
            text += f"; TPOT ours/engine's {min(ratios):.4f} to {max(ratios):.4f}"
        for part in _wrapped(text, width):
            yield part, {}
    serving = [line for test in results.tests if (line := _serving(test))]
    said = judged(results)
    for sentence in [*([said] if said else []), *serving, *_accounts(results)]:
        for part in _wrapped(sentence, width):
            yield part, {}
    for sentence in [*_advisory(results), *_advice(results)]:
        for part in _wrapped(sentence, width):
            yield part, {"yellow": True}
    kinds = _kinds_of_warnings(results)
    for warning, others in kinds[:_WARNINGS]:
        for part in _wrapped(warning + (f" (and {others} more of this kind)" if others else ""), width):
            yield part, {"yellow": True}
    if len(kinds) > _WARNINGS:
        yield f"warnings of {len(kinds) - _WARNINGS} more kinds are in the report", {"yellow": True}


def _advisory(results: Results) -> list[str]:
    """That figures of a board gated nothing, once for each reason."""
    reasons: dict[str, set[str]] = {}
    for test in results.tests:
        for verdict in test.verdicts:
            if verdict.reason and verdict.reason.startswith("advisory: "):
                reasons.setdefault(verdict.reason.removeprefix("advisory: "), set()).add(verdict.metric)
    return [f"not gated: {', '.join(sorted(metrics))}: {reason}" for reason, metrics in reasons.items()]


def _advice(results: Results) -> list[str]:
    """What would decide, or that a tolerance lies below the noise: once for each metric and kind of advice."""
    given = [
        (f"{verdict.metric}: {verdict.advice}", f"{verdict.metric} of {short_name(test.nodeid)}: {verdict.advice}")
        for test in results.worst_first()
        for verdict in test.verdicts
        if verdict.advice
    ]
    kinds = by_kind(given)
    lines = [text + (f" (and {others} more of this kind)" if others else "") for text, others in kinds[:_ADVISED]]
    return [*lines, *([f"more advice is in the report: {len(kinds) - _ADVISED}"] if len(kinds) > _ADVISED else [])]


def _kinds_of_warnings(results: Results) -> list[tuple[str, int]]:
    """The first warning of each kind, with its test, and how many others differ in their figures only."""
    # A measurement of phases puts the phase's name before the warning.
    return by_kind(
        (re.sub(r"^[a-z ]+: ", "", warning), f"{short_name(test.nodeid)}: {warning}")
        for test in results.tests
        for warning in test.warnings
    )


def _accounts(results: Results) -> list[str]:
    """What the client of a server says of itself, and the server of itself beside what we measured."""
    clients = [client for test in results.tests for client in test.client if client.output_tokens]
    if not clients:
        return []
    sources = sorted({t.requests.time_source for t in results.tests if t.requests and t.requests.time_source})
    late = format_value(max(c.lateness_p99 for c in clients), "s")
    client = (
        f"client: {max(c.workers for c in clients)} worker(s), times from {' and '.join(sources) or 'nothing'}, sent "
        f"at most {late} late (p99), up to {max(c.upper_bounds for c in clients):.1%} of chunk times are upper bounds"
    )
    if calibration := clients[-1].calibration:
        more = "up to" if calibration.rate_is_limit else "at least"
        first, gaps = (format_value(value, "s") for value in (calibration.first_p99, calibration.gap_p99))
        client += (
            f"; on a loopback server it erred by {first} (TTFT, p99) and {gaps} (gaps, p99), {more} "
            f"{calibration.chunk_rate:,.0f} chunks/s a worker"
        )
    told = [test for test in results.tests if test.server and test.server[-1].reason is None]
    return [client, *(f"{short_name(test.nodeid)} by the server's metrics: {_server(test)}" for test in told)]


def _serving(test: TestRecord) -> str | None:
    """What a test that serves a rate, or none, is about, which the table has no column for."""
    if test.workload is None:
        known = [(name, one) for name, one in test.metrics.items() if value_of(test, name) is not None]
        told = ", ".join(f"{name} {format_value(value_of(test, name), one.unit)}" for name, one in known)
        return f"{short_name(test.nodeid)}: {told}" if told else None
    workload = test.workload
    if test.search is not None:
        limits = ", ".join(f"{name} {format_value(limit, 's')}" for name, limit in workload.get("slo", {}).items())
        rate = value_of(test, "max_rate")
        found = "no rate" if rate is None else f"up to {format_value(rate, '')}requests/s"
        return f"{short_name(test.nodeid)}: {found}, with {test.search.attainment:.0%} of the requests within {limits}"
    goodput = value_of(test, "goodput")
    if goodput is None:
        return None
    offered = f" of {workload['rate']:g} offered" if workload.get("rate") else ""
    served = format_value(goodput, "")
    return f"{short_name(test.nodeid)}: {served}requests/s{offered} within every limit (goodput)"


def _server(test: TestRecord) -> str:
    server = test.server[-1]
    shown = [
        ("TTFT", server.ttft_mean, "s"),
        ("TPOT", server.tpot_mean, "s"),
        ("queue", server.queue_time_mean, "s"),
    ]
    parts = [f"{name} {format_value(value, unit)}" for name, value, unit in shown if value is not None]
    if parts:
        parts[0] = f"means of {parts[0]}"
    if server.preemptions is not None:
        parts.append(f"{server.preemptions} preemptions")
    if server.prefix_cache_hit_rate is not None:
        parts.append(f"prefix cache hits {server.prefix_cache_hit_rate:.1%}")
    if server.most_running:
        parts.append(f"running/waiting at most {server.most_running}/{server.most_waiting or 0}")
    return ", ".join(parts) or "nothing told"


def _cell(test: TestRecord, metric: str, bare: bool) -> str:
    value = value_of(test, metric)
    return f"{'-' if value is None else format_value(value, unit_of(test.metrics, metric), bare=bare):>10}"


def _line(test: TestRecord, cells: list[str], name_width: int, width: int) -> str:
    name = short_name(test.nodeid)
    if len(name) > name_width:
        name = "…" + name[-(name_width - 1) :]
    return f"{name:<{name_width}}  {'  '.join(cells)}  {_verdict(test)}"[:width]


def _verdict(test: TestRecord) -> str:
    """A test's verdict, with the metric that decided it: of several the one furthest beyond its tolerance."""
    deciding = [v for v in test.verdicts if v.verdict == test.verdict and v.change is not None]
    if test.verdict in ("regressed", "inconclusive", "improved") and deciding:
        sign = -1 if test.verdict == "improved" else 1
        worst = max(deciding, key=lambda v: sign * badness(v, better_of(test.metrics, v.metric)))
        anchor = " (anchor)" if worst.against == "anchor" else ""
        return f"{test.verdict} {worst.metric} {format_change(worst.change)}{anchor}"
    if test.verdict == "pass" and (better := improved(test)) is not None:
        return f"pass, {better.metric} {format_change(better.change)}"
    return f"{test.verdict}, but failed" if failed_otherwise(test) else test.verdict


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ")


def failure_paragraph(record: Mapping[str, Any], command: str | None = None) -> str:
    """Why a gated test failed, from its record: the metrics that matter, then what to do.

    Args:
        record: As results.json keeps it.
        command: That of the run, so that what it recommends is what the user would type.
    """
    lines = [f"{record['verdict']}: {record['nodeid']}"]
    if record["invalid"]:
        lines.append(f"  The measurement cannot be trusted: {record['invalid']}")
    first, *others = record.get("explanation") or (None,)
    if first:  # before the figures: what a reader wants to know
        lines += _indented(printable(first), "  ")
    shown = [v for v in record["verdicts"] if v["verdict"] not in ("pass", "improved", "not-applicable")]
    for verdict in _grouped(shown or record["verdicts"]):
        lines += _sentences(VerdictRecord.model_construct(**verdict), record["metrics"])
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


def _sentences(verdict: VerdictRecord, metrics: Mapping[str, Any]) -> list[str]:
    name = verdict.metric
    if verdict.change is None or verdict.reason:
        return [f"  {name}: {verdict.verdict}: {verdict.reason}"]
    better = better_of(metrics, name)
    said = f"{name}: {verdict.verdict}: {values(verdict, unit_of(metrics, name))}: {evidence(verdict, better)}"
    lines = _indented(f"{said}, {better} is better", "  ")
    return [*lines, *(_indented(verdict.advice, "    ") if verdict.advice else ())]


def _indented(text: str, indent: str) -> list[str]:
    """Lines that break between words, but not between a number and its unit or within an interval."""
    tied = re.sub(r"(?<=\d) (?=%|to |[mµn]?s\b)|(?<=\bto) (?=[+-]?\d)|(?<=tolerance) |(?<=budget) ", "\xa0", text)
    wrapped = textwrap.wrap(
        tied, _PARAGRAPH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\xa0", " ") for line in wrapped]
