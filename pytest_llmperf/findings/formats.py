"""What do other number formats, and a compiled engine, change: speed, energy, memory, room for sequences, answers?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from pytest_llmperf.findings.limits import kv_capacity
from pytest_llmperf.findings.points import Point, distinct, group, ordered, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    change,
    column,
    finding,
    listed,
    share,
    short,
    size,
)
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Finding, Results

__all__ = ["formats"]

_FORMAT = ("quantization", "kv_cache_dtype", "enforce_eager", "dtype")
_METRICS = ("ttft", "tpot", "throughput", "tpj", "power", "memory_used")
#: Changes that are all less than this are none.
_MEASURABLE = 0.001
_PLAIN_DTYPES = ("bfloat16", "float16")


def formats(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran in two or more formats; its batches together."""
    found = []
    for everything in _of_one_model(points):
        members = _series(everything)
        sizes = [load for load in varied(members, "size") if len([p for p in members if p.axes.size == load]) > 1]
        compared = [point for point in members if point.axes.size in sizes]
        if compared:
            found.append(_finding(compared, everything, labels))
    return found


def _of_one_model(points: Sequence[Point]) -> list[list[Point]]:
    """All points that differ in format and size at most; a checkpoint in another format is its model."""
    plain = {(_params(p), p.axes.device, p.axes.engine): p.axes.model
             for p in reversed(points) if p.axes.quantization is None and _params(p)}  # fmt: skip
    named = [
        replace(p, axes=replace(p.axes, model=plain.get((_params(p), p.axes.device, p.axes.engine), p.axes.model)))
        if p.axes.quantization is not None else p
        for p in points
    ]  # fmt: skip
    everything: dict[tuple[object, ...], list[Point]] = {}
    for point in named:
        everything.setdefault(_place(point), []).append(point)
    return [everything[_place(members[0])] for members in group(named, *_FORMAT, "size")]


def _place(point: Point) -> tuple[object, ...]:
    return point.axes.without(*_FORMAT, "size")


def _series(everything: Sequence[Point]) -> list[Point]:
    """One point a format and load: of a test that has several formats at this load, where there is one.

    What other tests measured of the same load and format, perhaps long before in another launch of the engine, differs
    from it by more than formats may do. Of two such tests that of more formats and loads goes first.
    """
    formats_at: dict[tuple[str, float], set[tuple[object, ...]]] = {}
    for point in everything:
        formats_at.setdefault((_function(point), point.axes.size), set()).add(_format(point))
    several: Counter[str] = Counter()
    for (function, _), formats in formats_at.items():
        several[function] += len(formats) if len(formats) > 1 else 0
    chosen = []
    for load in varied(everything, "size"):
        members = [point for point in everything if point.axes.size == load]
        comparing = [name for name in several if len(formats_at.get((name, load), ())) > 1]
        comparing.sort(key=lambda name: (-several[name], name))
        series = [distinct(point for point in members if _function(point) == name) for name in comparing]
        found: dict[tuple[object, ...], Point] = {}
        for point in chain(*series, distinct(members)):
            found.setdefault(_format(point), point)
        chosen += ordered(found.values())
    return chosen


def _each_function(points: Iterable[Point]) -> list[Point]:
    """One of those that a test function measured alike, of each of them."""
    functions: dict[str, list[Point]] = {}
    for point in points:
        functions.setdefault(_function(point), []).append(point)
    return [point for name in sorted(functions) for point in distinct(functions[name])]


def _function(point: Point) -> str:
    """The test function: the id without what it is parametrized with."""
    return point.test.nodeid.partition("[")[0]


def _format(point: Point) -> tuple[object, ...]:
    return tuple(getattr(point.axes, name) for name in _FORMAT)


def _params(point: Point) -> int | None:
    return None if point.test.roof is None else point.test.roof.total_params


def _weights(point: Point) -> float | None:
    return None if point.test.roof is None else point.test.roof.weight_bytes


def _named(point: Point, dtype: str) -> str:
    """A format in words; the dtype only where it is not that of most, or there is nothing else."""
    axes = point.axes
    parts = [f"{axes.quantization} weights"] if axes.quantization else []
    if axes.kv_cache_dtype != "auto":
        parts.append(f"{axes.kv_cache_dtype} KV cache")
    if axes.enforce_eager:
        parts.append("eager")
    if axes.dtype != dtype or not parts:
        parts.insert(0, axes.dtype)
    return printable(", ".join(parts))


def _plainness(point: Point) -> tuple[bool, bool, bool, bool, str]:
    axes = point.axes
    return (
        axes.quantization is not None, axes.kv_cache_dtype != "auto", axes.enforce_eager,
        axes.dtype not in _PLAIN_DTYPES, axes.dtype,
    )  # fmt: skip


