"""Over what serves: GPUs, sizes of models, formats of numbers, the hardware itself."""

from __future__ import annotations

import math

from pytest_llmperf.report.charts.chart import Chart, Row, number, room
from pytest_llmperf.report.charts.of_findings.table import (
    Table,
    at_size,
    capital,
    compact,
    distinct,
    labelled,
    numeric,
    positive,
)
from pytest_llmperf.report.charts.quantities import Quantity
from pytest_llmperf.report.charts.scales import of_figures
from pytest_llmperf.report.wording import plural

__all__ = ["bars", "formats", "hardware", "model_size", "scaling"]

#: Models of sizes so near each other, in shares of the axis, have their names at one place.
_ONE_PLACE = 0.14
#: Shares of a peak that differ by less are alike, and figures of formats.
_ALIKE, _EQUAL = 0.01, 0.02
#: So many bars a description tells.
_TOLD = 6
_SCALED = ("tpot", "tpj", "ttft", "mbu")
_FORMATS = ("tpot", "tpj", "throughput", "memory_used")


def scaling(table: Table) -> list[Chart]:
    """Bars of each metric by the number of GPUs, side by side for each load.

    Columns: ``tensor_parallel_size``, a load, and the metrics that there are.
    """
    load = table.load()
    if load is None or not table.has("tensor_parallel_size"):
        return []
    charts = []
    for name in (name for name in _SCALED if table.has(name)):
        found = table.records("tensor_parallel_size", load, name)
        gpus, size, value = found.of["tensor_parallel_size"], found.of[load], found.of[name]
        rows = labelled(found.rows, value)
        if not rows:
            continue
        least = min(numeric(row, size) for row in rows)
        told = [
            f"{value.told(numeric(r, value))} on {plural(int(numeric(r, gpus)), 'GPU')}"
            for r in rows
            if r[size.field] == least
        ]
        charts.append(
            table.chart(
                name, template="grouped", title=f"{capital(value.title)} by GPUs and {size.title}",
                description=f"{capital(value.title)} at {at_size(size, least)}: {', '.join(told)}.", rows=rows,
                params={"x": gpus.field, "x_title": gpus.axis, "y": value.field, "y_title": value.axis,
                        "series": size.field, "series_title": size.axis},
            )
        )  # fmt: skip
    return charts


def model_size(table: Table) -> list[Chart]:
    """A latency over the number of parameters, a curve for each load, beside growing in proportion to it.

    Columns: ``total_params``, one of ``tpot``, ``e2e_latency``, ``ttft``, and ``model``; a load.
    """
    latency = next((name for name in ("tpot", "e2e_latency", "ttft") if table.has(name)), None)
    load = table.load()
    if latency is None or load is None or not table.has("total_params", "model"):
        return []
    found = table.records("total_params", latency, "model", load)
    size, value, model, series = (found.of[name] for name in ("total_params", latency, "model", load))
    rows = positive(found.rows, size.field, value.field)
    rows.sort(key=lambda row: (numeric(row, series), numeric(row, size)))
    curves = [[row for row in rows if row[series.field] == one] for one in dict.fromkeys(r[series.field] for r in rows)]
    curves = [curve for curve in curves if numeric(curve[-1], size) > numeric(curve[0], size)]
    if not curves:
        return []
    straight, told = [], []
    for curve in curves:
        first, last = curve[0], curve[-1]
        grown = numeric(last, size) / numeric(first, size)
        slower = numeric(last, value) / numeric(first, value)
        on = {series.field: first[series.field]}
        straight += [
            {**on, size.field: first[size.field], value.field: first[value.field], "order": 0, "note": None},
            {**on, size.field: last[size.field], value.field: number(numeric(first, value) * grown), "order": 1,
             "note": "in proportion to size" if curve is curves[-1] else None},
        ]  # fmt: skip
        told.append(
            f"{compact(grown)} times the parameters take {compact(slower)} times the {value.title} at "
            f"{at_size(series, numeric(first, series))} ({value.told(numeric(first, value))} to "
            f"{value.told(numeric(last, value))})"
        )
    drawn = [{**row, "name": row[model.field]} for curve in curves for row in curve]
    sizes = [numeric(row, size) for row in drawn]
    times = [numeric(row, value) for row in (*drawn, *straight)]
    return [
        table.chart(
            latency, template="proportion", title=f"{capital(value.title)} over the size of the model",
            description=f"{'; '.join(told)}.", rows=drawn,
            extra={"proportion": straight, "names": _names(curves, size, value, model)},
            params={
                **of_figures("x", size, sizes, log=True), **of_figures("y", value, times, log=True),
                "series": series.field, "series_title": series.axis, "label_title": "model",
            },
        )
    ]  # fmt: skip


