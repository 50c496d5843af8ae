"""How long a step of an engine takes on a board, and what of the board it uses: the roofline, and what adds to it.

A step multiplies every weight with all its tokens. Weights are read once for all of them, and at most at a share of the
peak bandwidth; products go at most at a share of the peak FLOPs. One turns into the other gradually::

    products  = (memory^p + compute^p)^(1/p)
    decodes   = bytes of their KV caches / bandwidth + KV heads of all sequences
    prompts   = FLOPs of their attention / peak, or bytes of their KV caches / bandwidth if that is longer
    step      = products + decodes + prompts + tokens + sequences + layers + all-reduces + a constant

FLOPs go with the SM clock, bandwidth with the memory clock, and below the knee with the SM clock too. What layers and
tokens add goes with the SM clock: kernels that begin, end and move little are latencies of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from pytest_llmperf.arithmetic import Architecture, peak_matmul_flops
from pytest_llmperf.simulation.board import BoardModel

__all__ = ["Pace", "StepModel", "Work"]


class Work(NamedTuple):
    """What a step does, all GPUs together.

    Attributes:
        tokens: That it computes.
        sequences: That take part.
        decodes: Those of them that decode.
        weight_bytes: That it reads.
        cache_bytes: That the decoding sequences read.
        prompt_bytes: That the prompts read of their KV caches.
        matmul_flops: Of the weights.
        attention_flops: Of the decoding sequences with their contexts.
        prompt_flops: Of the prompts with theirs.
    """

    tokens: int
    sequences: int
    decodes: int
    weight_bytes: float
    cache_bytes: float
    prompt_bytes: float
    matmul_flops: float
    attention_flops: float
    prompt_flops: float


class Pace(NamedTuple):
    """How fast a GPU does a step.

    Attributes:
        seconds: That it takes.
        memory: Share of the peak bandwidth in use.
        compute: Share of the FLOPs in use, of those that the SM clock allows.
    """

    seconds: float
    memory: float
    compute: float


class StepModel:
    """The steps of one model on one kind of board.

    Args:
        model: As it is served.
        board: The board.
        gpus: Boards over which each layer is split.
        kv_dtype: Of the KV cache; ``None``: the model's.
        eager: Whether the engine neither compiles nor captures.
        captured_tokens: The largest step for which it has captured CUDA graphs.
    """

    def __init__(
        self,
        model: Architecture,
        board: BoardModel,
        *,
        gpus: int = 1,
        kv_dtype: str | None = None,
        eager: bool = False,
        captured_tokens: int = 512,
    ) -> None:
        self._board, self._gpus, self._eager, self._captured_tokens = board, gpus, eager, captured_tokens
        hardware = board.hardware
        self._bandwidth = hardware.peak_bandwidth
        self._matmul_peak = peak_matmul_flops(model, hardware)
        halves = model.compute_dtype if model.compute_dtype in hardware.flops else "float16"
        self._attention_peak = hardware.peak_flops(halves)
        self._layers = len(model.decoder.layers)
        self._hidden = model.decoder.head.inputs
        self._head_flops = 2 * model.decoder.head.weight_params
        self._layer_flops = model.weight_flops_per_token - self._head_flops
        self._max_sm_mhz = board.product.sm_clocks_mhz[1]
        self._max_memory_mhz = board.product.memory_clocks_mhz[-1]
        attentions = [layer.attention for layer in model.decoder.layers]
        kv_heads = sum(max(one.kv_heads, gpus) for one in attentions) / self._layers
        self._kv_heads_s = kv_heads * board.compute.head_s
        small = model.kv_bytes_per_token(kv_dtype) < model.kv_bytes_per_token("float16")
        self._cache_share = board.memory.cache_share_8bit if small else board.memory.cache_share
        #: Seconds of each launch before the GPU can begin.
        self.prepare_s = board.host.prepare_s
        #: Bytes of all GPUs that a step over so many tokens reads of the weights.
        self.weight_bytes = cache(model.decode_weight_bytes)
        self.cache_bytes = cache(lambda context: model.kv_bytes(context, kv_dtype, tensor_parallel=gpus))
        self.attention_flops = cache(lambda context: model.flops_per_token(context) - model.weight_flops_per_token)
        self._prompt_attention = cache(
            lambda length: model.prefill_flops(length) - self._layer_flops * length - self._head_flops if length else 0
        )

    def work(
        self, prefills: Iterable[tuple[int, int]], *, sampled: int, decodes: int, cache_bytes: float,
        attention_flops: float,
    ) -> Work:  # fmt: skip
        """A step.

        Args:
            prefills: Of each prompt in it: tokens computed before, and tokens computed now.
            sampled: Sequences that get an output token.
            decodes: Sequences that decode.
            cache_bytes: Of the decoding ones' KV caches, see :attr:`cache_bytes`.
            attention_flops: Of the decoding ones with their contexts, see :attr:`attention_flops`.
        """
        tokens = sequences = decodes
        prompt_bytes = prompt_flops = 0
        for before, count in prefills:
            tokens += count
            sequences += 1
            prompt_flops += self._prompt_attention(before + count) - self._prompt_attention(before)
            prompt_bytes += self.cache_bytes(before + count)
        return Work(
            tokens,
            sequences,
            decodes,
            self.weight_bytes(tokens),
            cache_bytes,
            prompt_bytes,
            tokens * self._layer_flops + sampled * self._head_flops,
            attention_flops,
            prompt_flops,
        )

    def pace(self, work: Work, sm_mhz: float, memory_mhz: float) -> Pace:
        """How fast each GPU does a step at given clocks in MHz."""
        memory, compute, gpus = self._board.memory, self._board.compute, self._gpus
        clock = sm_mhz / self._max_sm_mhz
        reached = self._bandwidth * (memory_mhz / self._max_memory_mhz) * min(1.0, sm_mhz / memory.knee_mhz)
        weights_s = work.weight_bytes / gpus / (reached * memory.weights_share)
        matmul_s = work.matmul_flops / gpus / (self._matmul_peak * clock * compute.matmul_share)
        longer, shorter = (weights_s, matmul_s) if weights_s > matmul_s else (matmul_s, weights_s)
        products_s = longer * (1 + (shorter / longer) ** compute.blend) ** (1 / compute.blend)
        cache_rate = reached * self._cache_share * gpus
        attention_s = work.prompt_flops / gpus / (self._attention_peak * clock * compute.attention_share)
        attention_s = work.cache_bytes / cache_rate + max(attention_s, work.prompt_bytes / cache_rate)
        latency_s = compute.layer_s + (work.tokens * compute.token_s + work.decodes * self._kv_heads_s) / gpus
        seconds = products_s + attention_s + self._layers * latency_s / clock + self._exchange_s(work.tokens)
        seconds += compute.step_s + work.sequences * compute.sequence_s
        moved = (work.weight_bytes + work.cache_bytes + work.prompt_bytes) / gpus
        attended = (work.attention_flops + work.prompt_flops) / self._attention_peak
        computed = (work.matmul_flops / self._matmul_peak + attended) / gpus
        return Pace(seconds, moved / (seconds * self._bandwidth), computed / (seconds * clock))

    def _exchange_s(self, tokens: int) -> float:
        """Seconds of a step's all-reduces: two a layer, each of one vector a token, in 16 bits."""
        if self._gpus == 1:
            return 0.0
        links = self._board.links
        sent = 2 * (self._gpus - 1) / self._gpus * tokens * self._hidden * 2
        return 2 * self._layers * (links.latency_s + sent / links.bandwidth)

    def launch_s(self, work: Work) -> float:
        """Seconds that the host takes to prepare and launch a step.

        One token of every sequence is one CUDA graph, if such a graph was captured; with longer prompts in it there is
        one between each attention and the next.
        """
        host = self._board.host
        base = host.graph_launch_s + work.sequences * host.sequence_launch_s
        if self._eager:
            return base + self._layers * host.eager_layer_launch_s
        if work.tokens == work.sequences <= self._captured_tokens:
            return base
        layer_s = host.piecewise_launch_s if work.tokens <= self._captured_tokens else host.layer_launch_s
        return base + self._layers * (layer_s + (host.mixed_launch_s if work.decodes else 0.0))
