"""Data-sheet figures of GPUs, and the names that drivers give them.

Rates are dense: data sheets that print only the rate "with sparsity" are halved. Tensor-core rates of GeForce
boards are those with 32-bit accumulation, which is what matrix products of language models use. A figure
that no data sheet gives is left out, never derived from a similar product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_T = 1e12


@dataclass(frozen=True, slots=True)
class DataSheet:
    """One product.

    Args:
        names: Exactly what NVML (or amdsmi) calls it.
        flops: Peak dense operations per second by canonical dtype.
        bandwidth: Peak memory bandwidth in bytes/s.
        memory: Memory in bytes, as the data sheet rounds it.
        power_limit: Default power limit in watts.
        sm_clock: Clock in Hz at which the rates hold: the boost clock, or where no document gives it the
            clock that the rate and the number of multiprocessors imply.
        source: The document.
    """

    names: tuple[str, ...]
    flops: Mapping[str, float]
    bandwidth: float
    memory: float
    power_limit: float
    sm_clock: float
    source: str


def _rates(
    *,
    half: float,
    float32: float,
    bfloat16: bool = True,
    tf32: float | None = None,
    float8: float | None = None,
    int8: float | None = None,
    float4: float | None = None,
    int4: float | None = None,
    float64: float | None = None,
) -> dict[str, float]:
    """Rates in TFLOP/s (or TOP/s) to operations per second."""
    named = {
        "float16": half,
        "bfloat16": half if bfloat16 else None,
        "float32": float32,
        "tf32": tf32,
        "float8": float8,
        "int8": int8,
        "float4": float4,
        "int4": int4,
        "float64": float64,
    }
    return {dtype: rate * _T for dtype, rate in named.items() if rate is not None}


_HOPPER_SXM = _rates(half=989.4, tf32=494.7, float8=1978.9, int8=1978.9, float32=66.9, float64=33.5)
_HOPPER_NVL = _rates(half=835.5, tf32=417.5, float8=1670.5, int8=1670.5, float32=60, float64=30)
_AMPERE_100 = _rates(half=312, tf32=156, int8=624, int4=1248, float32=19.5, float64=9.7)

DATA_SHEETS: tuple[DataSheet, ...] = (
    DataSheet(
        ("Tesla V100-SXM2-16GB",),
        _rates(half=125, bfloat16=False, float32=15.7, float64=7.8),
        900e9,
        16e9,
        300,
        1.53e9,
        "NVIDIA Tesla V100 GPU Accelerator data sheet (SXM2)",
    ),
    DataSheet(
        ("Tesla V100-SXM2-32GB",),
        _rates(half=125, bfloat16=False, float32=15.7, float64=7.8),
        900e9,
        32e9,
        300,
        1.53e9,
        "NVIDIA Tesla V100 GPU Accelerator data sheet (SXM2)",
    ),
    DataSheet(
        ("Tesla V100-PCIE-16GB",),
        _rates(half=112, bfloat16=False, float32=14, float64=7),
        900e9,
        16e9,
        250,
        1.38e9,
        "NVIDIA Tesla V100 GPU Accelerator data sheet (PCIe)",
    ),
    DataSheet(
        ("Tesla V100-PCIE-32GB",),
        _rates(half=112, bfloat16=False, float32=14, float64=7),
        900e9,
        32e9,
        250,
        1.38e9,
        "NVIDIA Tesla V100 GPU Accelerator data sheet (PCIe)",
    ),
    DataSheet(
        ("Tesla V100S-PCIE-32GB",),
        _rates(half=130, bfloat16=False, float32=16.4, float64=8.2),
        1134e9,
        32e9,
        250,
        1.597e9,
        "NVIDIA V100 Tensor Core GPU data sheet (V100S PCIe)",
    ),
    DataSheet(
        ("Tesla T4", "NVIDIA T4"),
        _rates(half=65, bfloat16=False, int8=130, int4=260, float32=8.1),
        320e9,
        16e9,
        70,
        1.59e9,
        "NVIDIA T4 Tensor Core GPU data sheet",
    ),
    DataSheet(
        ("NVIDIA A10",),
        _rates(half=125, tf32=62.5, int8=250, int4=500, float32=31.2),
        600e9,
        24e9,
        150,
        1.695e9,
        "NVIDIA A10 Tensor Core GPU data sheet",
    ),
    DataSheet(
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        _AMPERE_100,
        1555e9,
        40e9,
        400,
        1.41e9,
        "NVIDIA A100 Tensor Core GPU data sheet (40GB SXM)",
    ),
    DataSheet(
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        _AMPERE_100,
        2039e9,
        80e9,
        400,
        1.41e9,
        "NVIDIA A100 Tensor Core GPU data sheet (80GB SXM)",
    ),
    DataSheet(
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        _AMPERE_100,
        1555e9,
        40e9,
        250,
        1.41e9,
        "NVIDIA A100 Tensor Core GPU data sheet (40GB PCIe)",
    ),
    DataSheet(
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        _AMPERE_100,
        1935e9,
        80e9,
        300,
        1.41e9,
        "NVIDIA A100 Tensor Core GPU data sheet (80GB PCIe)",
    ),
    DataSheet(
        ("NVIDIA L4",),
        _rates(half=121, tf32=60, float8=242.5, int8=242.5, float32=30.3),
        300e9,
        24e9,
        72,
        2.04e9,
        "NVIDIA L4 Tensor Core GPU data sheet, halved from the rates with sparsity",
    ),
    DataSheet(
        ("NVIDIA L40S",),
        _rates(half=362.05, tf32=183, float8=733, int8=733, int4=733, float32=91.6),
        864e9,
        48e9,
        350,
        2.52e9,
        "NVIDIA L40S GPU data sheet",
    ),
    DataSheet(
        ("NVIDIA H100 80GB HBM3",),
        _HOPPER_SXM,
        3.35e12,
        80e9,
        700,
        1.83e9,
        "NVIDIA H100 Tensor Core GPU data sheet (SXM); rates to four digits from the architecture whitepaper",
    ),
    DataSheet(
        ("NVIDIA H100 PCIe",),
        _rates(half=756, tf32=378, float8=1513, int8=1513, float32=51, float64=26),
        2e12,
        80e9,
        350,
        1.62e9,
        "NVIDIA H100 Tensor Core GPU data sheet (PCIe), halved from the rates with sparsity",
    ),
    DataSheet(
        ("NVIDIA H100 NVL",),
        _HOPPER_NVL,
        3.9e12,
        94e9,
        400,
        1.545e9,
        "NVIDIA H100 Tensor Core GPU data sheet (NVL), halved from the rates with sparsity",
    ),
    DataSheet(
        ("NVIDIA H200",),
        _HOPPER_SXM,
        4.8e12,
        141e9,
        700,
        1.83e9,
        "NVIDIA H200 Tensor Core GPU data sheet (SXM); rates to four digits from the architecture whitepaper",
    ),
    DataSheet(
        ("NVIDIA H200 NVL",),
        _HOPPER_NVL,
        4.8e12,
        141e9,
        600,
        1.545e9,
        "NVIDIA H200 Tensor Core GPU data sheet (NVL), halved from the rates with sparsity",
    ),
    DataSheet(
        ("NVIDIA GH200 480GB",),
        _HOPPER_SXM,
        4e12,
        96e9,
        1000,
        1.83e9,
        "NVIDIA GH200 Grace Hopper Superchip data sheet (96 GB HBM3); the power is the whole module's",
    ),
    DataSheet(
        ("NVIDIA GH200 144G HBM3e",),
        _HOPPER_SXM,
        4.9e12,
        144e9,
        1000,
        1.83e9,
        "NVIDIA GH200 Grace Hopper Superchip data sheet (144 GB HBM3e); the power is the whole module's",
    ),
    DataSheet(
        ("NVIDIA B200",),
        _rates(half=2250, tf32=1125, float8=4500, int8=4500, float4=9000, float32=75, float64=37),
        8e12,
        180e9,
        1000,
        1.856e9,
        "NVIDIA DGX B200 data sheet, an eighth of the system, halved from the rates with sparsity",
    ),
    DataSheet(
        ("NVIDIA GeForce RTX 3090",),
        _rates(half=71, tf32=35.6, int8=284, int4=568, float32=35.6),
        936e9,
        24e9,
        350,
        1.695e9,
        "NVIDIA Ampere GA102 GPU architecture whitepaper (GeForce RTX 3090)",
    ),
    DataSheet(
        ("NVIDIA GeForce RTX 4090",),
        _rates(half=165.2, tf32=82.6, float8=330.3, int8=660.6, int4=1321.2, float32=82.6),
        1008e9,
        24e9,
        450,
        2.52e9,
        "NVIDIA Ada GPU architecture whitepaper (GeForce RTX 4090)",
    ),
    DataSheet(
        ("NVIDIA GeForce RTX 5090",),
        _rates(half=209.5, tf32=104.8, float8=419, int8=838, float4=1676, float32=104.8),
        1792e9,
        32e9,
        575,
        2.407e9,
        "NVIDIA RTX Blackwell GPU architecture whitepaper (GeForce RTX 5090)",
    ),
    DataSheet(
        ("AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
        _rates(half=1307.4, tf32=653.7, float8=2614.9, int8=2614.9, float32=163.4, float64=81.7),
        5.325e12,
        192e9,
        750,
        2.1e9,
        "AMD Instinct MI300X accelerator data sheet",
    ),
)
