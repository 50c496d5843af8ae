"""What joules and watts go into: phases, the idle floor, bytes moved."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row, number, room
from pytest_llmperf.report.charts.of_findings.machine import bars
from pytest_llmperf.report.charts.of_findings.table import Table, capital, compact, distinct, numeric, positive

__all__ = ["energy_split", "idle", "phases"]

#: Shares of the joules of an output token, and what they are called.
_SPLIT = {"idle": "idle floor", "weights": "weights", "kv": "KV cache"}
#: More than these are not read; the table has all of them.
_BARS = 24


def phases(table: Table) -> list[Chart]:
    """Joules per token of each phase on a log axis, and bars of power.

    Columns: ``phase`` (or the first of text), ``jpt``; ``power``.
    """
    named = "phase" if table.has("phase") else next(iter(table.texts()), None)
    if named is None:
        return []
    charts = []
    if table.has("jpt"):
        found = table.records(named, "jpt")
        value = found.of["jpt"]
        names = distinct(found, named, None)
        shown: list[Row] = [
            {"name": name, value.field: row[value.field], "label": value.told(numeric(row, value))}
            for row, name in zip(found.rows, names, strict=True)
        ]
        rows = positive(shown, value.field)
        if rows:
            said = ", ".join(f"{row['name']} {row['label']}" for row in rows)
            charts.append(
                table.chart(
                    "jpt", template="dots", title=f"{capital(value.title)} by phase", rows=rows,
                    description=f"{capital(value.title)}: {said}.",
                    params={"x": value.field, "x_title": f"{value.axis}, log scale", "name_title": "phase",
                            "height": 38 * len(rows)},
                )
            )  # fmt: skip
    power = bars(table, "power", "by phase", named)
    return charts if power is None else [*charts, power]


def idle(table: Table) -> list[Chart]:
    """The floor, rung by rung.

    Columns: the first of text names the rungs; ``power``.
    """
    chart = bars(table, "power", "of the idle boards")
    return [] if chart is None else [chart]


def energy_split(table: Table) -> list[Chart]:
    """A bar a test, divided by what the joules of an output token are put down to.

    Columns: the first of text names the bars; ``idle_jpt``, ``weights_jpt`` and ``kv_jpt`` as there are.
    """
    named = next(iter(table.texts()), None)
    parts = {name: f"{name}_jpt" for name in _SPLIT if table.has(f"{name}_jpt")}
    if named is None or not parts:
        return []
    load = table.load()
    found = table.records(named, optional=[*parts.values(), *([load] if load else [])])
    rows: list[Row] = []
    totals: list[Row] = []
    told = []
    for row, bar in list(zip(found.rows, distinct(found, named, load), strict=True))[:_BARS]:
        known = {name: numeric(row, found.of[c]) for name, c in parts.items() if row[found.of[c].field] is not None}
        whole = sum(known.values())
        if whole <= 0:
            continue
        rows += [
            {"bar": bar, "part": _SPLIT[name], "order": at, "j_per_token": number(known[name]),
             "share_percent": number(known[name] / whole, 100)}
            for at, name in enumerate(_SPLIT) if name in known
        ]  # fmt: skip
        totals.append({"bar": bar, "j_per_token": number(whole), "room": room(whole), "label": compact(whole)})
        told.append(f"{bar}: {', '.join(f'{_SPLIT[n]} {share / whole:.0%}' for n, share in known.items())}")
    if not rows:
        return []
    more = f"; and {len(found.rows) - 4} more" if len(found.rows) > 4 else ""
    return [
        table.chart(
            "split", template="stacked", title="Energy per output token by what it is put down to",
            description=f"Attributed by bytes moved, not measured. {'; '.join(told[:4])}{more}.", rows=rows,
            extra={"totals": totals},
            params={"x": "j_per_token", "y": "bar", "x_title": "energy per output token (J/token)",
                    "parts": [_SPLIT[name] for name in parts], "height": 32 * len(totals)},
        )
    ]  # fmt: skip
