"""The client's self-check: how exactly, and how much, it can measure on this machine.

Before a server is measured, one worker of the client measures a loopback server whose send times are known. The
errors found there are the floor: no difference below it is the server's. The chunk rate up to which the errors stay
small is the ceiling of a worker.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pytest_llmperf.engines.account import Calibration
from pytest_llmperf.engines.openai.load.loopback import Paced, Pumped, Sent
from pytest_llmperf.engines.openai.load.worker import Answer, Open
from pytest_llmperf.engines.openai.load.workers import Workers
from pytest_llmperf.engines.openai.settings import Settings
from pytest_llmperf.engines.site import Site
from pytest_llmperf.errors import EngineError
from pytest_llmperf.piped import PipedProcess

__all__ = ["calibrate_once"]

_STREAMS = 32
_PACED = Paced(streams=_STREAMS, chunks=30, first_ns=20_000_000, gap_ns=5_000_000)
#: Chunks per second that are tried, ascending.
_RATES = (5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)
#: How long each is held, seconds.
_PUMP_S = 0.15
#: An error of the time between chunks above this is too much.
_TOLERABLE_S = 1e-3
#: A loopback server that does not reach this share of the rate is itself at its limit.
_KEPT_UP = 0.95
_NS = 1_000_000_000
_TIMEOUT_NS = 5 * _NS


async def calibrate_once(site: Site, settings: Settings) -> Calibration | None:
    """The calibration for these settings: made once a session, on the machine as it is then; takes about two seconds.

    Returns:
        ``None`` when the settings ask for none.

    Raises:
        EngineError: a process of the calibration ended, or nothing could be measured.
    """
    if not settings.calibrate:
        return None
    kind = f"{settings.stamps} stamps, realtime {settings.realtime}"
    if kind not in site.calibrations:
        site.calibrations[kind] = await _calibrate(settings)
    return site.calibrations[kind]


async def _calibrate(settings: Settings) -> Calibration:
    server = PipedProcess("pytest_llmperf.engines.openai.load.loopback")
    workers: Workers | None = None
    try:
        opening = Open(
            family=int(socket.AF_INET),
            where=("127.0.0.1", await server.reply()),
            name="the loopback server",
            kernel_stamps=settings.stamps == "kernel",
            realtime=settings.realtime,
        )
        workers = Workers(opening, 1)
        await workers.start()
        await _play(server, workers, replace(_PACED, chunks=3))  # warms both up
        first, gaps = _errors(*await _play(server, workers, _PACED))
        if not first or not gaps:
            raise EngineError(
                "The load client could measure nothing of its own loopback server, on a machine as busy as this one.",
                remedy="Try again when less runs beside it, or do without: --llmperf-engine NAME,calibrate=false.",
            )
        rate, is_limit = await _ceiling(server, workers)
        return Calibration(
            streams=_STREAMS,
            first_p50=_quantile(first, 0.5),
            first_p99=_quantile([abs(e) for e in first], 0.99),
            gap_p50=_quantile(gaps, 0.5),
            gap_p99=_quantile([abs(e) for e in gaps], 0.99),
            chunk_rate=rate,
            rate_is_limit=is_limit,
        )
    finally:
        if workers is not None:
            workers.close()
        server.kill()


async def _ceiling(server: PipedProcess, workers: Workers) -> tuple[float, bool]:
    """The highest rate that the client took, and whether it was the client that ended the search."""
    best = 0.0
    for rate in _RATES:
        reached, error = await _try_rate(server, workers, rate)
        if error > _TOLERABLE_S:
            # Once may be another process's doing.
            reached, error = await _try_rate(server, workers, rate)
        if error > _TOLERABLE_S:
            return best, True
        best = max(best, reached)
        if reached < _KEPT_UP * rate:
            return best, False
    return best, False


async def _try_rate(server: PipedProcess, workers: Workers, rate: int) -> tuple[float, float]:
    """Chunks per second that the loopback server sent, and the 99th percentile of the error of the gaps, seconds."""
    plan = Pumped(_STREAMS, chunks=max(10, round(rate * _PUMP_S / _STREAMS)), gap_ns=round(_NS / rate))
    answers, sent = await _play(server, workers, plan)
    _, gaps = _errors(answers, sent)
    took = (max(s[-1] for s in sent.sent_ns) - min(s[0] for s in sent.sent_ns)) / _NS
    return (_STREAMS * plan.chunks - 1) / took, _quantile([abs(e) for e in gaps], 0.99)


async def _play(server: PipedProcess, workers: Workers, plan: Paced | Pumped) -> tuple[list[Answer], Sent]:
    server.tell(plan)
    messages = {
        number: b"POST / HTTP/1.1\r\nHost: loopback\r\nContent-Length: 0\r\nX-Request-Id: %d\r\n\r\n" % number
        for number in range(plan.streams)
    }
    await workers.prepare(messages, plan.streams)
    sent, answers = await asyncio.gather(server.reply(), workers.carry(list(messages), None, None, _TIMEOUT_NS))
    return answers, sent


def _errors(answers: Sequence[Answer], sent: Sent) -> tuple[list[float], list[float]]:
    """Seconds by which first chunks and the times between chunks were measured too long."""
    place = {int(name): at for at, name in enumerate(sent.names)}
    first: list[float] = []
    gaps: list[float] = []
    for answer in answers:
        at = place[answer.number]
        true = sent.sent_ns[at]
        ours = answer.decoded.received_ns
        if answer.decoded.error is not None or len(ours) != len(true):
            continue
        # From the client's last byte sent to the server's receipt is the network's time, and the same for both.
        first.append(((ours[0] - answer.due_ns) - (true[0] - sent.received_ns[at])) / _NS)
        gaps += [
            ((ours_b - ours_a) - (true_b - true_a)) / _NS
            for (ours_a, ours_b), (true_a, true_b) in zip(pairwise(ours), pairwise(true), strict=True)
        ]
    return first, gaps


def _quantile(values: Sequence[float], share: float) -> float:
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else float("inf")
