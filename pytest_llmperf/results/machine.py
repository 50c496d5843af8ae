"""Which run it was, on which machine, with which engine."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["Engine", "Environment", "Gpu", "Peaks", "Run"]


class Run(Model):
    """Which run this was."""

    id: str
    started_at: str = Field(description="ISO 8601, UTC")
    command: str
    commit: str | None = Field(description="of the repository that holds the tests")
    dirty: bool | None = Field(description="whether that repository had uncommitted changes")
    plugin_version: str


class Gpu(Model):
    """One board."""

    index: int
    name: str
    uuid: str
    driver: str
    power_limit_w: Number | None
    memory_bytes: int | None
    simulated: bool


class Peaks(Model):
    """What one device reached at best when it was measured: B/s and FLOP/s."""

    device: str
    copy_bandwidth: Number = Field(description="within its memory, bytes read and written together")
    host_to_device: Number | None
    device_to_host: Number | None
    peer_to_peer: dict[str, Number] = Field(description="to each other GPU by its index")
    matmul_flops: dict[str, Number]
    method: str


class Environment(Model):
    """The machine."""

    python: str
    platform: str
    cpu: str
    cuda: str | None
    gpus: list[Gpu]
    peaks: list[Peaks] = Field(
        default=[],
        description="measured before the first real engine started; of simulated boards what that would give",
    )
    sensor: dict[str, Any] | None = Field(description="of the power readings; null when power was not read")


class Engine(Model):
    """What answered the requests; of a test that sends none and needs no engine, what measured (kind ``hardware``)."""

    kind: str
    version: str
    model: str
    args: dict[str, Any] = Field(description="all arguments in force")
    treatment: dict[str, Any] = Field(description="those of them that came from the command line")
    limits: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict,
        description="what it came to by itself, or was given, under vLLM's names, as far as it tells: max_num_seqs, "
        "max_num_batched_tokens, block_size, num_gpu_blocks",
    )
    simulated: bool
    device: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    tensor_parallel_size: int
