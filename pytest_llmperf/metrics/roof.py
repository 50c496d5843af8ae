"""What the hardware allows a model, for the metrics that measure against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmperf.arithmetic import Architecture, Hardware
from pytest_llmperf.errors import ArchitectureError, HardwareError

__all__ = ["Roof", "roof_of"]


@dataclass(frozen=True)
class Roof:
    """A model on the hardware that serves it, as far as both are known.

    Attributes:
        architecture: The model as it is served; ``None`` when its bytes and FLOPs are not known.
        hardware: The peaks of one device; ``None`` when they are not known.
        gpus: Devices that share the model.
        kv_dtype: Of the KV cache; ``None`` for the model's own.
        why_no_model: Why ``architecture`` is ``None``.
        why_no_hardware: Why ``hardware`` is ``None``.
    """

    architecture: Architecture | None = None
    hardware: Hardware | None = None
    gpus: int = 1
    kv_dtype: str | None = None
    why_no_model: str = "the model is not known"
    why_no_hardware: str = "the hardware is not known"


def roof_of(
    config: Mapping[str, Any] | None,
    *,
    device: str,
    dtype: str,
    quantization: str | None,
    kv_cache_dtype: str,
    gpus: int,
    measured: Hardware | None = None,
) -> Roof:
    """The roof over a model; what is not known is said, never guessed.

    Args:
        config: The model's config.json.
        device: The product name of the hardware.
        dtype: As served.
        quantization: As served; ``None`` for what the config says.
        kv_cache_dtype: As served; ``"auto"`` for the model's own.
        gpus: Devices that share the model.
        measured: Peaks measured on this machine, in place of a data sheet's.
    """
    architecture, why_no_model = None, "the engine does not tell the model's config.json"
    if config is not None:
        try:
            architecture = Architecture.from_config(config).served_as(dtype, quantization)
        except ArchitectureError as error:
            why_no_model = error.problem
    hardware, why_no_hardware = measured, ""
    if measured is None:
        try:
            hardware = Hardware.named(device)
        except HardwareError as error:
            why_no_hardware = error.problem
    kv_dtype = None if kv_cache_dtype == "auto" else kv_cache_dtype
    return Roof(architecture, hardware, gpus, kv_dtype, why_no_model, why_no_hardware)
