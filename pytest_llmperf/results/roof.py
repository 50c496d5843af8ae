"""What a model asks of the hardware that serves it, and what that could give."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["RoofPoint", "RoofRecord"]


class RoofPoint(Model):
    """What one phase of a workload did, for the place of a test under the roofline."""

    phase: Literal["prefill", "decode"]
    flops: Number = Field(description="FLOPs of the model in one step of the phase")
    weight_bytes: Number = Field(description="of weights that this step reads")
    kv_bytes: Number = Field(description="of KV cache that it reads")
    seconds: Number = Field(description="that it took, median")


class RoofRecord(Model):
    """Peaks of all devices of the engine together, and the sizes of the model on them."""

    peak_flops: Number | None = Field(description="dense FLOP/s of the dtype in use")
    peak_bandwidth: Number | None = Field(description="of the memory, B/s")
    source: str | None = Field(description="of the peaks: a data sheet, or how they were measured")
    memory_bytes: int | None = Field(description="of all devices")
    total_params: int | None
    weight_bytes: Number | None = Field(description="of all weights, as stored")
    kv_bytes_per_token: Number | None = Field(description="of one token of one sequence, over all layers")
    points: list[RoofPoint] = Field(description="of the phases that can be told apart")
    reason: str | None = Field(description="why something of it is null or missing")
