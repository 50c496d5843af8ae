"""Where do the joules of an output token go: weights, KV cache, or what the boards draw anyway?

An attribution: what the boards draw above their idle floor is divided as the bytes are that a decode step moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.points import Point, distinct, one_clock
from pytest_llmperf.findings.scaling import is_starved
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    column,
    finding,
    listed,
    quantity,
    shape,
    share,
    short,
    size,
    slug,
)
from pytest_llmperf.report.wording import plural
from pytest_llmperf.results import Finding, Results, RoofPoint

__all__ = ["energy_split"]

#: Requests whose first token takes a greater share of the time spend joules on the prompt as well.
_DECODES = 0.05
#: Where the FLOPs of a step take more than this part of the time of its bytes, bytes do not tell where joules go.
_COMPUTES = 0.5

#: In what the loads of a finding may differ.
_WITHIN = ("size", "input_len", "output_len", "clock", "work", "other")


@dataclass(frozen=True)
class _Split:
    """Joules of an output token."""

    point: Point
    weights_share: float
    idle: float
    weights: float
    cache: float

    @property
    def whole(self) -> float:
        return self.idle + self.weights + self.cache


def energy_split(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each model as it was served, of two or more static batches that decode and are memory-bound."""
    split: dict[tuple[object, ...], list[_Split]] = {}
    for point in one_clock([point for point in distinct(points) if _split(point) is not None]):
        one = _split(point)
        if one is not None:
            axes = point.axes
            split.setdefault(axes.without(*_WITHIN), []).append(one)
    several = [members for members in split.values() if len({one.point.axes.size for one in members}) > 1]
    # More GPUs divide the same bytes.
    several.sort(key=lambda members: members[0].point.axes.tensor_parallel_size)
    chosen: dict[tuple[object, ...], list[_Split]] = {}
    for members in several:
        place = members[0].point.axes.without(*_WITHIN, "tensor_parallel_size")
        chosen.setdefault(place, members)
    found = []
    for members in chosen.values():
        bound = [one for one in members if not _computes(one.point)]
        if len({one.point.axes.size for one in bound}) > 1:
            left = [one.point for one in members if one not in bound] + _left(points, members[0].point)
            found.append(_finding(bound, left, labels))
    return found


def _left(points: Sequence[Point], one: Point) -> list[Point]:
    """Of the loads that were served like one that is divided those that are not: for their prompts, or their cache."""
    alike = [
        point for point in distinct(points)
        if point.axes.without(*_WITHIN) == one.axes.without(*_WITHIN) and point.axes.clock == one.axes.clock
        and point.axes.load == "batch" and point.axes.output_len != 1 and point.test.phases is None
    ]  # fmt: skip
    return [point for point in alike if _split(point) is None and (is_starved(point) or _prefills(point))]


def _split(point: Point) -> _Split | None:
    roof = point.test.roof
    step = None if roof is None else next((step for step in roof.points if step.phase == "decode"), None)
    joules = _joules(point)
    floor = _floor(point)
    if step is None or joules is None or floor is None or point.axes.load != "batch" or _moved(step) <= 0:
        return None
    if is_starved(point):
        return None
    weights = step.weight_bytes / _moved(step)
    above = joules * (1 - floor)
    return _Split(point, weights, joules * floor, above * weights, above * (1 - weights))


def _moved(step: RoofPoint) -> float:
    return step.weight_bytes + step.kv_bytes


def _computes(point: Point) -> bool:
    """Whether the FLOPs of a decode step take a large part of the time of its bytes, both at the roof's rates."""
    roof = point.test.roof
    step = None if roof is None else next((step for step in roof.points if step.phase == "decode"), None)
    if roof is None or step is None:
        return False
    bandwidth = roof.copy_bandwidth or roof.peak_bandwidth
    if not roof.peak_flops or not bandwidth:
        return False
    return step.flops / roof.peak_flops > _COMPUTES * _moved(step) / bandwidth


def _joules(point: Point) -> float | None:
    """Of an output token, of requests that spend next to nothing on their prompt."""
    if point.test.phases is not None or _prefills(point) is not False:
        return None
    return point.value("jpt")


