"""How much throughput does latency buy, where does it stop paying, and when does decode turn compute-bound?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.fits import Corner, corner, knee
from pytest_llmperf.findings.limits import limit
from pytest_llmperf.findings.points import Point, at_one_clock, group, plainest
from pytest_llmperf.findings.telling import (
    Labels,
    change,
    column,
    finding,
    mark,
    quantity,
    share,
    size,
    table,
)
from pytest_llmperf.report.units import format_value
from pytest_llmperf.results import Finding, Mark, Results

__all__ = ["keeps_up", "latency_throughput", "parts_of_a_step", "predicted_corner"]

#: Fewer points, or such as lie nearer to each other, make no curve.
_LEAST, _DECADE = 5, 10
#: So few batches tell of no corner.
_LEAST_OF_A_CORNER = 4
#: Throughput over latency that falls by more in all says that more load never paid.
_PAYS = 1.01
#: A fit that misses by more claims nothing.
_FITS = 0.10
#: A decode step reads all weights; where it reads less than this share, some are of experts that it does not touch.
_ALL_WEIGHTS = 0.7
_METRICS = ("throughput", "e2e_latency", "tpot", "ttft", "power", "tpj")
_OF_RATES = ("request_throughput", *_METRICS)
#: FLOPs that a weight takes for a token: a product and a sum.
_FLOPS_A_WEIGHT = 2
#: Weights whose bytes are within this of two of them have nothing that needs to be said.
_OF_TWO_BYTES = 0.02
#: Where prompts take a greater share of the latency, TPOT holds prefills of other sequences as well.
_DECODES = 0.10
_METHOD = (
    "The knee is the point of the greatest throughput over latency (Kleinrock 1979): the next one brings clearly less "
    "throughput than latency, both in proportion."
)
#: A clock below this part of the highest of the series was held down.
_FULL = 0.98
#: The share of requests within every limit at which a rate counts as one that keeps them, as in a search for it.
_ATTAINED = 0.9
#: An open loop that serves less than this share of what is offered does not keep up; a short run's own rate varies.
_KEPT_UP = 0.8


def latency_throughput(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that was offered in five or more sizes over a decade.

    What prefills only has none: its throughput counts first tokens. Of loads that differ in their output's length
    alone, the one of most sizes stands for all.
    """
    loaded = [
        p for p in points
        if p.axes.load != "trace" and p.axes.output_len != 1 and p.value("throughput") and p.value("e2e_latency")
    ]  # fmt: skip
    enough = [
        members for members in group(loaded, "size")
        if len(members) >= _LEAST and members[-1].axes.size >= _DECADE * members[0].axes.size
    ]  # fmt: skip
    longest: dict[tuple[object, ...], list[Point]] = {}
    for members in sorted(plainest(at_one_clock(enough), "size"), key=lambda members: -len(members)):
        longest.setdefault(members[0].axes.without("size", "output_len", "other"), members)
    return [_finding(members, labels) for members in sorted(longest.values(), key=lambda members: members[0].order)]


