"""Gemma 1 to 3: tied tables, head_dim apart from the hidden size, sliding layers between full ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    decoder,
    gated_mlp,
    grouped_query,
    qkv,
    read_sizes,
    windows,
)

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder


def gemma(config: Config) -> Decoder:
    """Gemma 1: tied, head_dim 256."""
    sizes = read_sizes(config, kv_heads=16, head_dim=256)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def gemma2(config: Config) -> Decoder:
    """Gemma 2: four norms a layer; every other layer slides, beginning with the first."""
    return _gemma(config, every=2, qk_norm=False)


def gemma3(config: Config) -> Decoder:
    """Gemma 3: norms of queries and keys as well; every sixth layer attends to everything."""
    return _gemma(config, every=config.count("sliding_window_pattern", 6), qk_norm=True)


def _gemma(config: Config, *, every: int, qk_norm: bool) -> Decoder:
    sizes = read_sizes(config, kv_heads=4, head_dim=256)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    spans = windows(config, sizes.layers, lambda index: (index + 1) % every != 0, window)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=4 * sizes.hidden + (2 * sizes.head_dim if qk_norm else 0),
    )
