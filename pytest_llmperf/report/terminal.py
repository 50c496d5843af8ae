"""The terminal's view of a run: one line a test, the worst first, and the paragraph of a failure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_llmperf.report.results import Results, TestRecord
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.units import printable as _printable

__all__ = ["failure_paragraph", "table"]

_MARKUP: Mapping[str, dict[str, bool]] = {
    "pass": {"green": True},
    "improved": {"green": True, "bold": True},
    "measured": {},
    "not-applicable": {},
}
#: Warnings that are printed; the report has them all.
_WARNINGS = 5
#: Warnings that begin with so many equal characters, but for their figures, are of one kind.
_SAME_KIND = 40
#: Metric, title, whether it is shown also when no test has it, and whether its unit stands in the title.
_COLUMNS = (
    ("ttft", "TTFT", True, False), ("tpot", "TPOT", True, False), ("throughput", "tokens/s", True, True),
    ("power", "power", False, False), ("tpj", "tokens/J", False, True),
)  # fmt: skip

_NARROWEST_NAME = 12


def table(results: Results, width: int) -> Iterable[tuple[str, dict[str, bool]]]:
    """The lines of the summary with their markup; at most ``width`` columns each."""
    engines = {
        _printable(f"{t.engine.kind} {t.engine.version}, {t.engine.model}, {t.engine.device}")
        for t in results.tests
        if t.engine
    }
    for engine in sorted(engines):
        yield engine[:width], {}
    if any(t.engine and t.engine.simulated for t in results.tests):
        yield "SIMULATED: no figure here was measured", {"yellow": True}
    verdicts = max((len(_verdict(t)) for t in results.tests), default=0)
    longest = max((len(_short(t)) for t in results.tests), default=0)
    columns = [
        column for column in _COLUMNS if column[2] or any(_value(t, column[0]) is not None for t in results.tests)
    ]
    room = width - _NARROWEST_NAME - 2 - max(13, verdicts)
    while 12 * len(columns) > room and (spare := next((column for column in columns if not column[2]), None)):
        columns.remove(spare)  # rather than a verdict that is cut off
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
    for sentence in [*serving, *_accounts(results)]:
        for part in _wrapped(sentence, width):
            yield part, {}
    for sentence in _advisory(results):
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


def _kinds_of_warnings(results: Results) -> list[tuple[str, int]]:
    """The first warning of each kind, with its test, and how many others differ in their figures only."""
    kinds: dict[str, list[str]] = {}
    for test in results.tests:
        for warning in test.warnings:
            # A measurement of phases puts the phase's name before the warning.
            kind = re.sub(r"[\d.,+-]+", "#", re.sub(r"^[a-z ]+: ", "", warning))[:_SAME_KIND]
            kinds.setdefault(kind, []).append(f"{_short(test)}: {warning}")
    return [(texts[0], len(texts) - 1) for texts in kinds.values()]


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
    return [client, *(f"{_short(test)} by the server's metrics: {_server(test)}" for test in told)]


def _serving(test: TestRecord) -> str | None:
    """What a test that serves a rate is about, which the table has no column for."""
    workload = test.workload or {}
    if test.search is not None:
        limits = ", ".join(f"{name} {format_value(limit, 's')}" for name, limit in workload.get("slo", {}).items())
        rate = test.metrics["max_rate"].value if "max_rate" in test.metrics else None
        found = "no rate" if rate is None else f"up to {format_value(rate, '')}requests/s"
        return f"{_short(test)}: {found}, with {test.search.attainment:.0%} of the requests within {limits}"
    goodput = test.metrics.get("goodput")
    if goodput is None or goodput.value is None:
        return None
    offered = f" of {workload['rate']:g} offered" if workload.get("rate") else ""
    return f"{_short(test)}: {format_value(goodput.value, '')}requests/s{offered} within every limit (goodput)"


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


def _value(test: TestRecord, metric: str) -> float | None:
    found = test.metrics.get(metric)
    return None if found is None else found.value


def _cell(test: TestRecord, metric: str, bare: bool) -> str:
    value = _value(test, metric)
    return f"{'-' if value is None else format_value(value, test.metrics[metric].unit, bare=bare):>10}"


def _line(test: TestRecord, cells: list[str], name_width: int, width: int) -> str:
    name = _short(test)
    if len(name) > name_width:
        name = "…" + name[-(name_width - 1) :]
    return f"{name:<{name_width}}  {'  '.join(cells)}  {_verdict(test)}"[:width]


def _verdict(test: TestRecord) -> str:
    worst = [v for v in test.verdicts if v.verdict == test.verdict and v.change is not None]
    if test.verdict in ("regressed", "improved") and worst:
        return f"{test.verdict} {worst[0].metric} {format_change(worst[0].change)}"
    failed_otherwise = test.outcome == "failed" and test.verdict in ("pass", "improved", "measured")
    return f"{test.verdict}, but failed" if failed_otherwise else test.verdict


def _short(test: TestRecord) -> str:
    return _printable(test.nodeid.partition("::")[2] or test.nodeid)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ")


def _limit(tolerance: float, better: str) -> str:
    """A tolerance is a ratio in the direction of worse: 5 % more time, or 1/1.05 of the throughput."""
    return f"{tolerance:.1%}" if better == "lower" else f"{tolerance:.1%}, to {1 / (1 + tolerance) - 1:.1%}"


def failure_paragraph(record: Mapping[str, Any]) -> str:
    """Why a gated test failed, from its record: one line for each metric that matters, then what to do."""
    lines = [f"{record['verdict']}: {record['nodeid']}"]
    if record["invalid"]:
        lines.append(f"  The measurement cannot be trusted: {record['invalid']}")
    shown = [v for v in record["verdicts"] if v["verdict"] not in ("pass", "improved", "not-applicable")]
    lines += [f"  {_sentence(v, record)}" for v in _grouped(shown or record["verdicts"])]
    lines += [f"  {_printable(sentence)}" for sentence in record.get("explanation", ())]
    if advice := _ADVICE.get(record["verdict"]):
        lines.append(f"  {advice}")
    elif not record["invalid"] and not shown:
        lines.append("  No gated metric could be compared, and a test that compares nothing does not pass.")
    return "\n".join(lines)


_ADVICE = {
    "no-baseline": "Store one with: pytest --llmperf-save",
    "incomparable": "Run on what the baseline was measured on, or store one for this: pytest --llmperf-save",
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


def _sentence(verdict: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    name = verdict["metric"]
    if verdict["change"] is None:
        return f"{name}: {verdict['verdict']}: {verdict['reason']}"
    metric = record["metrics"][name]
    return (
        f"{name}: {verdict['verdict']}: {format_value(verdict['baseline'], metric['unit'])} in the baseline, "
        f"{format_value(verdict['current'], metric['unit'])} now: {format_change(verdict['change'])} "
        f"({metric['better']} is better, tolerance {_limit(verdict['tolerance'], metric['better'])})"
    )