def _finding(points: Sequence[Point], everything: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    dtype = min(points, key=_plainness).axes.dtype
    usual = _named(min(points, key=_plainness), dtype)
    rows: Rows = []
    told: dict[str, list[tuple[dict[str, float], str]]] = {}
    references: list[Point] = []
    for load in varied(points, "size"):
        members = sorted([p for p in points if p.axes.size == load], key=_plainness)
        # Those which all are held against, where this load ran in it: the one of the table first.
        usually = [point for point in members if _named(point, dtype) == usual]
        usually += [p for p in _each_function(everything) if p.axes.size == load and _named(p, dtype) == usual]
        for point in members:
            outputs = point.test.outputs
            agreement = None if outputs is None else outputs.token_agreement
            rows.append([_named(point, dtype), load, *(point.value(name) for name in _METRICS), _weights(point),
                         kv_capacity(point), agreement])  # fmt: skip
            if usually and _named(point, dtype) != usual:
                reference = next((p for p in usually if _function(p) == _function(point)), usually[0])
                references.append(reference)
                changes = _changes(reference, point)
                if changes:
                    told.setdefault(_named(point, dtype), []).append((changes, size(point.axes)))
    plain = min(points, key=_plainness)
    subject = labels.subject(axes, *_FORMAT, "size")
    sentences = [
        f"{_capital(short(name))} against {_against(name, plain, dtype)} ({subject}): {_told(parts)}."
        for name, parts in told.items()
    ]
    sentences += _room(points, dtype) + _answers(points, dtype)
    columns = [
        column("format", "Format"), column(axes.load), *(column(name) for name in _METRICS),
        column("weight_bytes", "Weights", "B"), column("kv_tokens", "Tokens that the KV cache holds"),
        column("token_agreement", "Answers' agreement with their baseline", "1"),
    ]  # fmt: skip
    return finding(
        "formats", labels.name(axes, *_FORMAT, "size"), labels.title("Formats", axes, *_FORMAT, "size"),
        sentences or ["Nothing that could be compared was measured in two formats."], columns, rows,
        [*points, *references],
    )  # fmt: skip


def _against(name: str, plain: Point, dtype: str) -> str:
    """What a format is held against; what an eager engine differs in is that the other is compiled."""
    return "compiled" if name == "eager" and not plain.axes.enforce_eager else short(_named(plain, dtype))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _told(parts: Sequence[tuple[dict[str, float], str]]) -> str:
    """The changes at each load, of many the first and the last; that there are none where all are next to nothing."""
    if all(abs(change) < _MEASURABLE for changes, _ in parts for change in changes.values()):
        names = list(dict.fromkeys(name for changes, _ in parts for name in changes))
        return f"no measurable difference in {listed(names)} at {listed([load for _, load in parts])}"
    shown = parts if len(parts) < 3 else [parts[0], parts[-1]]
    return "; ".join(
        f"{', '.join(f'{name} {change(1, 1 + changed)}' for name, changed in changes.items())} at {load}"
        for changes, load in shown
    )


def _changes(reference: Point, point: Point) -> dict[str, float]:
    """Relative changes of speed and energy, by what they are called."""
    names = (("tpot", "TPOT"), ("ttft", "TTFT")) if point.value("tpot") else (("e2e_latency", "latency"),)
    found = {}
    for name, called in names:
        before, now = reference.value(name), point.value(name)
        if before is not None and now is not None:
            found[called] = now / before - 1
    before, now = reference.value("tpj"), point.value("tpj")
    if before is not None and now is not None:
        found["energy per token"] = before / now - 1
    return found


def _room(points: Sequence[Point], dtype: str) -> list[str]:
    """What the formats leave for the KV cache; of one format any load tells it, and the first that does is taken."""
    usual = _named(min(points, key=_plainness), dtype)
    rooms: dict[str, float] = {}
    for point in sorted(points, key=_plainness):
        if (room := kv_capacity(point)) is not None:
            rooms.setdefault(_named(point, dtype), room)
    if (before := rooms.get(usual)) is None:
        return []
    seen = {short(name): f"{change(before, now)} ({now:,.0f} tokens)" for name, now in rooms.items() if now != before}
    return [f"Room in the KV cache with {name}: {text}." for name, text in seen.items()]


def _answers(points: Sequence[Point], dtype: str) -> list[str]:
    """How far each format's answers to fixed prompts agree with those of its own baseline, where they were compared."""
    seen: dict[str, float] = {}
    for point in sorted(points, key=_plainness):
        outputs = point.test.outputs
        if outputs is not None and outputs.token_agreement is not None:
            name = short(_named(point, dtype))
            seen[name] = min(seen.get(name, 1.0), outputs.token_agreement)
    return [
        f"Answers with {name} agree with their baseline in {share(value)} of the tokens."
        for name, value in seen.items()
    ]
