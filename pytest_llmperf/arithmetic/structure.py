"""The parts of a decoder-only transformer, as far as its parameters, bytes and FLOPs depend on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight matrix, or a set of equal ones of which a token uses some (experts).

    Args:
        name: Its name inside its layer, as in the checkpoint; of experts, that of the first.
        inputs: Width of what it multiplies.
        outputs: Width of the result.
        bias: Whether a bias of ``outputs`` elements belongs to it.
        copies: How many there are.
        selected: How many of the copies one token uses.
        router: Whether it only chooses experts. Engines keep routers in the model's own dtype whatever the
            quantisation.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    selected: int = 1
    router: bool = False

    @property
    def weight_params(self) -> int:
        """Elements of one matrix."""
        return self.inputs * self.outputs

    @property
    def bias_params(self) -> int:
        """Elements of one bias."""
        return self.outputs if self.bias else 0

    @property
    def params(self) -> int:
        """Elements of all copies, biases included."""
        return self.copies * (self.weight_params + self.bias_params)


@dataclass(frozen=True, slots=True)
class Attention:
    """What one layer's attention keeps and multiplies.

    Args:
        heads: Query heads.
        kv_heads: Heads of the KV cache; 1 for a latent cache.
        key_dim: Elements of a key.
        value_dim: Elements of a value.
        window: Most tokens that it looks back on, itself included; ``None`` for all.
        latent_dim: Elements that the cache keeps of a token, of all heads together, where keys and values are
            rebuilt from one latent vector (MLA); ``None`` where they are kept as they are.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    latent_dim: int | None = None

    def cache_elements(self, ranks: int = 1) -> int:
        """Elements that the caches of all tensor-parallel ranks keep of a token.

        Each rank keeps as many heads as come out even, one at the least; a latent vector cannot be spread.
        """
        if ranks < 1:
            raise ValueError(f"the tensor-parallel size must be 1 or more, not {ranks}")
        heads = self.kv_heads if self.latent_dim is None else 1
        per_head = self.key_dim + self.value_dim if self.latent_dim is None else self.latent_dim
        return max(1, heads // ranks) * ranks * per_head

    @property
    def flops_per_context_token(self) -> int:
        """FLOPs of one query token for each token that it attends to: QK^T and AV, of every query head."""
        return 2 * self.heads * (self.key_dim + self.value_dim)

    def span(self, context_len: int) -> int:
        """Tokens that the cache keeps and the newest token attends to, of a context."""
        return context_len if self.window is None else min(context_len, self.window)

    def span_sum(self, context_len: int) -> int:
        """Sum of the spans of every position of a context: what a causal prefill attends to."""
        if self.window is None or context_len <= self.window:
            return context_len * (context_len + 1) // 2
        return self.window * (self.window + 1) // 2 + (context_len - self.window) * self.window

    def mean_span(self, first: int, last: int) -> float:
        """Mean of the spans of the contexts from ``first`` to ``last``, both included."""
        return (self.span_sum(last) - self.span_sum(first - 1)) / (last - first + 1)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    Args:
        prefix: What the names of its modules begin with, such as ``model.layers.0.``.
        attention: Its attention.
        linears: Its weight matrices.
        vectors: Elements of everything else: norms, attention sinks, and so on.
    """

    prefix: str
    attention: Attention
    linears: tuple[Linear, ...]
    vectors: int


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only language model.

    Args:
        layers: Its layers.
        vocab_size: Rows of the input table.
        embedding_dim: Columns of the input table.
        head: The output projection. Tied, it is the input table, and is stored once.
        tied: Whether it is.
        position_params: Elements of a table of learned positions.
        vectors: Elements of norms outside the layers.
        linears: Weight matrices outside the layers, such as projections next to the embeddings.
    """

    layers: tuple[Layer, ...]
    vocab_size: int
    embedding_dim: int
    head: Linear
    tied: bool
    position_params: int = 0
    vectors: int = 0
    linears: tuple[Linear, ...] = ()

    @property
    def embedding_params(self) -> int:
        """Elements of the input table."""
        return self.vocab_size * self.embedding_dim

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Every weight matrix but the output projection, with its full name."""
        for layer in self.layers:
            for linear in layer.linears:
                yield layer.prefix + linear.name, linear
        for linear in self.linears:
            yield linear.name, linear

    @property
    def all_vectors(self) -> int:
        """Elements of all norms and other vectors."""
        return sum(layer.vectors for layer in self.layers) + self.vectors


def expected_distinct_experts(experts: int, selected: int, batch: float) -> float:
    """Experts of a layer that a batch is expected to touch, with uniform routing: E (1 - (1 - k/E)^B).

    Args:
        experts: E, the experts of the layer.
        selected: k, those that one token uses.
        batch: B, the tokens.
    """
    if batch <= 0:
        return 0.0
    if batch == 1 or selected == experts:
        return float(selected)
    return -experts * math.expm1(batch * math.log1p(-selected / experts))
