"""Families before Llama: layer norms with biases, plain feed-forward blocks, learned positions or ALiBi."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmperf.arithmetic.config import Config
from pytest_llmperf.arithmetic.families.blocks import (
    Sizes,
    decoder,
    first_present,
    fused_qkv,
    grouped_query,
    plain_mlp,
    qkv,
    read_sizes,
)
from pytest_llmperf.arithmetic.structure import Decoder, Linear


def _gpt_sizes(config: Config, kv_heads: int | None = None) -> Sizes:
    sizes = read_sizes(
        config,
        hidden_key=first_present(config, "n_embd", "hidden_size"),
        layers_key=first_present(config, "n_layer", "num_hidden_layers"),
        heads_key=first_present(config, "n_head", "num_attention_heads"),
        kv_heads=kv_heads,
    )
    return sizes if kv_heads is None else replace(sizes, kv_heads=kv_heads)


def gpt2(config: Config) -> Decoder:
    """GPT-2."""
    return _gpt2(config, _gpt_sizes(config))


def gpt_bigcode(config: Config) -> Decoder:
    """SantaCoder and StarCoder: GPT-2 with one key and value for all heads."""
    return _gpt2(config, _gpt_sizes(config, 1 if config.flag("multi_query", True) else None))


def _gpt2(config: Config, sizes: Sizes) -> Decoder:
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
        positions=config.count(first_present(config, "n_positions", "max_position_embeddings"), 1024),
    )


def gptj(config: Config) -> Decoder:
    """GPT-J: rotary positions, one norm a layer, a biased output projection."""
    sizes = _gpt_sizes(config)
    layer = (
        Linear("attn.q_proj", sizes.hidden, sizes.hidden),
        Linear("attn.k_proj", sizes.hidden, sizes.hidden),
        Linear("attn.v_proj", sizes.hidden, sizes.hidden),
        Linear("attn.out_proj", sizes.hidden, sizes.hidden),
        *plain_mlp(sizes.hidden, config.count("n_inner", 4 * sizes.hidden), ("mlp.fc_in", "mlp.fc_out"), bias=True),
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden,
        final_norm=2 * sizes.hidden,
        prefix="transformer.h.",
        head_bias=True,
    )


def gpt_neox(config: Config) -> Decoder:
    """GPT-NeoX, Pythia and Dolly."""
    sizes = read_sizes(config)
    bias = config.flag("attention_bias", True)
    layer = fused_qkv(sizes, ("attention.query_key_value", "attention.dense"), bias=bias, out_bias=bias) + plain_mlp(
        sizes.hidden, config.count("intermediate_size"), ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), bias=True
    )
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
        prefix="gpt_neox.layers.",
        head="embed_out",
    )


def opt(config: Config) -> Decoder:
    """OPT: learned positions with an offset of two; narrower tables with projections in the 350M model."""
    sizes = read_sizes(config)
    bias = config.flag("enable_bias", True)
    layer = qkv(sizes, bias=bias, out_bias=bias, out="out_proj") + plain_mlp(
        sizes.hidden, config.count("ffn_dim"), ("fc1", "fc2"), bias=bias
    )
    norm = 2 * sizes.hidden if config.flag("layer_norm_elementwise_affine", True) else 0
    last = config.flag("do_layer_norm_before", True) and not config.flag("_remove_final_layer_norm", False)
    model = decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * norm,
        final_norm=norm if last else 0,
        prefix="model.decoder.layers.",
        positions=config.count("max_position_embeddings", 2048) + 2,
    )
    width = config.count("word_embed_proj_dim", sizes.hidden)
    if width == sizes.hidden:
        return model
    return replace(
        model,
        embedding_dim=width,
        head=Linear("lm_head", width, sizes.vocab),
        linears=(
            Linear("model.decoder.project_in", width, sizes.hidden),
            Linear("model.decoder.project_out", sizes.hidden, width),
        ),
    )


def bloom(config: Config) -> Decoder:
    """BLOOM: ALiBi, and a norm after the input table."""
    sizes = read_sizes(
        config,
        hidden_key=first_present(config, "n_embed", "hidden_size"),
        layers_key=first_present(config, "n_layer", "num_hidden_layers"),
        heads_key=first_present(config, "n_head", "num_attention_heads"),
    )
    layer = fused_qkv(
        sizes, ("self_attention.query_key_value", "self_attention.dense"), bias=True, out_bias=True
    ) + plain_mlp(sizes.hidden, 4 * sizes.hidden, ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), bias=True)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=4 * sizes.hidden,
        final_norm=2 * sizes.hidden,
        prefix="transformer.h.",
        vectors=2 * sizes.hidden,
    )


def falcon(config: Config) -> Decoder:
    """Falcon 7B, 40B, 180B and RW: attention and feed-forward in parallel, one or two norms before them."""
    new = config.flag("new_decoder_architecture", False)
    kv_key = first_present(config, "num_kv_heads", "n_head_kv")
    sizes = read_sizes(
        config,
        layers_key=first_present(config, "num_hidden_layers", "n_layer"),
        heads_key=first_present(config, "num_attention_heads", "n_head"),
        kv_heads_key=kv_key,
    )
    if not new:
        # The old form ignores num_kv_heads: it has one key and value for all heads, or one for each.
        sizes = replace(sizes, kv_heads=1 if config.flag("multi_query", True) else sizes.heads)
    bias = config.flag("bias", False)
    width = config.count("ffn_hidden_size", 4 * sizes.hidden)
    layer = fused_qkv(
        sizes, ("self_attention.query_key_value", "self_attention.dense"), bias=bias, out_bias=bias
    ) + plain_mlp(sizes.hidden, width, ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), bias=bias)
    parallel = config.flag("parallel_attn", True)
    norms = config.count("num_ln_in_parallel_attn", 2 if new else 1, most=2)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden * (norms if parallel and new else 1 if parallel else 2),
        final_norm=2 * sizes.hidden,
        prefix="transformer.h.",
    )


def mpt(config: Config) -> Decoder:
    """MPT: ALiBi, and no biases unless ``no_bias`` says so."""
    attention = config.section("attn_config") or Config({}, config.source)
    sizes = read_sizes(
        config,
        hidden_key=first_present(config, "d_model", "hidden_size"),
        layers_key=first_present(config, "n_layers", "num_hidden_layers"),
        heads_key=first_present(config, "n_heads", "num_attention_heads"),
    )
    kind = attention.text("attn_type") or "multihead_attention"
    if kind == "multiquery_attention":
        sizes = replace(sizes, kv_heads=1)
    elif kind == "grouped_query_attention":
        sizes = replace(sizes, kv_heads=attention.count("kv_n_heads"))
    elif kind != "multihead_attention":
        attention.fail("attn_type", f"is {kind[:40]!r}, which is not known")
    if attention.flag("qk_ln", False):
        attention.fail("qk_ln", "is true, which is not known")
    bias = not config.flag("no_bias", True)
    width = config.count("expansion_ratio", 4) * sizes.hidden
    layer = fused_qkv(sizes, ("attn.Wqkv", "attn.out_proj"), bias=bias, out_bias=bias) + plain_mlp(
        sizes.hidden, width, ("ffn.up_proj", "ffn.down_proj"), bias=bias
    )
    norm = 2 * sizes.hidden if bias else sizes.hidden
    # Positions are learned only where neither ALiBi nor rotary ones replace them.
    learned = not attention.flag("alibi", True) and not attention.flag("rope", False)
    return decoder(
        config,
        sizes,
        tied=True,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * norm,
        final_norm=norm,
        prefix="transformer.blocks.",
        positions=config.count("max_seq_len", 2048) if learned and config.flag("learned_pos_emb", True) else 0,
    )


def phi(config: Config) -> Decoder:
    """Phi-1, 1.5 and 2: biases everywhere, one norm a layer."""
    sizes = read_sizes(config)
    layer = qkv(sizes, bias=True, out_bias=True, out="dense") + plain_mlp(
        sizes.hidden, config.count("intermediate_size"), ("mlp.fc1", "mlp.fc2"), bias=True
    )
    qk_norm = 4 * sizes.head_dim if config.flag("qk_layernorm", False) else 0
    return decoder(
        config,
        sizes,
        tied=False,
        layer=lambda _: layer,
        attention=grouped_query(sizes),
        norms=2 * sizes.hidden + qk_norm,
        final_norm=2 * sizes.hidden,
        head_bias=True,
    )
