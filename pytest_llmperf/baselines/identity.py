"""What a baseline holds for: two equal identities are comparable, and differing ones say in what."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Identity", "Strict", "differing", "same_but_for_workload"]


class Strict(BaseModel):
    """What is stored takes no field that it does not know, and no text for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Identity(Strict):
    """What a baseline holds for; two equal identities are comparable.

    Attributes:
        hardware: Product name of the GPU, or of the CPU with its number of usable cores.
        device_count: GPUs in use (1 for a CPU).
        power_limit_w: Per GPU; ``None`` for a CPU.
        simulated: Made up or measured.
        clock_mhz: The locked SM clock; ``None`` when it was not locked.
        memory_clock_mhz: The locked memory clock; likewise.
        model: The model's name.
        model_digest: Of its config.
        dtype: Of the computation.
        quantization: Of the weights.
        kv_cache_dtype: Of the KV cache.
        tensor_parallel_size: GPUs a layer is split over.
        pipeline_parallel_size: GPUs the layers are spread over.
        workload: Digest of the workload.
    """

    hardware: str
    device_count: int = Field(ge=1)
    power_limit_w: float | None
    simulated: bool
    clock_mhz: int | None
    memory_clock_mhz: int | None = None
    model: str
    model_digest: str | None
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    tensor_parallel_size: int = Field(ge=1)
    pipeline_parallel_size: int = Field(ge=1)
    workload: str


def differing(baseline: Identity, current: Identity) -> list[str]:
    """The fields in which two identities differ, as sentences: ``"hardware: NVIDIA H100 in the baseline, ..."``."""
    return [
        f"{name}: {before!r} in the baseline, {now!r} now"
        for name in Identity.model_fields
        if (before := getattr(baseline, name)) != (now := getattr(current, name))
    ]


def same_but_for_workload(one: Identity, other: Identity) -> bool:
    """Whether two baselines were measured on the same thing, whatever the work was."""
    return one == other.model_copy(update={"workload": one.workload})
