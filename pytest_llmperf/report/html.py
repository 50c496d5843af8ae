"""report.html: one file without network, from a jinja2 template that a user can replace."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import jinja2

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report.charts import strip
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.upkeep import sentences
from pytest_llmperf.report.wording import (
    against,
    better_of,
    engine_name,
    evidence,
    failed_otherwise,
    format_interval,
    format_tolerance,
    judged,
    plural,
    unit_of,
    value_of,
    values,
    worst_regression,
)
from pytest_llmperf.results import WORST_FIRST, MetricValue, NoiseRecord, Results, TestRecord, VerdictRecord

__all__ = ["render"]

#: Metric, its title in the table of tests, and whether it is shown also when no test has it.
_COLUMNS = (
    ("ttft", "TTFT", True), ("tpot", "TPOT", True), ("e2e_latency", "Latency", True),
    ("throughput", "Throughput", True), ("mbu", "MBU", True), ("power", "Power", False), ("tpj", "Tokens/J", False),
)  # fmt: skip
_TEMPLATES = Path(__file__).parent / "templates"


def render(results: Results, template: Path | None = None) -> str:
    """The page of a run.

    Args:
        results: What to show; every text in it is escaped.
        template: A jinja2 template instead of the shipped one. It is given ``results`` (the models of
            results.json), ``tests`` (the worst verdict first), ``counts`` (tests by verdict) and the filters
            ``value`` (number, unit), ``change``, ``interval`` and ``strip`` (a distribution as inline SVG).

    Raises:
        ResultsError: the template cannot be read or is wrong; names the file and the line.
    """
    folder, name = (template.parent, template.name) if template else (_TEMPLATES, "report.html.j2")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(value=format_value, change=format_change, interval=format_interval, strip=_strip)
    tests = results.worst_first()
    counts = {verdict: n for verdict in WORST_FIRST if (n := sum(t.verdict == verdict for t in tests))}
    try:
        return environment.get_template(name).render(
            results=results,
            tests=tests,
            counts=counts,
            against=against,
            decided=_decided,
            engine_name=engine_name,
            failed_otherwise=failed_otherwise,
            gated=_gated,
            advisory=_advisory,
            judged=judged(results),
            launches=_launches,
            noise=_noise,
            tolerance=lambda test, verdict: format_tolerance(
                verdict.tolerance, better_of(test.metrics, verdict.metric)
            ),
            unit=lambda test, verdict: unit_of(test.metrics, verdict.metric),
            of_launch=_of_launch,
            load=_load,
            served=_served,
            value_of=value_of,
            serves=any(_served(test) for test in tests),
            columns=[
                column
                for column in _COLUMNS
                if column[2] or any(value_of(test, column[0]) is not None for test in tests)
            ],
            missing=_missing,
            first_line=_first_line(tests),
            upkeep=sentences(results.baselines, results.run.command),
        )
    except jinja2.TemplateNotFound:
        raise ResultsError(f"The report template {folder / name} does not exist.") from None
    except jinja2.TemplateSyntaxError as error:
        raise ResultsError(f"The report template {folder / name}, line {error.lineno}: {error.message}.") from None
    except jinja2.UndefinedError as error:
        raise ResultsError(f"The report template {folder / name}: {error.message}.") from None


def _strip(metric: MetricValue, verdict: VerdictRecord | None) -> Any:
    import markupsafe

    return markupsafe.Markup(strip(metric, verdict))  # numbers only; built by charts


def _gated(test: TestRecord, metric: str) -> VerdictRecord | None:
    """The verdict against the baseline; that against the anchor stands in the table of verdicts."""
    return next((v for v in test.verdicts if v.metric == metric and v.against == "baseline"), None)


def _decided(test: TestRecord) -> list[VerdictRecord]:
    """The verdicts that stand on numbers, those that need a reader first."""
    shown = [verdict for verdict in test.verdicts if verdict.change is not None]
    return sorted(shown, key=lambda verdict: WORST_FIRST.index(verdict.verdict))


def _launches(test: TestRecord) -> str:
    """How many launches were measured; of this run alone, as every metric has them."""
    return plural(max((len(metric.launches) for metric in test.metrics.values()), default=0), "launch")


def _noise(noise: NoiseRecord | None) -> str:
    """The spread between launches that was used, and what it is made of."""
    if noise is None or noise.source == "unknown":
        return "unknown"
    parts = [f"{noise.sd:.2%} used"]
    if noise.own_sd is not None:
        parts.append(f"own {noise.own_sd:.2%} ({noise.own_df:g} df)")
    if noise.pooled_sd is not None:
        parts.append(f"pooled {noise.pooled_sd:.2%} ({noise.pooled_df:.0f} df, {plural(noise.tests, 'test')})")
    return ", ".join(parts)


def _advisory(test: TestRecord, metric: str) -> float | None:
    """How a metric that gates nothing changed since the baseline."""
    return next((told.change for told in test.advisory if told.metric == metric), None)


def _length(length: Any) -> str:
    """A length in tokens, as a number or a distribution, in words."""
    if not isinstance(length, dict):
        return str(length)
    ((kind, values),) = length.items()
    if kind == "choice":
        return " or ".join(f"{value:g}" for value in values)
    return f"{values[-2]:g} to {values[-1]:g}"


def _load(test: TestRecord) -> str:
    """What was sent and how, in words."""
    work: dict[str, Any] = test.workload or {}
    if test.search is not None:
        offer = f"at rates from {test.search.trials[0].rate:g} requests/s on"
    elif work.get("batch"):
        offer = f"batch {work['batch']}"
    elif work.get("concurrency"):
        offer = f"concurrency {work['concurrency']}"
    elif work.get("rate"):
        offer = f"{work['rate']:g} requests/s ({work.get('arrival', 'poisson')})"
    else:
        offer = "a replayed trace"
    if work.get("trace"):
        return offer
    return f"{_length(work.get('input_len'))} prompt and {_length(work.get('output_len'))} output tokens, {offer}"


def _served(test: TestRecord) -> str | None:
    """Requests per second within the limits: found by a search, or of the rate that was offered."""
    for name, words in (("max_rate", "up to {}/s"), ("goodput", "{}/s")):
        if (value := value_of(test, name)) is not None:
            return words.format(f"{value:.3g}")
    return None


def _missing(test: TestRecord) -> list[tuple[str, str]]:
    """Why a metric has no value, and the metrics of which that is so."""
    by_reason: dict[str, list[str]] = {}
    for name, metric in test.metrics.items():
        if metric.value is None:
            by_reason.setdefault(metric.reason or "not measured", []).append(name)
    return [(reason, ", ".join(names)) for reason, names in by_reason.items()]


def _of_launch(test: TestRecord, metric: str, launch: int) -> str:
    """A metric's value in one launch: the median over its repeats."""
    found = test.metrics.get(metric)
    if found is None or launch >= len(found.launches):
        return "-"
    return format_value(statistics.median(found.launches[launch]), found.unit)


