"""The values of a test's launches, against its baseline's where it was gated."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from pytest_llmperf.report.charts.chart import Chart, Row, number, slug
from pytest_llmperf.report.charts.quantities import title_of
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.wording import format_interval, plural
from pytest_llmperf.results import WORST_FIRST, MetricValue, TestRecord, VerdictRecord

__all__ = ["distribution"]

#: Of a test that was only measured.
_MEASURED = ("ttft", "tpot", "e2e_latency", "throughput", "power", "tpj")
#: An interval is drawn as far as it reaches at most so many widths of everything else to either side.
_REACH = 1.0
#: A tolerance is drawn as far as so many times the largest change.
_BAND = 1.5
#: So many repeats a metric are drawn at most, evenly chosen.
_REPEATS = 60


def distribution(test: TestRecord, *, repeats: bool = True) -> Chart | None:
    """Every gated metric on one axis, in percent of its baseline; of a measured test in percent of its own median.

    Args:
        test: The test.
        repeats: Whether single repeats are drawn beside the launches.
    """
    most = _REPEATS if repeats else 0
    gated = [v for v in test.verdicts if v.against == "baseline" and v.baseline and v.metric in test.metrics]
    gated = [verdict for verdict in gated if test.metrics[verdict.metric].launches]
    if gated:
        return _against_baseline(test, sorted(gated, key=lambda verdict: WORST_FIRST.index(verdict.verdict)), most)
    return _alone(test, most)


def _against_baseline(test: TestRecord, gated: Sequence[VerdictRecord], most: int) -> Chart:
    rows: list[Row] = []
    repeats: list[Row] = []
    band: list[Row] = []
    interval: list[Row] = []
    cuts: list[Row] = []
    for verdict in gated:
        metric = test.metrics[verdict.metric]
        assert verdict.baseline is not None
        name = {"metric": title_of(verdict.metric), "label": _label(verdict)}
        shown: list[Row] = []
        for series, launches in (("baseline", verdict.baseline_launches), ("this run", metric.launches)):
            dots, small = _dots(launches, verdict.baseline, metric.unit, most)
            shown += [{**name, "series": series, **dot} for dot in dots]
            repeats += [{**name, "series": series, **dot} for dot in small]
        rows += shown
        band.append({**name, "centre_percent": 0.0, **_tolerated(verdict)})
        drawn, cut = _interval(verdict, [*shown, band[-1]])
        interval += [{**name, **row} for row in drawn]
        cuts += [{**name, **row} for row in cut]
    return Chart(
        id=slug(test.nodeid, "distribution"),
        template="distribution",
        title="Each launch against the baseline",
        description=f"Medians of launches, in percent of the baseline: {'; '.join(map(_told, gated))}.",
        rows=rows,
        extra={"repeats": repeats, "band": _within(band, [*rows, *interval]), "interval": interval, "cuts": cuts},
        params={"x_title": "change (%); shaded: tolerance", "height": 58 * len(gated)},
    )


def _label(verdict: VerdictRecord) -> str:
    change = f" {format_change(verdict.change)}" if verdict.change is not None else ""
    return f"{title_of(verdict.metric)}{change}, {verdict.verdict}"


def _told(verdict: VerdictRecord) -> str:
    if verdict.change is None:
        return f"{title_of(verdict.metric)} {verdict.verdict}"
    interval = f" ({format_interval(verdict.interval)})" if verdict.interval is not None else ""
    return f"{title_of(verdict.metric)} {format_change(verdict.change)}{interval}, {verdict.verdict}"


def _within(bands: Sequence[Row], shown: Iterable[Row]) -> list[Row]:
    """Bands as far as the chart needs to reach: one wide tolerance would make all changes of the others small."""
    fields = ("change_percent", "low_percent", "high_percent")
    sizes = [abs(value) for row in shown for field in fields if isinstance(value := row.get(field), float)]
    ends = [abs(value) for row in bands for field in fields if isinstance(value := row.get(field), float)]
    reach = max(_BAND * max(sizes, default=0.0), min(ends, default=0.0))

    def cut(value: object) -> float | None:
        return max(-reach, min(reach, value)) if isinstance(value, float) else None

    return [{**row, "low_percent": cut(row["low_percent"]), "high_percent": cut(row["high_percent"])} for row in bands]


def _tolerated(verdict: VerdictRecord) -> Row:
    """The band within the tolerance, the same ratio to either side; without ends for one that no ratio can have."""
    if verdict.tolerance <= -1:
        return {"low_percent": None, "high_percent": None, "tolerance": None}
    up, down = verdict.tolerance, 1 / (1 + verdict.tolerance) - 1
    told = format_interval((min(up, down), max(up, down)))
    return {"low_percent": number(min(up, down), 100), "high_percent": number(max(up, down), 100), "tolerance": told}


def _dots(launches: Sequence[Sequence[float]], centre: float, unit: str, most: int) -> tuple[list[Row], list[Row]]:
    """One dot a launch (the median of its repeats), and small ones, ``most`` of them, of launches' several repeats."""
    dots: list[Row] = []
    small: list[tuple[float, int]] = []
    for launch, found in enumerate(launches, 1):
        if not found:
            continue
        dots.append(_dot(statistics.median(found), launch, centre, unit))
        if len(found) > 1:
            small += [(value, launch) for value in found]
    return dots, [_dot(value, launch, centre, unit) for value, launch in _thinned(small, most)]


