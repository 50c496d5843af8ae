"""What an engine's own books say about a load: the client that carried it, and the server that answered."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmperf.engines.openai.server_metrics import ServerSide

__all__ = ["Account", "Calibration", "ClientSide", "ServerSide"]


@dataclass(frozen=True)
class Calibration:
    """What the client is able to measure on this machine, found on a loopback server whose send times are known.

    Attributes:
        streams: Streams at once while the errors were taken.
        first_p50: Median error of a first chunk's time, seconds: measured minus true.
        first_p99: 99th percentile of its absolute value.
        gap_p50: Median error of the time between two chunks, seconds.
        gap_p99: 99th percentile of its absolute value.
        chunk_rate: Chunks per second that one worker took with a 99th percentile of the gap's error below 1 ms.
        rate_is_limit: Whether a higher rate was tried and failed; otherwise the loopback server could send no faster.
    """

    streams: int
    first_p50: float
    first_p99: float
    gap_p50: float
    gap_p99: float
    chunk_rate: float
    rate_is_limit: bool


@dataclass(frozen=True)
class ClientSide:
    """How the load client did.

    Attributes:
        requests: How many it sent.
        output_tokens: How many came back.
        workers: Processes that carried the load.
        realtime: Whether they ran in the real-time scheduling class.
        processor_share: Of the busiest worker: processor time over wall time while the load lasted.
        lateness_p50: Median of how long after it could have (due, and handed over by the policy) a request was sent,
            seconds.
        lateness_p99: 99th percentile of the same.
        wake_p50: Median of how much later than the kernel's stamp user space had a read, seconds; ``None`` without
            kernel stamps.
        wake_p99: 99th percentile of the same.
        upper_bounds: Share of chunks whose time is an upper bound only.
        peak_chunk_rate: The most chunks per second within a tenth of a second.
        connected_late: Requests whose connection had to be opened after they were due.
        retried: Requests sent again because the server had closed the idle connection they were sent on.
        wall_clock_drift: By how much the wall clock moved against the monotonic clock during a load, seconds.
        calibration: What this client is able to measure on this machine.
    """

    requests: int
    output_tokens: int
    workers: int
    realtime: bool
    processor_share: float
    lateness_p50: float
    lateness_p99: float
    wake_p50: float | None
    wake_p99: float | None
    upper_bounds: float
    peak_chunk_rate: float
    connected_late: int
    retried: int
    wall_clock_drift: float
    calibration: Calibration | None


@dataclass(frozen=True)
class Account:
    """The books since they were last asked for.

    Attributes:
        client: Of an engine that is reached by a load client; ``None`` otherwise.
        server: Of a server that keeps books; ``None`` otherwise.
        most_running: The most requests that the server said it was working on, asked four times a second during the
            warm-up (asking during the measurement would disturb it); ``None`` when it does not say.
        most_waiting: Likewise, of requests that waited.
        warnings: What the books say that a reader should know, in sentences.
    """

    client: ClientSide | None = None
    server: ServerSide | None = None
    most_running: int | None = None
    most_waiting: int | None = None
    warnings: tuple[str, ...] = ()
