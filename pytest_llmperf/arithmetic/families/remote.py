"""Families whose model code lies beside their checkpoints, not in transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Sizes,
    decoder,
    fused_qkv,
    gated_mlp,
    grouped_query,
    qkv,
    read_sizes,
)
from pytest_llmperf.arithmetic.structure import Linear

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder


def minicpm(config: Config) -> Decoder:
    """MiniCPM 1 and 2: Llama, tied."""
    sizes = read_sizes(config)
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


def internlm2(config: Config) -> Decoder:
    """InternLM 2 and 2.5: Llama with fused queries, keys and values."""
    sizes = read_sizes(config)
    bias = config.flag("bias", False)
    layer = (
        *fused_qkv(sizes, ("attention.wqkv", "attention.wo"), bias=bias, out_bias=bias),
        Linear("feed_forward.w1", sizes.hidden, config.count("intermediate_size")),
        Linear("feed_forward.w3", sizes.hidden, config.count("intermediate_size")),
        Linear("feed_forward.w2", config.count("intermediate_size"), sizes.hidden),
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
        head="output",
    )


def internlm3(config: Config) -> Decoder:
    """InternLM 3: Llama with a switch for the biases of queries, keys and values."""
    sizes = read_sizes(config)
    bias = config.flag("bias", False)
    layer = qkv(sizes, bias=config.flag("qkv_bias", False), out_bias=bias) + gated_mlp(
        sizes.hidden, config.count("intermediate_size"), bias=bias
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
    )


def chatglm(config: Config) -> Decoder:
    """ChatGLM 2 and 3, and GLM-4 9B in its first form."""
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    kv_heads = heads
    if config.flag("multi_query_attention", False):
        kv_heads = config.count("multi_query_group_num", 1)
    head_dim = config.count("kv_channels", 128)
    vocab = config.count("padded_vocab_size")
    sizes = Sizes(hidden, config.layers("num_layers"), heads, kv_heads, head_dim, vocab)
    bias = config.flag("add_bias_linear", False)
    width = config.count("ffn_hidden_size")
    layer = (
        *fused_qkv(
            sizes,
            ("self_attention.query_key_value", "self_attention.dense"),
            bias=bias or config.flag("add_qkv_bias", False),
            out_bias=bias,
        ),
        Linear("mlp.dense_h_to_4h", hidden, 2 * width, bias),
        Linear("mlp.dense_4h_to_h", width, hidden, bias),
    )
    norm = hidden if config.flag("rmsnorm", True) else 2 * hidden
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * norm,
        final_norm=norm if config.flag("post_layer_norm", True) else 0,
        prefix="transformer.encoder.layers.",
        head="transformer.output_layer",
    )
