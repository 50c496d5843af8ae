"""How much an engine takes at once: sequences, and tokens in its KV cache."""

from __future__ import annotations

from pytest_llmperf.findings.points import Point

__all__ = ["has_windows", "kv_capacity", "limit"]


def limit(point: Point, name: str) -> int | None:
    """A limit of the engine under vLLM's name: what it came to, else what it was given; ``None`` where neither is told.

    Records from before engines told their limits, and simulated ones among them, have it in the arguments alone.
    """
    engine = point.test.engine
    if engine is None:
        return None
    told = (engine.limits.get(name), engine.args.get(name))
    # A bool is an int as well, and no limit.
    return next((value for value in told if type(value) is int and value > 0), None)


def has_windows(point: Point) -> bool:
    """Whether layers of the model keep no more tokens than a window."""
    roof = point.test.roof
    return roof is not None and any(layers.window is not None for layers in roof.kv_layers)


def kv_capacity(point: Point) -> float | None:
    """Tokens that the KV cache of the engine holds; ``None`` where it does not tell.

    Where layers have windows its blocks are shared between kinds of layers that need different numbers of them, and
    their number times their size is no number of tokens.
    """
    blocks, each = limit(point, "num_gpu_blocks"), limit(point, "block_size")
    return None if blocks is None or each is None or has_windows(point) else float(blocks * each)
