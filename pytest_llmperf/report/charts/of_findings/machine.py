"""Over what serves: GPUs, sizes of models, formats of numbers, the hardware itself."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row, room
from pytest_llmperf.report.charts.of_findings.table import Table, capital, compact, distinct, numeric, positive

__all__ = ["bars", "formats", "hardware", "model_size", "scaling"]

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
        rows: list[Row] = [{**row, "label": compact(numeric(row, value))} for row in found.rows]
        if not rows:
            continue
        least = min(numeric(row, size) for row in rows)
        told = [
            f"{value.told(numeric(r, value))} on {compact(numeric(r, gpus))}" for r in rows if r[size.field] == least
        ]
        charts.append(
            table.chart(
                name, template="grouped", title=f"{capital(value.title)} by GPUs and {size.title}",
                description=f"{capital(value.title)} at {size.title} {compact(least)}: {', '.join(told)}.", rows=rows,
                params={"x": gpus.field, "x_title": gpus.axis, "y": value.field, "y_title": value.axis,
                        "series": size.field, "series_title": size.axis},
            )
        )  # fmt: skip
    return charts


def model_size(table: Table) -> list[Chart]:
    """A latency over the number of parameters, beside growing in proportion to it.

    Columns: ``total_params``, one of ``tpot``, ``e2e_latency``, ``ttft``, and ``model``.
    """
    latency = next((name for name in ("tpot", "e2e_latency", "ttft") if table.has(name)), None)
    if latency is None or not table.has("total_params", "model"):
        return []
    found = table.records("total_params", latency, "model")
    size, value, model = found.of["total_params"], found.of[latency], found.of["model"]
    ordered = sorted(positive(found.rows, size.field, value.field), key=lambda row: numeric(row, size))
    if len(ordered) < 2:
        return []
    first, last = ordered[0], ordered[-1]
    grown = numeric(last, size) / numeric(first, size)
    end = {size.field: last[size.field], value.field: numeric(first, value) * grown, "order": 1}
    straight: list[Row] = [
        {size.field: first[size.field], value.field: first[value.field], "order": 0, "note": None},
        {**end, "note": "in proportion to size"},
    ]
    rows: list[Row] = [
        {**row, "label": row[model.field], "order": at, "align": "left" if at < len(ordered) / 2 else "right"}
        for at, row in enumerate(ordered)
    ]
    slower = numeric(last, value) / numeric(first, value)
    return [
        table.chart(
            latency, template="proportion", title=f"{capital(value.title)} over the size of the model",
            description=(
                f"{compact(grown)} times the parameters ({size.told(numeric(first, size))} to "
                f"{size.told(numeric(last, size))}) take {compact(slower)} times the {value.title} "
                f"({value.told(numeric(first, value))} to {value.told(numeric(last, value))})."
            ),
            rows=rows, extra={"proportion": straight},
            params={"x": size.field, "x_title": size.axis, "y": value.field, "y_title": value.axis,
                    "label_title": "model"},
        )
    ]  # fmt: skip


def formats(table: Table) -> list[Chart]:
    """Bars of speed, energy and memory, one a format.

    Columns: the first of text names the formats; the metrics that there are.
    """
    return [chart for name in _FORMATS if (chart := bars(table, name, "by format")) is not None]


def hardware(table: Table) -> list[Chart]:
    """What was reached of the peak, where one is known.

    Columns: the first of text names what was measured; ``share``, or ``copy_share`` of the memory's bandwidth.
    """
    made = [bars(table, name, "of the peak") for name in ("share", "copy_share")]
    return [chart for chart in made if chart is not None]


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
    said = ", ".join(f"{row['name']} {value.told(numeric(row, value))}" for row in rows[:8])
    more = f", and {len(rows) - 8} more" if len(rows) > 8 else ""
    return table.chart(
        name, template="bars", title=f"{capital(value.title)} {title}".rstrip(), rows=rows,
        description=f"{capital(value.title)}: {said}{more}.",
        params={"x": value.field, "x_title": value.axis, "name_title": "of", "height": 28 * len(rows)},
    )  # fmt: skip
