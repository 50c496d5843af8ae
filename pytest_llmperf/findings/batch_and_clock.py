"""How do power, speed and tokens per joule move over batch and clock together?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.points import Point, group, varied
from pytest_llmperf.findings.telling import (
    Labels,
    change,
    column,
    finding,
    mark,
    megahertz,
    quantity,
    ratio,
    table,
)
from pytest_llmperf.results import Finding, Results

__all__ = ["batch_and_clock"]

_METRICS = ("power", "tpj", "throughput", "ttft", "tpot", "e2e_latency")
#: Fewer show no maximum.
_LEAST_CLOCKS = 3
#: Up to here the traffic of the weights is nearly all that a decode step does.
_SMALL_BATCH = 16


def batch_and_clock(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran at two or more batches and, of each of these, two or more clocks."""
    static = [point for point in points if point.axes.load == "batch" and point.axes.clock is not None]
    found = []
    for members in group(static, "size", "clock"):
        clocks = {batch: varied(_at(members, size=batch), "clock") for batch in varied(members, "size")}
        swept = [point for point in members if len(clocks[point.axes.size]) > 1]
        if len(varied(swept, "size")) > 1:
            found.append(_finding(swept, labels))
    return found


def _at(points: Sequence[Point], **place: float | None) -> list[Point]:
    return [point for point in points if all(getattr(point.axes, name) == value for name, value in place.items())]


def _finding(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    best = max((p for p in points if p.value("tpj")), key=lambda p: p.value("tpj") or 0, default=None)
    marks = []
    sentences = []
    if best is not None:
        place = f"batch {best.axes.size:g} at {megahertz(best.axes.clock)}"
        told = f"Most tokens per joule with {place}"
        subject = labels.subject(axes, "size", "clock")
        sentences.append(f"{told} ({subject}): {quantity(best.value('tpj'), 'tpj')}.")
        marks.append(mark("optimum", f"batch {best.axes.size:g}, {megahertz(best.axes.clock)}", best.axes.size,
                          best.axes.clock))  # fmt: skip
    sentences += [*_best_clocks(points), *_over_clock(points, best), *_small_batches(points), *_over_batch(points)]
    return finding(
        "batch_and_clock",
        labels.name(axes, "size", "clock"),
        labels.title("Batch and clock", axes, "size", "clock"),
        sentences or ["Neither power nor speed was measured at two of these places."],
        [column(name) for name in ("batch", "clock", *_METRICS)],
        table(points, ["batch", "clock"], _METRICS),
        points,
        marks,
    )


def _best_clocks(points: Sequence[Point]) -> list[str]:
    """What the clock of most tokens per joule does over the batch."""
    best: dict[float, float] = {}
    for batch in varied(points, "size"):
        known = [point for point in _at(points, size=batch) if point.value("tpj") and point.axes.clock is not None]
        if len(known) >= _LEAST_CLOCKS:
            point = max(known, key=lambda point: (point.value("tpj") or 0, -(point.axes.clock or 0)))
            best[batch] = point.axes.clock or 0
    if len(best) < 2:
        return []
    if len(set(best.values())) == 1:
        return [f"At every batch {megahertz(next(iter(best.values())))} is the clock of most tokens per joule."]
    places = list(best.items())
    told = [f"{megahertz(clock)} at batch {batch:g}" for batch, clock in (places[0], places[-1])]
    return [f"The clock of most tokens per joule is {' and '.join(told)}."]


def _over_clock(points: Sequence[Point], best: Point | None) -> list[str]:
    """What power and throughput do from the clock of most tokens per joule, or else the lowest, to the highest."""
    batch = best.axes.size if best is not None else points[-1].axes.size
    swept = _at(points, size=batch)
    low = best if best is not None and best is not swept[-1] else swept[0]
    high = swept[-1]
    powers, speeds = ([point.value(name) for point in (low, high)] for name in ("power", "throughput"))
    if None in powers or None in speeds or not low.axes.clock or not high.axes.clock:
        return []
    clock, power = high.axes.clock / low.axes.clock, (powers[1] or 0) / (powers[0] or 1)
    more = "more than linearly" if power > clock else "less than linearly"
    return [
        f"From {low.axes.clock:g} to {high.axes.clock:g} MHz ({change(1, clock)}) at batch {batch:g}: power "
        f"{change(1, power)}, {more}; throughput {change(speeds[0] or 1, speeds[1] or 1)}."
    ]


def _small_batches(points: Sequence[Point]) -> list[str]:
    clock = varied(points, "clock")[-1]
    small = [p for p in _at(points, clock=clock) if p.axes.size <= _SMALL_BATCH and p.value("power")]
    if len(small) < 2:
        return []
    one, other = small[0], small[-1]
    power = change(one.value("power") or 1, other.value("power") or 1)
    told = (
        f"From batch {one.axes.size:g} to {other.axes.size:g} power changes by {power} "
        f"({quantity(one.value('power'), 'power')} to {quantity(other.value('power'), 'power')}, {megahertz(clock)})"
    )
    speeds = [p.value("throughput") for p in (one, other)]
    if speeds[0] is not None and speeds[1] is not None:
        told += f" for {ratio(speeds[1] / speeds[0])} times the throughput"
    return [f"{told}."]


def _over_batch(points: Sequence[Point]) -> list[str]:
    clock = varied(points, "clock")[-1]
    row = [p for p in _at(points, clock=clock) if p.value("tpj") and p.value("e2e_latency")]
    if len(row) < 2:
        return []
    one, other = row[0], row[-1]
    yields, latency = ((other.value(name) or 0) / (one.value(name) or 1) for name in ("tpj", "e2e_latency"))
    return [
        f"Batch {other.axes.size:g} brings {ratio(yields)} times the tokens per joule of batch {one.axes.size:g} at "
        f"{ratio(latency)} times the latency ({megahertz(clock)})."
    ]
