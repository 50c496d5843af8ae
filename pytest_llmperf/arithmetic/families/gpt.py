"""Families before Llama: layer norms with biases, plain feed-forward blocks, learned positions or ALiBi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families.blocks import (
    Sizes,
    decoder,
    fused_qkv,
    grouped_query,
    plain_mlp,
    read_sizes,
)

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder


def _gpt_sizes(config: Config) -> Sizes:
    return read_sizes(config, hidden_key="n_embd", layers_key="n_layer", heads_key="n_head")


def gpt2(config: Config) -> Decoder:
    """GPT-2."""
    sizes = _gpt_sizes(config)
    width = config.count("n_inner", 4 * sizes.hidden)
    layer = fused_qkv(sizes, ("attn.c_attn", "attn.c_proj"), bias=True, out_bias=True) + plain_mlp(
        sizes.hidden, width, ("mlp.c_fc", "mlp.c_proj"), bias=True
    )
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
        prefix="transformer.h.",
        positions=config.count("n_positions", 1024),
    )
