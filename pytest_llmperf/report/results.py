"""results.json: the record of a run, as pydantic models from which the published JSON Schema is made.

Everything that a report shows and that a verdict was derived from is in this file. Values are in SI units; what
was not measured is ``null`` with a reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_llmperf.errors import ResultsError

__all__ = ["SCHEMA_VERSION", "WORST_FIRST", "Results", "TestRecord", "json_schema", "read_results"]

SCHEMA_VERSION = 1

#: How reports sort tests: what a change of the engine did, then what nobody knows, then what is well.
WORST_FIRST = (
    "regressed",
    "inconclusive",
    "invalid",
    "incomparable",
    "no-baseline",
    "improved",
    "pass",
    "not-applicable",
    "measured",
)

Number = Annotated[float, Field(allow_inf_nan=False)]
Verdict = Literal[
    "pass",
    "regressed",
    "improved",
    "inconclusive",
    "no-baseline",
    "incomparable",
    "not-applicable",
    "invalid",
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Run(_Model):
    """Which run this was."""

    id: str
    started_at: str = Field(description="ISO 8601, UTC")
    command: str
    commit: str | None = Field(description="of the repository that holds the tests")
    dirty: bool | None = Field(description="whether that repository had uncommitted changes")
    plugin_version: str


class Gpu(_Model):
    """One board."""

    index: int
    name: str
    uuid: str
    driver: str
    power_limit_w: Number | None
    memory_bytes: int | None
    simulated: bool


class Peaks(_Model):
    """What one device reached at best when it was measured: B/s and FLOP/s."""

    device: str
    copy_bandwidth: Number = Field(description="within its memory, bytes read and written together")
    host_to_device: Number | None
    device_to_host: Number | None
    peer_to_peer: dict[str, Number] = Field(description="to each other GPU by its index")
    matmul_flops: dict[str, Number]
    method: str


class Environment(_Model):
    """The machine."""

    python: str
    platform: str
    cpu: str
    cuda: str | None
    gpus: list[Gpu]
    peaks: list[Peaks] = Field(default=[], description="measured before the first real engine started")
    sensor: dict[str, Any] | None = Field(description="of the power readings; null when power was not read")


class Engine(_Model):
    """What answered the requests."""

    kind: str
    version: str
    model: str
    args: dict[str, Any] = Field(description="all arguments in force")
    treatment: dict[str, Any] = Field(description="those of them that came from the command line")
    simulated: bool
    device: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    tensor_parallel_size: int


class ObservedClock(_Model):
    """A clock during the measurement, while the board was busy, MHz."""

    min: Number
    median: Number
    max: Number


class MemoryClock(_Model):
    """The memory clock that was asked for and the one that was there, MHz."""

    requested: Number
    locked: Number
    observed: ObservedClock | None


class ClockRecord(_Model):
    """The SM clock that was asked for and the one that was there."""

    requested_mhz: Number | None = None
    locked_mhz: Number | None = None
    observed_mhz: ObservedClock | None = None
    throttled_fraction: Number | None = None
    memory_mhz: MemoryClock | None = Field(default=None, description="null when the memory clock ran free")


class BoardEnergy(_Model):
    """Joules of one or all boards from a launch's first due request to its last token."""

    joules: Number | None
    error: Number | None = Field(description="standard uncertainty, of the window's ends; not of the sensor's gain")
    source: Literal["counter", "integral", "mixed"] | None
    power: Number | None = Field(description="mean, watts")
    integral_power: Number | None = Field(description="mean of the power readings over the whole window, watts")
    reason: str | None = Field(description="why there are no joules")


class NamedBoardEnergy(BoardEnergy):
    """Those of one board."""

    uuid: str


class EnergyRecord(BoardEnergy):
    """The energy of one launch: one window over all its repeats."""

    seconds: Number = Field(description="from the first due request to the last token")
    busy: Number = Field(description="share of it that lies within the repeats")
    repeats: int
    idle_power: Number | None = Field(description="watts with the model loaded at the clock in force")
    idle_reason: str | None
    boards: list[NamedBoardEnergy]


class Percentiles(_Model):
    """Over every request of every launch."""

    p50: Number
    p90: Number
    p99: Number


class MetricValue(_Model):
    """One metric of one test."""

    unit: str
    better: Literal["lower", "higher"]
    value: Number | None = Field(description="median over launches of the median over repeats")
    percentiles: Percentiles | None
    launches: list[list[Number]] = Field(
        description="the repeats' values launch by launch; of the boards' own figures one"
    )
    reason: str | None = Field(description="why there is no value")


class NoiseRecord(_Model):
    """Relative standard deviations between launches of one thing, and what they are known from."""

    sd: Number = Field(description="the one that was used")
    df: Number = Field(description="its degrees of freedom")
    own_sd: Number | None = Field(description="of this test's launches; null when there are too few")
    own_df: Number
    pooled_sd: Number | None = Field(description="over the other tests of the group; null when there is no pool")
    pooled_df: Number
    tests: int = Field(description="how many tests the pool is made of")
    source: Literal["pooled", "own", "unknown"] = Field(description="unknown when the launches are too few for either")


