"""Over the load: latency against throughput, lengths of requests, batching policies."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row, number, room
from pytest_llmperf.report.charts.of_findings.clock import grid
from pytest_llmperf.report.charts.of_findings.table import (
    Table,
    at_size,
    capital,
    compact,
    numeric,
    placed,
    positive,
    stacked_panels,
)
from pytest_llmperf.report.charts.quantities import Quantity
from pytest_llmperf.report.charts.scales import of_figures, of_sizes
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Mark

__all__ = ["batching_policies", "latency_throughput", "lengths"]

_POLICIES = ("continuous", "dynamic", "static")
#: Points so near the left edge have their labels to the right; of the width.
_EDGE = 0.06
#: The height of a curve of TPOT, pixels.
_CORNER = 220
#: Room for a letter of a label and beside it, of the width of a narrow chart, and for a line, of the height.
_LETTER, _BESIDE, _LINE = 0.023, 0.012, 0.07


def latency_throughput(table: Table) -> list[Chart]:
    """Throughput against latency with the load at each point and the knee; TPOT over the load with its corners.

    Columns: a load, ``throughput`` and a latency; marks: ``knee``, all others belong to the second chart. The x of a
    mark is a load.
    """
    load = table.load()
    latency = next((name for name in ("e2e_latency", "tpot", "ttft") if table.has(name)), None)
    if load is None or latency is None or not table.has("throughput"):
        return []
    made = [_path(table, load, latency), _corner(table, load) if table.has("tpot") else None]
    return [chart for chart in made if chart is not None]


def _path(table: Table, load: str, latency: str) -> Chart | None:
    found = table.records(load, "throughput", latency)
    if not found.rows:
        return None
    size, x, y = found.of[load], found.of["throughput"], found.of[latency]
    ordered = sorted(found.rows, key=lambda row: numeric(row, size))
    xs, ys = [numeric(row, x) for row in ordered], [numeric(row, y) for row in ordered]
    across = {"x": of_figures("x", x, xs, log=False), "y": of_figures("y", y, ys)}
    left = min(xs) + _EDGE * (max(xs) - min(xs))
    aligned: list[Row] = [{**row, "align": "left" if numeric(row, x) < left else "right"} for row in ordered]
    labels = _apart(aligned, x, y, [compact(numeric(row, size)) for row in ordered])
    rows: list[Row] = [
        {**row, "label": label, "order": at} for at, (row, label) in enumerate(zip(aligned, labels, strict=True))
    ]
    marks: list[Row] = []
    told = ""
    for mark in table.marks("knee"):
        at = next((row for row in rows if mark.x is not None and row[size.field] == size.of(mark.x)), None)
        if at is not None:
            note = printable(mark.label)
            # On the side where there is room for it.
            side = "right" if numeric(at, x) > (min(xs) + max(xs)) / 2 else "left"
            at["label"] = None  # the mark names it
            marks.append({x.field: at[x.field], y.field: at[y.field], "note": note, "align": side})
            told = f"; {note}, {_both(at, x, y)}"
    return table.chart(
        "path",
        template="path",
        title=f"{capital(y.title)} against throughput, by {size.title}",
        description=f"{_ends(rows, size, x, y)}{told}.",
        rows=rows,
        extra={"marks": marks},
        params={**across["x"], **across["y"], "label": size.field, "label_title": size.axis},
    )


def _ends(rows: list[Row], size: Quantity, x: Quantity, y: Quantity) -> str:
    ends = (rows[0], rows[-1]) if len(rows) > 1 else rows
    told = " to ".join(f"{_both(row, x, y)} ({at_size(size, numeric(row, size))})" for row in ends)
    return f"From {told}" if len(ends) > 1 else capital(told)


def _apart(rows: list[Row], x: Quantity, y: Quantity, labels: list[str]) -> list[str | None]:
    """The labels, without those that would lie on another; the last one stays, and the first, then from the last on."""
    spans = [max(numeric(r, of) for r in rows) - min(numeric(r, of) for r in rows) or 1.0 for of in (x, y)]

    def ends(at: int) -> tuple[float, float]:
        """From where to where a label reaches, of the width."""
        here, width = numeric(rows[at], x) / spans[0], _LETTER * len(labels[at]) + _BESIDE
        return (here, here + width) if rows[at]["align"] == "left" else (here - width, here)

    def on_each_other(one: int, other: int) -> bool:
        (low, high), (least, most) = ends(one), ends(other)
        lower, upper = sorted(numeric(rows[at], y) for at in (one, other))
        return low < most and least < high and upper - lower < _LINE * spans[1]

    kept: list[int] = []
    for at in (len(rows) - 1, 0, *range(len(rows) - 2, 0, -1)):
        if not any(on_each_other(at, other) for other in kept):
            kept.append(at)
    return [label if at in kept else None for at, label in enumerate(labels)]


def _both(row: Row, x: Quantity, y: Quantity) -> str:
    return f"{x.told(numeric(row, x))} at {y.told(numeric(row, y))}"


def _corner(table: Table, load: str) -> Chart | None:
    found = table.records(load, "tpot")
    size, tpot = found.of[load], found.of["tpot"]
    rows = positive(sorted(found.rows, key=lambda row: numeric(row, size)), size.field, tpot.field)
    if not rows:
        return None
    sizes = [numeric(row, size) for row in rows]
    marks = [mark for mark in table.marks() if mark.name not in ("knee", "limit") and _on_log_axis(mark)]
    said = "; ".join(printable(mark.label) for mark in marks)
    places = placed(marks, sizes, size.factor, log=True)
    times = [numeric(row, tpot) for row in rows]
    return table.chart(
        "corner",
        template="corner",
        title=f"TPOT over {size.title}",
        description=(
            f"TPOT from {tpot.told(times[0])} at {at_size(size, sizes[0])} to {tpot.told(times[-1])} at "
            f"{at_size(size, sizes[-1])}{'; ' + said if said else ''}."
        ),
        rows=rows,
        extra={**places, "envelope": _envelope(table, size, tpot, sizes)},
        params={
            **of_sizes("x", size, sizes), "x_scale": "log", "x_zero": None, **of_figures("y", tpot, times, log=True),
            **stacked_panels(1, places["marks"], _CORNER),
        },
    )  # fmt: skip


def _envelope(table: Table, size: Quantity, tpot: Quantity, sizes: list[float]) -> list[Row]:
    """The two limits of the fit, each as far as it is the greater: what any step takes, and what its sequences add."""
    for mark in table.marks("measured"):
        if not (mark.x and mark.y and mark.x > 0 and mark.y > 0):
            continue
        at, flat = size.of(mark.x), tpot.of(mark.y)
        if at is not None and flat is not None and sizes[0] < at < sizes[-1]:
            ends = [(sizes[0], flat), (at, flat), (sizes[-1], flat * sizes[-1] / at)]
            return [{size.field: x, tpot.field: number(y), "order": order} for order, (x, y) in enumerate(ends)]
    return []


def _on_log_axis(mark: Mark) -> bool:
    return mark.x is not None and mark.x > 0 and (mark.low is None or mark.low > 0)


def lengths(table: Table) -> list[Chart]:
    """Grids of latency and of the prompt's share of it; what prefill reaches of the compute roof.

    Columns: ``input_len``, ``output_len``, and ``e2e_latency``, ``prompt_share``, ``mfu`` as there are.
    """
    if not table.has("input_len", "output_len"):
        return []
    names = [name for name in ("e2e_latency", "prompt_share", "ttft") if table.has(name)]
    grids = [chart for name in names[:2] if (chart := grid(table, "output_len", "input_len", name)) is not None]
    roof = _prefill(table)
    return grids if roof is None else [*grids, roof]


def _prefill(table: Table) -> Chart | None:
    """MFU of the prefill over the prompt's length; a length once, whatever the output."""
    if not table.has("mfu"):
        return None
    found = table.records("input_len", "mfu")
    prompt, mfu = found.of["input_len"], found.of["mfu"]
    rows = list({row[prompt.field]: row for row in reversed(found.rows)}.values())
    rows = positive(sorted(rows, key=lambda row: numeric(row, prompt)), prompt.field)
    if not rows:
        return None
    told = [f"{mfu.told(numeric(row, mfu))} at {at_size(prompt, numeric(row, prompt))}" for row in rows]
    best = max(range(len(rows)), key=lambda at: numeric(rows[at], mfu))
    most = f"; most, {told[best]}" if 0 < best < len(rows) - 1 else ""
    return table.chart(
        "mfu",
        template="line",
        title="MFU of the prefill over the prompt's length",
        description=f"Of the peak FLOP/s prefill reaches {' to '.join(dict.fromkeys((told[0], told[-1])))}{most}.",
        rows=rows,
        params={
            **of_sizes("x", prompt, [numeric(row, prompt) for row in rows]),
            "y": mfu.field,
            "y_title": mfu.axis,
        },
    )


