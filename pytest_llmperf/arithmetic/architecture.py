"""What a model's ``config.json`` says about its parameters, bytes and FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmperf.arithmetic.config import Config, language_model, read_config
from pytest_llmperf.arithmetic.dtypes import dtype_bits, known_dtype, read_dtype, served_dtype
from pytest_llmperf.arithmetic.families import read_decoder
from pytest_llmperf.arithmetic.quantization import Quantization, named_quantization, read_quantization
from pytest_llmperf.arithmetic.weights import Weights

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.structure import Attention, Decoder


@dataclass(frozen=True)
class Architecture:
    """A model's parameters, bytes and FLOPs; make one with :meth:`from_config`.

    Counted is the language model: of a multimodal one neither the vision tower nor its projector, and no
    layers for predicting further tokens. What is quantised counts with its scales and zero points.

    Args:
        model_type: The family, as the config names it.
        decoder: Its structure.
        dtype: The dtype in which the checkpoint stores what is not quantised; ``None`` if the config is
            silent.
        compute_dtype: The dtype in which an engine serves what is not quantised, and keeps the KV cache.
        quantization: How weight matrices are quantised, or ``None``.
        notes: What a reader of the numbers must know.
    """

    model_type: str
    decoder: Decoder
    dtype: str | None
    compute_dtype: str
    quantization: Quantization | None
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
        model_type, decoder = read_decoder(inner, top)
        dtype = read_dtype(inner) or read_dtype(top)
        section = inner.section("quantization_config") or top.section("quantization_config")
        notes = []
        if inner.nested:
            notes.append("The language model alone is counted: no vision or audio tower, no projector.")
        if inner.get("num_nextn_predict_layers") or inner.get("num_mtp_layers"):
            notes.append("Layers for predicting further tokens (MTP) are not counted.")
        if dtype is None:
            notes.append("The config gives no dtype: 16 bits are assumed, in which vLLM serves it.")
        return cls(
            model_type=model_type,
            decoder=decoder,
            dtype=dtype,
            compute_dtype=served_dtype(dtype),
            quantization=read_quantization(section, inner.nested) if section is not None else None,
            notes=tuple(notes),
        )

    def served_as(self, dtype: str = "auto", quantization: str | Mapping[str, Any] | None = None) -> Architecture:
        """The architecture as an engine keeps it in memory, which can differ from how the checkpoint is
        stored.

        Args:
            dtype: The engine's ``dtype`` argument: what is not quantised is kept in it. ``auto`` as in
                vLLM: 32-bit checkpoints in 16 bits, others as they are.
            quantization: The engine's ``quantization`` argument when it quantises while loading (``fp8``,
                ``bitsandbytes``), or a ``quantization_config``. By default the checkpoint's.

        Raises:
            ArchitectureError: The dtype or the quantisation is not known.
        """
        served = self.compute_dtype if dtype == "auto" else known_dtype(dtype)
        method = self.quantization
        if isinstance(quantization, str):
            # An engine told the checkpoint's own method (vllm: quantization="awq") quantises nothing anew.
            if method is None or not quantization.lower().startswith(method.method):
                method = named_quantization(quantization)
        elif quantization is not None:
            method = read_quantization(Config(quantization, "the engine's quantization_config"), wrapped=False)
        return replace(self, dtype=served, compute_dtype=served, quantization=method)

    @cached_property
    def total_params(self) -> int:
        """All parameters; a tied table counts once."""
        model = self.decoder
        head = model.head.bias_params + (0 if model.tied else model.head.weight_params)
        tables = model.embedding_params + model.position_params
        return sum(linear.params for _, linear in model.matrices()) + tables + head + model.all_vectors

    @cached_property
    def active_params(self) -> int:
        """Parameters that take part in one token: all but the experts that it doesn't use."""
        return self.total_params - sum(
            (linear.copies - linear.selected) * (linear.weight_params + linear.bias_params)
            for _, linear in self.decoder.matrices()
        )

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
        """Weights multiplied for one token.

        Projections, selected experts, routers, and the output projection even when it is tied; without the
        input lookup, norms and biases. Latent attention (MLA) is counted as stored, not absorbed.
        """
        return self.decoder.head.weight_params + sum(
            linear.selected * linear.weight_params for _, linear in self.decoder.matrices()
        )

    @cached_property
    def quantized_params(self) -> int:
        """Weights that are quantised."""
        return Weights(self.decoder, self.quantization, 16).quantized_params

    @cached_property
    def _attentions(self) -> Counter[Attention]:
        """How many layers have which attention: a handful of kinds, asked for in every request and step."""
        return Counter(layer.attention for layer in self.decoder.layers)

    @cached_property
    def matmul_dtype(self) -> str:
        """What most weights are multiplied in: ``float8`` or ``int8`` where activations are quantised too."""
        return (self.quantization.matmul_dtype(self.decoder) if self.quantization else None) or self.compute_dtype

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Bytes of all weights.

        Args:
            dtype: Count every parameter in this dtype, as if nothing were quantised. By default: as stored,
                quantised matrices with their scales and zero points, the rest in the config's dtype.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        return self._weights(dtype, self.dtype or self.compute_dtype).total()

    def _weights(self, dtype: str | None, own: str) -> Weights:
        if dtype is None:
            return Weights(self.decoder, self.quantization, dtype_bits(own))
        return Weights(self.decoder, None, dtype_bits(known_dtype(dtype)))

    def kv_bytes_per_token(self, dtype: str | None = None, *, tensor_parallel: int = 1) -> int:
        """Bytes that the KV cache of one sequence grows by with a token, while no sliding window is full.

        2 (K, V) x layers x KV heads x head_dim x bytes per element; with MLA one latent vector instead.

        Args:
            dtype: Of the cache; by default :attr:`compute_dtype`.
            tensor_parallel: GPUs over which the heads are spread. The bytes are those of all of them
                together: where there are more GPUs than heads, each head is kept several times.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        return self.kv_bytes(1, dtype, tensor_parallel=tensor_parallel)

    def kv_bytes(self, context_len: int, dtype: str | None = None, *, tensor_parallel: int = 1) -> int:
        """Bytes of the KV cache of one sequence.

        Layers with a sliding window keep no more tokens than the window. An engine's rounding up to blocks is
        not included.

        Args:
            context_len: Tokens of the sequence.
            dtype: Of the cache; by default :attr:`compute_dtype`.
            tensor_parallel: GPUs over which the heads are spread; the bytes are those of all of them
                together.

        Raises:
            ArchitectureError: The dtype is not known.
        """
        _check_least("context_len", context_len, 0)
        elements = sum(
            layers * attention.cache_elements(tensor_parallel) * attention.span(context_len)
            for attention, layers in self._attentions.items()
        )
        return -(-elements * self._kv_bits(dtype) // 8)

    def mean_kv_bytes(
        self, first_context: int, last_context: int, dtype: str | None = None, *, tensor_parallel: int = 1
    ) -> float:
        """Mean bytes of a sequence's KV cache while its context grows, both ends included.

        A decode of ``output_len`` tokens after a prompt of ``input_len`` reads contexts of ``input_len`` to
        ``input_len + output_len`` tokens.
        """
        _check_least("first_context", first_context, 0)
        _check_least("last_context", last_context, first_context)
        elements = sum(
            layers * attention.cache_elements(tensor_parallel) * attention.mean_span(first_context, last_context)
            for attention, layers in self._attentions.items()
        )
        return elements * self._kv_bits(dtype) / 8

    def _kv_bits(self, dtype: str | None) -> int:
        return dtype_bits(self.compute_dtype if dtype is None or dtype == "auto" else known_dtype(dtype))

    def decode_weight_bytes(self, batch: float, dtype: str | None = None) -> int:
        """Bytes of weights that one decode step reads.

        All but the untied input table and learned positions, of which it reads single rows; of experts those
        that the batch is expected to touch, E (1 - (1 - k/E)^B) of each layer.

        Args:
            batch: Sequences in the batch.
            dtype: As if every parameter were kept in this dtype; by default quantised matrices as stored, the
                rest in :attr:`compute_dtype`.
        """
        _check_least("batch", batch, 0)
        return self._weights(dtype, self.compute_dtype).read(batch)

    def decode_read_bytes(
        self,
        batch: int,
        context_len: int,
        dtype: str | None = None,
        *,
        kv_dtype: str | None = None,
        tensor_parallel: int = 1,
    ) -> int:
        """Bytes that one decode step reads: weights once, and the KV cache of every sequence.

        Args:
            batch: Sequences in the batch.
            context_len: Tokens of each of them.
            dtype: Of the weights, see :meth:`decode_weight_bytes`, and of the cache unless it has its own.
            kv_dtype: Of the cache.
            tensor_parallel: GPUs over which the model is spread; the bytes are those of all of them together.
        """
        cache = self.kv_bytes(context_len, kv_dtype or dtype, tensor_parallel=tensor_parallel)
        return self.decode_weight_bytes(batch, dtype) + batch * cache

    def mbu_weight_bytes(self, batch: float) -> int:
        """The model weight bytes of MBU's definition, for a batch.

        All that are kept in memory, the input table included, in :attr:`compute_dtype` or as quantised; of
        experts those that the batch is expected to touch.

        Args:
            batch: Sequences in the batch.
        """
        _check_least("batch", batch, 0)
        return self._weights(None, self.compute_dtype).touched(batch)

    def activation_bytes(self, tokens: float) -> float:
        """Bytes of activations that the weight matrices read and write for a number of tokens."""
        width = self.decoder.head.inputs + self.decoder.head.outputs
        width += sum(linear.selected * (linear.inputs + linear.outputs) for _, linear in self.decoder.matrices())
        return tokens * width * dtype_bits(self.compute_dtype) / 8

    @property
    def weight_flops_per_token(self) -> int:
        """FLOPs of the weight matrices for one token: 2 x :attr:`matmul_params`."""
        return 2 * self.matmul_params

    def flops_per_token(self, context_len: int) -> int:
        """FLOPs of one token: weight matrices, and attention to its context (QK^T and AV, every query head).

        Args:
            context_len: Tokens that it attends to, itself included.
        """
        _check_least("context_len", context_len, 0)
        return self.weight_flops_per_token + sum(
            layers * attention.flops_per_context_token * attention.span(context_len)
            for attention, layers in self._attentions.items()
        )

    def mean_flops_per_token(self, first_context: int, last_context: int) -> float:
        """Mean FLOPs of a token while its context grows, both ends included."""
        _check_least("first_context", first_context, 0)
        _check_least("last_context", last_context, first_context)
        return self.weight_flops_per_token + sum(
            layers * attention.flops_per_context_token * attention.mean_span(first_context, last_context)
            for attention, layers in self._attentions.items()
        )

    def prefill_flops(self, prompt_len: int) -> int:
        """FLOPs of one prompt: every token through every layer with causal attention, the output projection
        once.

        Engines compute logits of the last position only.

        Args:
            prompt_len: Tokens of the prompt.
        """
        _check_least("prompt_len", prompt_len, 1)
        head = 2 * self.decoder.head.weight_params
        attention = sum(
            layers * attention.flops_per_context_token * attention.span_sum(prompt_len)
            for attention, layers in self._attentions.items()
        )
        return (self.weight_flops_per_token - head) * prompt_len + head + attention


def _check_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be {least} or more, not {value}")
