"""What do more GPUs bring, and what does a larger model cost?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.points import Point, group, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    change,
    column,
    finding,
    ratio,
    share,
    short,
    size,
)
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Finding, Results

__all__ = ["model_size", "scaling"]

_OF_SCALING = ("ttft", "tpot", "e2e_latency", "mbu", "tpj", "power", "throughput")
_OF_SIZE = ("e2e_latency", "tpot", "ttft", "tpj", "power", "mbu")
#: What follows from the model, and does not make two models' loads unequal.
_OF_THE_MODEL = ("model", "dtype")


def scaling(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran on two or more numbers of GPUs; its batches together."""
    found = []
    for members in group(points, "tensor_parallel_size", "size"):
        compared = _with_several(members, "tensor_parallel_size")
        if compared:
            found.append(_scaling(compared, labels))
    return found


def _with_several(points: Sequence[Point], axis: str) -> list[Point]:
    """Those of the sizes of load that were measured at two or more values of an axis."""
    sizes = [s for s in varied(points, "size") if len(varied(_of(points, s), axis)) > 1]
    return [point for point in points if point.axes.size in sizes]


def _of(points: Sequence[Point], load: float) -> list[Point]:
    return [point for point in points if point.axes.size == load]


def _speed(point: Point) -> tuple[str, float] | None:
    """What tells how fast it is: TPOT where it decodes, else the latency."""
    name = "tpot" if point.value("tpot") is not None else "e2e_latency"
    value = point.value(name)
    return None if value is None else (name, value)


def _scaling(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    rows: Rows = []
    sentences: list[str] = []
    for load in varied(points, "size"):
        members = sorted(_of(points, load), key=lambda point: point.axes.tensor_parallel_size)
        least = members[0]
        for point in members:
            gained = _gained(least, point)
            speedup, efficiency = gained[:2] if gained is not None else (None, None)
            rows.append([point.axes.tensor_parallel_size, load, *(point.value(name) for name in _OF_SCALING),
                         speedup, efficiency])  # fmt: skip
    last = varied(points, "tensor_parallel_size")[-1]
    for count in varied(points, "tensor_parallel_size")[1:]:
        parts = []
        for load in varied(points, "size"):
            members = sorted(_of(points, load), key=lambda point: point.axes.tensor_parallel_size)
            shared = [p for p in members[1:] if p.axes.tensor_parallel_size == count]
            parts += [text for p in shared if (text := _told(members[0], p))]
        # Of many batches the ends say enough; the table has them all.
        shown = parts if len(parts) < 3 else [parts[0], parts[-1]]
        if shown:
            sentences.append(f"{count} GPUs: {'; '.join(shown)}.")
    if not sentences:
        sentences = [f"How fast it is on up to {last} GPUs was not measured."]
    columns = [
        column("tensor_parallel_size"), column(axes.load), *(column(name) for name in _OF_SCALING),
        column("speedup", "Speedup"), column("efficiency", "Efficiency", "1"),
    ]  # fmt: skip
    name = labels.name(axes, "tensor_parallel_size", "size")
    title = labels.title("More GPUs", axes, "tensor_parallel_size", "size")
    return finding("scaling", name, title, sentences, columns, rows, points)


def _gained(least: Point, point: Point) -> tuple[float, float, str] | None:
    """Speedup over the fewest GPUs, that over the ratio of GPUs, and of what."""
    before, now = _speed(least), _speed(point)
    if before is None or now is None or before[0] != now[0]:
        return None
    speedup = before[1] / now[1]
    return speedup, speedup * least.axes.tensor_parallel_size / point.axes.tensor_parallel_size, before[0]


def _told(least: Point, point: Point) -> str:
    gained = _gained(least, point)
    if gained is None:
        return ""
    speedup, efficiency, name = gained
    named = "TPOT" if name == "tpot" else "latency"
    told = f"{named} {change(speedup, 1)} at {size(point.axes)} (efficiency {share(efficiency)}"
    before, now = least.value("tpj"), point.value("tpj")
    energy = f", energy per token {change(now, before)}" if before is not None and now is not None else ""
    fewest = least.axes.tensor_parallel_size
    return f"{told}{'' if fewest == 1 else f' over {fewest} GPUs'}){energy}"


def model_size(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran on two or more models whose parameters are known."""
    known = [point for point in points if point.test.roof is not None and point.test.roof.total_params]
    compared = [
        several for members in group(known, *_OF_THE_MODEL, "size") if (several := _with_several(members, "model"))
    ]
    # On more GPUs the same models say little more: those on which most of them were run, and of these the fewest.
    compared.sort(key=lambda members: (-len(varied(members, "model")), members[0].axes.tensor_parallel_size))
    chosen: dict[tuple[object, ...], list[Point]] = {}
    for members in compared:
        place = members[0].axes.without(*_OF_THE_MODEL, "size", "tensor_parallel_size", "other")
        chosen.setdefault(place, members)
    return [_model_size(members, labels) for members in chosen.values()]


def _params(point: Point) -> int:
    roof = point.test.roof
    return (roof.total_params or 0) if roof is not None else 0


def _model_size(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    rows: Rows = []
    sentences: list[str] = []
    for load in varied(points, "size"):
        members = sorted(_of(points, load), key=lambda point: (_params(point), point.axes.model))
        least = members[0]
        for point in members:
            rows.append([
                printable(point.axes.model), float(_params(point)), load, *(point.value(name) for name in _OF_SIZE),
                _params(point) / _params(least), _slower(least, point),
            ])  # fmt: skip
        sentences += _growth(members)
    columns = [
        column("model"), column("total_params", "Parameters"), column(axes.load), *(column(name) for name in _OF_SIZE),
        column("size_ratio", "Size against the smallest"), column("latency_ratio", "Latency against the smallest"),
    ]  # fmt: skip
    varying = (*_OF_THE_MODEL, "size")
    return finding(
        "model_size", labels.name(axes, *varying), labels.title("Larger models", axes, *varying),
        sentences or ["The latency of these models was not measured."], columns, rows, points,
    )  # fmt: skip


def _slower(least: Point, point: Point) -> float | None:
    before, now = least.value("e2e_latency"), point.value("e2e_latency")
    return None if before is None or now is None else now / before


def _growth(members: Sequence[Point]) -> list[str]:
    """The largest model against the smallest: whether latency grows less than the parameters."""
    least, most = members[0], members[-1]
    slower, larger = _slower(least, most), _params(most) / _params(least)
    if slower is None or larger <= 1:
        return []
    word = "sub-linear" if slower < larger else "super-linear" if slower > larger else "linear"
    return [
        f"{short(most.axes.model)} has {ratio(larger)} times the parameters of {short(least.axes.model)} and "
        f"{ratio(slower)} times its latency at {size(most.axes)}: {word} in size."
    ]
