"""What families have in common: sizes, attention, feed-forward blocks, and how layers are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.structure import Attention, Decoder, Layer, Linear

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config

Block = tuple[Linear, ...]

MAX_EXPERTS = 100_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The widths that every block of a model depends on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all keys, or of all values."""
        return self.kv_heads * self.head_dim


def read_sizes(
    config: Config,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    hidden_key: str = "hidden_size",
    layers_key: str = "num_hidden_layers",
    heads_key: str = "num_attention_heads",
    kv_heads_key: str = "num_key_value_heads",
) -> Sizes:
    """Read the widths, and check that they agree.

    Args:
        config: The language model's config.
        kv_heads: What the family assumes when its key is absent; else the number of query heads.
        head_dim: Likewise; else the hidden size over the number of query heads.
        hidden_key: The family's name for the hidden size.
        layers_key: The family's name for the number of layers.
        heads_key: The family's name for the number of query heads.
        kv_heads_key: The family's name for the number of key and value heads.
    """
    hidden = config.count(hidden_key)
    layers = config.layers(layers_key)
    heads = config.count(heads_key)
    # An explicit null means "as many as query heads" to every configuration class, whatever its default.
    explicit_null = kv_heads_key in config.values and config.get(kv_heads_key) is None
    kv_heads = config.count(kv_heads_key, heads if explicit_null or kv_heads is None else kv_heads)
    if heads % kv_heads:
        config.fail(
            kv_heads_key,
            f"({kv_heads}) does not divide the {heads} of `{heads_key}`",
            "Correct whichever of the two is wrong.",
        )
    head_dim = config.optional_count("head_dim") or head_dim
    if head_dim is None:
        if hidden % heads:
            config.fail(
                hidden_key,
                f"({hidden}) is no multiple of the {heads} of `{heads_key}`",
                "Correct whichever of the two is wrong, or give `head_dim`.",
            )
        head_dim = hidden // heads
    return Sizes(hidden, layers, heads, kv_heads, head_dim, config.count("vocab_size"))


def qkv(sizes: Sizes, *, bias: bool = False, out_bias: bool = False, out: str = "o_proj") -> Block:
    """Separate query, key and value projections and the output projection."""
    return (
        Linear("self_attn.q_proj", sizes.hidden, sizes.query_width, bias),
        Linear("self_attn.k_proj", sizes.hidden, sizes.kv_width, bias),
        Linear("self_attn.v_proj", sizes.hidden, sizes.kv_width, bias),
        Linear(f"self_attn.{out}", sizes.query_width, sizes.hidden, out_bias),
    )


def fused_qkv(sizes: Sizes, names: tuple[str, str], *, bias: bool = False, out_bias: bool = False) -> Block:
    """One matrix for queries, keys and values, and the output projection."""
    return (
        Linear(names[0], sizes.hidden, sizes.query_width + 2 * sizes.kv_width, bias),
        Linear(names[1], sizes.query_width, sizes.hidden, out_bias),
    )


def gated_mlp(hidden: int, width: int, *, bias: bool = False, prefix: str = "mlp.") -> Block:
    """Gate, up and down projections (SwiGLU and its like)."""
    return (
        Linear(f"{prefix}gate_proj", hidden, width, bias),
        Linear(f"{prefix}up_proj", hidden, width, bias),
        Linear(f"{prefix}down_proj", width, hidden, bias),
    )


def plain_mlp(hidden: int, width: int, names: tuple[str, str], *, bias: bool = False) -> Block:
    """Up and down projections around an activation."""
    return (Linear(names[0], hidden, width, bias), Linear(names[1], width, hidden, bias))


def fused_gated_mlp(hidden: int, width: int, *, prefix: str = "mlp.") -> Block:
    """One matrix for gate and up, and the down projection."""
    return (
        Linear(f"{prefix}gate_up_proj", hidden, 2 * width),
        Linear(f"{prefix}down_proj", width, hidden),
    )


