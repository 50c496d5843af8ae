"""One TCP connection to a server, and the one request that it carries at a time."""

from __future__ import annotations

import os
import re
import socket
import ssl
from array import array
from contextlib import suppress
from typing import Any

import httptools

from pytest_llmperf.engines.openai.load.stamps import CMSG_SPACE, ask_for_stamps

__all__ = ["Connection", "Exchange"]

#: Bytes of one read: some sixty token events.
_READ = 16384
_LAST_CHUNK = b"0\r\n\r\n"
#: How the last chunk begins, which may have an extension or trailers.
_ZERO = b"\n0"
_DONE = b"[DONE]"
_EVENT = b"data:"
#: As a line of its own: within a text, a line end would be escaped.
_DONE_LINE = re.compile(rb"[\r\n]data: ?\[DONE\]")
#: The closing mark and all that may follow it in an answer.
_ENDING = 1024


class Exchange:
    """One request and the bytes of its answer, with their times as they were read off.

    Attributes:
        number: The caller's.
        message: The whole HTTP request.
        due_ns: When it is due; the moment of its submission where that is ``None`` beforehand.
        sent_ns: When its last byte was handed to the kernel; 0 before.
        reads: The answer as it came.
        stamps: The kernel's receive time of each read's last segment (wall clock), 0 where there is none.
        seen: Monotonic time at which each read had returned.
        end: How it ended: ``"complete"``, ``"close"``, ``"reset"``, ``"timeout"``, ``"refused"``, ``"unsent"``;
            ``None`` before.
        error: Why the client gave up, if it did.
        moved_ns: When the server last took some of the request; before, its submission.
        connected_late: Whether a connection had to be opened after it was due.
        done_seen: Whether what looks like the stream's closing mark has come.
        events: How many events have come, about.
        event_ns: When the last of them came; before, 0.
    """

    __slots__ = (
        "connected_late", "done_seen", "due_ns", "end", "error", "event_ns", "events", "message", "moved_ns",
        "number", "reads", "retried", "seen", "sent_ns", "stamps", "submitted_ns",
    )  # fmt: skip

    def __init__(self, number: int, message: bytes, due_ns: int | None = None) -> None:
        self.number = number
        self.message = message
        self.due_ns = due_ns
        self.submitted_ns = self.sent_ns = self.moved_ns = 0
        self.events = self.event_ns = 0
        self.reads: list[bytes] = []
        self.stamps = array("q")
        self.seen = array("q")
        self.end: str | None = None
        self.error: str | None = None
        self.connected_late = self.done_seen = self.retried = False

    def take(self, data: bytes, stamp: int, seen_ns: int) -> None:
        """Keep what a read brought."""
        self.seen.append(seen_ns)
        self.stamps.append(stamp)
        self.reads.append(data)
        if events := data.count(_EVENT):
            self.events += events
            self.event_ns = seen_ns

    @property
    def last_news_ns(self) -> int:
        """When something last happened to it."""
        return self.seen[-1] if self.seen else self.sent_ns or self.moved_ns

    def said_done(self) -> bool:
        """Whether the stream's closing mark came at the end of what came, in however many reads."""
        last: list[bytes] = []
        length = 0
        for read in reversed(self.reads):
            last.append(read)
            length += len(read)
            if length > _ENDING:
                break
        return _DONE_LINE.search(b"".join(reversed(last))[-_ENDING:]) is not None


class _AnswerEnd:
    """Finds the end of an HTTP answer: told by the parser, which is asked only when there is reason to.

    Attributes:
        scan: Whether every read has to be parsed: at the head of the answer, when its body is not chunked, and after
            the stream's closing mark. A chunked body in between ends in a way that its last bytes tell.
    """

    __slots__ = ("_chunked", "_fed", "_keeps", "_parser", "_tail", "broken", "ended", "scan")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._fed = 0
        self._tail = b""
        self._chunked = self._keeps = self.ended = self.broken = False
        self.scan = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"transfer-encoding":
            self._chunked = b"chunked" in value.lower()

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self.scan = not self._chunked

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # the interim answers come before the answer
            # Afterwards the parser is at the beginning of another message, of which it can tell nothing.
            self._keeps = self._keeps if self.ended else bool(self._parser.should_keep_alive())
            self.ended = True

    def look(self, exchange: Exchange, data: bytes) -> bool:
        """Whether the answer has ended with this read."""
        if _DONE in data:
            exchange.done_seen = self.scan = True
        elif not self.scan:
            self._tail = data[-5:] if len(data) >= 5 else (self._tail + data)[-5:]
            if self._tail != _LAST_CHUNK and _ZERO not in data[-_ENDING:]:
                return False
        return self.parse(exchange)

    def parse(self, exchange: Exchange) -> bool:
        """Parse what has not been parsed yet; whether the answer has ended."""
        fresh = exchange.reads[self._fed :]
        self._fed = len(exchange.reads)
        scanned_before = self.scan
        if fresh and not self.ended and not self.broken:
            try:
                self._parser.feed_data(b"".join(fresh))
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                self.broken = True  # or another protocol from here on, which we did not ask for
        if not self.scan and scanned_before:
            # The rest of the read that brought the head.
            exchange.done_seen = exchange.done_seen or any(_DONE in read for read in fresh)
            self._tail = fresh[-1][-5:] if fresh else b""
        self.scan |= exchange.done_seen
        return self.ended or self.broken

    def feed(self, data: bytes) -> bool:
        """Parse what comes after the exchange has been taken for finished; whether the answer has ended."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.broken = True
        return self.ended or self.broken

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the connection."""
        return self._keeps and not self.broken


