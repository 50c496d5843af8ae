"""Mixtures of experts beside shared experts that every token uses, some of them after dense first layers."""

from __future__ import annotations

from dataclasses import replace
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
from pytest_llmperf.arithmetic.structure import Decoder, Linear

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config


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
        if is_sparse_layer(index, dense_layers, step):
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


def glm4_moe(config: Config) -> Decoder:
    """GLM-4.5 and 4.6: dense first layers, a shared expert after them."""
    sizes = read_sizes(config, kv_heads=8)
    count, selected = read_expert_counts(config, "n_routed_experts", "num_experts_per_tok", 8)
    width = config.count("moe_intermediate_size")
    attention = qkv(sizes, bias=config.flag("attention_bias", False))
    sparse = (
        attention
        + experts(sizes.hidden, width, count, selected)
        + gated_mlp(sizes.hidden, config.count("n_shared_experts", 1) * width, prefix="mlp.shared_experts.")
    )
    first_dense = config.count("first_k_dense_replace", 1, least=0)

    def layer(index: int) -> Block:
        if index >= first_dense:
            return sparse
        return attention + gated_mlp(sizes.hidden, config.count("intermediate_size"))

    qk_norm = 2 * sizes.head_dim if config.flag("use_qk_norm", False) else 0
    return decoder(
        config,
        sizes,
        tied=False,
        layer=layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + qk_norm,
    )


def deepseek(config: Config) -> Decoder:
    """DeepSeek MoE 16B, the first: multi-head attention, dense first layers, shared experts after them."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", False)
    attention = qkv(sizes, bias=bias, out_bias=bias)
    dense = attention + gated_mlp(sizes.hidden, config.count("intermediate_size"))
    if config.get("n_routed_experts") is None:  # DeepSeek LLM 7B and 67B in this form
        sparse = dense
    else:
        count, selected = read_expert_counts(config, "n_routed_experts", "num_experts_per_tok", None)
        width = config.count("moe_intermediate_size")
        sparse = attention + experts(sizes.hidden, width, count, selected)
        if config.get("n_shared_experts") is not None:
            shared = config.count("n_shared_experts") * width
            sparse += gated_mlp(sizes.hidden, shared, prefix="mlp.shared_experts.")
    first_dense = config.count("first_k_dense_replace", 0, least=0)
    step = config.count("moe_layer_freq", 1)
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda index: sparse if index >= first_dense and index % step == 0 else dense,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def ernie4_5_moe(config: Config) -> Decoder:
    """Ernie 4.5 MoE: dense first layers, shared experts after them; tied."""
    sizes = read_sizes(config, kv_heads=4)
    count, selected = read_expert_counts(config, "moe_num_experts", "moe_k", 6)
    width = config.count("moe_intermediate_size")
    bias = config.flag("use_bias", False)
    attention = qkv(sizes, bias=bias, out_bias=bias)
    sparse = attention + experts(sizes.hidden, width, count, selected)
    shared = config.count("moe_num_shared_experts", 2, least=0)
    if shared:
        sparse += gated_mlp(sizes.hidden, shared * width, bias=bias, prefix="mlp.shared_experts.")
    dense = attention + gated_mlp(sizes.hidden, config.count("intermediate_size"), bias=bias)
    first = config.count("moe_layer_start_index", 1, least=0)
    last = config.count("moe_layer_end_index", -1, least=-1)
    last = sizes.layers - 1 if last == -1 else last
    step = config.count("moe_layer_interval", 1)
    sparse_layers = [first <= index <= last and (index + 1) % step == 0 for index in range(sizes.layers)]
    plain = decoder(
        config,
        sizes,
        tied=True,
        layer=lambda index: sparse if sparse_layers[index] else dense,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
        head_bias=bias,
    )
    # A sparse layer's router has a correction for each expert beside its weights.
    layers = (
        replace(layer, vectors=layer.vectors + (count if is_sparse else 0))
        for layer, is_sparse in zip(plain.layers, sparse_layers, strict=True)
    )
    return replace(plain, layers=tuple(layers))