def _finding(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    sentences, marks = _told_of(points, labels.subject(axes, "size"))
    if axes.load == "batch":
        told, places = _compute_bound(points)
        sentences, marks = sentences + told, marks + places
    metrics = _OF_RATES if axes.load == "rate" else _METRICS
    what = {"batch": "static batches", "concurrency": "a closed loop", "rate": "an open loop"}[axes.load]
    return finding(
        "latency_throughput",
        f"{axes.load}-{labels.name(axes, 'size')}",
        labels.title(f"Latency and throughput of {what}", axes, "size"),
        sentences,
        [column(name) for name in (axes.load, *metrics)],
        table(points, [axes.load], metrics),
        points,
        marks,
    )


def _told_of(points: Sequence[Point], subject: str) -> tuple[list[str], list[Mark]]:
    """The knee; or that there is none, and what the last step brings."""
    kept = _kept_up(points) if points[0].axes.load == "rate" else []
    if len(kept) == len(points):
        return [
            f"Every rate was kept up with, up to {size(points[-1].axes)} ({subject}): {_reached(points[-1])}. Where it "
            "saturates is not told: offer more.",
            *_within_limits(points),
        ], []
    at = knee(
        [point.value("e2e_latency") or 0.0 for point in points],
        [point.value("throughput") or 0.0 for point in points],
    )
    told, marks = _knee(points, at, "" if kept else f" ({subject})")
    if points[0].axes.load != "rate":
        return told, marks
    if not kept:
        none = f"None of the rates was kept up with, from {size(points[0].axes)} on ({subject}): {_reached(points[0])}."
        return [none], []
    highest, beyond = kept[-1], points[len(kept)]
    served = quantity(beyond.value("request_throughput"), "request_throughput").removesuffix(" 1/s")
    return [
        f"Up to {size(highest.axes)} are kept up with ({subject}): {_reached(highest)}. At {size(beyond.axes)} "
        f"{served} a second are served.",
        *_within_limits(kept),
        *told,
    ], marks


def keeps_up(point: Point, offered: float) -> bool:
    """Whether so many requests a second are served as they are offered; where it is not known, it is taken for so."""
    served = point.value("request_throughput")
    return served is None or served >= _KEPT_UP * offered


def _kept_up(points: Sequence[Point]) -> list[Point]:
    """The rates, from the lowest on, that were served as they were offered, but for what a short run varies by."""
    kept = []
    for point in points:
        if not keeps_up(point, point.axes.size):
            break
        kept.append(point)
    return kept


def _within_limits(kept: Sequence[Point]) -> list[str]:
    """Where the workload sets limits on latency: the highest rate, of those that were kept up with, that keeps them."""
    shares = [(p, good / served) for p in kept
              if (good := p.value("goodput")) is not None and (served := p.value("request_throughput"))]  # fmt: skip
    if not shares:
        return []
    keep = [(point, part) for point, part in shares if part >= _ATTAINED]
    if keep:
        point, part = keep[-1]
        return [f"Within the limits on latency are {share(min(1.0, part))} of the requests at {size(point.axes)}."]
    point, part = max(shares, key=lambda one: one[1])
    return [
        f"At none of these rates {share(_ATTAINED)} of the requests are within the limits on latency; most, "
        f"{share(min(1.0, part))}, at {size(point.axes)}."
    ]


def _power(point: Point) -> float:
    """Kleinrock's: throughput over latency."""
    return (point.value("throughput") or 0.0) / (point.value("e2e_latency") or 1.0)


def _reached(point: Point) -> str:
    return (
        f"{quantity(point.value('throughput'), 'throughput')} at {quantity(point.value('e2e_latency'), 'e2e_latency')}"
    )


def _step(before: Point, after: Point) -> str:
    gains = {name: change(before.value(name) or 1, after.value(name) or 1) for name in ("throughput", "e2e_latency")}
    return f"{size(after.axes)} brings {gains['throughput']} throughput for {gains['e2e_latency']} latency"


def _knee(points: Sequence[Point], at: int | None, subject: str) -> tuple[list[str], list[Mark]]:
    if at is None:
        first, last = points[0], points[-1]
        if _power(first) > _PAYS * _power(last):
            return [f"No knee: more than {size(first.axes)} does not pay{subject}: {_step(first, points[1])}."], []
        told = f"No knee up to {size(last.axes)}{subject}: {_step(points[-2], last)} over {size(points[-2].axes)}."
        return [told], []
    point = points[at]
    told = f"The knee is at {size(point.axes)}{subject}: {_reached(point)}; {_step(point, points[at + 1])}."
    return [told, _METHOD], [mark("knee", f"knee: {size(point.axes)}", point.axes.size, point.value("throughput"))]


def _compute_bound(points: Sequence[Point]) -> tuple[list[str], list[Mark]]:
    """The batch from which sequences take longer than what any step takes: as measured and as predicted."""
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
            f"Where decode turns compute-bound cannot be told of this load: prompts take up to {share(prompts)} of its "
            f"latency, between the steps of other sequences. Prompts of one token tell it{expected}."
        )
        return [told], places
    found = corner([p.axes.size for p in running], [p.value("tpot") or 0.0 for p in running])
    largest = running[-1].axes.size if running else 0
    if found is not None and found.error > _FITS:
        sentences.append(
            f"Where decode turns compute-bound these batches do not tell: no turn fits within {share(_FITS)}{expected}."
        )
    elif found is not None and found.at <= running[0].axes.size:
        first = size(running[0].axes)
        sentences.append(f"Measured, what sequences add outweighs what any step takes from {first} on{expected}.")
    elif found is not None:
        low, high = max(found.low, running[0].axes.size), min(found.high, largest)
        span = f" ({low:.0f} to {high:.0f} by other turns that fit as well)" if high - low >= 1 else ""
        sentences.append(
            f"Measured, decode turns at batch {found.at:.0f}{span}: from there what its sequences add to a step takes "
            f"longer than what any step takes{expected}."
        )
        sentences.append(
            f"Any step takes {_time(found.flat)}, each sequence adds {_time(found.slope)}: TPOT^p = "
            f"({_time(found.flat)})^p + (batch x {_time(found.slope)})^p, p = {found.turn:g}, fits within "
            f"{found.error * 100:.1f} % (RMS)."
        )
        sentences += parts_of_a_step(running[-1], found)
        sentences += _held_down(running)
        places.append(mark("measured", f"measured: batch {found.at:.0f}", found.at, found.flat, low, high))
    elif len(running) >= _LEAST_OF_A_CORNER:
        sentences.append(f"Measured, decode does not turn compute-bound up to batch {largest:g}{expected}.")
    elif running and prediction is not None:
        sentences.append(f"Too few batches decode to see where that turns compute-bound{expected}.")
    if len(running) < len(points):
        left = [f"{point.axes.size:g}" for point in points if point not in running]
        if any(not _runs_at_once(point) for point in points):
            sentences.append(f"Batch {', '.join(left)} is more than the engine runs at once, and waits in part.")
    return sentences, places if running else []


def _rate(bandwidth: float) -> str:
    return f"{format_value(bandwidth, 'B')}/s"


