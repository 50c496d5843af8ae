"""What is said of the measurement as a whole, and what a reader should know of it.

The terminal has all of it below its table; what is true of the run, the page and the summary say as well.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from pytest_llmperf.report.rows import without_columns
from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import by_kind, echoed, plural, short_name, unit_of, value_of
from pytest_llmperf.results import Results, TestRecord

__all__ = ["concerns", "measurement", "of_run", "other_metrics", "power_capped", "repeated_advice"]

#: Kinds of warnings that are printed; the report has them all.
_WARNINGS = 5
#: Metrics on which advice is printed.
_ADVISED = 5
#: Tests and figures of each that are printed where no column of the table shows them.
_TESTS, _FIGURES = 4, 6
#: What a launch says of a clock that nobody asked for, and what it gave way to.
_FREE = re.compile(r"The clock ran free and gave way for (\d+)% of the time: (.*)\.", re.DOTALL)
#: What a big board under load does all the time.
_NORMAL = "power cap"
#: Numbers of launches and repeats that are told one by one.
_OFTEN = 3


def other_metrics(results: Results, told: Collection[str] = ()) -> list[str]:
    """The figures of tests for which the table has no column: of those that measure something else than a workload.

    Args:
        results: Of the run.
        told: Ids of those of which the table tells them all the same.
    """
    said = []
    for test in results.worst_first():
        if without_columns(test) and test.search is None and test.nodeid not in told:
            figures = [
                f"{name} {format_value(value, unit_of(test.metrics, name))}"
                for name in test.metrics
                if (value := value_of(test, name)) is not None
            ]
            said.append(f"{short_name(test.nodeid)}: {', '.join(figures[:_FIGURES])}")
    more = len(said) - _TESTS
    return [*said[:_TESTS], *([f"and the figures of {plural(more, 'more test')} in the report"] if more > 0 else [])]


def measurement(results: Results) -> list[str]:
    """What a table has no column for: rates that were served, and what the client says of itself."""
    serving = [line for test in results.tests if (line := _serving(test))]
    return [*serving, *_servers(results), *of_run(results)]


def of_run(results: Results) -> list[str]:
    """What is true of the run as a whole: how often things were measured, the client's part, and the power cap."""
    return [*_often(results), *_overhead(results), *_clients(results), *_gave_way(results)]


def concerns(results: Results) -> list[str]:
    """What gated nothing, what would decide, and the warnings, once for each kind."""
    kinds = _kinds_of_warnings(results)
    warnings = [text + (f" (and {others} more of this kind)" if others else "") for text, others in kinds[:_WARNINGS]]
    more = len(kinds) - _WARNINGS
    left = [f"warnings of {plural(more, 'more kind')} are in the report"] if more > 0 else []
    return [*_advisory(results), *_advice(results), *warnings, *left]


def _often(results: Results) -> list[str]:
    """How many launches and repeats figures stand on: what occurs most often first."""
    counted: Counter[tuple[int, int]] = Counter()
    for test in results.tests:
        launches = max((metric.launches for metric in test.metrics.values()), key=_size, default=[])
        if (size := _size(launches)) > (0, 0):
            counted[size] += 1
    kinds = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    if not kinds:
        return []
    said = [f"{plural(launches, 'launch')} of {plural(repeats, 'repeat')}" for (launches, repeats), _ in kinds]
    if len(kinds) == 1:
        return [f"how often: {said[0]} a test"]
    told = [f"{text} in {tests}" for text, (_, tests) in zip(said, kinds[:_OFTEN], strict=False)]
    told[0] += f" of {plural(counted.total(), 'test')}"
    more = sum(tests for _, tests in kinds[_OFTEN:])
    return [f"how often: {', '.join([*told, *([f'other numbers in {more}'] if more else [])])}"]


def _size(launches: Sequence[Sequence[float]]) -> tuple[int, int]:
    return len(launches), max(map(len, launches), default=0)


def _overhead(results: Results) -> list[str]:
    """By how much the client's times lie behind the engine's own."""
    overheads = [t.client_overhead for t in results.tests if t.client_overhead and t.engine and not t.engine.simulated]
    if not overheads:
        return []
    first = format_value(max(o.first_token_p50 for o in overheads), "s")
    text = f"client overhead: first token at most {first} after the engine's stamp (median)"
    ratios = [o.tpot_ratio for o in overheads if o.tpot_ratio is not None]
    return [text + (f"; TPOT ours/engine's {min(ratios):.4f} to {max(ratios):.4f}" if ratios else "")]


def _gave_way(results: Results) -> list[str]:
    """That boards were capped by their power while their clock ran free: one line, as it is normal on big ones."""
    shares = power_capped(results.tests)
    if not shares:
        return []
    least, most = min(shares), max(shares)
    share = f"{most} %" if least == most else f"{least} to {most} % (median {statistics.median(shares):.0f} %)"
    what = f"{len(shares)} of {plural(len(results.tests), 'test')}" if len(results.tests) > 1 else "the test"
    return [f"power cap: the clock ran free and gave way in {what}, for {share} of the time"]


