"""From a test's record to where it lies: the axes that a sweep moves along, and the values that it found there."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from pytest_llmperf.results import Engine, Results, TestRecord

__all__ = [
    "Axes",
    "Point",
    "at_one_clock",
    "distinct",
    "group",
    "invalid_points",
    "one_clock",
    "ordered",
    "plainest",
    "points_of",
    "varied",
]

#: Engine arguments that are axes of their own, or that an engine works out from others.
_TOLD_ELSEWHERE = frozenset({
    "dtype", "quantization", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size", "model", "seed",
    "max_model_len", "num_gpu_blocks",
})  # fmt: skip
#: Fields of a workload that say how it is offered or what is asked of it, beside those that are axes.
_OTHER_WORK = ("shared_prefix", "sampling", "trace")


@dataclass(frozen=True)
class Axes:
    """Where a measurement lies; two that agree in all of them measured the same thing.

    Attributes:
        load: ``"batch"``, ``"concurrency"``, ``"rate"`` or ``"trace"``.
        size: Of that load: requests at once, in flight, or a second; 0 for a trace.
        input_len: Prompt tokens; a text where they are distributed.
        output_len: Output tokens; likewise.
        policy: Batching by the client.
        max_batch: Of that policy.
        max_wait: Of that policy, seconds.
        arrival: How an open loop spaces requests; empty for others.
        work: What else tells workloads apart, as JSON.
        clock: The SM clock that was held, MHz; ``None`` when it ran free.
        memory_clock: Likewise.
        model: As the engine names it.
        engine: Kind and version.
        device: The boards' product.
        dtype: Of weights and activations.
        quantization: Of the weights; ``None`` without.
        kv_cache_dtype: Of the KV cache.
        enforce_eager: Whether the engine was kept from compiling.
        tensor_parallel_size: GPUs that share the model.
        other: Its other arguments, as JSON.
    """

    load: str
    size: float
    input_len: int | str | None
    output_len: int | str | None
    policy: str
    max_batch: float | None
    max_wait: float | None
    arrival: str
    work: str
    clock: float | None
    memory_clock: float | None
    model: str
    engine: str
    device: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    enforce_eager: bool
    tensor_parallel_size: int
    other: str

    def without(self, *names: str) -> tuple[Any, ...]:
        """All axes but these: equal for points that differ in these at most."""
        return tuple(getattr(self, name) for name in _NAMES if name not in names)


#: How a load was served, where it makes no difference to what the load is.
_SERVED = (
    "policy", "max_batch", "max_wait", "quantization", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size",
)  # fmt: skip
_NAMES = tuple(field.name for field in fields(Axes))


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        test: Its record.
        axes: Where it lies.
        requested_mhz: The clock that was asked for.
    """

    test: TestRecord
    axes: Axes
    requested_mhz: float | None

    def value(self, name: str) -> float | None:
        """A metric's value; ``None`` where there is none, or none above 0."""
        metric = self.test.metrics.get(name)
        known = None if metric is None else metric.value
        return known if known is not None and known > 0 and math.isfinite(known) else None

    def launches(self, name: str) -> tuple[float, ...]:
        """The median over the repeats of each launch; empty where one has no value above 0."""
        metric = self.test.metrics.get(name)
        if metric is None or not metric.launches or not all(metric.launches):
            return ()
        medians = tuple(statistics.median(launch) for launch in metric.launches)
        return medians if all(0 < value < math.inf for value in medians) else ()

    @cached_property
    def most_launches(self) -> int:
        """How many launches stand behind it."""
        return max((len(metric.launches) for metric in self.test.metrics.values()), default=0)

    @cached_property
    def order(self) -> tuple[Any, ...]:
        """By which points are sorted."""
        return _sortable(self.axes.without()), self.test.nodeid


def points_of(results: Results) -> list[Point]:
    """The measurements of a run that can be put beside others, in an order that does not depend on the run's.

    Left out are tests that are invalid or found no value, searches (which stop at another load in every run), and what
    ran without an engine or a workload.
    """
    found = [
        _point(test)
        for test in results.tests
        if test.invalid is None and any(metric.value is not None for metric in test.metrics.values())
    ]
    return ordered(point for point in found if point is not None)


def invalid_points(results: Results) -> list[Point]:
    """Where the invalid tests of a run would lie, by their axes; of those that did not begin it is not known."""
    found = [_point(test) for test in results.tests if test.invalid is not None]
    return ordered(point for point in found if point is not None)


def _point(test: TestRecord) -> Point | None:
    if test.search is not None or test.engine is None or test.workload is None:
        return None
    work = test.workload
    load, size = _load(work)
    if load is None:
        return None
    memory = test.clock.memory_mhz
    axes = Axes(
        load=load,
        size=size,
        input_len=_length(work.get("input_len")),
        output_len=_length(work.get("output_len")),
        policy=str(work.get("policy") or "continuous"),
        max_batch=_number(work.get("max_batch")),
        max_wait=_number(work.get("max_wait")),
        arrival=str(work.get("arrival") or "") if load == "rate" else "",
        work=_json({name: work[name] for name in _OTHER_WORK if work.get(name)}),
        clock=test.clock.locked_mhz,
        memory_clock=None if memory is None else memory.locked,
        **_engine(test.engine),
    )
    return Point(test, axes, test.clock.requested_mhz)


