"""What do more GPUs bring, and what does a larger model cost?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.limits import kv_capacity, limit
from pytest_llmperf.findings.points import Point, group, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    change,
    column,
    finding,
    ratio,
    shape,
    share,
    short,
    size,
)
from pytest_llmperf.report.units import printable
from pytest_llmperf.report.wording import plural
from pytest_llmperf.results import Finding, Results

__all__ = ["is_starved", "model_size", "preemptions", "scaling"]

_OF_SCALING = ("ttft", "tpot", "e2e_latency", "mbu", "tpj", "power", "throughput")
_OF_SIZE = ("e2e_latency", "tpot", "ttft", "tpj", "power", "mbu")
#: What follows from the model, and does not make two models' loads unequal.
_OF_THE_MODEL = ("model", "dtype")
#: Told of a step from memory that was too small.
_CHANGES = (("tpot", "TPOT"), ("throughput", "throughput"))
#: Models of sizes nearer to each other differ by more than their size.
_LARGER = 1.25
#: Latency that grows within this of the parameters is linear in them.
_LINEAR = 0.02


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
    told: dict[tuple[int, int], list[str]] = {}
    starved = [point for point in points if is_starved(point)]
    for load in varied(points, "size"):
        members = sorted(_of(points, load), key=lambda point: point.axes.tensor_parallel_size)
        least = next((point for point in members if point not in starved), None)
        for point in members:
            gained = None if least is None or point in starved else _gained(least, point)
            speedup, efficiency = gained[:2] if gained is not None else (None, None)
            rows.append([point.axes.tensor_parallel_size, load, *(point.value(name) for name in _OF_SCALING),
                         speedup, efficiency, preemptions(point)])  # fmt: skip
            if gained is not None and least is not None and point is not least:
                counts = (point.axes.tensor_parallel_size, least.axes.tensor_parallel_size)
                told.setdefault(counts, []).append(_told(least, point, gained))
    subject = labels.subject(axes, "tensor_parallel_size", "size")
    sentences: list[str] = []
    for (count, fewest), parts in sorted(told.items()):
        # Of many batches the ends say enough; the table has them all.
        shown = parts if len(parts) < 3 else [parts[0], parts[-1]]
        where = "" if sentences else f" ({subject})"
        sentences.append(f"{_gpus(count)} against {fewest}{where}: {'; '.join(shown)}.")
    if not sentences:
        last = varied(points, "tensor_parallel_size")[-1]
        sentences = [f"How much faster it is on up to {_gpus(last)} is not told ({subject})."]
    sentences += [_starvation(point, points) for point in starved]
    columns = [
        column("tensor_parallel_size"), column(axes.load), *(column(name) for name in _OF_SCALING),
        column("speedup", "Speedup"), column("efficiency", "Efficiency", "1"), column("preemptions", "Preemptions"),
    ]  # fmt: skip
    name = labels.name(axes, "tensor_parallel_size", "size")
    title = labels.title("More GPUs", axes, "tensor_parallel_size", "size")
    return finding("scaling", name, title, sentences, columns, rows, points)


def _gpus(count: int) -> str:
    return plural(count, "GPU")


def preemptions(point: Point) -> float | None:
    """How often sequences were preempted in a launch; ``None`` where that is not known."""
    told = point.test.conditions.get("preemptions")
    return None if told is None else told.value


def is_starved(point: Point) -> bool:
    """Whether the KV cache was too small for the load, so that its figures are those of waiting and computing anew.

    It is where sequences were preempted, or where those that the engine runs at once do not fit. Where preemptions were
    counted and there were none, sequences grew into what was free; only prompts can have waited for room.
    """
    counted = preemptions(point)
    if counted:
        return True
    axes, room = point.axes, kv_capacity(point)
    prompt, output = axes.input_len, axes.output_len
    if room is None or axes.load not in ("batch", "concurrency"):
        return False
    if not isinstance(prompt, int) or not isinstance(output, int):
        return False
    running = min(axes.size, limit(point, "max_num_seqs") or axes.size)
    shared = _shared(point)
    own = prompt - shared + (output if counted is None else 0)
    return shared + running * own > room


def _shared(point: Point) -> int:
    """Tokens at the head of the prompts that the KV cache keeps once: whole blocks, where prefixes are cached."""
    shared = (point.test.workload or {}).get("shared_prefix")
    if point.test.engine is None or not point.test.engine.args.get("enable_prefix_caching"):
        return 0
    return shared - shared % (limit(point, "block_size") or 1) if type(shared) is int and shared > 0 else 0


def _starvation(point: Point, points: Sequence[Point]) -> str:
    """That a point tells nothing of scaling, and what more GPUs bring over it."""
    axes = point.axes
    told = (
        f"On {_gpus(axes.tensor_parallel_size)} {size(axes)} does not fit into the {_cache(point)}: what more "
        "GPUs bring over it is memory, and no efficiency"
    )
    alike = [p for p in _of(points, axes.size) if p.axes.tensor_parallel_size > axes.tensor_parallel_size]
    if not alike:
        return f"{told}."
    changes = [
        f"{name} {change(before, now)}"
        for metric, name in _CHANGES
        if (before := point.value(metric)) is not None and (now := alike[0].value(metric)) is not None
    ]
    return f"{told} ({_gpus(alike[0].axes.tensor_parallel_size)}: {', '.join(changes)})." if changes else f"{told}."


def _cache(point: Point) -> str:
    """The cache that does not hold a load, with its size and preemptions as far as they are known."""
    room, count = kv_capacity(point), preemptions(point)
    held = "" if room is None else f" of {room:,.0f} tokens"
    return f"KV cache{held}" + (f" ({plural(round(count), 'preemption')} a launch)" if count else "")


def _gained(least: Point, point: Point) -> tuple[float, float, str] | None:
    """Speedup over the fewest GPUs, that over the ratio of GPUs, and of what."""
    before, now = _speed(least), _speed(point)
    if before is None or now is None or before[0] != now[0]:
        return None
    speedup = before[1] / now[1]
    return speedup, speedup * least.axes.tensor_parallel_size / point.axes.tensor_parallel_size, before[0]


def _told(least: Point, point: Point, gained: tuple[float, float, str]) -> str:
    speedup, efficiency, name = gained
    told = f"{'TPOT' if name == 'tpot' else 'latency'} {change(speedup, 1)}"
    before, now = least.value("ttft"), point.value("ttft")
    if name == "tpot" and before is not None and now is not None:
        told += f", TTFT {change(before, now)}"  # what more GPUs exchange may outweigh what they share of a prompt
    before, now = least.value("throughput"), point.value("throughput")
    if before is not None and now is not None:
        told += f", throughput {change(before, now)}"
    told += f" at {size(point.axes)} (efficiency {share(efficiency)})"
    before, now = least.value("tpj"), point.value("tpj")
    return f"{told}, energy per token {change(now, before)}" if before is not None and now is not None else told


def model_size(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran on two or more models whose parameters are known."""
    known = [point for point in points if point.test.roof is not None and point.test.roof.total_params]
    compared = [
        several for members in group(known, *_OF_THE_MODEL, "size") if (several := _with_several(members, "model"))
    ]
    # On more GPUs the same models say little more: those on which most of them were run, and of these the fewest.
    compared.sort(key=lambda members: (-len(varied(members, "model")), members[0].axes.tensor_parallel_size))
    chosen: dict[tuple[object, ...], list[list[Point]]] = {}
    for members in compared:
        place = members[0].axes.without(*_OF_THE_MODEL, "size", "tensor_parallel_size", "other")
        chosen.setdefault(place, []).append(members)
    return [_model_size(several[0], _fewest(several), labels) for several in chosen.values()]


