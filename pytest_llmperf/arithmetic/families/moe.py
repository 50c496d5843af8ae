"""Mixtures of experts in every layer, or in every so many, with a cache of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Block,
    decoder,
    experts,
    gated_mlp,
    grouped_query,
    is_sparse_layer,
    qkv,
    read_expert_counts,
    read_sizes,
    windows,
)
from pytest_llmperf.arithmetic.families.llama import qwen_windows
from pytest_llmperf.arithmetic.structure import Decoder, Linear

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config


def mixtral(config: Config) -> Decoder:
    """Mixtral: experts in every layer, two of which a token uses."""
    sizes = read_sizes(config, kv_heads=8)
    count, selected = read_expert_counts(config, "num_local_experts", "num_experts_per_tok", 2)
    layer = qkv(sizes) + experts(
        sizes.hidden,
        config.count("intermediate_size"),
        count,
        selected,
        prefix="block_sparse_moe.",
        names=("w1", "w3", "w2"),
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes, config.optional_count("sliding_window")),
        norms=2 * sizes.hidden,
    )


def qwen3_moe(config: Config) -> Decoder:
    """Qwen 3 MoE: norms of queries and keys, no shared expert."""
    return _qwen3_moe(config, kv_heads=4)


def qwen3_vl_moe(config: Config) -> Decoder:
    """The language model of Qwen 3 VL MoE: Qwen 3 MoE with other defaults."""
    return _qwen3_moe(config, kv_heads=16)


def _qwen3_moe(config: Config, *, kv_heads: int) -> Decoder:
    sizes = read_sizes(config, kv_heads=kv_heads)
    count, selected = read_expert_counts(config, "num_experts", "num_experts_per_tok", 8)
    bias = config.flag("attention_bias", False)
    attention = qkv(sizes, bias=bias, out_bias=bias)
    sparse = attention + experts(sizes.hidden, config.count("moe_intermediate_size"), count, selected)
    dense_layers = frozenset(config.counts("mlp_only_layers") or ())
    step = config.count("decoder_sparse_step", 1)

    def layer(index: int) -> Block:
        if is_sparse_layer(index, dense_layers, step):
            return sparse
        return attention + gated_mlp(sizes.hidden, config.count("intermediate_size"))

    return decoder(
        config,
        sizes,
        tied=False,
        layer=layer,
        attention=[grouped_query(sizes, span) for span in qwen_windows(config, sizes.layers, every=True)],
        norms=2 * sizes.hidden + 2 * sizes.head_dim,
    )


def gpt_oss(config: Config) -> Decoder:
    """gpt-oss: biases everywhere, attention sinks, every other layer slides over 128 tokens."""
    sizes = read_sizes(config, kv_heads=8, head_dim=64)
    count, selected = read_expert_counts(config, "num_local_experts", "num_experts_per_tok", 4)
    width = config.count("intermediate_size")
    bias = config.flag("attention_bias", True)
    layer = (
        *qkv(sizes, bias=bias, out_bias=bias),
        Linear("mlp.router", sizes.hidden, count, bias=True, router=True),
        Linear("mlp.experts.gate_up_proj", sizes.hidden, 2 * width, bias=True, copies=count, selected=selected),
        Linear("mlp.experts.down_proj", width, sizes.hidden, bias=True, copies=count, selected=selected),
    )
    window = config.optional_count("sliding_window") if "sliding_window" in config.values else 128
    spans = windows(config, sizes.layers, lambda index: index % 2 == 0, window)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=2 * sizes.hidden + sizes.heads,
    )


def olmoe(config: Config) -> Decoder:
    """OLMoE: norms over the whole width of queries and of keys."""
    sizes = read_sizes(config)
    count, selected = read_expert_counts(config, "num_experts", "num_experts_per_tok", 8)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + experts(
        sizes.hidden, config.count("intermediate_size"), count, selected
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + sizes.query_width + sizes.kv_width,
    )


def granitemoe(config: Config) -> Decoder:
    """Granite 3 MoE, with a shared expert where ``shared_intermediate_size`` gives it a width."""
    sizes = read_sizes(config)
    count, selected = read_expert_counts(config, "num_local_experts", "num_experts_per_tok", 2)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + experts(
        sizes.hidden,
        config.count("intermediate_size"),
        count,
        selected,
        prefix="block_sparse_moe.",
        router="router.layer",
    )
    shared = config.count("shared_intermediate_size", 0, least=0)
    if shared:
        layer += (
            Linear("shared_mlp.input_linear", sizes.hidden, 2 * shared),
            Linear("shared_mlp.output_linear", shared, sizes.hidden),
        )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def phimoe(config: Config) -> Decoder:
    """Phi-3.5 MoE: layer norms with biases."""
    sizes = read_sizes(config, kv_heads=8)
    count, selected = read_expert_counts(config, "num_local_experts", "num_experts_per_tok", 2)
    bias = config.flag("attention_bias", False)
    layer = qkv(sizes, bias=bias, out_bias=bias) + experts(
        sizes.hidden,
        config.count("intermediate_size"),
        count,
        selected,
        prefix="block_sparse_moe.",
        names=("w1", "w3", "w2"),
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes, config.optional_count("sliding_window")),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
        head_bias=config.flag("lm_head_bias", False),
    )


def minimax_m2(config: Config) -> Decoder:
    """MiniMax M2: norms over the whole width of queries and of keys."""
    sizes = read_sizes(config, kv_heads=8, head_dim=128)
    count, selected = read_expert_counts(config, "num_local_experts", "num_experts_per_tok", 8)
    layer = qkv(sizes) + experts(
        sizes.hidden,
        config.count("intermediate_size"),
        count,
        selected,
        prefix="block_sparse_moe.",
        names=("w1", "w3", "w2"),
    )
    qk_norm = sizes.query_width + sizes.kv_width if config.flag("use_qk_norm", True) else 0
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + qk_norm,
    )
