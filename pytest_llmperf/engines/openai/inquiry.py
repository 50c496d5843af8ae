"""Plain questions to a server, outside of any load: which model, which version, what its books say, what it answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytest_llmperf.engines.openai.address import Address

__all__ = ["Inquiry"]

#: Bytes; a longer answer is none, and is read no further.
_LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True)
class Inquiry:
    """Asks one server.

    Attributes:
        address: The server.
        headers: Sent with every question, the authorization among them.
        context: TLS settings, or ``None``.
        timeout: Seconds for connecting, and for the whole answer.
    """

    address: Address
    headers: dict[str, str] = field(repr=False)
    context: ssl.SSLContext | None
    timeout: float

    def text(self, path: str) -> str | None:
        """The answer's text, or ``None`` when the server has nothing there, or does not answer."""
        answer = self._exchange("GET", path)
        return answer[1] if answer is not None and answer[0] == http.HTTPStatus.OK else None

    def post(self, path: str, body: bytes) -> tuple[int, str] | None:
        """The status and the text of the answer to some JSON, or ``None`` when the server gives no whole answer."""
        return self._exchange("POST", path, body)

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str] | None:
        address = self.address
        connection: http.client.HTTPConnection
        if address.tls:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=self.timeout, context=self.context
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=self.timeout)
        expired = threading.Event()
        try:
            connection.connect()
            hang_up = _after(self.timeout, connection.sock, expired)
        except (OSError, ValueError):
            return None
        try:
            kind = {} if body is None else {"Content-Type": "application/json"}
            headers = {**self.headers, **kind, "Connection": "close"}
            connection.request(method, path + address.query, body, headers)
            answer = connection.getresponse()
            if method == "GET" and answer.status != http.HTTPStatus.OK:
                return None
            if (answer.length or 0) > _LARGEST:
                return None
            data = answer.read(_LARGEST + 1)
            # What was cut off, by the server or here, is no answer.
            cut = len(data) > _LARGEST or answer.length or expired.is_set()
            return None if cut else (answer.status, data.decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            hang_up.cancel()
            connection.close()

    def json(self, path: str) -> Any:
        """The answer as JSON, or ``None`` likewise."""
        text = self.text(path)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None


def _after(seconds: float, sock: socket.socket, expired: threading.Event) -> threading.Timer:
    """Ends the connection after so long: a socket's own timeout begins anew with every byte."""

    def end() -> None:
        expired.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which another thread is using

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer
