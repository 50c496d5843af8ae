"""What a model asks of the hardware that serves it, and what that could give."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["KvLayers", "RoofPoint", "RoofRecord"]


class RoofPoint(Model):
    """What one phase of a workload did, for the place of a test under the roofline; medians over the launches.

    A decode's bytes over its seconds, over the peak bandwidth, are the test's MBU.
    """

    phase: Literal["prefill", "decode"]
    batch: Number | None = Field(default=None, description="sequences in the step")
    flops: Number = Field(description="FLOPs of the model in one step of the phase: a batch's prompts, or a token each")
    weight_bytes: Number = Field(description="of weights that this step reads")
    kv_bytes: Number = Field(description="of KV cache that a decode reads, at its mean context, or a prefill writes")
    seconds: Number = Field(description="that it took: until the last first token, or TPOT")


class KvLayers(Model):
    """Layers that keep the KV cache of equally many tokens of a sequence."""

    bytes_per_token: Number = Field(description="of one token of one sequence, over all these layers")
    window: int | None = Field(description="tokens that they keep at most; null where they keep all")


class RoofRecord(Model):
    """Peaks of all devices of the engine together, and the sizes of the model on them."""

    peak_flops: Number | None = Field(description="dense FLOP/s of the dtype in use, at the clock in force")
    peak_bandwidth: Number | None = Field(description="of the memory, B/s; MBU is measured against it")
    copy_bandwidth: Number | None = Field(
        default=None,
        description="B/s that a copy within the devices reached, read and written together; null where it was not "
        "measured",
    )
    matmul_flops: Number | None = Field(
        default=None, description="FLOP/s that a large matrix product in the dtype in use reached; null likewise"
    )
    source: str | None = Field(description="of the peaks: a data sheet, or how they were measured")
    memory_bytes: int | None = Field(description="of all devices, as their data sheet has it")
    total_params: int | None
    weight_bytes: Number | None = Field(description="of all weights, as stored")
    kv_bytes_per_token: Number | None = Field(description="of one token of one sequence, over all layers")
    kv_layers: list[KvLayers] = Field(
        default=[],
        description="that by the tokens that layers keep: a sequence takes bytes_per_token x min(context, window) of "
        "each; empty where it is not known, or the record is of an earlier version",
    )
    points: list[RoofPoint] = Field(description="of the phases that can be told apart")
    reason: str | None = Field(description="why something of it is null or missing")
