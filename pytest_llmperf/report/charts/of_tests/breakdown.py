"""Where the time of a typical request went: until sent, queued, prefilled, decoded, handed over."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row, number, room, slug
from pytest_llmperf.report.charts.quantities import drawn_in
from pytest_llmperf.report.units import format_value
from pytest_llmperf.results import ConditionRecord, TestRecord

__all__ = ["breakdown"]

#: The conditions that add up to a latency, in their order, and what they are called.
_PARTS = {
    "send_delay": "until sent",
    "queue_time": "queue",
    "prefill_time": "prefill",
    "decode_time": "decode",
    "client_overhead": "client",
}


def breakdown(test: TestRecord) -> Chart | None:
    """One bar of the run and one of its baseline; what is not known is left out, and the description says so."""
    found = {name: test.conditions[name] for name in _PARTS if name in test.conditions}
    bars = {
        "this run": {name: one.value for name, one in found.items()},
        "baseline": {name: one.baseline for name, one in found.items()},
    }
    suffix, unit, factor = drawn_in("s", [sum(v for v in bars["this run"].values() if v is not None and v > 0)])
    field = suffix.strip("_")
    rows: list[Row] = []
    totals: list[Row] = []
    for bar, parts in bars.items():
        known = {name: value for name, value in parts.items() if value is not None and value > 0}
        whole = sum(known.values())
        if not ({"prefill_time", "decode_time"} & known.keys()) or whole <= 0:
            continue
        rows += [
            {"bar": bar, "part": _PARTS[name], "order": at, field: number(known[name], factor),
             "share_percent": number(known[name] / whole, 100)}
            for at, name in enumerate(_PARTS) if name in known
        ]  # fmt: skip
        totals.append(
            {"bar": bar, field: number(whole, factor), "room": room(factor * whole), "label": format_value(whole, "s")}
        )
    if not rows or rows[0]["bar"] != "this run":
        return None
    return Chart(
        id=slug(test.nodeid, "breakdown"),
        template="stacked",
        title="Where the time of a request went",
        description=_told(bars["this run"], found),
        rows=rows,
        extra={"totals": totals},
        params={
            "x": field,
            "x_ticks": [],
            "y": "bar",
            "x_title": f"medians of one request ({unit})",
            "parts": list(_PARTS.values()),
            "shown": [part for part in _PARTS.values() if any(row["part"] == part for row in rows)],
            "height": 32 * len(totals),
        },
    )


def _told(parts: dict[str, float | None], found: dict[str, ConditionRecord]) -> str:
    known = [
        f"{_PARTS[name]} {format_value(value, 's')}" for name, value in parts.items() if value is not None and value > 0
    ]
    said = f"Medians of one request: {', '.join(known)}."
    unknown = []
    for name, title in _PARTS.items():
        value = parts.get(name)
        if value is not None and value < 0:
            unknown.append(f"{title} ({format_value(value, 's')}: below what these clocks tell apart)")
        elif value is None:
            reason = found[name].reason if name in found else None
            unknown.append(f"{title} ({reason})" if reason else title)
    return f"{said} Left out: {', '.join(unknown)}." if unknown else said
