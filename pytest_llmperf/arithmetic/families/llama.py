"""Llama and its descendants: rotary positions, RMS norms, gated feed-forward blocks.

Each function gives a family's structure, and in its defaults what the family's configuration class in
Hugging Face transformers assumes of keys that are absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    decoder,
    fused_gated_mlp,
    fused_qkv,
    gated_mlp,
    grouped_query,
    plain_mlp,
    qkv,
    read_sizes,
    windows,
)

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder


def llama(config: Config) -> Decoder:
    """Llama 1 to 3, Yi, SmolLM, and whatever else declares itself as Llama."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(
        sizes.hidden, config.count("intermediate_size"), bias=config.flag("mlp_bias", False)
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def mistral(config: Config) -> Decoder:
    """Mistral: every layer slides, over 4096 tokens when the config doesn't say."""
    sizes = read_sizes(config, kv_heads=8)
    layer = qkv(sizes) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    # Absent means the class's 4096; null, as from Mistral 7B v0.2 on, means none.
    window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    spans = windows(config, sizes.layers, lambda _: True, window)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=2 * sizes.hidden,
    )


def ministral3(config: Config) -> Decoder:
    """Ministral 3: full attention unless a window is given."""
    sizes = read_sizes(config, kv_heads=8, head_dim=128)
    layer = qkv(sizes) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes, config.optional_count("sliding_window")),
        norms=2 * sizes.hidden,
    )


def qwen_windows(config: Config, layers: int) -> tuple[int | None, ...]:
    """Qwen 2 and 3 slide the layers from ``max_window_layers`` on, and only when told to."""
    window = None
    if config.flag("use_sliding_window", False):
        window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    first = config.count("max_window_layers", 28, least=0)
    return windows(config, layers, lambda index: index >= first, window)


def qwen2(config: Config) -> Decoder:
    """Qwen 1.5, 2 and 2.5: biases on queries, keys and values."""
    sizes = read_sizes(config, kv_heads=32)
    layer = qkv(sizes, bias=True) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in qwen_windows(config, sizes.layers)],
        norms=2 * sizes.hidden,
    )


def qwen3(config: Config) -> Decoder:
    """Qwen 3: norms of queries and keys, head_dim apart from the hidden size."""
    sizes = read_sizes(config, kv_heads=32, head_dim=128)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in qwen_windows(config, sizes.layers)],
        norms=2 * sizes.hidden + 2 * sizes.head_dim,
    )


def smollm3(config: Config) -> Decoder:
    """SmolLM 3: tied, and full attention unless told otherwise."""
    sizes = read_sizes(config, kv_heads=4)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(
        sizes.hidden, config.count("intermediate_size"), bias=config.flag("mlp_bias", False)
    )
    window = config.optional_count("sliding_window") if config.flag("use_sliding_window", False) else None
    if window is not None and not config.strings("layer_types"):
        config.fail("layer_types", "is missing", "SmolLM 3 with sliding windows needs it to say which layers slide.")
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in windows(config, sizes.layers, lambda _: False, window)],
        norms=2 * sizes.hidden,
    )


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


def phi3(config: Config) -> Decoder:
    """Phi-3, Phi-3.5 and Phi-4: fused projections."""
    sizes = read_sizes(config)
    layer = fused_qkv(sizes, ("self_attn.qkv_proj", "self_attn.o_proj")) + fused_gated_mlp(
        sizes.hidden, config.count("intermediate_size")
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes, config.optional_count("sliding_window")),
        norms=2 * sizes.hidden,
    )


def glm(config: Config) -> Decoder:
    """GLM-4 9B: biases on queries, keys and values; fused gate and up."""
    return _glm(config, norms=2)


def glm4(config: Config) -> Decoder:
    """GLM-4 0414: four norms a layer."""
    return _glm(config, norms=4)


def _glm(config: Config, *, norms: int) -> Decoder:
    sizes = read_sizes(config, kv_heads=2, head_dim=128)
    layer = qkv(sizes, bias=config.flag("attention_bias", True)) + fused_gated_mlp(
        sizes.hidden, config.count("intermediate_size")
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=norms * sizes.hidden,
    )


def cohere(config: Config) -> Decoder:
    """Command R: one norm a layer, without bias; tied."""
    sizes = read_sizes(config)
    qk_norm = sizes.query_width + sizes.kv_width if config.flag("use_qk_norm", False) else 0
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=sizes.hidden + qk_norm,
    )


def cohere2(config: Config) -> Decoder:
    """Command R7B and A: three of four layers slide."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    every = config.count("sliding_window_pattern", 4)
    window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    spans = windows(config, sizes.layers, lambda index: (index + 1) % every != 0, window)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=sizes.hidden,
    )


def olmo(config: Config) -> Decoder:
    """OLMo 1: norms without parameters."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=0,
        final_norm=0,
    )


def olmo2(config: Config) -> Decoder:
    """OLMo 2: norms over the whole width of queries and of keys."""
    return _olmo(config, slides=False)


def olmo3(config: Config) -> Decoder:
    """OLMo 3: as OLMo 2, and three of four layers slide."""
    return _olmo(config, slides=True)


def _olmo(config: Config, *, slides: bool) -> Decoder:
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    spans: tuple[int | None, ...] = (None,) * sizes.layers
    if slides:
        window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
        spans = windows(config, sizes.layers, lambda index: (index + 1) % 4 != 0, window)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=2 * sizes.hidden + sizes.query_width + sizes.kv_width,
    )


def starcoder2(config: Config) -> Decoder:
    """StarCoder 2: layer norms, biases, a plain feed-forward block; tied."""
    sizes = read_sizes(config, kv_heads=2)
    bias = config.flag("use_bias", True)
    layer = qkv(sizes, bias=bias, out_bias=bias) + plain_mlp(
        sizes.hidden, config.count("intermediate_size"), ("mlp.c_fc", "mlp.c_proj"), bias=bias
    )
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes, config.optional_count("sliding_window")),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
    )