def _fewest(compared: Sequence[list[Point]]) -> list[Point]:
    """The same comparison on the fewest GPUs; empty where the first is that."""
    least = min(compared, key=lambda members: members[0].axes.tensor_parallel_size)
    return [] if least is compared[0] else least


def _params(point: Point) -> int:
    roof = point.test.roof
    return (roof.total_params or 0) if roof is not None else 0


def _model_size(points: Sequence[Point], on_fewest: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    rows: Rows = []
    sentences: list[str] = []
    for load in varied(points, "size"):
        members = _by_params(_of(points, load))
        fed = [point for point in members if not is_starved(point)]
        least = (fed or members)[0]
        for point in members:
            rows.append([
                printable(point.axes.model), float(_params(point)), load, *(point.value(name) for name in _OF_SIZE),
                _params(point) / _params(least), _slower(least, point) if point in fed else None,
            ])  # fmt: skip
        sentences += _growth(fed)
    for load in varied(on_fewest, "size"):
        sentences += _growth([point for point in _by_params(_of(on_fewest, load)) if not is_starved(point)])
    if axes.tensor_parallel_size > 1 and sentences:
        sentences.append(
            "What GPUs exchange takes a larger share of a small model's step, and makes size look cheaper."
        )
    sentences = sentences or ["How latency grows with size is not told by these models."]
    sentences += [_left_out(point) for point in _by_params([*points, *on_fewest]) if is_starved(point)]
    columns = [
        column("model"), column("total_params", "Parameters"), column(axes.load), *(column(name) for name in _OF_SIZE),
        column("size_ratio", "Size against the smallest"), column("latency_ratio", "Latency against the smallest"),
    ]  # fmt: skip
    varying = (*_OF_THE_MODEL, "size")
    return finding(
        "model_size", labels.name(axes, *varying), labels.title("Larger models", axes, *varying),
        sentences, columns, rows, points,
    )  # fmt: skip


def _slower(least: Point, point: Point) -> float | None:
    before, now = least.value("e2e_latency"), point.value("e2e_latency")
    return None if before is None or now is None else now / before


def _by_params(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda point: (_params(point), point.axes.model))


def _left_out(point: Point) -> str:
    """That a point tells nothing of a model's size, which a sentence would else pass over."""
    where = f"On {_gpus(point.axes.tensor_parallel_size)} {size(point.axes)} of {short(point.axes.model)}"
    return f"{where} does not fit into the {_cache(point)}: its latency is that of waiting, and is not compared."


def _growth(fed: Sequence[Point]) -> list[str]:
    """Of models that were not starved the largest against the smallest: whether latency grows less than parameters."""
    if not fed:
        return []
    least, most = fed[0], fed[-1]
    slower, larger = _slower(least, most), _params(most) / _params(least)
    if slower is None or larger < _LARGER:
        return []
    near = abs(slower / larger - 1) < _LINEAR
    word = "linear" if near else "sub-linear" if slower < larger else "super-linear"
    where = f"{size(most.axes)} ({shape(most.axes)})"
    return [
        f"On {_gpus(most.axes.tensor_parallel_size)} {short(most.axes.model)} has {ratio(larger)} times the parameters "
        f"of {short(least.axes.model)} and {ratio(slower)} times its latency at {where}: {word} in size."
    ]