def _time(seconds: float) -> str:
    return format_value(seconds, "s")


def _held_down(points: Sequence[Point]) -> list[str]:
    """Where the power cap took from the clock of larger batches: their FLOPs took longer, and the turn came earlier."""
    clocks = [(point, clock) for point in points if (clock := _condition(point, "sm_clock"))]
    if not clocks:
        return []
    full = max(clock for _, clock in clocks)
    below = [(point, clock) for point, clock in clocks if clock < _FULL * full]
    if not below or not all(_condition(point, "power_cap_share") for point, _ in below):
        return []
    first, (last, least) = below[0][0], min(below, key=lambda one: one[1])
    return [
        f"From {size(first.axes)} on the power cap held the clock down, to {least / 1e6:,.0f} MHz at {size(last.axes)} "
        f"from {full / 1e6:,.0f} MHz: FLOPs took longer, and the turn came earlier than at a clock that is held."
    ]


def _condition(point: Point, name: str) -> float | None:
    found = point.test.conditions.get(name)
    return None if found is None else found.value


def parts_of_a_step(point: Point, found: Corner) -> list[str]:
    """Why the measured corner is not the predicted one: what of either part of the fit the weights account for.

    At the rates that the board reached itself the weights' bytes are a part of what every step takes, and their FLOPs
    and the KV cache a part of what a sequence adds.

    Args:
        point: Of the largest batch, whose KV cache is the best known.
        found: The fit of TPOT over the batch.

    Returns:
        Nothing where sizes or rates are not known.
    """
    roof = point.test.roof
    if roof is None or not roof.total_params or not roof.weight_bytes:
        return []
    bandwidth, rate = roof.copy_bandwidth or roof.peak_bandwidth, roof.matmul_flops or roof.peak_flops
    if not bandwidth or not rate:
        return []
    weights, flops = roof.weight_bytes / bandwidth, _FLOPS_A_WEIGHT * roof.total_params / rate
    copied = "a copy's" if roof.copy_bandwidth else "the peak"
    multiplied = "a matrix product's" if roof.matmul_flops else "the peak"
    added = f"{_time(flops)} are its FLOPs at {multiplied} {format_value(rate / 1e12, 'TFLOP/s')}"
    step = next((one for one in roof.points if one.phase == "decode" and one.kv_bytes > 0 and one.batch), None)
    left = found.slope - flops
    if step is not None and step.batch:
        cache = step.kv_bytes / step.batch / bandwidth
        left -= cache
        added += f", {_time(cache)} its KV cache at the bandwidth"
    told = (
        f"Of {_time(found.flat)}, {_time(weights)} are the bytes of the weights at {copied} "
        f"{format_value(bandwidth, 'B')}/s; of {_time(found.slope)} a sequence, {added}"
    )
    # A fit, or a rate that a product of this shape exceeds, may leave nothing.
    return [f"{told}, and {_time(left)} attention, sampling and lower rates." if left > 0 else f"{told}."]


def _prompt_share(point: Point) -> float:
    """The part of the latency until the first token; 0 where that is not known."""
    ttft, latency = point.value("ttft"), point.value("e2e_latency")
    return 0.0 if ttft is None or latency is None else ttft / latency


def _runs_at_once(point: Point) -> bool:
    """Whether the engine lets all sequences of the batch decode together, as far as it tells."""
    most = limit(point, "max_num_seqs")
    return most is None or point.axes.size <= most


def predicted_corner(points: Sequence[Point]) -> tuple[float, str] | None:
    """The batch at which the FLOPs of a decode step and the bytes of its weights take equally long.

    Machine balance x bytes a weight / 2: with 2 bytes it is the machine balance itself. The bandwidth is that of a copy
    where it was measured.

    Returns:
        It, and in words what it is made of; ``None`` where peaks or sizes are not known, and for a mixture of experts,
        of which a larger batch reads more.
    """
    for point in points:
        roof = point.test.roof
        if roof is None or not roof.peak_flops or not roof.weight_bytes or not roof.total_params:
            continue
        read = [step.weight_bytes for step in roof.points if step.phase == "decode"]
        if any(one < _ALL_WEIGHTS * roof.weight_bytes for one in read):
            return None
        copied = roof.copy_bandwidth
        bandwidth = copied or roof.peak_bandwidth
        if not bandwidth:
            continue
        a_weight = roof.weight_bytes / roof.total_params / _FLOPS_A_WEIGHT
        told = f"machine balance: {format_value(roof.peak_flops / 1e12, 'TFLOP/s')} over {_rate(bandwidth)}"
        if copied:
            told += " as a copy reached it"
            if roof.peak_bandwidth and "data sheet" in (roof.source or ""):
                sheet = roof.peak_flops / roof.peak_bandwidth * a_weight
                told += f"; {sheet:.0f} with the data sheet's {_rate(roof.peak_bandwidth)}"
        if abs(a_weight - 1) > _OF_TWO_BYTES:
            told += f"; {a_weight * _FLOPS_A_WEIGHT:.2g} bytes a weight"
        batch = roof.peak_flops / bandwidth * a_weight
        return batch, told
    return None
