"""Where do the joules of an output token go: weights, KV cache, or what the boards draw anyway?

An attribution: what the boards draw above their idle floor is divided as the bytes are that a decode step moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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
            found.append(_finding(bound, [one.point for one in members if one not in bound], labels))
    return found


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
    ttft, latency = point.value("ttft"), point.value("e2e_latency")
    if point.test.phases is not None or ttft is None or latency is None or ttft > _DECODES * latency:
        return None
    return point.value("jpt")


def _floor(point: Point) -> float | None:
    """The share of the power that the boards draw idle, with the model loaded and the clock in force."""
    shares = [
        min(1.0, energy.idle_power / energy.power)
        for energy in point.test.energy
        if energy.idle_power is not None and energy.power is not None and energy.power > 0
    ]
    return statistics.median(shares) if shares else None


def _finding(members: Sequence[_Split], computing: Sequence[Point], labels: Labels) -> Finding:
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
    if computing:
        sizes = listed(list(dict.fromkeys(f"{point.axes.size:g}" for point in computing)))
        sentences.append(
            f"Left out: batch {sizes}, where by the roofline FLOPs take more than half as long as the bytes, and "
            "joules go into computing as well."
        )
    shown = labels.serving(axes, "model")
    told = [short(axes.model), *(part for part in shown if part != short(axes.model))]
    return finding(
        "energy_split", slug(*told), f"Joules by bytes moved: {', '.join(told)}", sentences, columns, rows, points
    )


def _told(one: _Split, serving: Sequence[str]) -> str:
    idle, weights, cache = (share(part / one.whole) for part in (one.idle, one.weights, one.cache))
    load = ", ".join([shape(one.point.axes), *serving])
    joules = quantity(one.whole, "jpt").removesuffix("/token")
    return (
        f"By bytes moved, an output token's {joules} at {size(one.point.axes)} ({load}) "
        f"go to: weights {weights}, KV cache {cache}, idle floor {idle}."
    )
