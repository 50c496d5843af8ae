"""A process that carries its share of a load, and decodes what came when the load is over.

It is told what to do over one pipe, whose other end is the process that measures; when that end is gone, so is the
worker, with all its connections. Answers are decoded here, so that several workers decode side by side.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any

from pytest_llmperf.engines.openai.address import tls_context
from pytest_llmperf.engines.openai.decoding.answer import Decoded, RawAnswer, decode
from pytest_llmperf.engines.openai.load.client import Load, LoadClient, Target
from pytest_llmperf.engines.openai.load.connection import Exchange
from pytest_llmperf.engines.openai.load.priority import realtime
from pytest_llmperf.engines.openai.load.stamps import ClockMap

__all__ = ["Answer", "Carried", "Carry", "Failed", "Open", "Prepare", "Prepared", "Statistics", "main"]


@dataclass(frozen=True)
class Open:
    """The first order: which server.

    Attributes:
        family: Address family.
        where: Socket address.
        name: For messages.
        tls: Whether to speak TLS.
        host: The name that the server's certificate has to carry.
        ca_file: Certificates to trust instead of the system's.
        verify: Whether the certificate is checked.
        connect_timeout_ns: Until a connection must stand.
        kernel_stamps: Whether to use the kernel's receive stamps.
        realtime: Whether to carry loads in the real-time scheduling class, where that is allowed.
        tokenizer: A tokenizer.json for answers whose tokens the server does not count.
    """

    family: int
    where: Any
    name: str
    tls: bool = False
    host: str = ""
    ca_file: str | None = None
    verify: bool = True
    connect_timeout_ns: int = 30_000_000_000
    kernel_stamps: bool = True
    realtime: bool = True
    tokenizer: str | None = None


@dataclass(frozen=True)
class Prepare:
    """Keep these requests at hand, by their numbers, and open connections for them."""

    messages: dict[int, bytes] = field(repr=False)  # the API key is in them
    connections: int


@dataclass(frozen=True)
class Prepared:
    """How many connections stand by."""

    connections: int


@dataclass(frozen=True)
class Carry:
    """Carry prepared requests; each is used up by it.

    Attributes:
        numbers: In the order in which they are due.
        due_ns: When each is due; ``None``: at its submission.
        start_ns: Nothing is submitted before.
        lanes: How many may be in flight.
        read_timeout_ns: Silence after which a request has failed.
        most_events: Events after which an answer is given up.
    """

    numbers: tuple[int, ...]
    due_ns: tuple[int, ...] | None
    start_ns: int
    lanes: int | None
    read_timeout_ns: int
    most_events: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request; ``late_ns`` is how late the client sent it, from when it could have."""

    number: int
    due_ns: int
    sent_ns: int
    late_ns: int
    time_source: str
    connected_late: bool
    decoded: Decoded


@dataclass(frozen=True)
class Statistics:
    """How the client itself did.

    Attributes:
        wall_ns: How long the load lasted.
        cpu_ns: Processor time that the worker spent meanwhile.
        wake_ns: For every read with a kernel stamp: how much later user space had it; ascending.
        drift_ns: By how much the wall clock moved against the monotonic one.
        stepped: Whether the wall clock was set meanwhile.
        realtime: Whether the load ran in the real-time scheduling class.
        retried: Requests sent again because the server had closed the idle connection.
    """

    wall_ns: int
    cpu_ns: int
    wake_ns: tuple[int, ...]
    drift_ns: int
    stepped: bool
    realtime: bool
    retried: int


@dataclass(frozen=True)
class Carried:
    """The answers, in the order of the order, and how the client did."""

    answers: tuple[Answer, ...]
    statistics: Statistics


@dataclass(frozen=True)
class Failed:
    """The worker's own failure."""

    reason: str


