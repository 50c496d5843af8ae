"""The parts of a decoder-only transformer, as far as its parameters, bytes and FLOPs depend on them."""

from __future__ import annotations

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

    @property
    def cache_heads(self) -> int:
        """Heads of the cache that tensor parallelism can spread: of a latent cache, one."""
        return 1 if self.latent_dim is not None else self.kv_heads

    @property
    def cache_elements_per_head(self) -> int:
        """Elements that the cache keeps of a token and cache head."""
        return self.latent_dim if self.latent_dim is not None else self.key_dim + self.value_dim

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
