"""Where do the tests lie under the roof: how many FLOPs a byte, how many FLOPs a second, and what limits them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.points import Point, distinct, one_clock, varied
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


#: In what the tests under one roof may differ.
_WITHIN = ("clock", "policy", "arrival", "engine", "model", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size")


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
    return [_finding(roofs[key], labels) for key in sorted(roofs)]


def _finding(placed: Sequence[_Placed], labels: Labels) -> Finding:
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
    device = short(axes.device)
    varying = [name for name in _WITHIN if len(varied(points, name)) > 1]
    parts = [part for part in labels.serving(axes, *varying) if part != device]
    title = f"Under the roof: {', '.join([device, *parts])}"
    name = slug(device, axes.dtype, short(axes.quantization or ""))
    return finding(
        "roofline", name, title, [*_phases(placed, ", ".join([device, *parts])), *told], columns, rows, points, marks
    )


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


def _phases(placed: Sequence[_Placed], subject: str) -> list[str]:
    """The ends of each phase's range: where it lies, what limits it, what it reaches of that."""
    told: list[str] = []
    for phase in ("decode", "prefill"):
        ordered = sorted((one for one in placed if one.step.phase == phase), key=lambda one: one.intensity)
        ends = ordered if len(ordered) < 2 else [ordered[0], ordered[-1]]
        parts = []
        for one in ends:
            where = f"{ratio(one.intensity)} FLOPs a byte with {size(one.point.axes)} ({shape(one.point.axes)})"
            what = {"bandwidth": "memory-bound", "FLOPs": "compute-bound", None: ""}[one.limit]
            reached = "" if one.reached is None else f", {what}, {share(one.reached)} of the roof"
            parts.append(f"{where}{reached}")
        if parts:
            on = "" if told else f" on {subject}"
            told.append(f"{phase.capitalize()}{on}: {'; '.join(parts)}.")
    return told