def _load(work: Mapping[str, Any]) -> tuple[str | None, float]:
    for name in ("batch", "concurrency", "rate"):
        if (size := _number(work.get(name))) is not None and size > 0:
            return name, size
    return ("trace", 0.0) if work.get("trace") else (None, 0.0)


def _engine(engine: Engine) -> dict[str, Any]:
    same = ("model", "device", "dtype", "quantization", "kv_cache_dtype", "tensor_parallel_size")
    return {
        **{name: getattr(engine, name) for name in same},
        "engine": f"{engine.kind} {engine.version}",
        "enforce_eager": bool(engine.args.get("enforce_eager")),
        "other": _json({name: value for name, value in engine.args.items() if name not in _TOLD_ELSEWHERE}),
    }


def _length(length: Any) -> int | str | None:
    if length is None or (isinstance(length, int) and not isinstance(length, bool)):
        return length
    if isinstance(length, Mapping) and len(length) == 1:
        [(name, values)] = length.items()
        if values is None:
            return str(name)
        told = [_parameter(value) for value in (values if isinstance(values, list) else [values])]
        return f"{name} {'-'.join(told)}" if name == "uniform" else f"{name} ({', '.join(told)})"
    return _json(length)


def _parameter(value: Any) -> str:
    """Of a distribution."""
    if isinstance(value, str):
        return value
    number = _number(value)
    return json.dumps(value, sort_keys=True, default=str) if number is None else f"{number:g}"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str) if value else ""


def ordered(points: Iterable[Point]) -> list[Point]:
    """By their axes, in the order that these are declared in; then by id."""
    return sorted(points, key=lambda point: point.order)


def _sortable(values: Sequence[Any]) -> tuple[tuple[int, float, str], ...]:
    """Values of mixed types in one order: nothing, numbers, texts."""
    return tuple(
        (0, 0.0, "") if value is None else (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")
        for value in values
    )


def distinct(points: Iterable[Point]) -> list[Point]:
    """One of those that measured the same thing: that of most launches, of these a plain one, of these the first id."""
    best: dict[Axes, Point] = {}
    for point in sorted(points, key=lambda p: (-p.most_launches, p.test.phases is not None, p.test.nodeid)):
        best.setdefault(point.axes, point)
    return ordered(best.values())


def group(points: Iterable[Point], *varying: str) -> list[list[Point]]:
    """Points that are equal in all axes but some, each place once.

    Args:
        points: Of a run.
        varying: Names of the axes in which the points of a group may differ.
    """
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in distinct(points):
        groups.setdefault(point.axes.without(*varying), []).append(point)
    return [groups[key] for key in sorted(groups, key=_sortable)]


def at_one_clock(groups: Iterable[list[Point]]) -> list[list[Point]]:
    """Of groups that differ in the clock alone, that whose clock ran free or else was the highest."""
    chosen: dict[tuple[Any, ...], list[Point]] = {}
    for members in groups:
        place = members[0].axes.without("clock", "size", "input_len", "output_len")
        lengths = tuple(sorted({_sortable([p.axes.input_len, p.axes.output_len]) for p in members}))
        held = chosen.get((place, lengths))
        if held is None or _higher(members[0].axes.clock, held[0].axes.clock):
            chosen[place, lengths] = members
    return list(chosen.values())


def plainest(groups: Iterable[list[Point]], *varying: str) -> list[list[Point]]:
    """Of groups that differ only in how they were served, the plainest: other questions compare the others with it.

    Args:
        groups: Each of one format, policy and number of GPUs.
        varying: The axes in which the points of a group differ.
    """
    chosen: dict[tuple[Any, ...], list[Point]] = {}
    for members in sorted(groups, key=lambda members: _plainness(members[0].axes)):
        chosen.setdefault(members[0].axes.without(*_SERVED, *varying), members)
    return sorted(chosen.values(), key=lambda members: members[0].order)


def _plainness(axes: Axes) -> tuple[bool, bool, bool, bool, int]:
    return (
        axes.policy != "continuous", axes.quantization is not None, axes.kv_cache_dtype != "auto", axes.enforce_eager,
        axes.tensor_parallel_size,
    )  # fmt: skip


def one_clock(points: Sequence[Point]) -> list[Point]:
    """Those whose clock ran free; where none did, those at the highest."""
    free = [point for point in points if point.axes.clock is None]
    highest = max((point.axes.clock or 0.0 for point in points), default=0.0)
    return free or [point for point in points if point.axes.clock == highest]


def _higher(clock: float | None, than: float | None) -> bool:
    return than is not None and (clock is None or clock > than)


def varied(points: Iterable[Point], name: str) -> list[Any]:
    """The values that an axis takes, each once, in order."""
    return sorted({getattr(point.axes, name) for point in points}, key=lambda value: _sortable([value]))