def _dot(value: float, launch: int, centre: float, unit: str) -> Row:
    return {
        "launch": launch,
        "value": format_value(value, unit),
        "change_percent": number(value / centre - 1, 100),
    }


def _thinned(dots: list[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    if len(dots) <= most:
        return dots
    return [dots[at * len(dots) // most] for at in range(most)]


def _interval(verdict: VerdictRecord, beside: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The interval of the change, cut where it would make everything else small; and an arrow where it is cut."""
    if verdict.interval is None:
        return [], []
    low, high = (100 * end for end in verdict.interval)
    fields = ("change_percent", "low_percent", "high_percent")
    shown = [value for row in beside for field in fields if isinstance(value := row.get(field), float)]
    least, most = min(shown, default=low), max(shown, default=high)
    room = _REACH * ((most - least) or high - low)
    left, right = max(low, least - room), min(high, most + room)
    named: Row = {"series": "interval of the change"}
    drawn: Row = {"low_percent": number(left), "high_percent": number(right)}
    told: Row = {"interval": format_interval(verdict.interval), "verdict": verdict.verdict}
    arrows = [(left, "triangle-left", left > low), (right, "triangle-right", right < high)]
    cuts: list[Row] = [{**named, "change_percent": number(at), "shape": shape} for at, shape, cut in arrows if cut]
    return [{**named, **drawn, **told}], cuts


def _alone(test: TestRecord, most: int) -> Chart | None:
    rows: list[Row] = []
    repeats: list[Row] = []
    told: list[str] = []
    varies = False
    for name in _MEASURED:
        metric = test.metrics.get(name)
        if metric is None or not metric.value or sum(map(len, metric.launches)) < 2:
            continue
        varies = varies or len({value for launch in metric.launches for value in launch}) > 1
        named: Row = {"metric": title_of(name), "label": f"{title_of(name)} {format_value(metric.value, metric.unit)}"}
        dots, small = _dots(metric.launches, metric.value, metric.unit, most)
        rows += [{**named, **dot} for dot in dots]
        repeats += [{**named, **dot} for dot in small]
        told.append(f"{title_of(name)} {_range(metric)}")
    if not varies:  # as on a simulated board without noise
        return None
    launches = max(len(test.metrics[name].launches) for name in _MEASURED if name in test.metrics)
    return Chart(
        id=slug(test.nodeid, "distribution"),
        template="launches",
        title="Launches of this run",
        description=f"{plural(launches, 'launch')}, each in percent of the median: {', '.join(told)}.",
        rows=rows,
        extra={"repeats": repeats},
        params={"x_title": "difference from the median (%)", "height": 26 * len(told)},
    )


def _range(metric: MetricValue) -> str:
    found = [value for launch in metric.launches for value in launch]
    return f"{format_value(min(found), metric.unit)} to {format_value(max(found), metric.unit)}"
