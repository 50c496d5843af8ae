"""What happened to the requests, by the client and by the server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["Calibration", "Client", "Overhead", "Requests", "Search", "Server", "Trial"]


class Requests(Model):
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


class Calibration(Model):
    """The load client's errors on a loopback server whose send times are known, seconds."""

    streams: int
    first_p50: Number
    first_p99: Number
    gap_p50: Number
    gap_p99: Number
    chunk_rate: Number = Field(description="chunks/s that one worker timed within 1 ms (99th percentile)")
    rate_is_limit: bool = Field(description="whether a higher rate was tried and failed")


class Client(Model):
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


class Server(Model):
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


class Trial(Model):
    """One rate that a search tried."""

    launch: int
    rate: Number
    attained: Number = Field(description="share of the requests that met every SLO")
    kept_up: Number = Field(description="requests ended / requests due in the second half of the offer")
    failed: int
    met: bool


class Search(Model):
    """A search for the highest rate that meets the SLOs."""

    low: Number
    high: Number
    attainment: Number
    precision: Number
    seconds: Number
    trials: list[Trial]


class Overhead(Model):
    """The client's receive times beside the engine's own stamps, seconds."""

    requests: int
    first_token_p50: Number
    first_token_p99: Number
    engine_ttft: Number
    engine_tpot: Number | None
    tpot_ratio: Number | None = Field(description="TPOT by our stamps / TPOT by the engine's")
