"""What the model asks of the hardware in each phase, and what that could give."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

from pytest_llmperf.arithmetic import Architecture, peak_matmul_flops
from pytest_llmperf.errors import HardwareError
from pytest_llmperf.measurement import Measurement
from pytest_llmperf.metrics import Context, Missing, Roof
from pytest_llmperf.metrics.steps import Step, decode_step, prefill_step
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.trace import RepeatTrace

__all__ = ["roof_record"]

_PHASES: dict[str, Callable[[RepeatTrace, Context], Step | Missing]] = {"prefill": prefill_step, "decode": decode_step}


def roof_record(measurement: Measurement) -> dict[str, Any]:
    """Peaks of all devices of the engine together, sizes of the model, and the phases that can be told apart.

    Args:
        measurement: With at least one launch.
    """
    context = measurement.context
    roof = context.roof
    model, hardware, gpus = roof.architecture, roof.hardware, roof.gpus
    flops = _peak_flops(context)
    launches = [launch.repeats for launch in measurement.launches]
    steps = {phase: _typical(of_repeat, launches, context) for phase, of_repeat in _PHASES.items()}
    copies, products = _reached(measurement.reached, gpus, roof)
    reasons = [
        None if model is not None else roof.why_no_model,
        None if hardware is not None else roof.why_no_hardware,
        *(one.reason for one in (flops, copies, products) if isinstance(one, Missing)),
        *(
            f"{phase}: {step.reason}"
            for phase, step in steps.items()
            if isinstance(step, Missing) and model is not None
        ),
    ]
    memory_bytes = None if hardware is None else hardware.memory_bytes
    return {
        "peak_flops": None if isinstance(flops, Missing) else flops * gpus,
        "peak_bandwidth": hardware and hardware.peak_bandwidth * gpus,
        "copy_bandwidth": None if isinstance(copies, Missing) else copies,
        "matmul_flops": None if isinstance(products, Missing) else products,
        "source": hardware and hardware.source,
        "memory_bytes": None if memory_bytes is None else round(memory_bytes * gpus),
        "total_params": model and model.total_params,
        "weight_bytes": model and model.weight_bytes(),
        "kv_bytes_per_token": model and model.kv_bytes_per_token(roof.kv_dtype, tensor_parallel=gpus),
        "kv_layers": [] if model is None else _kv_layers(model, roof.kv_dtype, gpus),
        "points": [{"phase": phase, **asdict(step)} for phase, step in steps.items() if isinstance(step, Step)],
        "reason": "; ".join(dict.fromkeys(reason for reason in reasons if reason is not None)) or None,
    }


def _kv_layers(model: Architecture, kv_dtype: str | None, gpus: int) -> list[dict[str, Any]]:
    """A token's bytes of KV cache, by how many tokens layers keep; those that keep all come last."""
    elements: Counter[int | None] = Counter()
    for layer in model.decoder.layers:
        elements[layer.attention.window] += layer.attention.cache_elements(gpus)
    total, all_layers = model.kv_bytes_per_token(kv_dtype, tensor_parallel=gpus), elements.total()
    return [
        {"bytes_per_token": total * elements[window] / all_layers, "window": window}
        for window in sorted(elements, key=lambda window: math.inf if window is None else window)
    ]


def _peak_flops(context: Context) -> float | Missing:
    """Of one device, in what most of the model's weights are multiplied."""
    roof = context.roof
    if roof.architecture is None:
        return Missing(roof.why_no_model)
    if roof.hardware is None:
        return Missing(roof.why_no_hardware)
    try:
        return peak_matmul_flops(roof.architecture, roof.hardware, sm_clock_hz=context.sm_clock_hz)
    except HardwareError as error:
        return Missing(error.problem)


def _reached(reached: Sequence[DevicePeaks], gpus: int, roof: Roof) -> tuple[float | Missing, float | Missing]:
    """What all devices reached together in copies and in products, where all of them were measured."""
    devices, dtype = reached[:gpus], _product_dtype(roof)
    if len(devices) < gpus:
        return (nothing := Missing("what these devices reach at best was not measured")), nothing
    copies = sum(one.copy_bandwidth for one in devices)
    if dtype is None:
        return copies, Missing(roof.why_no_model)
    if not all(dtype in one.matmul_flops for one in devices):
        return copies, Missing(f"products in {dtype} were not measured")
    return copies, sum(one.matmul_flops[dtype] for one in devices)


def _product_dtype(roof: Roof) -> str | None:
    """What most weights are multiplied in, as the peak has it: float16 on a GPU that has no bfloat16."""
    model, rates = roof.architecture, () if roof.hardware is None else roof.hardware.flops
    if model is None:
        return None
    return next((d for d in (model.matmul_dtype, model.compute_dtype, "float16") if d in rates), model.compute_dtype)


def _typical(
    of_repeat: Callable[[RepeatTrace, Context], Step | Missing],
    launches: Sequence[Sequence[RepeatTrace]],
    context: Context,
) -> Step | Missing:
    """Of each quantity the median over launches of the median over repeats, as metrics have it."""
    found: list[list[Step]] = []
    for repeats in launches:
        steps: list[Step] = []
        for repeat in repeats:
            step = of_repeat(repeat, context) if repeat.completed else Missing("no request completed")
            if isinstance(step, Missing):
                return step
            steps.append(step)
        found.append(steps)
    if not found or not all(found):
        return Missing("nothing was measured")

    def median(name: str) -> float:
        of_launches = [statistics.median([float(getattr(step, name)) for step in steps]) for steps in found]
        return statistics.median(of_launches)

    return Step(**{quantity.name: median(quantity.name) for quantity in fields(Step)})