def _prefills(point: Point) -> bool | None:
    """Whether a part of the time that counts passes until the first token; ``None`` where that was not measured."""
    ttft, latency = point.value("ttft"), point.value("e2e_latency")
    return None if ttft is None or latency is None else ttft > _DECODES * latency


def _floor(point: Point) -> float | None:
    """The share of the power that the boards draw idle, with the model loaded and the clock in force."""
    shares = [
        min(1.0, energy.idle_power / energy.power)
        for energy in point.test.energy
        if energy.idle_power is not None and energy.power is not None and energy.power > 0
    ]
    return statistics.median(shares) if shares else None


def _finding(members: Sequence[_Split], left: Sequence[Point], labels: Labels) -> Finding:
    points = [one.point for one in members]
    axes = points[0].axes
    rows: Rows = [
        [f"{size(one.point.axes)}, {shape(one.point.axes)}", one.point.axes.size, one.weights_share,
         1 - one.weights_share, one.idle, one.weights, one.cache, one.whole]
        for one in members
    ]  # fmt: skip
    columns = [
        column("load", "Load"), column("batch"), column("weights_share", "Bytes: weights", "1"),
        column("kv_share", "Bytes: KV cache", "1"), column("idle_jpt", "Idle floor", "J/token"),
        column("weights_jpt", "Weights", "J/token"), column("kv_jpt", "KV cache", "J/token"), column("jpt"),
    ]  # fmt: skip
    alike = [one for one in members if shape(one.point.axes) == shape(axes)]
    ends = [members[0], alike[-1] if len(alike) > 1 else members[-1]]
    sentences = [_told(one, labels.serving(axes)) for one in ends]
    sentences.append(
        "This is an attribution by bytes, not a measurement: what the boards draw above their idle floor is divided as "
        "the bytes are that a decode step reads."
    )
    sentences += _left_out(left, {shape(point.axes) for point in points})
    shown = labels.serving(axes, "model")
    told = [short(axes.model), *(part for part in shown if part != short(axes.model))]
    return finding(
        "energy_split", slug(*told), f"Joules by bytes moved: {', '.join(told)}", sentences, columns, rows, points
    )


def _left_out(left: Sequence[Point], told: Container[str]) -> list[str]:
    """A sentence for each reason why loads are not divided.

    Args:
        left: These.
        told: Shapes of which others are divided: what is left out of these is named, of others only counted.
    """
    reasons: dict[str, list[Point]] = {}
    for point in sorted(left, key=lambda point: point.order):
        reasons.setdefault(_reason(point), []).append(point)
    return [f"Left out: {_loads(points, told)}, {reason}." for reason, points in sorted(reasons.items())]


def _reason(point: Point) -> str:
    if _computes(point):
        return (
            "where by the roofline FLOPs take more than half as long as the bytes, and joules go into computing as well"
        )
    if is_starved(point):
        return "for which the KV cache is too small"
    return f"where more than {share(_DECODES)} of the latency passes until the first token, and joules go into prompts"


def _loads(points: Sequence[Point], told: Container[str]) -> str:
    """The sizes of each shape: a batch is told apart from that of another load."""
    sizes: dict[str, list[str]] = {}
    for point in points:
        sizes.setdefault(shape(point.axes), []).append(f"{point.axes.size:g}")
    named = [f"batch {listed(list(dict.fromkeys(batches)))} ({one})" for one, batches in sizes.items() if one in told]
    others = sum(shape(point.axes) not in told for point in points)
    return listed([*named, *([plural(others, "load" if not named else "more load")] if others else [])])


def _told(one: _Split, serving: Sequence[str]) -> str:
    idle, weights, cache = (share(part / one.whole) for part in (one.idle, one.weights, one.cache))
    load = ", ".join([shape(one.point.axes), *serving])
    joules = quantity(one.whole, "jpt").removesuffix("/token")
    return (
        f"By bytes moved, an output token's {joules} at {size(one.point.axes)} ({load}) "
        f"go to: weights {weights}, KV cache {cache}, idle floor {idle}."
    )