def _first_line(tests: list[TestRecord]) -> str:
    """What someone who reads one sentence should read."""
    if worst := worst_regression(tests):
        test, verdict = worst
        others = len({t.nodeid for t in tests if t.verdict == "regressed"} - {test.nodeid})
        more = f", and {plural(others, 'more test')}" if others else ""
        if verdict.change is None or verdict.reason:
            return f"{test.nodeid} regressed: {verdict.metric}: {verdict.reason}{more}."
        said = f"{values(verdict, unit_of(test.metrics, verdict.metric))}: "
        said += evidence(verdict, better_of(test.metrics, verdict.metric))
        why = f" {test.explanation[0]}" if test.explanation else ""
        return f"{test.nodeid} regressed: {verdict.metric} {said}{more}.{why}"
    bad = [t for t in tests if t.verdict in ("invalid", "incomparable", "no-baseline", "inconclusive")]
    if bad:
        count = f"{len(bad)} of {plural(len(tests), 'test')}"
        return f"{count} could not be judged; the first: {bad[0].nodeid} ({bad[0].verdict})."
    if tests and all(t.verdict == "measured" for t in tests):
        return f"{plural(len(tests), 'test')} measured; nothing was gated."
    if not tests:
        return "No test measured anything."
    return f"All {len(tests)} tests are within tolerance." if len(tests) > 1 else "The one test is within tolerance."
