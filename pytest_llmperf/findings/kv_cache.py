"""How much memory does a token's KV cache take, and how many sequences fit beside the weights?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.formats import kv_capacity
from pytest_llmperf.findings.points import Point, distinct, varied
from pytest_llmperf.findings.telling import Labels, Rows, column, finding, short, slug
from pytest_llmperf.report.units import format_value, printable
from pytest_llmperf.results import Finding, Results, RoofRecord

__all__ = ["kv_cache"]

#: Contexts that are told beside those of the run's tests.
_CONTEXTS = tuple(1024 * 2**power for power in range(6))
#: Of a run with more contexts than this the shortest and the longest.
_MOST_OF_RUN = 4
#: What a KV cache depends on.
_SERVING = ("model", "device", "dtype", "quantization", "kv_cache_dtype", "engine")


def kv_cache(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each model and format; the table is of the fewest GPUs."""
    served: dict[tuple[str, ...], list[Point]] = {}
    for point in distinct(points):
        roof = point.test.roof
        if roof is not None and roof.kv_bytes_per_token:
            served.setdefault(tuple(str(getattr(point.axes, name)) for name in _SERVING), []).append(point)
    return [_finding(served[key], labels) for key in sorted(served)]


def _finding(everywhere: Sequence[Point], labels: Labels) -> Finding:
    fewest = min(point.axes.tensor_parallel_size for point in everywhere)
    points = [point for point in everywhere if point.axes.tensor_parallel_size == fewest]
    roof = points[0].test.roof
    assert roof is not None
    assert roof.kv_bytes_per_token is not None
    axes, each = points[0].axes, roof.kv_bytes_per_token
    left = _left(roof)
    capacity = max((tokens for point in points if (tokens := kv_capacity(point)) is not None), default=None)
    rows: Rows = [
        [float(context), each, each * context, None if left is None else float(int(left // (each * context))),
         None if capacity is None else float(int(capacity // context))]
        for context in _contexts(points)
    ]  # fmt: skip
    columns = [
        column("context", "Context, tokens"), column("kv_bytes_per_token", "A token", "B/token"),
        column("kv_bytes", "A sequence", "B"), column("sequences", "Sequences beside the weights"),
        column("engine_sequences", "Sequences that the engine holds"),
    ]  # fmt: skip
    token, sequence = format_value(each, "B"), format_value(each * _CONTEXTS[0], "B")
    shown = labels.serving(axes, "clock", "enforce_eager", "policy", "arrival", "model")
    serving = [part for part in shown if part != short(axes.model)]
    model = short(axes.model) + (f" ({', '.join(serving)})" if serving else "")
    sentences = [f"A token of {model} takes {token} of KV cache, a sequence of 1,024 tokens {sequence}."]
    if left is not None and roof.memory_bytes and roof.weight_bytes:
        sentences.append(
            f"The weights ({format_value(roof.weight_bytes, 'B')}) leave {format_value(left, 'B')} of "
            f"{format_value(roof.memory_bytes, 'B')}: {left // each:,.0f} tokens at most, if nothing else took memory."
        )
    elif roof.reason:
        sentences.append(f"What fits beside the weights is not known: {printable(roof.reason)}.")
    if capacity is not None:
        sentences.append(f"The engine holds {capacity:,.0f} tokens.")
    for gpus in [gpus for gpus in varied(everywhere, "tensor_parallel_size") if gpus != fewest]:
        held = [tokens for p in everywhere if p.axes.tensor_parallel_size == gpus and (tokens := kv_capacity(p))]
        if held:
            sentences.append(f"On {gpus} GPUs it holds {max(held):,.0f}.")
    told = [short(axes.model), *serving]
    return finding("kv_cache", slug(*told), f"KV cache: {', '.join(told)}", sentences, columns, rows, everywhere)


def _left(roof: RoofRecord) -> float | None:
    """Bytes of memory that the weights leave; ``None`` where either is not known, 0 where they do not fit."""
    if not roof.memory_bytes or not roof.weight_bytes:
        return None
    return max(0.0, roof.memory_bytes - roof.weight_bytes)


def _contexts(points: Sequence[Point]) -> list[int]:
    """Of the run's longest requests and round ones, as far as the engine takes them."""
    of_run = {
        point.axes.input_len + point.axes.output_len
        for point in points
        if isinstance(point.axes.input_len, int) and isinstance(point.axes.output_len, int)
    }
    if len(of_run) > _MOST_OF_RUN:
        of_run = {min(of_run), max(of_run)}
    limits = [
        limit
        for point in points
        if point.test.engine is not None and isinstance(limit := point.test.engine.args.get("max_model_len"), int)
    ]
    longest = max(limits, default=None)
    return [
        context for context in sorted({*of_run, *_CONTEXTS}) if context > 0 and (longest is None or context <= longest)
    ]
