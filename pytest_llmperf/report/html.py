"""report.html: one file without network, from a jinja2 template that a user can replace."""

from __future__ import annotations

import functools
import html
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report import charts, notices
from pytest_llmperf.report.charts import Chart
from pytest_llmperf.report.failures import told
from pytest_llmperf.report.page import anchors, columns, embedded, facts, overview
from pytest_llmperf.report.page.heights import height_of
from pytest_llmperf.report.page.unjudged import unjudged
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.upkeep import sentences
from pytest_llmperf.report.wording import (
    against,
    badness,
    better_of,
    by_word,
    engine_name,
    failed_otherwise,
    format_interval,
    format_tolerance,
    judged,
    likewise,
    plural,
    serving_engines,
    unit_of,
    value_of,
    verdict_word,
)
from pytest_llmperf.results import WORST_FIRST, Finding, MetricValue, Results, TestRecord, VerdictRecord

__all__ = ["render"]

_TEMPLATES = Path(__file__).parent / "templates"
#: Of more tests conditions, single repeats, and what else results.json has, are left out: a page has to stay small.
_WHOLE = 40


def render(results: Results, template: Path | None = None) -> str:
    """The page of a run.

    Args:
        results: What to show; every text in it is escaped.
        template: A jinja2 template instead of the shipped one. It may include or extend the shipped ones by their
            names (``report.html.j2``, ``overview.html.j2``, ...), and is given

            - ``results``: the models of results.json; ``tests``: its tests, the worst verdict first; ``counts``: tests
              by verdict; ``axes`` and ``columns``: of the table of tests
              (:mod:`~pytest_llmperf.report.page.columns`);
            - the filters ``value`` (number, unit), ``change``, ``interval`` and ``strip`` (a metric and its verdict
              as inline SVG);
            - of the run: ``headline`` (``tone`` and ``text``), ``first_line``, ``changes``, ``reasons``,
              ``unjudged``, ``first_findings``, ``measured`` (titles and texts), ``simulated``, ``judged``,
              ``notices`` (sentences) and ``upkeep``;
            - of a test: ``anchor(test)``, ``load``, ``clock``, ``launches``, ``decided``, ``gated``, ``missing`` and
              what else :mod:`~pytest_llmperf.report.page.facts` has; ``figures(test or finding)``: its charts, by the
              ids of their elements;
            - for the browser: ``charts``, ``library`` and ``record`` (gzip in base64), ``style``, ``script``,
              ``early`` (script for the head) and ``policy``, the Content-Security-Policy that lets just these run.

    Raises:
        ResultsError: the template cannot be read or is wrong; names the file, and the line where jinja2 tells it.
    """
    folder, name = (template.parent, template.name) if template else (_TEMPLATES, "report.html.j2")
    context = _context(results)
    try:
        return _environment(folder).get_template(name).render(context)
    except jinja2.TemplateNotFound as error:
        if error.name and error.name != name:
            place = _place(error, folder, name)
            raise ResultsError(f"The report template {place} asks for {error.name}: there is none.") from None
        raise ResultsError(f"The report template {folder / name} does not exist.") from None
    except jinja2.TemplateSyntaxError as error:
        place = f"{error.filename or folder / name}, line {error.lineno}"
        raise ResultsError(f"The report template {place}: {_ended(error.message)}") from None
    except jinja2.TemplateError as error:
        raise ResultsError(f"The report template {_place(error, folder, name)}: {_ended(error.message)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ResultsError(
            f"The report template {folder / name}, or one that it includes, line {line}: not UTF-8."
        ) from None
    except Exception as error:
        if template is None:
            raise  # a fault of ours
        raise ResultsError(f"The report template {_place(error, folder, name)}: {_ended(told(error))}") from None


def _place(error: Exception, folder: Path, name: str) -> str:
    """The file and the line of a template at which an error arose; jinja2 puts them into the traceback."""
    ours = [
        f"{frame.filename}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent in (folder, _TEMPLATES)
    ]
    return ours[-1] if ours else str(folder / name)