class Connection:
    """A non-blocking socket, with TLS or without, whose reads bring the kernel's stamps.

    Args:
        family: Address family.
        where: Socket address.
        context: TLS settings, or ``None`` for plain TCP.
        host: The name that the server's certificate has to carry.
        kernel_stamps: Whether to ask for them.
        now_ns: The time.

    Raises:
        OSError: no socket is to be had, or connecting failed at once.
    """

    __slots__ = (
        "_incoming", "_outgoing", "_pending", "_recvmsg", "_tls", "answer_end", "ended", "exchange", "fd", "opened_ns",
        "parted_ns", "ready", "send_error", "served", "sock", "writing",
    )  # fmt: skip

    def __init__(
        self, family: int, where: Any, context: ssl.SSLContext | None, host: str, *, kernel_stamps: bool, now_ns: int
    ) -> None:
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.fd = self.sock.fileno()
        self.ready = False
        self.writing = True
        self.served = 0
        self.exchange: Exchange | None = None
        self.send_error: OSError | None = None
        self.ended = False  # TLS says so; the TCP connection may stay
        self.opened_ns = now_ns
        self.parted_ns = 0  # when its exchange was taken for finished though the answer goes on
        self.answer_end = _AnswerEnd()
        self._pending: memoryview = memoryview(b"")
        self._recvmsg = self.sock.recvmsg
        self._tls: ssl.SSLObject | None = None
        try:
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if kernel_stamps:
                ask_for_stamps(self.sock)
            if context is not None:
                self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
            with suppress(BlockingIOError):  # it is under way
                self.sock.connect(where)
        except BaseException:
            self.sock.close()
            raise

    def establish(self) -> bool:
        """Go on connecting; whether requests can be sent now.

        Raises:
            OSError: the connection was refused, or TLS failed.
        """
        if self.ready:
            return True
        if (error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) != 0:
            raise OSError(error, os.strerror(error))
        if self._tls is not None and not self._handshake(self._tls):
            return False
        self.ready = True
        return True

    def _handshake(self, tls: ssl.SSLObject) -> bool:
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_tls()
                try:
                    data = self.sock.recv(_READ)
                except BlockingIOError:
                    return False
                if not data:
                    raise ConnectionResetError("the server closed the connection during the TLS handshake") from None
                self._incoming.write(data)
            else:
                self._flush_tls()
                return True

    def _flush_tls(self) -> None:
        if produced := self._outgoing.read():
            self._pending = memoryview(bytes(self._pending) + produced)
        self.flush()

    def send(self, message: bytes) -> bool:
        """Hand a request to the kernel; whether all of it is there.

        Raises:
            OSError: the connection is gone.
        """
        self.answer_end = _AnswerEnd()
        if self._tls is not None:
            self._tls.write(message)
            message = self._outgoing.read()
        # In front of it there may be the end of a handshake.
        self._pending = memoryview(bytes(self._pending) + message if self._pending else message)
        return self.flush()

    def flush(self) -> bool:
        """Send what is left of the request; whether all of it is there now."""
        while self._pending:
            try:
                sent = self.sock.send(self._pending)
            except BlockingIOError:
                return False
            self._pending = self._pending[sent:]
        return True

    def receive(self) -> tuple[bytes | None, list[tuple[int, int, bytes]]]:
        """One read with its ancillary data; ``b""`` at the end, ``None`` when there is nothing for the caller.

        Raises:
            OSError: the connection was reset, or TLS failed.
        """
        try:
            data, ancillary, _, _ = self._recvmsg(_READ, CMSG_SPACE)
        except BlockingIOError:
            return None, []
        if self._tls is None:
            return data, ancillary
        return self._decrypt(self._tls, data), ancillary

    def keeps_still(self) -> bool:
        """Whether what came without a request was TLS's own: it sends session tickets when it likes."""
        if self._tls is None:
            return False
        try:
            return self.receive()[0] is None
        except OSError:
            return False

    def _decrypt(self, tls: ssl.SSLObject, data: bytes) -> bytes | None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        plain = []
        try:
            while piece := tls.read(_READ):
                plain.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            return b"".join(plain) or None  # half a record, or a session ticket
        except ssl.SSLError:
            if not data:
                return b"".join(plain)
            raise
        return b"".join(plain)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
