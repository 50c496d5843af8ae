"""Where do the tests lie under the roof: how many FLOPs a byte, how many FLOPs a second, and what limits them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.points import Axes, Point, distinct, one_clock, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    axis,
    column,
    finding,
    mark,
    ratio,
    shape,
    share,
    short,
    size,
    slug,
)
from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import short_name
from pytest_llmperf.results import Finding, Mark, Results, RoofPoint, RoofRecord

__all__ = ["roofline"]


#: In what the tests under one roof may differ; those that one sentence tells differ in their load alone.
_SERVED = ("policy", "engine", "model", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size")
_WITHIN = ("clock", "arrival", *_SERVED)


@dataclass(frozen=True)
class _Placed:
    """One phase of one test under its roof: of all GPUs in the record, of one of them here."""

    point: Point
    step: RoofPoint
    roof: RoofRecord

    @property
    def bytes(self) -> float:
        return self.step.weight_bytes + self.step.kv_bytes

    @property
    def intensity(self) -> float:
        return self.step.flops / self.bytes

    @property
    def gpus(self) -> int:
        return self.point.axes.tensor_parallel_size

    @property
    def flops(self) -> float:
        return self.step.flops / self.step.seconds / self.gpus

    @property
    def peak(self) -> float | None:
        return self.roof.peak_flops / self.gpus if self.roof.peak_flops else None

    @property
    def bandwidth(self) -> float | None:
        return self.roof.peak_bandwidth / self.gpus if self.roof.peak_bandwidth else None

    @property
    def reached(self) -> float | None:
        """The share of what the roof allows at this intensity."""
        peak, bandwidth = self.peak, self.bandwidth
        return self.flops / min(peak, self.intensity * bandwidth) if peak and bandwidth else None

    @property
    def limit(self) -> str | None:
        peak, bandwidth = self.peak, self.bandwidth
        if not peak or not bandwidth:
            return None
        return "bandwidth" if self.intensity * bandwidth < peak else "FLOPs"


def roofline(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each product and format whose tests have a place under the roof of one GPU."""
    placed = [
        _Placed(point, step, roof)
        for point in one_clock(distinct(points))
        if (roof := point.test.roof) is not None
        for step in roof.points
        # A prompt of one token is a step of decoding.
        if not (step.phase == "prefill" and point.axes.input_len == 1)
        and step.flops > 0
        and step.seconds > 0
        and step.weight_bytes + step.kv_bytes > 0
    ]
    roofs: dict[tuple[str, str, str], list[_Placed]] = {}
    for one in placed:
        axes = one.point.axes
        key = (axes.device, axes.dtype, axes.quantization or "")
        roofs.setdefault(key, []).append(one)
    dtypes = {device: {dtype for one, dtype, _ in roofs if one == device} for device, _, _ in roofs}
    return [_finding(roofs[key], labels, is_one_of_several=len(dtypes[key[0]]) > 1) for key in sorted(roofs)]


def _finding(placed: Sequence[_Placed], labels: Labels, *, is_one_of_several: bool) -> Finding:
    """The finding of a roof.

    Args:
        placed: What lies under it.
        labels: Of the run.
        is_one_of_several: Whether the device has a roof for another dtype as well.
    """
    points = [one.point for one in placed]
    axes = points[0].axes
    rows: Rows = [
        [short_name(one.point.test.nodeid), one.step.phase, axis(one.point, "batch"), one.point.axes.clock,
         one.intensity, one.flops, one.bytes / one.step.seconds / one.gpus, one.limit, one.reached]
        for one in placed
    ]  # fmt: skip
    columns = [
        column("test"), column("phase", "Phase"), column("batch"), column("clock"),
        column("intensity", "Arithmetic intensity", "FLOP/B"), column("flops", "FLOPs a second", "FLOP/s"),
        column("bandwidth", "Bytes a second", "B/s"), column("limit", "Limited by"),
        column("share", "Share of the roof", "1"),
    ]  # fmt: skip
    marks, told = _roofs(placed)
    varying = [name for name in _WITHIN if len(varied(points, name)) > 1]
    of_roof = [short(axes.device), *([short(axes.dtype)] if is_one_of_several else [])]
    title = f"Under the roof: {', '.join(_parts(axes, of_roof, labels, varying))}"
    name = slug(short(axes.device), axes.dtype, short(axes.quantization or ""))
    return finding("roofline", name, title, [*_phases(placed, of_roof, labels), *told], columns, rows, points, marks)


def _parts(axes: Axes, of_roof: Sequence[str], labels: Labels, varying: Sequence[str]) -> list[str]:
    return [*of_roof, *(part for part in labels.serving(axes, *varying) if part not in of_roof)]


