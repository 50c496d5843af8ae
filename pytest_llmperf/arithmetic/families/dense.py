"""Dense families that differ from Llama in their norms, biases or feed-forward blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Block,
    decoder,
    fused_gated_mlp,
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


def ernie4_5(config: Config) -> Decoder:
    """Ernie 4.5: one switch for all biases; tied."""
    sizes = read_sizes(config, kv_heads=2, head_dim=128)
    bias = config.flag("use_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"), bias=bias)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def seed_oss(config: Config) -> Decoder:
    """Seed-OSS: biases on queries, keys and values, and a switch of its own for the output's."""
    sizes = read_sizes(config, kv_heads=8, head_dim=128)
    layer = qkv(
        sizes, bias=config.flag("attention_bias", True), out_bias=config.flag("attention_out_bias", False)
    ) + gated_mlp(sizes.hidden, config.count("intermediate_size"), bias=config.flag("mlp_bias", False))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def hunyuan(config: Config) -> Decoder:
    """HunYuan dense: norms of queries and keys."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + 2 * sizes.head_dim,
    )


def exaone4(config: Config) -> Decoder:
    """EXAONE 4: norms of queries and keys; three of four layers slide when a window is given."""
    sizes = read_sizes(config, kv_heads=32)
    layer = qkv(sizes) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    pattern = config.get("sliding_window_pattern")
    every = config.count("sliding_window_pattern", 4) if not isinstance(pattern, str) else len(pattern) or 4
    spans = windows(config, sizes.layers, lambda index: (index + 1) % every != 0, window)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=2 * sizes.hidden + 2 * sizes.head_dim,
    )


def arcee(config: Config) -> Decoder:
    """Arcee AFM: a feed-forward block without gate."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + _up_down(config, sizes.hidden)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def nemotron(config: Config) -> Decoder:
    """Nemotron 4 and Minitron: layer norms with biases, a feed-forward block without gate."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + _up_down(config, sizes.hidden)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
    )


def apertus(config: Config) -> Decoder:
    """Apertus: norms of queries and keys, and an activation (xIELU) with two parameters a layer."""
    sizes = read_sizes(config)
    if config.text("hidden_act") not in (None, "xielu"):
        config.fail("hidden_act", "is not xielu, the one activation of this family that is known")
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + _up_down(config, sizes.hidden)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + 2 * sizes.head_dim + 2,
    )


def _up_down(config: Config, hidden: int) -> Block:
    bias = config.flag("mlp_bias", False)
    return plain_mlp(hidden, config.count("intermediate_size"), ("mlp.up_proj", "mlp.down_proj"), bias=bias)


def stablelm(config: Config) -> Decoder:
    """StableLM 2: layer norms with biases; one a layer where attention and feed-forward run in parallel."""
    sizes = read_sizes(config, kv_heads=32)
    layer = qkv(sizes, bias=config.flag("use_qkv_bias", False)) + gated_mlp(
        sizes.hidden, config.count("intermediate_size")
    )
    norms = 2 if config.flag("use_parallel_residual", False) else 4
    # Norms of queries and keys have weights for each head and no biases.
    qk_norm = sizes.query_width + sizes.kv_width if config.flag("qk_layernorm", False) else 0
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=norms * sizes.hidden + qk_norm,
        final_norm=2 * sizes.hidden,
    )