class VerdictRecord(_Model):
    """The gate's verdict on one metric. The fields of the statistics are null where nothing could be decided."""

    metric: str
    verdict: Verdict
    baseline: Number | None
    current: Number | None = Field(
        description="geometric mean of the launches on which the verdict stands, of each the median over its repeats; "
        "tables show it, and not the metric's value, beside the change"
    )
    change: Number | None = Field(description="current / baseline - 1")
    interval: tuple[Number, Number] | None = Field(description="the changes that the launches leave possible")
    tolerance: Number
    minimum_detectable: Number | None = Field(
        description="the smallest relative worsening that would have been called regressed with 80 % probability"
    )
    baseline_launches: list[list[Number]]
    alpha: Number | None = Field(
        description="chance of calling this comparison regressed when nothing changed, at most"
    )
    looks: int | None = Field(description="how many times the launches were looked at")
    reason: str | None
    against: Literal["baseline", "anchor"] = "baseline"
    launches: int = Field(default=0, description="of this run; 0 in files of versions that did not keep it")
    advice: str | None = Field(
        default=None, description="what would decide it, or that the tolerance is below the noise"
    )
    noise: NoiseRecord | None = None
    prediction: bool = Field(
        default=False, description="whether the interval is a prediction interval: one launch against several"
    )
    saved_at: str | None = Field(default=None, description="when what it was compared with was saved, if known")


class AdvisoryRecord(_Model):
    """How a metric that gates nothing changed since the baseline."""

    metric: str
    baseline: Number
    current: Number
    change: Number = Field(description="current / baseline - 1; of medians, and noise is not told from it")


class Requests(_Model):
    """What happened to the requests of all measured repeats."""

    sent: int
    completed: int
    failed: int
    first_error: str | None
    output_tokens: int
    token_source: Literal["server", "counted"] | None
    time_source: Literal["client", "kernel", "user", "mixed"] | None = Field(
        default=None, description="of the receive times: an engine in process, the kernel's stamps, or user space"
    )
    chunk_tokens: Literal["told", "apportioned"] | None = Field(
        default=None, description="whether the engine said how many tokens each chunk holds"
    )
    errors: dict[str, int] = Field(default={}, description="how many requests failed for which reason")


class Calibration(_Model):
    """The load client's errors on a loopback server whose send times are known, seconds."""

    streams: int
    first_p50: Number
    first_p99: Number
    gap_p50: Number
    gap_p99: Number
    chunk_rate: Number = Field(description="chunks/s that one worker timed within 1 ms (99th percentile)")
    rate_is_limit: bool = Field(description="whether a higher rate was tried and failed")


class Client(_Model):
    """How the load client did in one launch; seconds and shares."""

    requests: int
    output_tokens: int
    workers: int
    realtime: bool
    processor_share: Number
    lateness_p50: Number = Field(description="sent - due")
    lateness_p99: Number
    wake_p50: Number | None = Field(description="read by user space - received by the kernel")
    wake_p99: Number | None
    upper_bounds: Number = Field(description="share of chunks whose time is an upper bound")
    peak_chunk_rate: Number
    connected_late: int
    retried: int
    wall_clock_drift: Number
    calibration: Calibration | None


class Server(_Model):
    """One launch by the server's own metrics; seconds and counts, null where it does not tell."""

    requests: int | None
    ttft_mean: Number | None
    ttft_p50: Number | None
    ttft_p99: Number | None
    tpot_mean: Number | None
    tpot_p50: Number | None
    tpot_p99: Number | None
    itl_mean: Number | None
    e2e_mean: Number | None
    queue_time_mean: Number | None
    queue_time_p99: Number | None
    prefill_time_mean: Number | None
    decode_time_mean: Number | None
    prompt_tokens: int | None
    generation_tokens: int | None
    prefix_cache_hit_rate: Number | None
    preemptions: int | None
    running: int | None
    waiting: int | None
    most_running: int | None = Field(description="seen during the warm-up")
    most_waiting: int | None
    reason: str | None


class Trial(_Model):
    """One rate that a search tried."""

    launch: int
    rate: Number
    attained: Number = Field(description="share of the requests that met every SLO")
    kept_up: Number = Field(description="requests ended / requests due in the second half of the offer")
    failed: int
    met: bool


class ConditionRecord(_Model):
    """What was so while the test was measured, and while its baseline was; it gates nothing."""

    unit: str
    launches: list[Number] = Field(description="one number a launch")
    value: Number | None = Field(description="median over the launches")
    baseline: Number | None = Field(description="the baseline's, likewise; null where it holds none")
    baseline_launches: list[Number]
    reason: str | None = Field(description="why there is no value")


class Search(_Model):
    """A search for the highest rate that meets the SLOs."""

    low: Number
    high: Number
    attainment: Number
    precision: Number
    seconds: Number
    trials: list[Trial]


class PhaseWindow(_Model):
    """One shape of request and what it took."""

    input_len: int
    output_len: int
    joules: Number = Field(description="a request")
    error: Number = Field(description="its standard uncertainty")


