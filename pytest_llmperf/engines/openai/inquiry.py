"""Plain questions to a server, outside of any load: which model, which version, what its books say."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any

from pytest_llmperf.engines.openai.address import Address

__all__ = ["Inquiry"]

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True)
class Inquiry:
    """Asks one server.

    Attributes:
        address: The server.
        headers: Sent with every question, the authorization among them.
        context: TLS settings, or ``None``.
        timeout: Seconds for each step of an answer.
    """

    address: Address
    headers: dict[str, str]
    context: ssl.SSLContext | None
    timeout: float

    def text(self, path: str) -> str | None:
        """The answer's text, or ``None`` when the server has nothing there, or does not answer."""
        address = self.address
        connection: http.client.HTTPConnection
        if address.tls:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=self.timeout, context=self.context
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=self.timeout)
        try:
            connection.request("GET", path + address.query, headers={**self.headers, "Connection": "close"})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                return None
            return answer.read(_LARGEST).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """The answer as JSON, or ``None`` likewise."""
        text = self.text(path)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None
