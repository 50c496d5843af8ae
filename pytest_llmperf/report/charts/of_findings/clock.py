"""Over the clock: grids of batch and clock, power curves, the sweet spot."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row
from pytest_llmperf.report.charts.of_findings.table import (
    Table,
    at_size,
    capital,
    compact,
    numeric,
    placed,
    stacked_panels,
)
from pytest_llmperf.report.charts.quantities import Quantity
from pytest_llmperf.report.charts.scales import of_figures
from pytest_llmperf.report.wording import plural

__all__ = ["batch_and_clock", "grid", "sweet_spot"]

#: The height of a panel, pixels.
_PANEL = 92
_GRIDS = ("power", "tpj", "throughput", "e2e_latency", "tpot", "ttft")


def batch_and_clock(table: Table) -> list[Chart]:
    """A grid each of power, tokens per joule, throughput and a latency, and power over the clock by batch.

    Columns: a load and ``clock``, and of the metrics those that there are; of the latencies the first.
    """
    load = table.load()
    if load is None or not table.has("clock"):
        return []
    names = [name for name in _GRIDS if table.has(name)]
    latencies = [name for name in names if name in ("e2e_latency", "tpot", "ttft")]
    charts = [chart for name in names if name not in latencies[1:] and (chart := grid(table, "clock", load, name))]
    curves = [_curves(table, load, name) for name in ("power", "tpj") if table.has(name)]
    return [*charts, *(chart for chart in curves if chart is not None)]


def grid(table: Table, across: str, down: str, name: str) -> Chart | None:
    """A heatmap of one figure over two others.

    Args:
        table: Of the finding.
        across: The column along x.
        down: The column along y.
        name: The column whose values stand in the cells.
    """
    found = table.records(across, down, name)
    x, y, value = found.of[across], found.of[down], found.of[name]
    if not found.rows:
        return None
    ordered = sorted(found.rows, key=lambda row: numeric(row, value))
    least, most = numeric(ordered[0], value), numeric(ordered[-1], value)
    rows: list[Row] = []
    for row in found.rows:
        number = numeric(row, value)
        shade = (number - least) / (most - least) if most > least else 0.5
        rows.append({**row, "label": compact(number), "shade": round(shade, 3)})
    longest = max(len(str(row["label"])) for row in rows)
    rows = [{**row, "chars": longest + 0.5} for row in rows]
    places = [f"{at_size(y, numeric(row, y))} and {at_size(x, numeric(row, x))}" for row in (ordered[0], ordered[-1])]
    return table.chart(
        name,
        template="heatmap",
        title=f"{capital(value.axis)} by {y.title} and {x.title}",
        description=(
            f"{capital(value.title)}: least {value.told(least)} at {places[0]}, most {value.told(most)} at {places[1]}."
        ),
        rows=rows,
        params={
            "x": x.field, "x_title": x.axis, "y": y.field, "y_title": y.axis, "value": value.field,
            "value_title": value.axis, "height": 27 * len({row[y.field] for row in rows}),
        },
    )  # fmt: skip


def _curves(table: Table, load: str, name: str) -> Chart | None:
    found = table.records("clock", load, name)
    if not found.rows:
        return None
    clock, series, value = found.of["clock"], found.of[load], found.of[name]
    sizes = sorted({numeric(row, series) for row in found.rows})
    clocks = [numeric(row, clock) for row in found.rows]
    figures = [numeric(row, value) for row in found.rows]
    ends = []
    for size in dict.fromkeys((sizes[0], sizes[-1])):
        of_one = [row for row in found.rows if row[series.field] == size]
        of_one.sort(key=lambda row: numeric(row, clock))
        ends.append(f"{at_size(series, size)}: {_run_of(of_one, clock, value)}")
    return table.chart(
        f"{name}-curves",
        template="curves",
        title=f"{capital(value.title)} over the SM clock, by {series.title}",
        description=f"{capital('; '.join(ends))}.",
        rows=found.rows,
        params={
            **of_figures("x", clock, clocks, log=False), **of_figures("y", value, figures),
            "series": series.field, "series_title": series.axis,
        },
    )  # fmt: skip


def _run_of(ordered: list[Row], clock: Quantity, value: Quantity) -> str:
    """How a figure goes from the lowest clock to the highest, by way of its most where that is between."""
    ends = [ordered[0], ordered[-1]]
    most = max(ordered, key=lambda row: numeric(row, value))
    shown = [ends[0], most, ends[1]] if all(numeric(most, value) > numeric(end, value) for end in ends) else ends
    told = dict.fromkeys(f"{value.told(numeric(row, value))} at {clock.told(numeric(row, clock))}" for row in shown)
    return ", ".join(told)


def sweet_spot(table: Table) -> list[Chart]:
    """Tokens per joule, power and a latency over one clock axis, with the optimum and its interval.

    Columns: ``clock``, ``tpj``, ``power``, and the first there is of the latencies; ``held`` says ``free`` of the clock
    that ran free, whose points stand beside the curves. Marks as the finding has them.
    """
    if not table.has("clock", "tpj", "power"):
        return []
    latency = next((name for name in ("e2e_latency", "tpot", "ttft") if table.has(name)), None)
    optional = [name for name in (latency, "held") if name is not None and table.has(name)]
    found = table.records("clock", "tpj", "power", optional=optional)
    clock, tpj, power = found.of["clock"], found.of["tpj"], found.of["power"]
    if not found.rows:
        return []
    swept = [row for row in found.rows if row.get("held") != "free"]
    ordered = sorted(swept, key=lambda row: numeric(row, clock))
    if not ordered:
        return []
    rows: list[Row] = []
    free: list[Row] = []
    for row in (*ordered, *(row for row in found.rows if row.get("held") == "free")):
        shown: Row = {"clock_mhz": row[clock.field], "tokens_per_j": row[tpj.field], "power_w": row[power.field]}
        into = free if row.get("held") == "free" else rows
        into.append(shown | ({found.of[latency].field: row[found.of[latency].field]} if latency else {}))
    # A prefill is told in prompt tokens. The finding's title chooses between our own words, and is not drawn.
    what = "prompt tokens per joule" if table.title("tpj").lower().startswith("prompt") else "tokens per joule"
    xs = [numeric(row, clock) for row in ordered]
    marks = placed(table.marks(), xs, clock.factor)
    params = {
        "efficiency_title": what.replace(" per joule", "/J"),
        **stacked_panels(3 if latency else 2, marks["marks"], _PANEL),
    }
    if latency:
        params |= {"latency": found.of[latency].field, "latency_title": found.of[latency].axis}
    best = max(ordered, key=lambda row: numeric(row, tpj))
    panels = [what, "power", *([found.of[latency].title] if latency else [])]
    return [
        table.chart(
            "sweep",
            template="sweet_spot" if latency else "sweet_spot_energy",
            title=f"{capital(', '.join(panels[:-1]))} and {panels[-1]} over the SM clock",
            description=(
                f"Of {plural(len(rows), 'clock')} from {clock.told(xs[0])} to {clock.told(xs[-1])}, "
                f"{clock.told(numeric(best, clock))} gives most {what}: {compact(numeric(best, tpj))}, at "
                f"{power.told(numeric(best, power))}; {clock.told(xs[-1])} gives "
                f"{compact(numeric(ordered[-1], tpj))} at {power.told(numeric(ordered[-1], power))}"
                f"{_free(free)}. Beside a marked clock stands what it changes in latency."
            ),
            rows=rows,
            extra={**marks, "free": free},
            params=params,
        )
    ]


def _free(rows: list[Row]) -> str:
    """The ring of the clock that ran free, in words."""
    if not rows or not all(
        isinstance(rows[0][field], float | int) for field in ("clock_mhz", "tokens_per_j", "power_w")
    ):
        return ""
    clock, yields, power = (float(rows[0][field] or 0) for field in ("clock_mhz", "tokens_per_j", "power_w"))
    return f"; running free, at {clock:.0f} MHz, {compact(yields)} at {compact(power)} W"
