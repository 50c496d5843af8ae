"""What the boards did in the last launch: power and clock, with what the engine was about."""

from __future__ import annotations

from pytest_llmperf.report.charts.chart import Chart, Row, number, slug
from pytest_llmperf.report.units import format_value, printable
from pytest_llmperf.report.wording import plural
from pytest_llmperf.results import TestRecord, Timeline

__all__ = ["trace"]

_PHASES = {"prefill": "prefill", "decode": "decode", "load": "prefill and decode together"}


def trace(test: TestRecord) -> Chart | None:
    """Power over time, below it the clock, and the SMs' activity where a board told it."""
    line = test.timeline
    if line is None or not line.seconds or all(power is None for power in line.power):
        return None
    has_clock = any(clock is not None for clock in line.sm_clock)
    activity = line.sm_activity if line.sm_activity and any(a is not None for a in line.sm_activity) else None
    template = "trace_power" if not has_clock else "trace_activity" if activity else "trace"
    rows: list[Row] = []
    for at, seconds in enumerate(line.seconds):
        row: Row = {"seconds": number(seconds), "power_w": number(line.power[at])}
        if has_clock:
            row["clock_mhz"] = number(line.sm_clock[at], 1e-6)
        if has_clock and activity:
            row["activity_percent"] = number(activity[at], 100)
        rows.append(row)
    phases: list[Row] = [
        {"phase": _PHASES[span.phase], "start": number(span.start), "end": number(span.end)} for span in line.phases
    ]
    named = ["prefill", "decode", *([_PHASES["load"]] if any(span.phase == "load" for span in line.phases) else [])]
    return Chart(
        id=slug(test.nodeid, "trace"),
        template=template,
        title=f"Power and clock in launch {line.launch + 1}" if has_clock else f"Power in launch {line.launch + 1}",
        description=_told(line),
        rows=rows,
        extra={"phases": phases, "capped": _capped(line)},
        params={"phases": named, "shown": [name for name in named if any(row["phase"] == name for row in phases)]},
    )


def _capped(line: Timeline) -> list[Row]:
    """A label at the first stretch of each reason, on the side where the chart has room."""
    middle = (line.seconds[0] + line.seconds[-1]) / 2
    seen: set[str] = set()
    rows: list[Row] = []
    for held in line.capped or ():
        first = held.reason not in seen
        left = held.start <= middle
        seen.add(held.reason)
        rows.append(
            {
                "reason": held.reason,
                "start": number(held.start),
                "end": number(held.end),
                "label": printable(held.reason) if first else None,
                "at": number(held.end if left else held.start),
                "align": "left" if left else "right",
            }
        )
    return rows


def _told(line: Timeline) -> str:
    powers = [power for power in line.power if power is not None]
    said = f"Over {format_value(line.seconds[-1] - line.seconds[0], 's')} all boards together drew "
    said += f"{format_value(min(powers), 'W')} to {format_value(max(powers), 'W')}"
    clocks = [clock for clock in line.sm_clock if clock is not None]
    if clocks:
        low, high = min(clocks) / 1e6, max(clocks) / 1e6
        said += f"; SM clock {low:.0f} MHz" if round(low) == round(high) else f"; SM clock {low:.0f} to {high:.0f} MHz"
    said += _held_down(line)
    spans = {name: sum(s.end - s.start for s in line.phases if s.phase == name) for name in _PHASES}
    counts = {name: sum(span.phase == name for span in line.phases) for name in _PHASES}
    told = [
        f"{_PHASES[name]} {format_value(seconds, 's')}{f' in {counts[name]} stretches' if counts[name] > 1 else ''}"
        for name, seconds in spans.items()
        if seconds > 0
    ]
    return f"{said}. {'Phases: ' + ', '.join(told) if told else 'Phases are not known'}."


def _held_down(line: Timeline) -> str:
    """What took from the clock; that nothing did only where it was read."""
    if line.capped is None:
        return "; what holds the clock down was not read"
    if not line.capped:
        return "; nothing held the clock down"
    reasons = ", ".join(dict.fromkeys(held.reason for held in line.capped))
    more = f" ({plural(line.capped_left_out, 'shorter stretch', 'shorter stretches')} not marked)"
    return f"; held down by {reasons}{more if line.capped_left_out else ''}"