def _roofs(placed: Sequence[_Placed]) -> tuple[list[Mark], list[str]]:
    """The roofs, and in words; of sweeps over the clock the highest."""
    peak = max((one.peak for one in placed if one.peak), default=None)
    bandwidth = max((one.bandwidth for one in placed if one.bandwidth), default=None)
    marks = []
    if peak is not None:
        marks.append(mark("peak_flops", _flops(peak), None, peak))
    if bandwidth is not None:
        marks.append(mark("peak_bandwidth", f"{format_value(bandwidth, 'B')}/s", None, bandwidth))
    if peak is None or bandwidth is None:
        reason = next((one.roof.reason for one in placed if one.roof.reason), "not known")
        return marks, [f"The roof is not whole: {reason}."]
    balance = peak / bandwidth
    copied = max((one.roof.copy_bandwidth / one.gpus for one in placed if one.roof.copy_bandwidth), default=None)
    multiplied = max((one.roof.matmul_flops / one.gpus for one in placed if one.roof.matmul_flops), default=None)
    if copied is not None and multiplied is not None:
        marks.append(mark("copy_bandwidth", f"copy: {format_value(copied, 'B')}/s", None, copied))
        marks.append(mark("matmul_flops", f"matrix product: {_flops(multiplied)}", None, multiplied))
    marks.append(mark("balance", f"balance: {balance:.0f} FLOP/B", balance, peak))
    source = next((one.roof.source for one in placed if one.roof.source), None)
    told = (
        f"The roof of one GPU: {_flops(peak)} and {format_value(bandwidth, 'B')}/s, which meet at {balance:.0f} FLOPs "
        f"a byte{f' ({source})' if source else ''}"
    )
    if copied is not None:
        told += f"; with the {format_value(copied, 'B')}/s that a copy reached it is {peak / copied:.0f}"
    reached = [] if multiplied is None else [f"A matrix product reached {_flops(multiplied)} of it."]
    return marks, [f"{told}.", *reached]


def _flops(rate: float) -> str:
    return format_value(rate / 1e12, "TFLOP/s")


def _phases(placed: Sequence[_Placed], of_roof: Sequence[str], labels: Labels) -> list[str]:
    """The ends of each phase's range: where it lies, what limits it, what it reaches of that."""
    told: list[str] = []
    subject = ""
    served = _plainest(placed)
    for phase in ("decode", "prefill"):
        within = [one for one in placed if one.step.phase == phase]
        if not within:
            continue
        alike = [one for one in within if _served(one.point.axes) == served]
        if not alike:
            other = _plainest(within)
            alike = [one for one in within if _served(one.point.axes) == other]
        ordered = sorted(alike, key=lambda one: one.intensity)
        ends = {_load(one): one for one in (ordered[-1], ordered[0])}
        parts = []
        for where, one in reversed(ends.items()):
            what = {"bandwidth": "memory-bound", "FLOPs": "compute-bound", None: ""}[one.limit]
            reached = "" if one.reached is None else f", {what}, {share(one.reached)} of the roof"
            parts.append(f"{ratio(one.intensity)} FLOPs a byte with {where}{reached}")
        on = ", ".join([*_parts(ordered[0].point.axes, of_roof, labels, ("arrival",)), *_plain(ordered[0], placed)])
        told.append(f"{phase.capitalize()}{f' on {on}' if on != subject else ''}: {'; '.join(parts)}.")
        subject = on
    return told


def _served(axes: Axes) -> tuple[object, ...]:
    return tuple(getattr(axes, name) for name in _SERVED)


def _plainest(placed: Sequence[_Placed]) -> tuple[object, ...]:
    """How those are served that stand for all: on the fewest GPUs, the model of most points, as plainly as it was."""
    models = Counter((one.gpus, one.point.axes.model) for one in placed)
    counts = Counter(_served(one.point.axes) for one in placed)

    def rank(axes: Axes) -> tuple[object, ...]:
        gpus, model = axes.tensor_parallel_size, axes.model
        plainness = (axes.policy != "continuous", axes.kv_cache_dtype != "auto", axes.enforce_eager)
        return gpus, -models[gpus, model], model, plainness, -counts[_served(axes)], _served(axes)

    return _served(min((one.point.axes for one in placed), key=rank))


def _load(one: _Placed) -> str:
    return f"{size(one.point.axes)} ({shape(one.point.axes)})"


def _plain(one: _Placed, placed: Sequence[_Placed]) -> list[str]:
    """What goes unsaid of how it was served, where others under the roof were served otherwise."""
    axes, points = one.point.axes, [other.point for other in placed]
    plain = {
        "tensor_parallel_size": "1 GPU" if axes.tensor_parallel_size == 1 else "",
        "kv_cache_dtype": f"{short(axes.dtype)} KV cache" if axes.kv_cache_dtype == "auto" else "",
        "enforce_eager": "" if axes.enforce_eager else "compiled",
        "policy": "continuous batching" if axes.policy == "continuous" else "",
    }
    return [text for name, text in plain.items() if text and len(varied(points, name)) > 1]