def _names(curves: list[list[Row]], size: Quantity, value: Quantity, model: Quantity) -> list[Row]:
    """A name a size, below the lowest curve; those of nearly one size together, with which of the points is whose."""
    lowest: dict[float, Row] = {}
    for row in sorted((row for curve in curves for row in curve), key=lambda row: -numeric(row, value)):
        lowest[numeric(row, size)] = row
    if not lowest:
        return []
    span = math.log(max(lowest) / min(lowest))
    names: list[Row] = []
    together: list[list[str]] = []
    for params, row in sorted(lowest.items()):
        last = names[-1] if names else None
        if last is not None and math.log(params / numeric(last, size)) < _ONE_PLACE * span:
            together[-1].append(str(row[model.field]))
            last[value.field] = min(numeric(last, value), numeric(row, value))
        else:
            names.append({size.field: params, value.field: row[value.field]})
            together.append([str(row[model.field])])
    return [{**row, "name": "\n".join(_from_left(models))} for row, models in zip(names, together, strict=True)]


def _from_left(models: list[str]) -> list[str]:
    """Names one below the other of points that lie side by side."""
    if len(models) == 2:
        return [f"left: {models[0]}", f"right: {models[1]}"]
    return models if len(models) == 1 else ["from the left:", *models]


def formats(table: Table) -> list[Chart]:
    """Bars of speed, energy and memory: one a format, side by side for each load.

    Columns: the first of text names the formats; a load, and the metrics that there are.
    """
    named, load = next(iter(table.texts()), None), table.load()
    sizes = {value for value in table.column(load) if value is not None} if load else set()
    if named is None or load is None or len(sizes) < 2:
        told_apart = [name for name in _FORMATS if not _equal(table, name)]
        return [chart for name in told_apart if (chart := bars(table, name, "by format")) is not None]
    charts = []
    for name in (name for name in _FORMATS if table.has(name) and not _equal(table, name)):
        found = table.records(named, load, name)
        of_name, size, value = found.of[named], found.of[load], found.of[name]
        # Of several rows of one format at one load the first.
        once = list({(row[of_name.field], row[size.field]): row for row in reversed(found.rows)}.values())[::-1]
        rows = [{**row, "name": row[of_name.field]} for row in labelled(once, value)]
        if not rows:
            continue
        most = max(numeric(row, size) for row in rows)
        told = [f"{row['name']} {value.told(numeric(row, value))}" for row in rows if row[size.field] == most]
        charts.append(
            table.chart(
                name, template="grouped", title=f"{capital(value.title)} by format and {size.title}", rows=rows,
                description=f"{capital(value.title)} at {at_size(size, most)}: {', '.join(told[:_TOLD])}.",
                params={"x": "name", "x_title": "format", "y": value.field, "y_title": value.axis,
                        "series": size.field, "series_title": size.axis},
            )
        )  # fmt: skip
    return charts


def hardware(table: Table) -> list[Chart]:
    """What was reached of the peak, where one is known and there is something to compare.

    Columns: the first of text names what was measured; ``share``, or ``copy_share`` of the memory's bandwidth.
    """
    made = [bars(table, name, "of the peak") for name in ("share", "copy_share") if _differs(table, name)]
    return [chart for chart in made if chart is not None]


def _differs(table: Table, name: str) -> bool:
    """Bars of boards that are all alike say less than the sentence above them."""
    known = _known(table, name)
    return len(known) > 1 and max(known) - min(known) > _ALIKE * max(known)


def _equal(table: Table, name: str) -> bool:
    """Whether several bars all are of one length, as of memory that an engine takes at its start."""
    known = _known(table, name)
    return len(known) > 1 and max(known) - min(known) <= _EQUAL * max(known)


def _known(table: Table, name: str) -> list[float]:
    return [value for value in (table.column(name) if table.has(name) else ()) if isinstance(value, float | int)]


def bars(table: Table, name: str, title: str, named: str | None = None) -> Chart | None:
    """Bars of one figure, a row of the table each.

    Args:
        table: Of the finding.
        name: The column with the figure.
        title: Of the chart, behind what the figure is called; ``""`` for nothing.
        named: The column with the names; without it the first of text. Where names repeat, a load tells them apart.
    """
    named = named or next(iter(table.texts()), None)
    if named is None or not table.has(name):
        return None
    load = table.load()
    found = table.records(named, name, optional=[load] if load else [])
    value = found.of[name]
    rows: list[Row] = [
        {
            "name": told,
            value.field: row[value.field],
            "room": room(numeric(row, value)),
            "label": compact(numeric(row, value)),
        }
        for row, told in zip(found.rows, distinct(found, named, load), strict=True)
    ]
    if not rows:
        return None
    said = ", ".join(f"{row['name']} {value.told(numeric(row, value))}" for row in rows[:_TOLD])
    more = f", and {len(rows) - _TOLD} more" if len(rows) > _TOLD else ""
    return table.chart(
        name, template="bars", title=f"{capital(value.title)} {title}".rstrip(), rows=rows,
        description=f"{capital(value.title)}: {said}{more}.",
        params={"x": value.field, "x_title": value.axis, "name_title": "of", "height": 28 * len(rows)},
    )  # fmt: skip
