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


def qwen_windows(
    config: Config, layers: int, first_default: int = 28, *, every: bool = False
) -> tuple[int | None, ...]:
    """Qwen 2 and 3 slide only when told to: the layers from ``max_window_layers`` on, or every layer."""
    window = None
    if config.flag("use_sliding_window", False):
        window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    first = 0 if every else config.count("max_window_layers", first_default, least=0)
    return windows(config, layers, lambda index: index >= first, window)


def qwen2(config: Config) -> Decoder:
    """Qwen 1.5, 2 and 2.5: biases on queries, keys and values."""
    return _qwen2(config, kv_heads=32, first_window=28)


def qwen2_vl(config: Config) -> Decoder:
    """The language model of Qwen 2 VL and 2.5 VL: Qwen 2 with other defaults."""
    return _qwen2(config, kv_heads=8, first_window=80)


def _qwen2(config: Config, *, kv_heads: int, first_window: int) -> Decoder:
    sizes = read_sizes(config, kv_heads=kv_heads)
    layer = qkv(sizes, bias=True) + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in qwen_windows(config, sizes.layers, first_window)],
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
