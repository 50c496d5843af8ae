"""Mixtures of experts with a cache of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Block,
    decoder,
    experts,
    gated_mlp,
    grouped_query,
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


def _is_sparse(index: int, dense: frozenset[int], step: int) -> bool:
    return index not in dense and (index + 1) % step == 0


def qwen2_moe(config: Config) -> Decoder:
    """Qwen 1.5 and 2 MoE: a gated shared expert beside the routed ones."""
    sizes = read_sizes(config, kv_heads=16)
    count, selected = read_expert_counts(config, "num_experts", "num_experts_per_tok", 4)
    attention = qkv(sizes, bias=config.flag("qkv_bias", True))
    sparse = (
        attention
        + experts(sizes.hidden, config.count("moe_intermediate_size"), count, selected)
        + gated_mlp(sizes.hidden, config.count("shared_expert_intermediate_size"), prefix="mlp.shared_expert.")
        + (Linear("mlp.shared_expert_gate", sizes.hidden, 1, router=True),)
    )
    dense_layers = frozenset(config.counts("mlp_only_layers") or ())
    step = config.count("decoder_sparse_step", 1)

    def layer(index: int) -> Block:
        if _is_sparse(index, dense_layers, step):
            return sparse
        return attention + gated_mlp(sizes.hidden, config.count("intermediate_size"))

    # Unlike its dense sibling, this family slides every other one of the layers below max_window_layers.
    window = None
    if config.flag("use_sliding_window", False):
        window = config.optional_count("sliding_window") if "sliding_window" in config.values else 4096
    last = config.count("max_window_layers", 28, least=0)
    spans = windows(config, sizes.layers, lambda index: index % 2 == 0 and index < last, window)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=layer,
        attention=[grouped_query(sizes, span) for span in spans],
        norms=2 * sizes.hidden,
    )


def qwen3_moe(config: Config) -> Decoder:
    """Qwen 3 MoE: norms of queries and keys, no shared expert."""
    sizes = read_sizes(config, kv_heads=4)
    count, selected = read_expert_counts(config, "num_experts", "num_experts_per_tok", 8)
    bias = config.flag("attention_bias", False)
    attention = qkv(sizes, bias=bias, out_bias=bias)
    sparse = attention + experts(sizes.hidden, config.count("moe_intermediate_size"), count, selected)
    dense_layers = frozenset(config.counts("mlp_only_layers") or ())
    step = config.count("decoder_sparse_step", 1)

    def layer(index: int) -> Block:
        if _is_sparse(index, dense_layers, step):
            return sparse
        return attention + gated_mlp(sizes.hidden, config.count("intermediate_size"))

    return decoder(
        config,
        sizes,
        tied=False,
        layer=layer,
        attention=[grouped_query(sizes, span) for span in qwen_windows(config, sizes.layers)],
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
