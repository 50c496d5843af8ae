"""One test."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number, Verdict
from pytest_llmperf.results.boards import ClockRecord, EnergyRecord
from pytest_llmperf.results.machine import Engine
from pytest_llmperf.results.metrics import ConditionRecord, MetricValue
from pytest_llmperf.results.outputs import Outputs
from pytest_llmperf.results.phases import Phases
from pytest_llmperf.results.roof import RoofRecord
from pytest_llmperf.results.serving import Client, Overhead, Requests, Search, Server
from pytest_llmperf.results.timeline import Timeline
from pytest_llmperf.results.verdicts import AdvisoryRecord, VerdictRecord

__all__ = ["TestRecord"]


class TestRecord(Model):
    """One test, or one named measurement of it."""

    nodeid: str
    verdict: Verdict | Literal["measured"]
    outcome: Literal["passed", "failed", "skipped", "unfinished"] = Field(description="of the pytest test as a whole")
    workload: dict[str, Any] | None
    tolerances: dict[str, Number] = Field(
        default={}, description="of the metrics that gate it, or would; empty when it was only measured"
    )
    engine: Engine | None
    clock: ClockRecord
    energy: list[EnergyRecord] = Field(default=[], description="launch by launch; empty when no board was read")
    metrics: dict[str, MetricValue]
    verdicts: list[VerdictRecord]
    advisory: list[AdvisoryRecord] = Field(default=[])
    requests: Requests | None
    client_overhead: Overhead | None
    search: Search | None = None
    phases: list[Phases] | None = Field(default=None, description="launch by launch, of a measurement of phases")
    outputs: Outputs | None = Field(default=None, description="null when answers were not asked for")
    client: list[Client] = Field(default=[], description="of a server's load client, launch by launch")
    server: list[Server] = Field(default=[], description="by the server's own metrics, launch by launch")
    conditions: dict[str, ConditionRecord] = Field(default={}, description="by name")
    roof: RoofRecord | None = Field(default=None, description="null in files of versions that did not keep it")
    timeline: Timeline | None = Field(default=None, description="of the last launch; null when no board was read")
    provenance: dict[str, Any] | None = Field(
        default=None, description="what a baseline of this measurement remembers of it; null when nothing was gated"
    )
    baseline_provenance: dict[str, Any] | None = Field(default=None, description="what the baseline remembers of it")
    explanation: list[str] = Field(default=[], description="what moved with a verdict that is no pass, in sentences")
    warnings: list[str]
    invalid: str | None
