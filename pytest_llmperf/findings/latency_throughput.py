"""How much throughput does latency buy, where does it stop paying, and when does decode turn compute-bound?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.fits import corner, knee
from pytest_llmperf.findings.points import Point, at_one_clock, group, plainest
from pytest_llmperf.findings.telling import (
    Labels,
    change,
    column,
    finding,
    mark,
    quantity,
    shape,
    share,
    size,
    table,
)
from pytest_llmperf.report.units import format_value
from pytest_llmperf.results import Finding, Mark, Results

__all__ = ["latency_throughput", "predicted_corner"]

_LEAST = 3
_METRICS = ("throughput", "e2e_latency", "tpot", "ttft", "power", "tpj")
#: FLOPs that a weight takes for a token: a product and a sum.
_FLOPS_A_WEIGHT = 2
#: Where prompts take a greater share of the latency, TPOT holds prefills of other sequences as well.
_DECODES = 0.10
_METHOD = (
    "The knee is the point furthest above the chord of throughput over latency, both scaled to their range (Kneedle, "
    "Satopää et al. 2011)."
)


def latency_throughput(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that was offered in three or more sizes."""
    loaded = [p for p in points if p.axes.load != "trace" and p.value("throughput") and p.value("e2e_latency")]
    enough = [members for members in group(loaded, "size") if len(members) >= _LEAST]
    return [_finding(members, labels) for members in plainest(at_one_clock(enough), "size")]


def _finding(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    sentences, marks = _knee(points)
    if axes.load == "batch":
        told, places = _compute_bound(points)
        sentences, marks = sentences + told, marks + places
    if not sentences:
        sentences = [_ends(points)]
    what = {"batch": "static batches", "concurrency": "a closed loop", "rate": "an open loop"}[axes.load]
    return finding(
        "latency_throughput",
        f"{axes.load}-{labels.name(axes, 'size')}",
        labels.title(f"Latency and throughput of {what}", axes, "size"),
        sentences,
        [column(name) for name in (axes.load, *_METRICS)],
        table(points, [axes.load], _METRICS),
        points,
        marks,
    )


def _ends(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    throughput, latency = (change(first.value(n) or 1, last.value(n) or 1) for n in ("throughput", "e2e_latency"))
    return f"From {size(first.axes)} to {size(last.axes)} throughput changes by {throughput} and latency by {latency}."


def _knee(points: Sequence[Point]) -> tuple[list[str], list[Mark]]:
    latencies = [point.value("e2e_latency") or 0.0 for point in points]
    throughputs = [point.value("throughput") or 0.0 for point in points]
    at = knee(latencies, throughputs)
    if at is None:
        return [], []
    point = points[at]
    told = (
        f"The knee is at {size(point.axes)} ({shape(point.axes)}): {quantity(throughputs[at], 'throughput')} at "
        f"{quantity(latencies[at], 'e2e_latency')}"
    )
    if at + 1 < len(points):
        told += (
            f"; {size(points[at + 1].axes)} brings {change(throughputs[at], throughputs[at + 1])} throughput for "
            f"{change(latencies[at], latencies[at + 1])} latency"
        )
    return [f"{told}.", _METHOD], [mark("knee", f"knee: {size(point.axes)}", point.axes.size, throughputs[at])]


def _compute_bound(points: Sequence[Point]) -> tuple[list[str], list[Mark]]:
    """The batch from which FLOPs take longer than the bytes of the weights: as measured and as predicted."""
    sentences: list[str] = []
    places: list[Mark] = []
    prediction = predicted_corner(points)
    expected = ""
    if prediction is not None:
        batch, why = prediction
        expected = f"; predicted is batch {batch:.0f} ({why})"
        places = [mark("predicted", f"predicted: batch {batch:.0f}", batch)]
    running = [point for point in points if point.value("tpot") and _runs_at_once(point)]
    prompts = max((_prompt_share(point) for point in running), default=0.0)
    if prompts > _DECODES:
        told = (
            f"When decode turns compute-bound is not told by this load: prompts take up to {share(prompts)} of its "
            f"latency, among the steps of other sequences. Prompts of one token tell it{expected}."
        )
        return [told], places
    found = corner([p.axes.size for p in running], [p.value("tpot") or 0.0 for p in running])
    largest = running[-1].axes.size if running else 0
    if found is not None:
        low, high = max(found.low, running[0].axes.size), min(found.high, largest)
        span = f" ({low:.0f} to {high:.0f} by other turns that fit as well)" if high - low >= 1 else ""
        sentences.append(f"Decode turns compute-bound at batch {found.at:.0f}{span}{expected}.")
        sentences.append(
            "Measured is where what a step takes at any batch equals what its sequences add, of a fit TPOT^p = flat^p "
            f"+ (slope x batch)^p (error {found.error * 100:.1f} %). Sequences also add KV cache and attention, "
            "which a prediction by weights alone leaves out."
        )
        places.append(mark("measured", f"measured: batch {found.at:.0f}", found.at, None, low, high))
    elif len(running) >= _LEAST:
        sentences.append(f"Decode does not turn compute-bound up to batch {largest:g}{expected}.")
    elif running and prediction is not None:
        sentences.append(f"Too few batches decode to see where that turns compute-bound{expected}.")
    if len(running) < len(points):
        left = [f"{point.axes.size:g}" for point in points if point not in running]
        if any(not _runs_at_once(point) for point in points):
            sentences.append(f"Batch {', '.join(left)} is more than the engine runs at once, and waits in part.")
    return sentences, places if running else []


def _prompt_share(point: Point) -> float:
    """The part of the latency until the first token; 0 where that is not known."""
    ttft, latency = point.value("ttft"), point.value("e2e_latency")
    return 0.0 if ttft is None or latency is None else ttft / latency


def _runs_at_once(point: Point) -> bool:
    """Whether the engine lets all sequences of the batch decode together, as far as it tells."""
    engine = point.test.engine
    most = None if engine is None else engine.args.get("max_num_seqs")
    return not isinstance(most, int) or point.axes.size <= most


def predicted_corner(points: Sequence[Point]) -> tuple[float, str] | None:
    """The batch at which the FLOPs of a decode step and the bytes of its weights take equally long.

    Machine balance x bytes a weight / 2: with 2 bytes it is the machine balance itself. The bandwidth is that of a copy
    where it was measured.

    Returns:
        It, and in words what it is made of; ``None`` where peaks or sizes are not known.
    """
    for point in points:
        roof = point.test.roof
        if roof is None or not roof.peak_flops or not roof.weight_bytes or not roof.total_params:
            continue
        copied = roof.copy_bandwidth
        bandwidth = copied or roof.peak_bandwidth
        if not bandwidth:
            continue
        batch = roof.peak_flops / bandwidth * roof.weight_bytes / roof.total_params / _FLOPS_A_WEIGHT
        measured = " as a copy reached it" if copied else ""
        told = f"{format_value(roof.peak_flops / 1e12, 'TFLOP/s')} over {format_value(bandwidth, 'B')}/s{measured}"
        return batch, told
    return None