def experts(
    hidden: int,
    width: int,
    count: int,
    selected: int,
    *,
    prefix: str = "mlp.",
    router: str = "gate",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Block:
    """A router and gated experts, of which each token uses ``selected``."""
    first = f"{prefix}experts.0."
    return (
        Linear(f"{prefix}{router}", hidden, count, router=True),
        Linear(first + names[0], hidden, width, copies=count, selected=selected),
        Linear(first + names[1], hidden, width, copies=count, selected=selected),
        Linear(first + names[2], width, hidden, copies=count, selected=selected),
    )


# Saving a config can swap a family's own names for these, and back.
_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_SELECTED_KEYS = ("num_experts_per_tok", "moe_k")


def read_expert_counts(config: Config, count_key: str, selected_key: str, selected: int | None) -> tuple[int, int]:
    """How many experts a layer has, and how many of them a token uses."""
    count_key = first_present(config, count_key, *_COUNT_KEYS)
    selected_key = first_present(config, selected_key, *_SELECTED_KEYS)
    count = config.count(count_key, most=MAX_EXPERTS)
    used = config.count(selected_key, selected)
    if used > count:
        config.fail(selected_key, f"({used}) is more than the {count} of `{count_key}`")
    return count, used


def first_present(config: Config, *keys: str) -> str:
    """The one of a key's names that a config uses, or else the first."""
    return next((key for key in keys if config.get(key) is not None), keys[0])


def grouped_query(sizes: Sizes, window: int | None = None) -> Attention:
    """Attention with a cache of keys and values: multi-head, grouped-query or multi-query."""
    return Attention(sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.head_dim, window)


def windows(config: Config, layers: int, default: Callable[[int], bool], window: int | None) -> tuple[int | None, ...]:
    """Each layer's sliding window, or ``None``.

    Args:
        config: The language model's config; its ``layer_types``, when present, decide.
        layers: Number of layers.
        default: Whether the family slides a layer when the config has no ``layer_types``.
        window: The window of the layers that slide; ``None`` when none does.
    """
    types = config.strings("layer_types")
    if not types:
        return tuple(window if window is not None and default(index) else None for index in range(layers))
    if len(types) < layers:
        config.fail("layer_types", f"has {len(types)} entries for {layers} layers")
    for name in types:
        if name not in ("full_attention", "sliding_attention"):
            config.fail(
                "layer_types",
                f"has the layer type {name!r}, which is not known",
                "Only full_attention and sliding_attention can be computed.",
            )
    return tuple(window if name == "sliding_attention" else None for name in types[:layers])


def decoder(
    config: Config,
    sizes: Sizes,
    *,
    tied: bool,
    layer: Callable[[int], Block],
    attention: Sequence[Attention] | Attention,
    norms: int,
    final_norm: int | None = None,
    prefix: str = "model.layers.",
    head: str = "lm_head",
    head_bias: bool = False,
    positions: int = 0,
    vectors: int = 0,
) -> Decoder:
    """Put a model together.

    Args:
        config: The language model's config.
        sizes: Its widths.
        tied: Whether the output projection is the input table when the config doesn't say.
        layer: The weight matrices of a layer, by its index.
        attention: Every layer's attention, or the one of all layers.
        norms: Elements of a layer's norms and other vectors.
        final_norm: Elements of the norm after the last layer; by default the hidden size.
        prefix: What names of modules in layers begin with, up to the index.
        head: Name of the output projection.
        head_bias: Whether it has a bias.
        positions: Learned positions.
        vectors: Further elements outside the layers.
    """
    attentions = [attention] * sizes.layers if isinstance(attention, Attention) else attention
    return Decoder(
        layers=tuple(
            Layer(f"{prefix}{index}.", attentions[index], layer(index), norms) for index in range(sizes.layers)
        ),
        vocab_size=sizes.vocab,
        embedding_dim=sizes.hidden,
        head=Linear(head, sizes.hidden, sizes.vocab, head_bias),
        tied=config.flag("tie_word_embeddings", tied),
        position_params=positions * sizes.hidden,
        vectors=vectors + (sizes.hidden if final_norm is None else final_norm),
    )


def is_sparse_layer(index: int, dense: frozenset[int], step: int) -> bool:
    """Whether a layer has experts: every ``step``-th, but for those listed as dense."""
    return index not in dense and (index + 1) % step == 0