def _ended(text: str | None) -> str:
    return f"{(text or 'it is wrong').rstrip('.')}."


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    """What compiles the templates of a folder and keeps them, as long as they do not change."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        value=format_value, change=format_change, interval=format_interval, strip=_strip, height=height_of
    )
    return environment


def _context(results: Results) -> dict[str, Any]:
    tests = results.worst_first()
    changes = overview.changes(tests)
    varying = columns.axes(tests)
    places = _distinct((test, anchors.test_anchor(test.nodeid)) for test in tests)
    places |= _distinct((finding, anchors.finding_anchor(finding)) for finding in results.findings)
    shown, of_owner, lost = _figures(results, tests)
    figures = embedded.Figures.of(shown)
    scripts = {part: (_TEMPLATES / f"{part}.js").read_text(encoding="utf-8") for part in ("early", "report")}
    running = [*scripts.values(), *([charts.javascript()] if figures.data else [])]
    return {
        "results": results,
        "tests": tests,
        "counts": by_word(tests),
        "axes": varying,
        "columns": columns.metric_columns(tests, varying),
        "axis_words": columns.axis_words,
        "headline": overview.headline(tests),
        "first_line": overview.first_line(tests),
        "changes": changes,
        "reasons": overview.reasons(changes),
        "unjudged": unjudged(tests),
        "likewise": likewise,
        "plural": plural,
        "first_findings": overview.first_findings(results.findings),
        "measured": overview.measured(results),
        "simulated": overview.simulated(results),
        "judged": judged(results),
        "notices": notices.of_run(results),
        "upkeep": sentences(results.baselines, results.run.command),
        "anchor": lambda owner: places[id(owner)],
        "anchor_of": {test.nodeid: places[id(test)] for test in tests},
        "figures": lambda owner: of_owner.get(id(owner), {}) if figures.data else {},
        "term": _terms(results),
        "metric_anchor": anchors.metric_anchor,
        "rank": WORST_FIRST.index,
        "badness": lambda test, verdict: badness(verdict, better_of(test.metrics, verdict.metric)),
        "against": against,
        "verdict_word": verdict_word,
        "engine_name": engine_name,
        "serving_engines": serving_engines,
        "failed_otherwise": failed_otherwise,
        "tolerance": lambda test, verdict: format_tolerance(
            verdict.tolerance, better_of(test.metrics, verdict.metric)
        ),
        "unit": lambda test, verdict: unit_of(test.metrics, verdict.metric),
        "value_of": value_of,
        "whole": len(tests) <= _WHOLE,
        "engines": facts.engine_arguments(tests),
        "peaks": facts.peaks_alike(results.environment.peaks),
        **{name: getattr(facts, name) for name in facts.__all__},
        "charts": figures.data,
        "library": figures.library,
        "no_charts": " ".join(filter(None, (figures.reason, lost))) or None,
        "record": embedded.record(results),
        "style": markupsafe.Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        "script": markupsafe.Markup(scripts["report"]),
        "early": markupsafe.Markup(scripts["early"]),
        "policy": embedded.policy(running),
    }  # fmt: skip


def _distinct(places: Iterable[tuple[TestRecord | Finding, str]]) -> dict[int, str]:
    """Anchors by the identity of what they belong to; two records of one name are told apart by their number."""
    found: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for owner, place in places:
        seen[place] += 1
        found[id(owner)] = place if seen[place] == 1 else f"{place}-{seen[place]}"
    return found


def _figures(
    results: Results, tests: Iterable[TestRecord]
) -> tuple[dict[str, Chart], dict[int, dict[str, Chart]], str | None]:
    """All charts by the ids of their elements, those of each finding and test, and why there are no more of them."""
    shown: dict[str, Chart] = {}
    of_owner: dict[int, dict[str, Chart]] = {}
    found: list[tuple[int, list[Chart]]] = []
    failures: list[str] = []
    repeats = len(results.tests) <= _WHOLE
    tasks: list[tuple[Finding | TestRecord, Callable[[], list[Chart]]]] = [
        *((finding, functools.partial(charts.charts_of_finding, finding, results)) for finding in results.findings),
        *((test, functools.partial(charts.charts_of_test, test, repeats=repeats)) for test in tests),
    ]
    for of, draw in tasks:
        try:
            found.append((id(of), draw()))
        except Exception as error:  # one odd record must not lose the others' charts, nor the page
            failures.append(told(error))
    for owner, drawn in found:
        of_owner[owner] = {f"chart-{len(shown) + n}": chart for n, chart in enumerate(drawn)}
        shown |= of_owner[owner]
    if not failures:
        return shown, of_owner, None
    lost = plural(len(failures), "test or finding", "tests or findings")
    return shown, of_owner, f"The charts of {lost} could not be made: {failures[0]}."


def _terms(results: Results) -> Callable[[str], Any]:
    """What turns a metric's name into a link to its definition; another name stays text."""
    links: Mapping[str, Any] = {
        name: markupsafe.Markup(f'<a href="#{anchors.metric_anchor(name)}">{html.escape(name)}</a>')
        for name in results.definitions
    }
    return lambda name: links.get(name, name)


def _strip(metric: MetricValue, verdict: VerdictRecord | None) -> Any:
    return markupsafe.Markup(charts.strip(metric, verdict))  # numbers only
