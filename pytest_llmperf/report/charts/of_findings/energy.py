"""What joules and watts go into: phases, the idle floor, bytes moved."""

from __future__ import annotations

from collections import Counter

from pytest_llmperf.report.charts.chart import Chart, Row, number, room
from pytest_llmperf.report.charts.of_findings.machine import bars
from pytest_llmperf.report.charts.of_findings.table import Table, capital, compact, distinct, numeric, positive
from pytest_llmperf.report.charts.scales import of_figures
from pytest_llmperf.results import Finding

__all__ = ["energy_split", "idle", "phases"]

#: Shares of the joules of an output token, and what they are called.
_SPLIT = {"idle": "idle floor", "weights": "weights", "kv": "KV cache"}
#: Fewer points make no line; watts that differ by less are alike.
_LINE, _ALIKE = 3, 0.01
#: More than these are not read; the table has all of them.
_BARS = 12
#: Bars that differ more than this hide their parts.
_WIDE = 10.0


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
            {"name": name, value.field: row[value.field], "label": compact(numeric(row, value))}
            for row, name in zip(found.rows, names, strict=True)
        ]
        rows = positive(shown, value.field)
        if rows:
            said = ", ".join(f"{row['name']} {value.told(numeric(row, value))}" for row in rows)
            charts.append(
                table.chart(
                    "jpt", template="dots", title=f"{capital(value.title)} by phase", rows=rows,
                    description=f"{capital(value.title)}: {said}.",
                    params={**of_figures("x", value, [numeric(row, value) for row in rows], log=True),
                            "name_title": "phase", "height": 38 * len(rows)},
                )
            )  # fmt: skip
    power = bars(table, "power", "by phase", named)
    return charts if power is None else [*charts, power]


def idle(table: Table) -> list[Chart]:
    """The floor, rung by rung, and over the clocks that were held where it differs between them.

    Columns: the first of text names the rungs; ``power``; ``clock`` for those that were held at one.
    """
    if not table.has("power"):
        return []
    clocks = table.column("clock") if table.has("clock") else [None] * len(table.finding.rows)
    # Bars of many clocks say less than a line.
    several = len({clock for clock in clocks if clock is not None}) > 1
    ladder = [row for row, clock in zip(table.finding.rows, clocks, strict=True) if clock is None or not several]
    rungs = Table(table.finding.model_copy(update={"rows": ladder}))
    made = [bars(rungs, "power", "of the idle boards") if rungs.has("power") else None, _over_clock(table)]
    return [chart for chart in made if chart is not None]


def _over_clock(table: Table) -> Chart | None:
    if not table.has("clock"):
        return None
    found = table.records("clock", "power")
    clock, power = found.of["clock"], found.of["power"]
    rows = sorted(found.rows, key=lambda row: numeric(row, clock))
    watts = [numeric(row, power) for row in rows]
    if len(rows) < _LINE or max(watts) < (1 + _ALIKE) * min(watts):
        return None
    ends = [f"{power.told(numeric(row, power))} at {clock.told(numeric(row, clock))}" for row in (rows[0], rows[-1])]
    return table.chart(
        "clock", template="line", title="Idle power over the clock that is held",
        description=f"With the model loaded, {' to '.join(ends)}.", rows=rows,
        params={**of_figures("x", clock, [numeric(row, clock) for row in rows], log=False), "y": power.field,
                "y_title": power.axis},
    )  # fmt: skip


def energy_split(table: Table) -> list[Chart]:
    """A bar a test, divided by what the joules of an output token are put down to.

    Columns: the first of text names the bars; ``idle_jpt``, ``weights_jpt`` and ``kv_jpt`` as there are.
    """
    named = next(iter(table.texts()), None)
    parts = {name: f"{name}_jpt" for name in _SPLIT if table.has(f"{name}_jpt")}
    if named is None or not parts:
        return []
    load = table.load()
    table = Table(_few(table, named, load))
    found = table.records(named, optional=[*parts.values(), *([load] if load else [])])
    rows: list[Row] = []
    totals: list[Row] = []
    told = []
    bars, lengths = _short(distinct(found, named, load))
    for row, bar in zip(found.rows, bars, strict=True):
        known = {name: numeric(row, found.of[c]) for name, c in parts.items() if row[found.of[c].field] is not None}
        whole = sum(known.values())
        if whole <= 0:
            continue
        rows += [
            {"bar": bar, "part": _SPLIT[name], "order": at, "j_per_token": number(known[name]),
             "share_percent": number(known[name] / whole, 100)}
            for at, name in enumerate(_SPLIT) if name in known
        ]  # fmt: skip
        totals.append(
            {"bar": bar, "j_per_token": number(whole), "room": room(whole, compact(whole)), "label": compact(whole)}
        )
        split = ", ".join(f"{_SPLIT[n]} {100 * share / whole:.0f} %" for n, share in known.items())
        told.append(f"{bar} {compact(whole)} J/token ({split})")
    if not rows:
        return []
    ends = "; ".join(dict.fromkeys((told[0], told[-1])))
    shown = [_SPLIT[name] for name in parts]
    stack = table.chart(
        "split", template="stacked", title="Energy per output token by what it is put down to",
        description=f"Attributed by bytes moved, not measured{lengths}: {ends}.", rows=rows, extra={"totals": totals},
        params={"x": "j_per_token", "y": "bar", "x_title": "J per output token", "x_ticks": [],
                "parts": shown, "shown": shown, "height": 32 * len(totals)},
    )  # fmt: skip
    sizes = [float(total["j_per_token"] or 0.0) for total in totals]
    if max(sizes) < _WIDE * min(sizes):
        return [stack]
    shares: list[Row] = [
        {"bar": total["bar"], "share_percent": 100.0, "room": room(100.0, str(total["label"])), "label": total["label"]}
        for total in totals
    ]
    parted = table.chart(
        "shares", template="stacked", title="The same in shares",
        description="What each bar is divided into; behind it J/token.", rows=rows, extra={"totals": shares},
        params={"x": "share_percent", "y": "bar", "x_title": "share (%)",
                "x_ticks": [0, 20, 40, 60, 80, 100],
                "parts": shown, "shown": shown, "height": 32 * len(totals)},
    )  # fmt: skip
    return [stack, parted]


def _short(names: list[str]) -> tuple[list[str], str]:
    """Names without the lengths that all of them end in, and these in brackets for a description."""
    ends = {name.partition(", ")[2] for name in names}
    if len(names) < 2 or len(ends) != 1 or not (end := ends.pop()):
        return names, ""
    return [name.partition(", ")[0] for name in names], f" ({end})"


def _few(table: Table, named: str, load: str | None) -> Finding:
    """Of very many rows those of the lengths that most loads have, so that bars can be compared over the load."""
    rows = table.finding.rows
    if len(rows) <= _BARS:
        return table.finding
    names = table.column(named)
    sizes = table.column(load) if load else [None] * len(rows)
    # A row's name begins with its load: the rest are the lengths.
    lengths = [str(name).partition(", ")[2] for name in names]
    reach = Counter(length for length, _ in sorted({(a, str(b)) for a, b in zip(lengths, sizes, strict=True)}))
    order = sorted(reach, key=lambda length: (-reach[length], lengths.index(length)))
    kept: set[str] = set()
    for length in order:
        if sum(lengths.count(one) for one in (*kept, length)) <= _BARS:
            kept.add(length)
    chosen = [row for row, length in zip(rows, lengths, strict=True) if length in kept] or rows[:_BARS]
    return table.finding.model_copy(update={"rows": chosen})