def power_capped(tests: Iterable[TestRecord]) -> list[int]:
    """Of the tests whose free clock gave way to the power cap, for how many percent of the time it did."""
    found = ([int(match[1]) for warning in test.warnings if (match := _power_capped(warning))] for test in tests)
    return [max(shares) for shares in found if shares]


def _power_capped(warning: str) -> re.Match[str] | None:
    """The warning that a free clock gave way, where it was to the power limit and to nothing else."""
    match = _FREE.search(warning)
    if match is None:
        return None
    causes = [cause for inside in re.findall(r"\(([^)]*)\)", match[2]) for cause in inside.split(",")]
    return match if causes and all(cause.strip().startswith(_NORMAL) for cause in causes) else None


def _advisory(results: Results) -> list[str]:
    """That figures of a board gated nothing, once for each reason."""
    reasons: dict[str, set[str]] = {}
    for test in results.tests:
        for verdict in test.verdicts:
            if verdict.reason and verdict.reason.startswith("advisory: "):
                reasons.setdefault(verdict.reason.removeprefix("advisory: "), set()).add(verdict.metric)
    return [f"not gated: {', '.join(sorted(metrics))}: {reason}" for reason, metrics in reasons.items()]


def repeated_advice(results: Results) -> frozenset[str]:
    """Advice that is given to several tests in the same words, and stands in the summary."""
    given = Counter(advice for test in results.tests for advice in _advised(test))
    printed = " ".join(text for text, _ in _kinds_of_advice(results)[:_ADVISED])
    return frozenset(advice for advice, tests in given.items() if tests > 1 and advice in printed)


def _kinds_of_advice(results: Results) -> list[tuple[str, int]]:
    """The first advice of each kind and metric, with its test, and how many others differ in their figures only."""
    return by_kind(
        (f"{metrics}: {advice}", f"{metrics} of {short_name(test.nodeid)}: {advice}")
        for test in results.worst_first()
        for advice, metrics in _advised(test).items()
    )


def _advice(results: Results) -> list[str]:
    """What would decide, or that a tolerance lies below the noise: once for each metric and kind of advice."""
    kinds = _kinds_of_advice(results)
    lines = [text + (f" (and {others} more of this kind)" if others else "") for text, others in kinds[:_ADVISED]]
    return [*lines, *([f"more advice is in the report: {len(kinds) - _ADVISED}"] if len(kinds) > _ADVISED else [])]


def _advised(test: TestRecord) -> dict[str, str]:
    """The metrics of a test that are given an advice, by the advice; without MBU where it says what TPOT says."""
    echo = echoed(test.verdicts)
    found: dict[str, list[str]] = {}
    for verdict in test.verdicts:
        if verdict.advice and verdict is not echo:
            found.setdefault(verdict.advice, []).append(verdict.metric)
    return {advice: ", ".join(dict.fromkeys(metrics)) for advice, metrics in found.items()}


def _kinds_of_warnings(results: Results) -> list[tuple[str, int]]:
    """The first warning of each kind, with its test, and how many others differ in their figures only."""
    # A measurement of phases puts the phase's name before the warning.
    return by_kind(
        (re.sub(r"^[a-z ]+: ", "", warning), f"{short_name(test.nodeid)}: {warning}")
        for test in results.tests
        for warning in test.warnings
        if _power_capped(warning) is None
    )


def _servers(results: Results) -> list[str]:
    """What servers say of themselves, beside what we measured."""
    told = [t for t in results.tests if t.server and t.server[-1].reason is None]
    return [f"{short_name(test.nodeid)} by the server's metrics: {_server(test)}" for test in told]


def _clients(results: Results) -> list[str]:
    """What the client of a server says of itself."""
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
    return [client]


def _serving(test: TestRecord) -> str | None:
    """What a test that serves a rate is about, which the table has no column for."""
    workload = test.workload or {}
    if test.search is not None:
        limits = ", ".join(f"{name} {format_value(limit, 's')}" for name, limit in (workload.get("slo") or {}).items())
        rate = value_of(test, "max_rate")
        found = "no rate" if rate is None else f"up to {format_value(rate, '')}requests/s"
        return f"{short_name(test.nodeid)}: {found}, with {test.search.attainment:.0%} of the requests within {limits}"
    goodput, completed = value_of(test, "goodput"), value_of(test, "request_throughput")
    if goodput is None:
        return None
    told = f"goodput {format_value(goodput, '')}requests/s"
    if completed and test.requests is not None:
        failed = f", {test.requests.failed} of {test.requests.sent} requests failed" if test.requests.failed else ""
        told = (
            f"{goodput / completed:.1%} of requests within every limit: goodput {format_value(goodput, '')}of "
            f"{format_value(completed, '')}requests/s that ended in the window{failed}"
        )
    rate, count = workload.get("rate"), workload.get("requests")
    if rate and count:
        # So few arrivals may lie closer together than the rate at which they are drawn.
        told += f" ({count} arrivals{'' if workload.get('arrival') == 'constant' else ' drawn'} at {rate:g}/s)"
    return f"{short_name(test.nodeid)}: {told}"


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
