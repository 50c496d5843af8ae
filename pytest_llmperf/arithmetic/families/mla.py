"""DeepSeek V2 and V3: multi-head latent attention, and experts beside shared ones after the first layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Block,
    decoder,
    experts,
    gated_mlp,
    read_expert_counts,
    read_sizes,
)
from pytest_llmperf.arithmetic.structure import Attention, Decoder, Linear

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config


def _latent_attention(config: Config, q_lora_rank: int | None) -> tuple[Attention, Block, int]:
    """The attention, its matrices, and the elements of its norms.

    Keys and values are rebuilt from one latent vector per token, which with the rotary part of the key is all
    that the cache keeps. FLOPs are counted as stored, not with ``kv_b_proj`` absorbed into its neighbours.
    """
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    latent = config.count("kv_lora_rank", 512)
    nope = config.count("qk_nope_head_dim", 128)
    rope = config.count("qk_rope_head_dim", 64)
    value = config.count("v_head_dim", 128)
    bias = config.flag("attention_bias", False)
    queries: Block
    if q_lora_rank is None:
        queries = (Linear("self_attn.q_proj", hidden, heads * (nope + rope)),)
    else:
        queries = (
            Linear("self_attn.q_a_proj", hidden, q_lora_rank, bias),
            Linear("self_attn.q_b_proj", q_lora_rank, heads * (nope + rope)),
        )
    matrices = (
        *queries,
        Linear("self_attn.kv_a_proj_with_mqa", hidden, latent + rope, bias),
        Linear("self_attn.kv_b_proj", latent, heads * (nope + value)),
        Linear("self_attn.o_proj", heads * value, hidden, bias),
    )
    attention = Attention(heads, heads, nope + rope, value, latent_dim=latent + rope)
    return attention, matrices, latent + (q_lora_rank or 0)


def _deepseek(config: Config, *, shared: int, first_dense: int, selected: int | None, mlp_bias: bool) -> Decoder:
    # Absent means the class's 1536; null, as in DeepSeek V2 Lite, means queries without a latent.
    q_lora_rank = config.optional_count("q_lora_rank") if "q_lora_rank" in config.values else 1536
    attention, matrices, norms = _latent_attention(config, q_lora_rank)
    sizes = replace(read_sizes(replace(config, values=_without_kv_heads(config))), head_dim=attention.key_dim)
    count, used = read_expert_counts(config, "n_routed_experts", "num_experts_per_tok", selected)
    width = config.count("moe_intermediate_size")
    shared = config.count("n_shared_experts", shared, least=0)
    first_dense = config.count("first_k_dense_replace", first_dense, least=0)
    step = config.count("moe_layer_freq", 1)
    sparse = matrices + experts(sizes.hidden, width, count, used)
    if shared:
        sparse += gated_mlp(sizes.hidden, shared * width, bias=mlp_bias, prefix="mlp.shared_experts.")

    def layer(index: int) -> Block:
        if index >= first_dense and index % step == 0:
            return sparse
        return matrices + gated_mlp(sizes.hidden, config.count("intermediate_size"), bias=mlp_bias)

    return decoder(config, sizes, tied=False, layer=layer, attention=attention, norms=2 * sizes.hidden + norms)


def _without_kv_heads(config: Config) -> dict[str, object]:
    """The config without keys that latent attention gives another meaning to, or none."""
    return {key: value for key, value in config.values.items() if key not in ("num_key_value_heads", "head_dim")}


def deepseek_v2(config: Config) -> Decoder:
    """DeepSeek V2, V2 Lite and V2.5."""
    return _deepseek(config, shared=2, first_dense=0, selected=None, mlp_bias=config.flag("mlp_bias", False))


def deepseek_v3(config: Config) -> Decoder:
    """DeepSeek V3, V3.1 and R1, and Kimi K2. Layers for predicting further tokens are not counted."""
    return _deepseek(config, shared=1, first_dense=3, selected=8, mlp_bias=False)
