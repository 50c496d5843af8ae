"""A small server whose send times are known: what the client is calibrated against.

It speaks just enough HTTP to stream chunks on many connections, notes when it received each request and when it sent
each chunk, and tells that over a pipe. It waits by spinning, so its own lateness is what a system call takes; what
counts as the truth is not the plan but the moment before each ``send``.
"""

from __future__ import annotations

import heapq
import select
import socket
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from pytest_llmperf.engines.openai.load.stamps import CMSG_SPACE, ClockMap, ask_for_stamps, stamp_of

__all__ = ["Paced", "Pumped", "Sent", "main"]

_EVENT = b'data: {"choices":[{"index":0,"text":"%s"}]}\n\n' % (b"x" * 180)
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
_END = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_DONE), _DONE)


@dataclass(frozen=True)
class Paced:
    """Every stream: the first chunk ``first_ns`` after its request, then one every ``gap_ns``."""

    streams: int
    chunks: int
    first_ns: int
    gap_ns: int


@dataclass(frozen=True)
class Pumped:
    """All streams in turn, one chunk every ``gap_ns`` over all of them."""

    streams: int
    chunks: int
    gap_ns: int


@dataclass(frozen=True)
class Sent:
    """What happened, stream by stream in the order in which the requests came.

    Attributes:
        names: What each request said in its ``X-Request-Id``.
        received_ns: When the request's last byte was received.
        sent_ns: When each chunk was sent.
    """

    names: tuple[str, ...]
    received_ns: tuple[int, ...]
    sent_ns: tuple[array[int], ...]


class _Server:
    def __init__(self, leash: int) -> None:
        self._leash = leash
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        ask_for_stamps(self._listener)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(leash, select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}

    def play(self, plan: Paced | Pumped) -> Sent:
        clocks = ClockMap()
        clocks.sample()
        names: list[str] = []
        streams: list[socket.socket] = []
        received: list[int] = []
        sent: list[array[int]] = []
        due: list[tuple[int, int, int]] = []
        while len(streams) < plan.streams:
            for sock, name, at in self._requests(clocks):
                if isinstance(plan, Paced):
                    heapq.heappush(due, (at + plan.first_ns, len(streams), 0))
                names.append(name)
                received.append(at)
                sent.append(array("q"))
                streams.append(sock)
            if isinstance(plan, Paced):
                self._send_due(plan, due, streams, sent)
        if isinstance(plan, Paced):
            while due:
                self._send_due(plan, due, streams, sent)
        else:
            self._pump(plan, streams, sent)
        return Sent(tuple(names), tuple(received), tuple(sent))

    def _requests(self, clocks: ClockMap) -> Iterator[tuple[socket.socket, str, int]]:
        for descriptor, _ in self._epoll.poll(0, 64):
            if descriptor == self._leash:
                raise EOFError("nobody waits for this any more")
            if descriptor == self._listener.fileno():
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ask_for_stamps(sock)
                self._sockets[sock.fileno()] = sock
                self._epoll.register(sock.fileno(), select.EPOLLIN)
                continue
            sock = self._sockets[descriptor]
            data, ancillary, _, _ = sock.recvmsg(65536, CMSG_SPACE)
            seen = time.monotonic_ns()
            if not data:
                self._epoll.unregister(descriptor)
                self._sockets.pop(descriptor).close()
                continue
            # One small request is one segment on the loopback interface.
            at = clocks.monotonic(stamp_of(ancillary), seen) if stamp_of(ancillary) else None
            name = data.partition(b"X-Request-Id: ")[2].partition(b"\r\n")[0].decode()
            yield sock, name, seen if at is None else at

    @staticmethod
    def _send_due(
        plan: Paced, due: list[tuple[int, int, int]], streams: list[socket.socket], sent: list[array[int]]
    ) -> None:
        while due and due[0][0] <= time.monotonic_ns():
            when, stream, number = heapq.heappop(due)
            message = (_HEAD if number == 0 else b"") + _CHUNK
            sent[stream].append(time.monotonic_ns())
            streams[stream].sendall(message)
            if number + 1 < plan.chunks:
                heapq.heappush(due, (when + plan.gap_ns, stream, number + 1))
            else:
                streams[stream].sendall(_END)

    @staticmethod
    def _pump(plan: Pumped, streams: list[socket.socket], sent: list[array[int]]) -> None:
        now = time.monotonic_ns
        for sock in streams:
            sock.sendall(_HEAD)
        due = now() + 5_000_000
        pairs = [(sock.send, stamps.append) for sock, stamps in zip(streams, sent, strict=True)]
        for _ in range(plan.chunks):
            for send, note in pairs:
                while (at := now()) < due:
                    pass
                note(at)
                send(_CHUNK)
                due += plan.gap_ns
        for sock in streams:
            sock.sendall(_END)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._listener.close()
        self._epoll.close()


def main(descriptor: int) -> None:
    """Tell the port, then play plans until the other end of the pipe is gone."""
    pipe: Pipe[Any, Any] = Pipe(descriptor)
    server = _Server(descriptor)
    try:
        pipe.send(server.port)
        while True:
            pipe.send(server.play(pipe.recv()))
    except (EOFError, OSError):
        return
    finally:
        server.close()
