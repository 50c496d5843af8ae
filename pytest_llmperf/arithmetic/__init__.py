"""What the hardware allows: a model's bytes and FLOPs, a GPU's peaks, and the roofline between them."""

from __future__ import annotations

from pytest_llmperf.arithmetic.architecture import Architecture
from pytest_llmperf.arithmetic.energy import EnergySplit, energy_split
from pytest_llmperf.arithmetic.hardware import Hardware
from pytest_llmperf.arithmetic.roofline import (
    RooflineTime,
    critical_batch,
    decode_time,
    mbu,
    mfu,
    peak_matmul_flops,
    prefill_time,
    roofline_efficiency,
    roofline_time,
)
from pytest_llmperf.arithmetic.structure import expected_distinct_experts

__all__ = [
    "Architecture",
    "EnergySplit",
    "Hardware",
    "RooflineTime",
    "critical_batch",
    "decode_time",
    "energy_split",
    "expected_distinct_experts",
    "mbu",
    "mfu",
    "peak_matmul_flops",
    "prefill_time",
    "roofline_efficiency",
    "roofline_time",
]
