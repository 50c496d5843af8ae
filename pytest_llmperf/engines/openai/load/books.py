"""What the load client notes of itself while it carries loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines.account import Calibration, ClientSide
from pytest_llmperf.engines.openai.load.worker import Answer, Statistics
from pytest_llmperf.engines.openai.server_metrics import Snapshot

__all__ = ["Books", "Busiest"]

_WINDOW_NS = 100_000_000
#: A share of chunks whose times are upper bounds that a reader should know of.
_MANY = 0.05
#: Lateness of the client (99th percentile) that a reader should know of.
_LATE_S = 5e-3
#: Reads whose wake-up times are kept for the percentiles.
_KEPT = 100_000


@dataclass
class Busiest:
    """The most requests that a server said it was working on, and that waited."""

    running: int | None = None
    waiting: int | None = None

    def note(self, snapshot: Snapshot) -> None:
        """Take in one reading of its metrics."""
        for name in ("running", "waiting"):
            seen, before = snapshot.values.get(name), getattr(self, name)
            if seen is not None:
                setattr(self, name, max(int(seen), before or 0))


class Books:
    """Notes of one measurement."""

    def __init__(self) -> None:
        self._requests = self._tokens = 0
        self._lateness: list[int] = []
        self._wake: list[int] = []
        self._chunks = self._bounds = self._late = self._retried = 0
        self._peak = 0
        self._drift = 0
        self._stepped = False
        self._realtime = True
        self._share = 0.0

    def note(self, answers: Sequence[Answer], statistics: Sequence[Statistics]) -> None:
        """Take in one carried offer."""
        windows: Counter[int] = Counter()
        for answer in answers:
            if answer.sent_ns:
                self._lateness.append(answer.late_ns)
            self._late += answer.connected_late
            self._requests += 1
            self._tokens += answer.decoded.output_tokens
            self._chunks += len(answer.decoded.received_ns)
            self._bounds += len(answer.decoded.upper_bounds)
            windows.update(at // _WINDOW_NS for at in answer.decoded.received_ns)
        self._peak = max(self._peak, max(windows.values(), default=0))
        for one in statistics:
            self._wake += one.wake_ns[:: 1 + len(one.wake_ns) // _KEPT]
            self._drift = max(self._drift, one.drift_ns)
            self._stepped |= one.stepped
            self._realtime &= one.realtime
            self._retried += one.retried
            if one.wall_ns > 0:
                self._share = max(self._share, one.cpu_ns / one.wall_ns)

    def client_side(self, workers: int, calibration: Calibration | None) -> ClientSide | None:
        """The account; ``None`` when nothing was carried."""
        if not self._lateness:
            return None
        late, wake = sorted(self._lateness), sorted(self._wake)
        return ClientSide(
            requests=self._requests,
            output_tokens=self._tokens,
            workers=workers,
            realtime=self._realtime,
            processor_share=self._share,
            lateness_p50=_at(late, 0.5),
            lateness_p99=_at(late, 0.99),
            wake_p50=_at(wake, 0.5) if wake else None,
            wake_p99=_at(wake, 0.99) if wake else None,
            upper_bounds=self._bounds / self._chunks if self._chunks else 0.0,
            peak_chunk_rate=self._peak * NS_PER_S / _WINDOW_NS,
            connected_late=self._late,
            retried=self._retried,
            wall_clock_drift=self._drift / NS_PER_S,
            calibration=calibration,
        )

    def warnings(self) -> list[str]:
        """What a reader should know, in sentences."""
        told = []
        if self._stepped:
            told.append("The wall clock was set during the load: receive times around that moment are user space's.")
        if self._lateness and (late := _at(sorted(self._lateness), 0.99)) > _LATE_S:
            told.append(
                f"Requests were sent up to {late * 1e3:.1f} ms after they were due (p99): the client was not woken in "
                "time, and that time is in their latency."
            )
        if self._retried:
            told.append(
                f"{self._retried} requests were sent again, because the server closed the idle connection that they "
                "were sent on first."
            )
        if self._late:
            told.append(f"{self._late} requests had to wait for a connection to be opened; that time is in their TTFT.")
        if self._chunks and self._bounds > _MANY * self._chunks:
            told.append(
                f"{self._bounds / self._chunks:.0%} of the chunks came in one read with later ones: their times are "
                "upper bounds."
                + (
                    ""
                    if self._realtime
                    else " The client was woken late, for want of the permission to run in the "
                    "real-time class: run as root, or allow it with ulimit -r 1 (limits.conf: rtprio)."
                )
            )
        return told


def _at(ascending: Sequence[int], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] / NS_PER_S