class PhaseRegression(_Model):
    """E = fixed + prefill_jpt x prompt tokens + decode_jpt x (output tokens - 1); with standard uncertainties."""

    fixed: Number
    prefill_jpt: Number
    decode_jpt: Number
    fixed_error: Number
    prefill_error: Number
    decode_error: Number
    worst: Number = Field(description="largest relative distance of a window to the plane")


class Phases(_Model):
    """The windows of one launch, and the regression over them."""

    windows: list[PhaseWindow]
    regression: PhaseRegression | None
    reason: str | None = Field(description="why there is no regression")


class Divergence(_Model):
    """Where two answers to one prompt part; both counted from 1."""

    prompt: int
    token: int


class Outputs(_Model):
    """Greedy answers to fixed prompts beside the baseline's."""

    prompts: int | None = Field(description="that were answered; null when none was")
    tokens: int | None = Field(description="of all answers")
    compared_tokens: int | None = Field(description="of each answer all, or those before it parts at a tie")
    ties: int | None = Field(description="answers that part where neither engine prefers a token")
    token_agreement: Number | None = Field(description="share of the compared tokens before a first difference")
    logprob_difference: Number | None = Field(description="mean absolute difference where the context is the same, nat")
    first_difference: Divergence | None = Field(description="the earliest token at which answers part")
    worst_prompt: int | None = Field(description="whose answers agree least, from 1")
    reason: str | None = Field(description="why nothing was compared")


class Overhead(_Model):
    """The client's receive times beside the engine's own stamps, seconds."""

    requests: int
    first_token_p50: Number
    first_token_p99: Number
    engine_ttft: Number
    engine_tpot: Number | None
    tpot_ratio: Number | None = Field(description="TPOT by our stamps / TPOT by the engine's")


class TestRecord(_Model):
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
    advisory: list[AdvisoryRecord] = []
    requests: Requests | None
    client_overhead: Overhead | None
    search: Search | None = None
    phases: list[Phases] | None = Field(default=None, description="launch by launch, of a measurement of phases")
    outputs: Outputs | None = Field(default=None, description="null when answers were not asked for")
    client: list[Client] = Field(default=[], description="of a server's load client, launch by launch")
    server: list[Server] = Field(default=[], description="by the server's own metrics, launch by launch")
    conditions: dict[str, ConditionRecord] = Field(default={}, description="by name")
    provenance: dict[str, Any] | None = Field(
        default=None, description="what a baseline of this measurement remembers of it; null when nothing was gated"
    )
    baseline_provenance: dict[str, Any] | None = Field(default=None, description="what the baseline remembers of it")
    explanation: list[str] = Field(default=[], description="what moved with a verdict that is no pass, in sentences")
    warnings: list[str]
    invalid: str | None


class Definition(_Model):
    """What a metric means."""

    unit: str
    better: Literal["lower", "higher"]
    formula: str
    source: str = Field(description="what its inputs are read from")


class GateRecord(_Model):
    """How a run was judged."""

    gated: int = Field(description="comparisons that were to be made, counted at collection")
    family_alpha: Number = Field(description="chance of any regressed in a run in which nothing changed, at most")
    limit_alpha: Number = Field(
        default=0.2,
        description="chance of any regressed in a run all of whose metrics are just at their tolerances, at most",
    )
    pass_alpha: Number = Field(description="chance that a comparison beyond its tolerance passes")
    power: Number = Field(description="with which the minimum detectable changes are detected")
    looks: list[int] = Field(description="after how many launches a verdict can be drawn")
    launches: int = Field(description="the most launches that a test may take")


class StaleBaseline(_Model):
    """A stored baseline with which no test compares any more."""

    test: str
    path: str = Field(description="relative to the rootdir where it lies in it")


class BaselinesRecord(_Model):
    """The stored baselines of the hardware, models and clocks that a gating run has used."""

    stale: list[StaleBaseline]
    missing: list[str] = Field(description="tests that were to be gated and have none")
    not_run: int = Field(description="stored for tests that were deselected, skipped or not selected")


class Results(_Model):
    """The whole file."""

    schema_version: Literal[1]
    run: Run
    environment: Environment
    definitions: dict[str, Definition] = Field(default={}, description="of the metrics, by name")
    gate: GateRecord | None = Field(default=None, description="null when nothing was gated")
    tests: list[TestRecord]
    baselines: BaselinesRecord | None = Field(default=None, description="of a gating run that came to its end")

    def worst_first(self) -> list[TestRecord]:
        """The tests, those that need a reader first."""
        return sorted(self.tests, key=lambda test: WORST_FIRST.index(test.verdict))

    def to_json(self) -> str:
        """Strict JSON (no NaN, no Infinity), indented by one space."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> str:
    """The JSON Schema of results.json, as published beside this module."""
    schema = Results.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def read_results(path: Path) -> Results:
    """Read a results.json.

    Raises:
        ResultsError: it cannot be read, or is not of this schema; names the file and the first wrong field.
    """
    try:
        return Results.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(
            f"{path} cannot be read ({error}).", remedy="Give a folder that a run has written."
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ResultsError(f"{path} is no results.json of schema {SCHEMA_VERSION}: {where}: {first['msg']}.") from None
