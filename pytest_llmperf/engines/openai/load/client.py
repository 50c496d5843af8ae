"""The load loop of one process: submit when due, take the bytes with their times, nothing else.

No event loop library is under this: each read has to fetch the kernel's stamp with it (``recvmsg``), which no
transport of asyncio or of an HTTP client does, and each token costs one pass through this loop. What is done here per
read is one system call, two appends and a look at the last bytes; parsing comes when the load is over.
"""

from __future__ import annotations

import gc
import resource
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

from pytest_llmperf.engines.openai.load.connection import Connection, Exchange
from pytest_llmperf.engines.openai.load.failures import lost, not_connected, silence
from pytest_llmperf.engines.openai.load.stamps import ClockMap, ask_for_stamps, stamp_of

__all__ = ["Load", "LoadClient", "Target"]

_MS = 1_000_000
#: Events taken from the kernel before due requests are looked for again.
_EVENTS = 64
#: A request that is due is waited for by spinning in this last stretch: a timer may be that late.
_SPIN_NS = 80_000
#: epoll's own timeout counts whole milliseconds.
_EPOLL_GRAIN_NS = 1_200_000
#: How long a server may take to end the answer after the stream's closing mark.
_CLOSING_NS = 1000 * _MS
#: A connection that has waited this long without a request may be one that the server gave up.
_STANDING_NS = 1000 * _MS
#: How long it usually takes at most; after that, the request is taken for finished.
_LINGER_NS = 20 * _MS
#: A server may keep a connection alive with comments for this many read timeouts.
_COMMENTS = 10
#: Most connections kept standing by.
_SPARE = 64
#: Requests that are due within this time get a connection ahead.
_AHEAD_NS = 100 * _MS
#: A request on a connection that the server had closed already fails within this time.
_AT_ONCE_NS = 100 * _MS
_CLOCK_SAMPLE_NS = 100 * _MS

_LOST = (select.EPOLLERR | select.EPOLLHUP) if hasattr(select, "epoll") else 0


@dataclass(frozen=True)
class Target:
    """Where requests go.

    Attributes:
        family: Address family.
        where: Socket address.
        name: For messages: ``host:port``.
        host: For TLS.
        context: TLS settings, or ``None`` for plain TCP.
        connect_timeout_ns: Until a connection must stand.
        kernel_stamps: Whether to use them.
    """

    family: int
    where: Any
    name: str
    host: str = ""
    context: ssl.SSLContext | None = None
    connect_timeout_ns: int = 30_000 * _MS
    kernel_stamps: bool = True


@dataclass
class Load:
    """An offer as one process carries it.

    Attributes:
        exchanges: In the order in which they are due.
        start_ns: Nothing is submitted before.
        lanes: How many may be in flight; ``None``: any number.
        read_timeout_ns: Silence on an open request after which it has failed.
        most_events: Events after which an answer is given up; ``None``: any number.
    """

    exchanges: Sequence[Exchange]
    start_ns: int
    lanes: int | None
    read_timeout_ns: int
    most_events: int | None = None