def batching_policies(table: Table) -> list[Chart]:
    """Throughput and latencies of each policy over the load; bars where there is one load.

    Columns: ``policy``, a load, and the metrics that there are.
    """
    load = table.load()
    if load is None or not table.has("policy"):
        return []
    several = len({value for value in table.column(load) if value is not None}) > 1
    made = [_policies(table, load, name, several) for name in ("throughput", "e2e_latency", "ttft") if table.has(name)]
    return [chart for chart in made if chart is not None]


def _policies(table: Table, load: str, name: str, several: bool) -> Chart | None:
    found = table.records("policy", load, name)
    size, value, policy = found.of[load], found.of[name], found.of["policy"]
    # One curve a policy: of several with other limits of their own the first.
    once = {(row[policy.field], row[size.field]): row for row in reversed(found.rows)}
    rows = [row for (named, _), row in reversed(once.items()) if named in _POLICIES]
    if not rows:
        return None
    highest = max(numeric(row, size) for row in found.rows)
    told = [f"{row[policy.field]} {value.told(numeric(row, value))}" for row in rows if row[size.field] == highest]
    described = f"{capital(value.title)} at {at_size(size, highest)}: {', '.join(told)}."
    if several:
        return table.chart(
            name,
            template="policies",
            title=f"{capital(value.title)} by policy over {size.title}",
            description=described,
            rows=sorted(rows, key=lambda row: (str(row[policy.field]), numeric(row, size))),
            params={
                **of_sizes("x", size, [numeric(row, size) for row in rows]),
                **of_figures("y", value, [numeric(row, value) for row in rows]),
            },
        )
    bars: list[Row] = [
        {
            "name": row[policy.field],
            value.field: row[value.field],
            "room": room(numeric(row, value)),
            "label": compact(numeric(row, value)),
        }
        for row in rows
    ]
    return table.chart(
        name, template="bars", title=f"{capital(value.title)} by policy", description=described, rows=bars,
        params={"x": value.field, "x_title": value.axis, "name_title": "policy", "height": 28 * len(bars)},
    )  # fmt: skip
