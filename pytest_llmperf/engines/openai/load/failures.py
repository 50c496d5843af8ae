"""The words for what can go wrong between the client and a server."""

from __future__ import annotations

import errno
import ssl

from pytest_llmperf.engines.openai.load.connection import Exchange

__all__ = ["lost", "not_connected", "silence"]

#: What OpenSSL makes of an answer that is no TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


def not_connected(error: OSError, server: str, timeout_ns: int) -> tuple[str, str]:
    """Why a connection did not come about: how the exchange ended, and the reason.

    Args:
        error: What connecting raised.
        server: ``host:port``.
        timeout_ns: Until a connection had to stand.
    """
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
        return "refused", f"TLS with {server} failed: it speaks plain HTTP there"
    if isinstance(error, ssl.SSLError):
        return "refused", f"TLS with {server} failed: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "timeout", f"connect timeout: {server} did not accept in {timeout_ns / 1e9:g} s"
    if error.errno == errno.EMFILE:
        return "unsent", "no connection: this process has too many open files (raise ulimit -n)"
    if error.errno == errno.EADDRNOTAVAIL:
        return "unsent", "no connection: this machine has no free TCP port left"
    if error.errno == errno.ECONNREFUSED:
        return "refused", f"connection refused by {server}"
    return "refused", f"no connection to {server}: {error.strerror or error}"


def lost(error: OSError, exchange: Exchange) -> str:
    """Why an exchange ended whose connection was lost."""
    what = error.strerror or str(error) or type(error).__name__
    after = f"after {len(exchange.reads)} reads" if exchange.reads else "before the first byte of the answer"
    return f"connection lost {after}: {what}"


def silence(exchange: Exchange, timeout_ns: int) -> str:
    """In which phase of an exchange nothing came for the read timeout."""
    seconds = f"{timeout_ns / 1e9:g} s"
    if not exchange.sent_ns:
        return f"send timeout: the server took nothing more of the request for {seconds}"
    where = "before the first byte" if not exchange.reads else "in the middle of the answer"
    return f"read timeout: nothing came for {seconds} ({where})"
