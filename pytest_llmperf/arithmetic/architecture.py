"""What a model's ``config.json`` says about its parameters, bytes and FLOPs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmperf.arithmetic.config import Config, brief, language_model, read_config
from pytest_llmperf.arithmetic.dtypes import canonical_dtype, dtype_bits
from pytest_llmperf.arithmetic.families import FAMILIES
from pytest_llmperf.arithmetic.quantization import Format, Quantization, read_quantization
from pytest_llmperf.errors import ArchitectureError

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.structure import Decoder, Linear


@dataclass(frozen=True)
class Architecture:
    """A model's parameters, bytes and FLOPs; make one with :meth:`from_config`.

    Counted is the language model: of a multimodal one neither the vision tower nor its projector, and no layers for
    predicting further tokens. Bytes are as stored unless a dtype is given.

    Args:
        model_type: The family, as the config names it.
        decoder: Its structure.
        dtype: The dtype that the config says the checkpoint is stored in, or ``None`` when it doesn't say.
        quantization: How weight matrices are quantised, or ``None``.
        compute_dtype: The dtype in which an engine serves what is not quantised, and keeps the KV cache.
        notes: What a reader of the numbers must know.
    """

    model_type: str
    decoder: Decoder
    dtype: str | None
    quantization: Quantization | None
    compute_dtype: str
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_config(cls, config: str | Path | Mapping[str, Any]) -> Architecture:
        """Read a Hugging Face config.

        Args:
            config: A folder that holds a ``config.json``, such a file, or its content as a mapping.

        Raises:
            ArchitectureError: It cannot be read, a key is missing or makes no sense, or its ``model_type`` or
                quantisation is not known. The message names the key and the file.
        """
        top = read_config(config)
        inner = language_model(top)
        model_type = inner.text("model_type")
        if model_type is None:
            inner.fail("model_type", "is missing", "Add it: it says how to read all the other keys.")
        family = FAMILIES.get(model_type)
        if family is None:
            inner.fail(
                "model_type",
                f"is {brief(model_type)}, an architecture that is not known",
                f"Known are {', '.join(sorted(FAMILIES))}.",
            )
        if (
            inner.nested
            and inner.get("tie_word_embeddings") is None
            and top.get("tie_word_embeddings") is not None
        ):
            inner = replace(
                inner, values={**inner.values, "tie_word_embeddings": top.get("tie_word_embeddings")}
            )
        decoder = family(inner)
        dtype = _read_dtype(inner) or _read_dtype(top)
        section = inner.section("quantization_config") or top.section("quantization_config")
        quantization = read_quantization(section, inner.nested) if section is not None else None
        notes = []
        if inner.nested:
            notes.append("The language model alone: no vision or audio tower, no projector.")
        if dtype is None:
            notes.append("The config gives no dtype: 16 bits are assumed, which is what vLLM serves it in.")
        return cls(model_type, decoder, dtype, quantization, _served(dtype), tuple(notes))

    def _linears(self) -> Iterator[tuple[str, Linear]]:
        """Every weight matrix but the output projection, with its full name."""
        for layer in self.decoder.layers:
            for linear in layer.linears:
                yield layer.prefix + linear.name, linear
        for linear in self.decoder.linears:
            yield linear.name, linear

    @cached_property
    def total_params(self) -> int:
        """All parameters; a tied table counts once."""
        return sum(linear.params for _, linear in self._linears()) + self._other_params

    @cached_property
    def active_params(self) -> int:
        """Parameters that take part in one token: all but the experts that it doesn't use."""
        return self.total_params - sum(
            (linear.copies - linear.selected) * (linear.weight_params + linear.bias_params)
            for _, linear in self._linears()
        )

    @cached_property
    def _other_params(self) -> int:
        """Parameters that are no weight matrix of a layer: tables, output projection, norms."""
        model = self.decoder
        head = model.head.bias_params + (0 if model.tied else model.head.weight_params)
        norms = sum(layer.vectors for layer in model.layers) + model.vectors
        return model.embedding_params + model.position_params + head + norms

    @property
    def embedding_params(self) -> int:
        """Elements of the input table."""
        return self.decoder.embedding_params

    @property
    def position_params(self) -> int:
        """Elements of the table of learned positions."""
        return self.decoder.position_params

    @property
    def tied_embeddings(self) -> bool:
        """Whether the output projection is the input table."""
        return self.decoder.tied

    @cached_property
    def matmul_params(self) -> int:
        """Weights multiplied for one token: projections, selected experts, routers, and the output projection even
        when it is tied; without the input lookup, norms and biases.
        """
        return self.decoder.head.weight_params + sum(
            linear.selected * linear.weight_params for _, linear in self._linears()
        )

    @cached_property
    def quantized_params(self) -> int:
        """Weights that the checkpoint stores quantised."""
        return sum(
            linear.copies * linear.weight_params
            for name, linear in self._linears()
            if self._format(name, linear)
        ) + (self.decoder.head.weight_params if self._head_format else 0)

    def _format(self, name: str, linear: Linear) -> Format | None:
        if self.quantization is None or linear.router:
            return None
        return self.quantization.choose(name)

    @cached_property
    def _head_format(self) -> Format | None:
        # A tied output projection is the input table, which no engine quantises.
        return None if self.decoder.tied else self._format(self.decoder.head.name, self.decoder.head)

    def _copy_bytes(self, name: str, linear: Linear, bits: int, quantized: bool) -> int:
        """Bytes of one copy of a matrix and its bias."""
        fmt = self._format(name, linear) if quantized else None
        if fmt is None:
            return linear.params // linear.copies * bits // 8
        return fmt.bytes(linear, bits) + linear.bias_params * bits // 8

    def _head_bytes(self, bits: int, quantized: bool) -> int:
        head = self.decoder.head
        if quantized and self._head_format is not None:
            return self._head_format.bytes(head, bits) + head.bias_params * bits // 8
        return head.params * bits // 8

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Bytes of all weights.

        Args:
            dtype: Count every parameter in this dtype, as if nothing were quantised. By default: as stored, quantised
                matrices with their scales and zero points, the rest in the config's dtype.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        if dtype is not None:
            return self.total_params * _bits(dtype) // 8
        bits = dtype_bits(self.dtype or self.compute_dtype)
        return self._weight_bytes(bits, quantized=True, batch=math.inf)

    def _weight_bytes(self, bits: int, *, quantized: bool, batch: float) -> int:
        """Bytes of the weights, of experts those that a batch of tokens is expected to touch."""
        total = 0.0
        exact = 0
        for name, linear in self._linears():
            size = self._copy_bytes(name, linear, bits, quantized)
            if linear.copies == 1 or batch == math.inf:
                exact += linear.copies * size
            else:
                total += size * expected_distinct_experts(linear.copies, linear.selected, batch)
        model = self.decoder
        head = model.head.bias_params * bits // 8 if model.tied else self._head_bytes(bits, quantized)
        norms = sum(layer.vectors for layer in model.layers) + model.vectors
        exact += head + (model.embedding_params + model.position_params + norms) * bits // 8
        return exact + round(total)

    def kv_bytes_per_token(self, dtype: str | None = None, *, tensor_parallel: int = 1) -> int:
        """Bytes that the KV cache of one sequence grows by with a token, while no sliding window is full.

        2 (K, V) x layers x KV heads x head_dim x bytes per element; with MLA one latent vector instead.

        Args:
            dtype: Of the cache; by default the dtype that the model is served in.
            tensor_parallel: GPUs over which the heads are spread. The bytes are those of all of them together: where
                there are more GPUs than heads, each head is kept several times.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        return self.kv_bytes(1, dtype, tensor_parallel=tensor_parallel)

    def kv_bytes(self, context_len: int, dtype: str | None = None, *, tensor_parallel: int = 1) -> int:
        """Bytes of the KV cache of one sequence.

        Layers with a sliding window keep no more tokens than the window. An engine's rounding up to blocks is not
        included.

        Args:
            context_len: Tokens of the sequence.
            dtype: Of the cache; by default the dtype that the model is served in.
            tensor_parallel: GPUs over which the heads are spread; the bytes are those of all of them together.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        bits = _bits(dtype) if dtype is not None else dtype_bits(self.compute_dtype)
        return (
            sum(
                _heads_kept(layer.attention.cache_heads, tensor_parallel)
                * layer.attention.cache_elements_per_head
                * layer.attention.span(context_len)
                for layer in self.decoder.layers
            )
            * bits
            // 8
        )

    def decode_weight_bytes(self, batch: float, dtype: str | None = None) -> int:
        """Bytes of weights that one decode step reads.

        All but the untied input table and learned positions, of which it reads single rows; of experts those that the
        batch is expected to touch.

        Args:
            batch: Sequences in the batch.
            dtype: As if every parameter were kept in this dtype; by default as served: quantised matrices as
                stored, the rest in :attr:`compute_dtype`.
        """
        bits = _bits(dtype) if dtype is not None else dtype_bits(self.compute_dtype)
        rows = self.decoder.position_params + (0 if self.decoder.tied else self.decoder.embedding_params)
        return self._weight_bytes(bits, quantized=dtype is None, batch=batch) - rows * bits // 8

    def decode_read_bytes(
        self, batch: int, context_len: int, dtype: str | None = None, *, kv_dtype: str | None = None
    ) -> int:
        """Bytes that one decode step reads: weights once, and the KV cache of every sequence.

        Args:
            batch: Sequences in the batch.
            context_len: Tokens of each of them.
            dtype: Of the weights, see :meth:`decode_weight_bytes`, and of the cache unless it has its own.
            kv_dtype: Of the cache.
        """
        return self.decode_weight_bytes(batch, dtype) + batch * self.kv_bytes(context_len, kv_dtype or dtype)

    @property
    def weight_flops_per_token(self) -> int:
        """FLOPs of the weight matrices for one token: 2 x :attr:`matmul_params`."""
        return 2 * self.matmul_params

    def flops_per_token(self, context_len: int) -> int:
        """FLOPs of one token: weight matrices, and attention to its context (QK^T and AV, every query head).

        Args:
            context_len: Tokens that it attends to, itself included.
        """
        return self.weight_flops_per_token + sum(
            layer.attention.flops_per_context_token * layer.attention.span(context_len)
            for layer in self.decoder.layers
        )


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


def _heads_kept(heads: int, ranks: int) -> int:
    """KV heads that all ranks keep together: as many on each as come out even, and one at the least."""
    if ranks < 1:
        raise ArchitectureError(f"The tensor parallel size must be 1 or more, not {ranks}.")
    return max(1, heads // ranks) * ranks


def _read_dtype(config: Config) -> str | None:
    for key in ("dtype", "torch_dtype"):
        name = config.text(key)
        if name is not None and name != "auto":
            canonical = canonical_dtype(name)
            if canonical is None:
                config.fail(key, f"is {brief(name)}, a dtype that is not known")
            return canonical
    return None


def _served(dtype: str | None) -> str:
    """The dtype that vLLM serves a checkpoint in unless told otherwise: 32-bit and unnamed ones in 16 bits."""
    return dtype if dtype in ("float16", "bfloat16") else "bfloat16"


def _bits(dtype: str) -> int:
    canonical = canonical_dtype(dtype)
    if canonical is None:
        raise ArchitectureError(
            f"The dtype {brief(dtype)} is not known.", remedy="Use float32, float16, bfloat16, fp8 or int8."
        )
    return dtype_bits(canonical)