class _Worker:
    def __init__(self, opening: Open, leash: int) -> None:
        context = tls_context(opening.ca_file, verify=opening.verify) if opening.tls else None
        target = Target(
            opening.family, opening.where, opening.name, opening.host, context, opening.connect_timeout_ns,
            opening.kernel_stamps,
        )  # fmt: skip
        self._client = LoadClient(target, leash)
        self._realtime = opening.realtime
        self._messages: dict[int, bytes] = {}
        self._count_tokens = _counter(opening.tokenizer)

    def prepare(self, order: Prepare) -> Prepared:
        self._messages = order.messages
        return Prepared(self._client.open_connections(order.connections))

    def carry(self, order: Carry) -> Carried:
        due: tuple[int | None, ...] = order.due_ns or (None,) * len(order.numbers)
        exchanges = [Exchange(n, self._messages.pop(n), when) for n, when in zip(order.numbers, due, strict=True)]
        self._client.clocks = clocks = ClockMap()
        wall, cpu = time.monotonic_ns(), time.process_time_ns()
        ordered = wall
        with realtime(self._realtime) as granted:
            self._client.carry(Load(exchanges, order.start_ns, order.lanes, order.read_timeout_ns, order.most_events))
        cpu = time.process_time_ns() - cpu
        wall = time.monotonic_ns() - max(wall, min(order.start_ns, time.monotonic_ns()))
        wake: list[int] = []
        answers = tuple(self._answer(exchange, clocks, wake, ordered) for exchange in exchanges)
        retried = sum(exchange.retried for exchange in exchanges)
        gc.collect()
        return Carried(
            answers, Statistics(wall, cpu, tuple(sorted(wake)), clocks.drift_ns, clocks.stepped, granted, retried)
        )

    def _answer(self, exchange: Exchange, clocks: ClockMap, wake: list[int], ordered_ns: int) -> Answer:
        times, source = _times(exchange, clocks, wake)
        raw = RawAnswer(times=times, reads=exchange.reads, end=exchange.end or "close", error=exchange.error)
        due = exchange.due_ns if exchange.due_ns is not None else exchange.submitted_ns
        sent = exchange.sent_ns or max(exchange.submitted_ns, due)
        if times and times[0] < sent:
            # The answer was under way before send() returned: the last byte cannot have left later than that.
            sent = max(due, min(sent, times[0]))
        # A batching policy hands over requests that were due long ago: that wait is not the client's.
        late = max(0, sent - max(due, ordered_ns))
        decoded = decode(raw, count_tokens=self._count_tokens)
        return Answer(exchange.number, due, sent, late, source, exchange.connected_late, decoded)

    def close(self) -> None:
        self._client.close()


def _times(exchange: Exchange, clocks: ClockMap, wake: list[int]) -> tuple[list[int], str]:
    """Monotonic times of an exchange's reads, ascending, and where they come from."""
    times: list[int] = []
    kernel = 0
    latest = exchange.submitted_ns
    for stamp, seen in zip(exchange.stamps, exchange.seen, strict=True):
        at = clocks.monotonic(stamp, seen) if stamp else None
        if at is not None and at >= exchange.submitted_ns:
            kernel += 1
            wake.append(seen - at)
        else:
            at = seen
        latest = max(latest, at)
        times.append(latest)
    if not times or kernel == 0:
        return times, "user"
    return times, "kernel" if kernel == len(times) else "mixed"


def _counter(tokenizer: str | None) -> Callable[[str], int] | None:
    if tokenizer is None:
        return None
    try:
        from tokenizers import Tokenizer

        loaded = Tokenizer.from_file(tokenizer)
    except Exception:  # not installed, or a file of another kind: chunks are counted instead
        return None
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


def main(descriptor: int) -> None:
    """Obey orders until the other end of the pipe is gone."""
    pipe: Pipe[Any, Any] = Pipe(descriptor)
    worker: _Worker | None = None
    try:
        while True:
            order = pipe.recv()
            reply: Any
            try:
                if isinstance(order, Open):
                    worker = _Worker(order, descriptor)
                    reply = Prepared(0)
                elif worker is None:
                    reply = Failed("no server was named yet")
                elif isinstance(order, Prepare):
                    reply = worker.prepare(order)
                else:
                    reply = worker.carry(order)
            except InterruptedError:
                return
            except Exception:  # whatever it is: the other end waits for a reply, and raises it with this text
                reply = Failed(traceback.format_exc())
            pipe.send(reply)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        if worker is not None:
            worker.close()
