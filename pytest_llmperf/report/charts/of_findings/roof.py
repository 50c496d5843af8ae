"""Below the roofs of the hardware: the points that were measured, and the sequences that memory has room for."""

from __future__ import annotations

import math

from pytest_llmperf.report.charts.chart import Chart, Row, number
from pytest_llmperf.report.charts.of_findings.table import Table, compact, numeric, positive
from pytest_llmperf.report.charts.scales import of_sizes

__all__ = ["kv_cache", "roofline"]


def roofline(table: Table) -> list[Chart]:
    """FLOP/s over arithmetic intensity, both log, below the roof of memory and the roof of compute.

    Columns: ``intensity`` (FLOP/B), ``flops`` (FLOP/s reached), ``phase``, and ``test`` if there is one. Marks:
    ``peak_flops`` (y) and ``balance`` (x, FLOP/B), which make both roofs: below the balance bandwidth is the roof.
    """
    if not table.has("intensity", "flops", "phase"):
        return []
    found = table.records("intensity", "flops", "phase", optional=["test"] if table.has("test") else [])
    intensity, reached, phase = found.of["intensity"], found.of["flops"], found.of["phase"]
    kept = positive(found.rows, intensity.field, reached.field)
    if not kept:
        return []
    peak = next((mark.y for mark in table.marks("peak_flops") if mark.y and mark.y > 0), None)
    balance = next((mark.x for mark in table.marks("balance") if mark.x and mark.x > 0), None)
    rows: list[Row] = []
    for row in kept:
        at, speed = numeric(row, intensity), numeric(row, reached)
        share = None
        if peak and balance:
            share = number(speed / (peak * 1e-12 * min(1.0, at / balance)), 100)
        test = found.of.get("test")
        rows.append({"test": row[test.field] if test else None, "phase": row[phase.field], "intensity": at,
                     "tflop_per_s": speed, "share_percent": share})  # fmt: skip
    roofs = _roofs(rows, peak, balance) if peak and balance else []
    copied = next((mark.y for mark in table.marks("copy_bandwidth") if mark.y and mark.y > 0), None)
    multiplied = next((mark.y for mark in table.marks("matmul_flops") if mark.y and mark.y > 0), None)
    own = _roofs(rows, multiplied, multiplied / copied) if multiplied and copied else []
    note = f"{compact((multiplied or 0) * 1e-12)} TFLOP/s and {compact((copied or 0) * 1e-9)} GB/s"
    best = max(rows, key=lambda row: _value(row, "tflop_per_s"))
    told = f"{len(rows)} points; most, {compact(_value(best, 'tflop_per_s'))} TFLOP/s, at "
    told += f"{compact(_value(best, 'intensity'))} FLOP/B ({best['phase']})"
    if peak and balance:
        told += (
            f"; the roofs are {compact(peak * 1e-12)} TFLOP/s and {compact(peak / balance * 1e-9)} GB/s, which meet at "
        )
        told += f"{compact(balance)} FLOP/B"
    if own:
        told += f"; dashed, what a copy and a matrix product reached: {note}"
    return [
        table.chart(
            "roofline", template="roofline", title="Roofline with the points measured",
            description=f"{told}.", rows=rows,
            extra={"roofs": roofs, "reached": [{**row, "note": note} for row in own]},
        )
    ]  # fmt: skip


def _value(row: Row, field: str) -> float:
    value = row[field]
    assert isinstance(value, float | int)
    return value


def _roofs(rows: list[Row], peak: float, balance: float) -> list[Row]:
    """Both roofs, from the points of the least intensity to those of the most, and to a decade around the balance."""
    intensities = [_value(row, "intensity") for row in rows]
    left, right = min(*intensities, balance / 10), max(*intensities, balance * 10)
    top = peak * 1e-12
    middle = math.sqrt(left * balance)

    def at(roof: str, order: int, x: float, label: str | None = None) -> Row:
        y = number(top * min(1.0, x / balance))
        return {
            "roof": roof,
            "order": order,
            "intensity": number(x),
            "tflop_per_s": y,
            "label": label,
            "align": "right",
        }

    bandwidth = f"{compact(peak / balance * 1e-9)} GB/s"
    return [
        at("memory", 0, left),
        at("memory", 1, middle, bandwidth),
        at("memory", 2, balance),
        at("compute", 3, balance),
        at("compute", 4, right, f"{compact(top)} TFLOP/s"),
    ]


def kv_cache(table: Table) -> list[Chart]:
    """How many sequences fit into memory over their context, on log axes.

    Columns: ``context`` and ``sequences``.
    """
    if not table.has("context", "sequences"):
        return []
    found = table.records("context", "sequences")
    context, sequences = found.of["context"], found.of["sequences"]
    rows = positive(found.rows, context.field, sequences.field)
    rows.sort(key=lambda row: numeric(row, context))
    if len(rows) < 2:
        return []
    ends = [
        f"{compact(numeric(r, sequences))} sequences of {numeric(r, context):,.0f} tokens" for r in (rows[0], rows[-1])
    ]
    return [
        table.chart(
            "sequences", template="line", title="Sequences that fit into memory over their context",
            description=f"Beside the weights there is room for {ends[0]}, and for {ends[1]}.", rows=rows,
            params={**of_sizes("x", context, [numeric(row, context) for row in rows]), "x_title": "context (tokens)",
                    "y": sequences.field, "y_title": "sequences that fit"},
        )
    ]  # fmt: skip
