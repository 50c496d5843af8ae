"""How much memory does a token's KV cache take, and how many sequences fit beside the weights?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.limits import has_windows, kv_capacity, limit
from pytest_llmperf.findings.points import Point, distinct, varied
from pytest_llmperf.findings.telling import Labels, Rows, column, finding, short, slug
from pytest_llmperf.report.units import format_value, printable
from pytest_llmperf.results import Finding, Gpu, Results, RoofRecord

__all__ = ["kv_cache"]

#: Contexts that are told beside those of the run's tests.
_CONTEXTS = tuple(1024 * 2**power for power in range(6))
#: Of a run with more contexts than this the shortest and the longest.
_MOST_OF_RUN = 4
#: What a KV cache depends on.
_SERVING = ("model", "device", "dtype", "quantization", "kv_cache_dtype", "engine")


def kv_cache(results: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each model and format; the table is of the fewest GPUs."""
    served: dict[tuple[str, ...], list[Point]] = {}
    for point in distinct(points):
        roof = point.test.roof
        if roof is not None and roof.kv_bytes_per_token:
            served.setdefault(tuple(str(getattr(point.axes, name)) for name in _SERVING), []).append(point)
    return [_finding(served[key], results.environment.gpus, labels) for key in sorted(served)]


def _finding(everywhere: Sequence[Point], boards: Sequence[Gpu], labels: Labels) -> Finding:
    fewest = min(point.axes.tensor_parallel_size for point in everywhere)
    points = [point for point in everywhere if point.axes.tensor_parallel_size == fewest]
    # One that knows the layers, where records of an earlier version are among them.
    point = next((point for point in points if point.test.roof and point.test.roof.kv_layers), points[0])
    roof, axes = point.test.roof, point.axes
    assert roof is not None
    memory, read = _memory(point, roof, boards)
    left = max(0.0, memory - roof.weight_bytes) if memory and roof.weight_bytes else None
    capacity = max((tokens for one in points if (tokens := kv_capacity(one)) is not None), default=None)
    contexts = _contexts(points)
    rows: Rows = []
    for context in contexts:
        sequence = _sequence_bytes(roof, context)
        rows.append([
            float(context), sequence / context, sequence, None if left is None else float(int(left // sequence)),
            None if capacity is None else float(int(capacity // context)),
        ])  # fmt: skip
    columns = [
        column("context", "Context, tokens"),
        column("kv_bytes_per_token", "A token, on average" if has_windows(point) else "A token", "B/token"),
        column("kv_bytes", "A sequence", "B"), column("sequences", "Sequences beside the weights"),
        column("engine_sequences", "Sequences that the engine holds"),
    ]  # fmt: skip
    shown = labels.serving(axes, "clock", "enforce_eager", "policy", "arrival", "model")
    serving = [part for part in shown if part != short(axes.model)]
    model = short(axes.model) + (f" ({', '.join(serving)})" if serving else "")
    sentences = _sizes(roof, model, max(contexts, default=0))
    if left is not None and memory and roof.weight_bytes:
        source = "" if read else " (by the data sheet: what the board has was not read)"
        sentences.append(
            f"The weights ({format_value(roof.weight_bytes, 'B')}) leave {format_value(left, 'B')} of "
            f"{format_value(memory, 'B')}{source}: {_most(roof, left, contexts)} at most, if nothing else took memory."
        )
    elif roof.reason:
        sentences.append(f"What fits beside the weights is not known: {printable(roof.reason)}.")
    if capacity is not None:
        sentences.append(f"The engine holds {capacity:,.0f} tokens.")
    elif has_windows(point) and any(limit(one, "num_gpu_blocks") for one in points):
        sentences.append(
            "How many tokens the engine holds is not told: layers with a window need fewer of its blocks than others."
        )
    for gpus in [gpus for gpus in varied(everywhere, "tensor_parallel_size") if gpus != fewest]:
        held = [tokens for p in everywhere if p.axes.tensor_parallel_size == gpus and (tokens := kv_capacity(p))]
        if held:
            sentences.append(f"On {gpus} GPUs it holds {max(held):,.0f}.")
    told = [short(axes.model), *serving]
    return finding("kv_cache", slug(*told), f"KV cache: {', '.join(told)}", sentences, columns, rows, everywhere)


def _sequence_bytes(roof: RoofRecord, context: int) -> float:
    """Bytes of one sequence: layers with a window keep no more tokens than that."""
    if not roof.kv_layers:
        return (roof.kv_bytes_per_token or 0.0) * context
    return sum(layers.bytes_per_token * min(context, layers.window or context) for layers in roof.kv_layers)


def _sizes(roof: RoofRecord, model: str, longest: int) -> list[str]:
    """What a token and a sequence take, and from where on a token takes less."""
    token, first = format_value(roof.kv_bytes_per_token, "B"), _CONTEXTS[0]
    sequence = format_value(_sequence_bytes(roof, first), "B")
    sentences = [f"A token of {model} takes {token} of KV cache, a sequence of {first:,} tokens {sequence}."]
    for window in sorted({layers.window or 0 for layers in roof.kv_layers} - {0}):
        if window >= longest:
            break
        further = _sequence_bytes(roof, window + 1) - _sequence_bytes(roof, window)
        takes = f"{format_value(further, 'B')} more" if further else "none more"
        sentences.append(
            f"Layers with a window keep {window:,} tokens at most: beyond them a further token takes {takes}, and a "
            f"sequence of {2 * window:,} tokens {format_value(_sequence_bytes(roof, 2 * window), 'B')}."
        )
    return sentences


def _most(roof: RoofRecord, left: float, contexts: Sequence[int]) -> str:
    """What fits into memory: tokens, or where they do not all take the same, sequences of a length."""
    if all(layers.window is None for layers in roof.kv_layers):
        return f"{left // (roof.kv_bytes_per_token or 1.0):,.0f} tokens"
    context = max(contexts, default=_CONTEXTS[0])
    return f"{left // _sequence_bytes(roof, context):,.0f} sequences of {context:,} tokens"


def _memory(point: Point, roof: RoofRecord, boards: Sequence[Gpu]) -> tuple[float | None, bool]:
    """Bytes of all devices, and whether the boards told them: a data sheet's round figure is less than they have."""
    engine = point.test.engine
    assert engine is not None
    told = [
        board.memory_bytes for board in boards
        if board.name == engine.device and board.simulated == engine.simulated and board.memory_bytes
    ]  # fmt: skip
    if not told:
        return roof.memory_bytes, False
    # Of boards that differ the largest: it is to be a bound.
    return float(max(told) * engine.tensor_parallel_size * (limit(point, "pipeline_parallel_size") or 1)), True


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
