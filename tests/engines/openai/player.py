"""A server that plays a script over real sockets: what it sends when, how it ends, and what it saw of the client."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

#: Nothing here waits longer for a client; a test that needs this has failed.
GUARD_S = 30.0


@dataclass
class Reply:
    """What one request gets.

    Attributes:
        steps: Milliseconds to wait, and the bytes to send then.
        end: ``"keep"`` the connection; ``"close"`` it; ``"notify"`` (close it, and say so in TLS); ``"reset"`` it;
            ``"half"``: send no more, but go on reading; ``"hang"``: keep it, silently.
        gate: Called before the first step.
    """

    steps: Sequence[tuple[float, bytes]] = ()
    end: str = "keep"
    gate: Callable[[], object] | None = None


@dataclass
class Asked:
    """One request as it came.

    Attributes:
        connection: Number of its connection, in the order of acceptance.
        nth: Which request of that connection, from 0.
        head: Its head, without the blank line.
        body: Its body, as far as it was read.
        received_ns: When all of it was there.
        sent: The moment before each step of the reply was sent.
    """

    connection: int
    nth: int
    head: str
    body: bytes
    received_ns: int
    sent: list[int] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.head.split(" ")[1]

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


class Player:
    """Listens on a loopback address as long as its block runs.

    Args:
        answer: The reply to a request.
        family: Of the address.
        tls: Settings of a server that speaks TLS.
        reads: ``"all"`` of a request before it answers; its ``"head"`` only; or ``"nothing"``, and never answers.
        idle_ms: Closes a connection on which the next request has not come after so long.
        backlog: Of the listener.
        accepts: Whether connections are taken from the backlog at all.
    """

    def __init__(
        self, answer: Callable[[Asked], Reply], *, family: int = socket.AF_INET, tls: ssl.SSLContext | None = None,
        reads: str = "all", idle_ms: float | None = None, backlog: int = 1024, accepts: bool = True,
    ) -> None:  # fmt: skip
        self._answer = answer
        self._tls = tls
        self._reads = reads
        self._idle = None if idle_ms is None else idle_ms / 1000
        self._accepts = accepts
        self.family = family
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        # A small window makes a large request wait for the one who does not read it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(backlog)
        self.where = self._listener.getsockname()
        self.port = self.where[1]
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.asked: list[Asked] = []
        self.accepted = self.gone = self.in_flight = self.peak = 0
        self.faults: list[BaseException] = []

    @property
    def url(self) -> str:
        host = "[::1]" if self.family == socket.AF_INET6 else "localhost" if self._tls else "127.0.0.1"
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def __enter__(self) -> Player:
        if self._accepts:
            self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._stopping.set()
        with self._changed:
            sockets = list(self._sockets)
        for sock in sockets:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(GUARD_S)
        for sock in sockets:
            sock.close()
        assert not self.faults, self.faults

    def refuse(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def wait(self, until: Callable[[Player], bool]) -> None:
        """Wait until something has happened here."""
        with self._changed:
            assert self._changed.wait_for(lambda: until(self), GUARD_S), "it never happened"

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        for number in count():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self.accepted += 1
                self._sockets.append(sock)
                self._changed.notify_all()
            self._start(self._connection, sock, number)

    def _connection(self, sock: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._changed:
                    self._sockets.append(sock)
            if self._reads == "nothing":
                self._stopping.wait(GUARD_S)
            else:
                self._converse(sock, number)
        except OSError:
            self._note_gone()  # the client broke it off, in the middle of something
        except BaseException as error:
            self.faults.append(error)

    def _converse(self, sock: socket.socket, number: int) -> None:
        rest = b""
        for nth in count():
            sock.settimeout(self._idle if nth else None)
            try:
                asked, rest = self._read(sock, rest, number, nth)
            except TimeoutError:
                sock.close()
                return
            sock.settimeout(None)
            if asked is None:
                self._note_gone()
                return
            with self._changed:
                self.asked.append(asked)
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                self._changed.notify_all()
            reply = self._answer(asked)
            try:
                self._play(sock, asked, reply)
            except OSError:
                self._note_gone()
                return
            if reply.end != "keep":
                self._end(sock, reply.end)
                return

    def _read(self, sock: socket.socket, rest: bytes, number: int, nth: int) -> tuple[Asked | None, bytes]:
        while b"\r\n\r\n" not in rest:
            if not (data := sock.recv(65536)):
                return None, b""
            rest += data
        head, _, rest = rest.partition(b"\r\n\r\n")
        asked = Asked(number, nth, head.decode("latin-1"), b"", 0)
        length = int(asked.header("Content-Length") or 0) if self._reads == "all" else 0
        while len(rest) < length:
            if not (data := sock.recv(1 << 20)):
                return None, b""
            rest += data
        asked.body, asked.received_ns = rest[:length], time.monotonic_ns()
        return asked, rest[length:]

    def _play(self, sock: socket.socket, asked: Asked, reply: Reply) -> None:
        left = False
        try:
            if reply.gate is not None:
                reply.gate()
            for place, (delay, data) in enumerate(reply.steps):
                if delay:
                    self._stopping.wait(delay / 1000)
                if place == len(reply.steps) - 1:
                    # Once it has all, the client may send the next at once: this one is over before.
                    left = True
                    self._leave()
                asked.sent.append(time.monotonic_ns())
                sock.sendall(data)
        finally:
            if not left:
                self._leave()

    def _leave(self) -> None:
        with self._changed:
            self.in_flight -= 1
            self._changed.notify_all()

    def _end(self, sock: socket.socket, end: str) -> None:
        if end == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif end == "notify":
            assert isinstance(sock, ssl.SSLSocket)
            with suppress(OSError):
                sock.settimeout(GUARD_S)
                sock.unwrap()
        elif end in ("half", "hang"):
            if end == "half":
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
            self._note_gone()
        sock.close()

    def _note_gone(self) -> None:
        with self._changed:
            self.gone += 1
            self._changed.notify_all()
