"""Utilisation: what was reached of what the hardware allows.

MBU counts the weights and the KV cache that a decode step reads (Databricks' definition), MFU the FLOPs of the
model and not those of the kernels (PaLM's), the roofline the longer of the two times. Nothing is clipped at 1:
more than the peak says that a peak or a count is wrong, and should be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pytest_llmperf.arithmetic import Architecture, Hardware, roofline
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import HardwareError
from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy.window import WindowReadings
from pytest_llmperf.metrics.latency import ONE_TOKEN, request_tpot
from pytest_llmperf.metrics.steps import KEPT, OVERLAP, decode_step, is_single_batch, mean_running
from pytest_llmperf.metrics.throughput import per_second, tokens_within
from pytest_llmperf.metrics.types import Context, LaunchReadings, Metric, Missing, OfLaunch, Outcome, sampled
from pytest_llmperf.trace import RepeatTrace, RequestTrace

__all__ = ["METRICS"]


def _known(context: Context) -> tuple[Architecture, Hardware] | Missing:
    roof = context.roof
    if roof.architecture is None:
        return Missing(roof.why_no_model)
    if roof.hardware is None:
        return Missing(roof.why_no_hardware)
    return roof.architecture, roof.hardware


def _mbu(repeat: RepeatTrace, context: Context) -> Outcome:
    step = decode_step(repeat, context)
    if isinstance(step, Missing):
        return step
    known, gpus = _known(context), context.roof.gpus
    if isinstance(known, Missing):
        return known
    return roofline.mbu(step.weight_bytes, step.kv_bytes, step.seconds, known[1].peak_bandwidth, gpus=gpus)


def _mfu(repeat: RepeatTrace, context: Context) -> Outcome:
    known = _known(context)
    if isinstance(known, Missing):
        return known
    if context.keeps_prefixes:
        return Missing(KEPT)
    model, hardware = known
    try:
        peak = roofline.peak_matmul_flops(model, hardware, sm_clock_hz=context.sm_clock_hz)
    except HardwareError as error:
        return Missing(error.problem)

    prefill_flops = cache(model.prefill_flops)
    mean_flops_per_token = cache(model.mean_flops_per_token)

    def flops(request: RequestTrace, start: int, end: int) -> float:
        inside = tokens_within(request, start, end)
        prefill = 0.0
        if start < request.first_ns <= end:
            # The prefill brings the first token; every later one is a decode step.
            prefill, inside = prefill_flops(request.input_tokens), inside - 1
        last = request.input_tokens + request.output_tokens
        return prefill + max(0, inside) * mean_flops_per_token(request.input_tokens, last)

    def whole(request: RequestTrace) -> float:
        return flops(request, request.due_ns, request.last_ns)

    rate = per_second(repeat, flops, whole)
    return rate if isinstance(rate, Missing) else rate / (peak * context.roof.gpus)


def _roofline_efficiency(repeat: RepeatTrace, context: Context) -> Outcome:
    known = _known(context)
    if isinstance(known, Missing):
        return known
    (model, hardware), roof = known, context.roof
    done = repeat.completed
    prompt = round(sum(r.input_tokens for r in done) / len(done))
    output = round(sum(r.output_tokens for r in done) / len(done))
    tpot = sampled((request_tpot(r) for r in done), ONE_TOKEN)
    if isinstance(tpot, Missing) and not is_single_batch(repeat):
        return Missing(OVERLAP)
    if isinstance(tpot, Missing) and context.keeps_prefixes:
        return Missing(KEPT)
    try:
        if isinstance(tpot, Missing):
            allowed = roofline.prefill_time(
                model, hardware, prompt_len=prompt, batch=len(done), gpus=roof.gpus, kv_dtype=roof.kv_dtype,
                sm_clock_hz=context.sm_clock_hz,
            )  # fmt: skip
            measured = (max(r.first_ns for r in done) - done[0].due_ns) / NS_PER_S
        else:
            allowed = roofline.decode_time(
                model, hardware, batch=max(1, round(mean_running(repeat))), input_len=prompt, output_len=output,
                gpus=roof.gpus, kv_dtype=roof.kv_dtype, sm_clock_hz=context.sm_clock_hz,
            )  # fmt: skip
            measured = tpot.value
    except HardwareError as error:
        return Missing(error.problem)
    return roofline.roofline_efficiency(allowed, measured)


def _read(quantity: Callable[[WindowReadings], Reading[float]]) -> OfLaunch:
    """What the boards themselves say."""

    def of_launch(readings: LaunchReadings) -> Outcome:
        value = quantity(readings.window)
        return Missing(value.reason) if isinstance(value, Unreadable) else value

    return of_launch


_SOURCE = "the client's receive times, the model's config.json, the device's peaks"

METRICS = (
    Metric(
        "mbu", "1", "higher", "(weight bytes + KV-cache bytes of the running sequences) / TPOT / peak bandwidth",
        _SOURCE, _mbu,
    ),
    Metric("mfu", "1", "higher", "model FLOPs per second / peak dense FLOPs of the dtype in use", _SOURCE, _mfu),
    Metric(
        "roofline_efficiency", "1", "higher",
        "time that the roofline allows / time measured: TPOT, or the batch's prefill where there is no TPOT",
        _SOURCE, _roofline_efficiency,
    ),
    Metric(
        "dram_utilization", "1", "higher", "share of the memory bandwidth in use, mean over the launch",
        "the boards' performance counters (NVML's GPM)", of_launch=_read(lambda w: w.dram_utilization),
    ),
    Metric(
        "tensor_utilization", "1", "higher", "share of the time in which the tensor cores worked, mean over the launch",
        "the boards' performance counters (NVML's GPM)", of_launch=_read(lambda w: w.tensor_utilization),
    ),
    Metric(
        "sm_activity", "1", "higher", "share of the SMs that had work, mean over the launch",
        "the boards' performance counters (NVML's GPM)", of_launch=_read(lambda w: w.sm_activity),
    ),
    Metric(
        "gpu_utilization", "1", "higher", "share of the time in which some kernel ran, mean over the launch",
        "NVML's utilisation", of_launch=_read(lambda w: w.gpu_utilization),
    ),
    Metric(
        "sm_clock", "Hz", "higher", "median SM clock over the launch",
        "NVML's clock", of_launch=_read(lambda w: w.sm_clock_hz),
    ),
    Metric(
        "memory_used", "B", "lower", "memory in use on all boards, at most",
        "NVML's memory info", of_launch=_read(lambda w: w.memory_used),
    ),
)  # fmt: skip