class LoadClient:
    """Connections to one server.

    Args:
        target: The server.
        leash: A file descriptor; when it becomes readable, the load is given up.
    """

    def __init__(self, target: Target, leash: int | None = None) -> None:
        self._target = target
        self._leash = leash
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        #: Standing by: those that served already, the last one last, and those that never did, the oldest first.
        self._used: list[Connection] = []
        self._fresh: deque[Connection] = deque()
        self._closing: deque[tuple[Connection, Exchange]] = deque()
        self._opening = 0
        self._in_flight: dict[int, Exchange] = {}
        self._by_exchange: dict[int, Connection] = {}
        self._spare_failed = False
        self._server_closes = False
        self._timeout_ns = 0
        self._most_events: int | None = None
        self.clocks = ClockMap()
        # The kernel stamps segments only while some socket asks for it, and takes a moment to begin.
        self._holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ask_for_stamps(self._holder)
        if leash is not None:
            self._epoll.register(leash, select.EPOLLIN)
        _raise_descriptor_limit()

    # Connections

    def open_connections(self, count: int) -> int:
        """Have ``count`` connections standing by; returns how many there are when all is done or has failed."""
        self._drop_stale()
        self._spare_failed = False
        for _ in range(count - self._standing_by):
            if self._connect(None) is None:
                break
        limit = time.monotonic_ns() + self._target.connect_timeout_ns
        while self._opening and time.monotonic_ns() < limit:
            self._handle(self._epoll.poll(0.05, _EVENTS))
            self._check_timeouts(time.monotonic_ns())
        return self._standing_by

    @property
    def _standing_by(self) -> int:
        return len(self._used) + len(self._fresh)

    def _drop_stale(self) -> None:
        """Let go of connections that the server has closed meanwhile."""
        while events := self._epoll.poll(0, _EVENTS):
            self._handle(events)

    def _connect(self, exchange: Exchange | None) -> Connection | None:
        target = self._target
        try:
            connection = Connection(
                target.family, target.where, target.context, target.host,
                kernel_stamps=target.kernel_stamps, now_ns=time.monotonic_ns(),
            )  # fmt: skip
        except OSError as error:
            self._not_connected(exchange, error)
            return None
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLIN | select.EPOLLOUT)
        self._opening += 1
        if exchange is not None:
            self._assign(connection, exchange)
        return connection

    def _assign(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        self._by_exchange[exchange.number] = connection

    def _establish(self, connection: Connection) -> None:
        try:
            if not connection.establish():
                # TLS waits for the server's turn; polling for room to write would spin.
                self._want_write(connection, False)
                return
        except OSError as error:
            exchange = connection.exchange
            self._discard(connection)
            self._not_connected(exchange, error)
            return
        self._opening -= 1
        if connection.exchange is not None:
            self._send(connection, connection.exchange)
        else:
            self._want_write(connection, False)
            self._fresh.append(connection)

    def _want_write(self, connection: Connection, wanted: bool) -> None:
        if connection.writing != wanted:
            connection.writing = wanted
            mask = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            self._epoll.modify(connection.fd, mask)

    def _discard(self, connection: Connection) -> None:
        if not connection.ready:
            self._opening -= 1
        if connection.exchange is not None:
            self._by_exchange.pop(connection.exchange.number, None)
        for standing_by in (self._used, self._fresh):
            with suppress(ValueError):
                standing_by.remove(connection)
        self._connections.pop(connection.fd, None)
        with suppress(OSError):
            self._epoll.unregister(connection.fd)
        connection.close()

    def _not_connected(self, exchange: Exchange | None, error: OSError) -> None:
        if exchange is None:
            self._spare_failed = True
            return
        kind, reason = not_connected(error, self._target.name, self._target.connect_timeout_ns)
        self._end(exchange, kind, reason)

    # The load

    def carry(self, load: Load) -> None:
        """Submit every exchange when it is due and take its answer, until all have ended.

        Raises:
            InterruptedError: the leash was pulled.
        """
        enabled = gc.isenabled()
        gc.disable()
        try:
            self._carry(load)
        finally:
            if enabled:
                gc.enable()

    def _carry(self, load: Load) -> None:
        now_ns = time.monotonic_ns
        upcoming = deque(load.exchanges)
        lanes = load.lanes if load.lanes is not None else len(upcoming)
        self._timeout_ns = load.read_timeout_ns
        self._most_events = load.most_events
        self._closing.clear()
        check_every = min(max(load.read_timeout_ns // 8, 5 * _MS), 250 * _MS)
        next_check = next_sample = 0
        while upcoming or self._in_flight:
            now = now_ns()
            if now >= next_sample:
                self.clocks.sample()
                next_sample = now + _CLOCK_SAMPLE_NS
            if now >= next_check:
                self._check_timeouts(now)
                next_check = now + check_every
            wake = min(next_check, next_sample, self._part_from_the_finished(now))
            submitted = 0
            while upcoming and len(self._in_flight) < lanes:
                due = upcoming[0].due_ns or load.start_ns
                if due > now_ns():
                    wake = min(wake, due)
                    break
                if submitted == _EVENTS:
                    wake = 0
                    break
                self._submit(upcoming.popleft())
                submitted += 1
            if upcoming:
                self._keep_spares(self._spares(load, upcoming, now))
            self._handle(self._wait(wake))
        self.clocks.sample()

    def _spares(self, load: Load, upcoming: deque[Exchange], now: int) -> int:
        """How many connections should stand by for what is about to come; no more than an ordinary client would have.

        A server that gives each connection a thread, or counts them, would serve nobody else meanwhile.
        """
        if load.lanes is not None:
            # Where connections are used again, lanes need no more of them than there are lanes.
            return min(load.lanes - len(self._in_flight), len(upcoming), _SPARE) if self._server_closes else 0
        if upcoming[0].due_ns is None:
            return 0  # all at once: they were opened before
        ahead = takewhile(lambda exchange: (exchange.due_ns or 0) <= now + _AHEAD_NS, islice(upcoming, _SPARE))
        return max(1, sum(1 for _ in ahead))

    def _wait(self, until_ns: int) -> Iterable[tuple[int, int]]:
        left = until_ns - time.monotonic_ns()
        if left > 2 * _EPOLL_GRAIN_NS:
            return self._epoll.poll((left - _EPOLL_GRAIN_NS) / 1e9, _EVENTS)
        if left > _SPIN_NS:
            # select counts microseconds, where epoll counts milliseconds.
            select.select([self._epoll.fileno()], [], [], (left - _SPIN_NS) / 1e9)
        return self._epoll.poll(0, _EVENTS)

    def _submit(self, exchange: Exchange) -> None:
        self._in_flight[exchange.number] = exchange
        exchange.submitted_ns = exchange.moved_ns = time.monotonic_ns()
        if exchange.due_ns is None:
            exchange.due_ns = exchange.submitted_ns
        if self._standing_by:
            # The one used last: the server has not closed it, and attends to it. Else the one opened first: a server
            # that takes connections one after the other has come to that one.
            connection = self._used.pop() if self._used else self._fresh.popleft()
            self._assign(connection, exchange)
            self._send(connection, exchange)
        else:
            exchange.connected_late = True
            self._connect(exchange)

    def _keep_spares(self, wanted: int) -> None:
        while not self._spare_failed and self._standing_by + self._opening < wanted:
            self._connect(None)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        try:
            if connection.send(exchange.message):
                exchange.sent_ns = time.monotonic_ns()
                self._want_write(connection, False)
            else:
                self._want_write(connection, True)
        except ssl.SSLError as error:
            self._lost(connection, error)
        except OSError as error:
            # The kernel announces the connection's end, and what the server said before can be read then.
            connection.send_error = error
            self._want_write(connection, False)

    def _handle(self, events: Iterable[tuple[int, int]]) -> None:
        connections = self._connections
        now_ns = time.monotonic_ns
        for fd, mask in events:
            connection = connections.get(fd)
            if connection is None:
                if fd == self._leash:
                    raise InterruptedError("the load was given up")
                continue
            exchange = connection.exchange
            if connection.writing or exchange is None or not connection.ready:
                if not self._other_event(connection, mask):
                    continue
                exchange = connection.exchange
                if exchange is None:
                    continue
            try:
                data, ancillary = connection.receive()
            except OSError as error:
                self._lost(connection, error)
                continue
            if data is None:
                continue
            if not data:
                self._closed(connection, exchange)
                continue
            exchange.take(data, stamp_of(ancillary) if ancillary else 0, now_ns())
            if connection.answer_end.look(exchange, data):
                self._complete(connection, exchange)
            elif connection.ended:
                self._closed(connection, exchange)
            elif self._most_events is not None and exchange.events > self._most_events:
                self._discard(connection)
                self._end(exchange, "timeout", f"the answer did not end: {exchange.events} events came")
            elif exchange.done_seen:
                self._closing.append((connection, exchange))

    def _other_event(self, connection: Connection, mask: int) -> bool:
        """Deal with everything but the bytes of an answer; whether such bytes are there as well."""
        if not connection.ready:
            self._establish(connection)
            return False
        exchange = connection.exchange
        if exchange is None and connection.parted_ns:
            self._rest(connection)
            return False
        if exchange is None:
            if mask & (select.EPOLLIN | _LOST) and not connection.keeps_still():
                self._discard(connection)  # the server closed it, or speaks out of turn
            return False
        if mask & select.EPOLLOUT and connection.writing:
            exchange.moved_ns = time.monotonic_ns()
            try:
                if connection.flush():
                    exchange.sent_ns = time.monotonic_ns()
                    self._want_write(connection, False)
            except OSError as error:
                # A server that refuses a request before it has all of it hangs up, too: what it said can be read.
                connection.send_error = error
                self._want_write(connection, False)
                return True
        return bool(mask & (select.EPOLLIN | _LOST))

    # Ends

    def _complete(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = None
        connection.served += 1
        self._by_exchange.pop(exchange.number, None)
        if not exchange.sent_ns:
            connection.answer_end.broken = True  # the rest of the request would be taken for another one
        self._end(exchange, "complete" if connection.answer_end.ended else "close", None)
        self._stand_by(connection)

    def _stand_by(self, connection: Connection) -> None:
        connection.parted_ns = 0
        if connection.answer_end.reusable:
            self._used.append(connection)
        else:
            self._server_closes = True
            self._discard(connection)

    def _part_from_the_finished(self, now: int) -> int:
        """Take exchanges for finished whose closing mark has come; returns when to look again.

        The end of the HTTP answer usually follows at once. A server that lingers, or closes later, would keep a lane
        of a closed loop that has nothing more to come; its connection reads on without the exchange.
        """
        while self._closing:
            connection, exchange = self._closing[0]
            if connection.exchange is exchange:
                if (when := exchange.last_news_ns + _LINGER_NS) > now:
                    return when
                if exchange.said_done():
                    connection.exchange = None
                    connection.parted_ns = now
                    connection.served += 1
                    self._by_exchange.pop(exchange.number, None)
                    self._end(exchange, "complete", None)
            self._closing.popleft()
        return now + _CLOCK_SAMPLE_NS

    def _rest(self, connection: Connection) -> None:
        """Read the end of an answer whose exchange was taken for finished."""
        try:
            data, _ = connection.receive()
        except OSError:
            data = b""
        if data is None:
            return
        if not data:
            connection.answer_end.broken = True
        if not data or connection.answer_end.feed(data):
            self._stand_by(connection)

    def _closed(self, connection: Connection, exchange: Exchange) -> None:
        if connection.send_error is not None:
            self._lost(connection, connection.send_error)
            return
        if self._again(connection, exchange):
            return
        self._server_closes = True
        self._discard(connection)
        self._end(exchange, "close", None)

    def _lost(self, connection: Connection, error: OSError) -> None:
        exchange = connection.exchange
        if exchange is None:
            self._discard(connection)
        elif not self._again(connection, exchange):
            self._discard(connection)
            self._end(exchange, "reset", lost(error, exchange))

    def _again(self, connection: Connection, exchange: Exchange) -> bool:
        """Send a request again whose connection the server had closed before it came; once."""
        stood_by = connection.served > 0 or exchange.submitted_ns - connection.opened_ns > _STANDING_NS
        # A connection that was closed while it stood by fails at once; later, it is the request that failed.
        at_once = time.monotonic_ns() - exchange.submitted_ns < _AT_ONCE_NS
        if not stood_by or not at_once or exchange.reads or exchange.retried:
            return False
        exchange.retried = exchange.connected_late = True
        exchange.sent_ns = 0
        exchange.moved_ns = time.monotonic_ns()
        self._discard(connection)
        self._connect(exchange)
        return True

    def _end(self, exchange: Exchange, end: str, error: str | None) -> None:
        exchange.end = end
        exchange.error = error
        self._in_flight.pop(exchange.number, None)

    def _check_timeouts(self, now: int) -> None:
        for connection in list(self._connections.values()):
            if not connection.ready and now - connection.opened_ns > self._target.connect_timeout_ns:
                exchange = connection.exchange
                self._discard(connection)
                self._not_connected(exchange, TimeoutError())
            elif connection.parted_ns and now - connection.parted_ns > _CLOSING_NS:
                self._discard(connection)
        for exchange in list(self._in_flight.values()):
            carrier = self._by_exchange.get(exchange.number)
            if carrier is None or not carrier.ready:
                continue
            quiet = now - (exchange.event_ns or exchange.sent_ns or now)
            if quiet > _COMMENTS * self._timeout_ns:
                self._discard(carrier)
                seconds = f"{quiet / 1e9:.3g} s"
                self._end(exchange, "timeout", f"read timeout: no event came for {seconds}, though bytes did")
                continue
            silent = now - exchange.last_news_ns
            if silent <= min(self._timeout_ns, _CLOSING_NS):
                continue
            # The last bytes do not tell every end: there may be trailers, or a closing mark that was cut.
            ended = carrier.answer_end.parse(exchange)
            if ended or silent > self._timeout_ns or exchange.said_done():
                self._discard(carrier)
                end, reason = ("complete", None) if ended else ("timeout", silence(exchange, self._timeout_ns))
                self._end(exchange, end, reason)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections.values()):
            self._discard(connection)
        self._epoll.close()
        self._holder.close()


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
