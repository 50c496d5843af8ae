"""What share of the hardware's peaks a run used, and what time and energy the peaks allow.

The roofline: a step takes at least the time of its FLOPs at peak FLOPs, and at least the time of its bytes
at peak bandwidth (Williams, Waterman and Patterson, "Roofline", CACM 2009). Decoding moves all weights for
one token of each sequence, so at small batches its bytes bound it; prefill shares them among all tokens of
the prompt, so its FLOPs do.

Shares are fractions of 1. Above 1 means that the peak, the model or the measurement is wrong; it is handed
on, never clipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_llmperf.arithmetic.checks import check_not_negative, check_positive

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.architecture import Architecture
    from pytest_llmperf.arithmetic.hardware import Hardware

# A batch beyond which no engine goes: what is memory-bound there is so at any batch.
_MAX_BATCH = 2.0**24


def mbu(weight_bytes: float, kv_bytes: float, tpot: float, peak_bandwidth: float, *, gpus: int = 1) -> float:
    """Model bandwidth utilisation: (weight bytes + KV-cache bytes) / TPOT / peak memory bandwidth.

    Args:
        weight_bytes: Of the model, over all ranks; see :meth:`Architecture.mbu_weight_bytes`.
        kv_bytes: KV cache of all running sequences, over all ranks.
        tpot: Time per output token in seconds.
        peak_bandwidth: Of one GPU, in bytes/s.
        gpus: GPUs over which the model is spread.
    """
    check_not_negative(weight_bytes=weight_bytes, kv_bytes=kv_bytes)
    check_positive(tpot=tpot, peak_bandwidth=peak_bandwidth, gpus=gpus)
    return (weight_bytes + kv_bytes) / tpot / (peak_bandwidth * gpus)


def mfu(flops_per_token: float, tokens_per_second: float, peak_flops: float, *, gpus: int = 1) -> float:
    """Model FLOPs utilisation: model FLOPs per second / peak dense FLOPs of the dtype in use.

    Args:
        flops_per_token: Of the model, see :meth:`Architecture.flops_per_token`.
        tokens_per_second: Tokens that the model computes in a second.
        peak_flops: Of one GPU at the clock it runs at, see :meth:`Hardware.peak_flops`.
        gpus: GPUs over which the model is spread.
    """
    check_not_negative(flops_per_token=flops_per_token, tokens_per_second=tokens_per_second)
    check_positive(peak_flops=peak_flops, gpus=gpus)
    return flops_per_token * tokens_per_second / (peak_flops * gpus)


@dataclass(frozen=True, slots=True)
class RooflineTime:
    """The least time that the peaks allow a step.

    Args:
        flops: What it computes.
        bytes_moved: What it reads and writes.
        compute_s: Time of the FLOPs at peak, in seconds.
        memory_s: Time of the bytes at peak, in seconds.
    """

    flops: float
    bytes_moved: float
    compute_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        """The longer of the two: both happen at once at best."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        """Which of the two bounds it."""
        return "compute" if self.compute_s > self.memory_s else "memory"


def roofline_time(
    flops: float, bytes_moved: float, peak_flops: float, peak_bandwidth: float, *, gpus: int = 1
) -> RooflineTime:
    """The least time that the peaks allow.

    Args:
        flops: What is computed, over all GPUs.
        bytes_moved: What is read and written, over all GPUs.
        peak_flops: Of one GPU, in FLOP/s.
        peak_bandwidth: Of one GPU, in bytes/s.
        gpus: GPUs that share the work evenly.
    """
    check_not_negative(flops=flops, bytes_moved=bytes_moved)
    check_positive(peak_flops=peak_flops, peak_bandwidth=peak_bandwidth, gpus=gpus)
    return RooflineTime(flops, bytes_moved, flops / (peak_flops * gpus), bytes_moved / (peak_bandwidth * gpus))


def roofline_efficiency(allowed: RooflineTime | float, measured: float) -> float:
    """Time that the roofline allows / time measured, for prefill and decode alike.

    Args:
        allowed: The least time, or its seconds.
        measured: The time in seconds: TPOT of a decode, TTFT of a prefill.
    """
    seconds = allowed.seconds if isinstance(allowed, RooflineTime) else allowed
    check_not_negative(allowed=seconds)
    check_positive(measured=measured)
    return seconds / measured


def peak_matmul_flops(
    architecture: Architecture,
    hardware: Hardware,
    *,
    dtype: str | None = None,
    sm_clock_hz: float | None = None,
) -> float:
    """Peak dense FLOPs of what most of a model's weights are multiplied in on a GPU.

    A GPU without the rate of the quantised dtype multiplies in the model's own; one without bfloat16 (Volta,
    Turing) serves models in float16.

    Args:
        architecture: The model.
        hardware: The GPU.
        dtype: The dtype in use, when the engine says it.
        sm_clock_hz: The SM clock that the GPU is locked at, in Hz.

    Raises:
        HardwareError: The GPU has none of these rates.
    """
    if dtype is not None:
        return hardware.peak_flops(dtype, sm_clock_hz=sm_clock_hz)
    own = architecture.compute_dtype
    candidates = [architecture.matmul_dtype, own]
    if own == "bfloat16":
        candidates.append("float16")
    known = next((name for name in candidates if name in hardware.flops), own)
    return hardware.peak_flops(known, sm_clock_hz=sm_clock_hz)


def decode_time(
    architecture: Architecture,
    hardware: Hardware,
    *,
    batch: int,
    input_len: int,
    output_len: int = 0,
    gpus: int = 1,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    sm_clock_hz: float | None = None,
) -> RooflineTime:
    """The least time of a decode step (TPOT), as a mean over a decode.

    Weights that the step touches are read once, the KV cache of every sequence too; the new token's key and
    value and the activations are left out.

    Args:
        architecture: The model, as it is served.
        hardware: Each of the GPUs.
        batch: Sequences in the batch.
        input_len: Tokens of each prompt.
        output_len: Tokens generated after it: the step is the mean over contexts of ``input_len`` to
            ``input_len + output_len`` tokens.
        gpus: GPUs over which the model is spread (tensor parallel).
        dtype: What is multiplied, when it is not what the model's config says.
        kv_dtype: Dtype of the KV cache, when it is not the model's.
        sm_clock_hz: The SM clock that the GPUs are locked at, in Hz.
    """
    check_positive(batch=batch)
    last = input_len + output_len
    cache = architecture.mean_kv_bytes(input_len, last, kv_dtype, tensor_parallel=gpus)
    return roofline_time(
        flops=batch * architecture.mean_flops_per_token(input_len, last),
        bytes_moved=architecture.decode_weight_bytes(batch) + batch * cache,
        peak_flops=peak_matmul_flops(architecture, hardware, dtype=dtype, sm_clock_hz=sm_clock_hz),
        peak_bandwidth=hardware.peak_bandwidth,
        gpus=gpus,
    )


def prefill_time(
    architecture: Architecture,
    hardware: Hardware,
    *,
    prompt_len: int,
    batch: int = 1,
    gpus: int = 1,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    sm_clock_hz: float | None = None,
) -> RooflineTime:
    """The least time of a prefill, up to the first token of every prompt of a batch.

    Weights that its tokens touch are read once, the KV cache is written.

    Args:
        architecture: The model, as it is served.
        hardware: Each of the GPUs.
        prompt_len: Tokens of each prompt.
        batch: Prompts.
        gpus: GPUs over which the model is spread (tensor parallel).
        dtype: What is multiplied, when it is not what the model's config says.
        kv_dtype: Dtype of the KV cache, when it is not the model's.
        sm_clock_hz: The SM clock that the GPUs are locked at, in Hz.
    """
    check_positive(batch=batch, prompt_len=prompt_len)
    cache = architecture.kv_bytes(prompt_len, kv_dtype, tensor_parallel=gpus)
    return roofline_time(
        flops=batch * architecture.prefill_flops(prompt_len),
        bytes_moved=architecture.decode_weight_bytes(batch * prompt_len) + batch * cache,
        peak_flops=peak_matmul_flops(architecture, hardware, dtype=dtype, sm_clock_hz=sm_clock_hz),
        peak_bandwidth=hardware.peak_bandwidth,
        gpus=gpus,
    )


def critical_batch(
    architecture: Architecture,
    hardware: Hardware,
    *,
    context_len: int | None = None,
    gpus: int = 1,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    sm_clock_hz: float | None = None,
) -> float | None:
    """The batch at which a decode step takes as long for its FLOPs as for its bytes.

    Below it memory bounds decode, above it computing does. Without KV traffic and 16-bit weights it is the
    machine balance (but for what is read and not multiplied); every sequence's KV cache moves it up, and
    long contexts out of reach.

    Args:
        architecture: The model, as it is served.
        hardware: Each of the GPUs.
        context_len: Tokens of each sequence; ``None`` leaves attention out, its KV traffic and FLOPs.
        gpus: GPUs over which the model is spread (tensor parallel).
        dtype: What is multiplied, when it is not what the model's config says.
        kv_dtype: Dtype of the KV cache, when it is not the model's.
        sm_clock_hz: The SM clock that the GPUs are locked at, in Hz.

    Returns:
        The batch, a real number; ``None`` when decode is memory-bound at any batch.
    """
    context = context_len or 0
    flops = architecture.flops_per_token(context)
    cache = architecture.kv_bytes(context, kv_dtype, tensor_parallel=gpus)
    peak = peak_matmul_flops(architecture, hardware, dtype=dtype, sm_clock_hz=sm_clock_hz)

    def surplus(batch: float) -> float:
        """Time of computing less time of moving, in seconds x GPUs."""
        moved = architecture.decode_weight_bytes(batch) + batch * cache
        return batch * flops / peak - moved / hardware.peak_bandwidth

    # Moved bytes are concave in the batch (experts saturate), FLOPs linear: they meet once at most.
    low, high = 0.0, 1.0
    while surplus(high) < 0:
        low, high = high, 2 * high
        if high > _MAX_BATCH:
            return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) < 0 else (low, middle)
    return high
