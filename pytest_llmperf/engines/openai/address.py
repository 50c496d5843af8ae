"""Where a server is, and what of that nobody else may read."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from pytest_llmperf.errors import EngineError, OptionError

__all__ = ["Address", "Secrets", "redacted", "resolve", "tls_context"]

#: Shorter strings are no secret worth the name, and hiding them would tear ordinary words.
_SHORTEST_SECRET = 4
#: So much of the beginning of a longer one is no accident.
_TELLING = 8
_ENDPOINTS = {"/chat/completions": "chat", "/completions": "completions"}


#: In any text: user and password of a URL, its query, and what looks like a key given as an argument.
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]+@")
_QUERY = re.compile(r"(://[^?\s]+\?)[^\s'\"]+")
_KEYS = re.compile(r"(?i)\b(api_?key|key|token|authorization|password|secret)=[^,&\s'\"]+")


def redacted(text: str) -> str:
    """A command line, or another text that may hold a server's URL, without what nobody else may read."""
    text = _QUERY.sub(r"\1***", _CREDENTIALS.sub("***@", text))
    return _KEYS.sub(r"\1=***", text)


@dataclass(frozen=True)
class Secrets:
    """Strings that must not appear in any output."""

    values: tuple[str, ...] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """``text`` with every secret replaced, also where the end of one was cut off."""
        for secret in sorted({v for s in self.values for v in (s, quote(s, safe=""))}, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = _without(secret, text)
        return text


def _without(secret: str, text: str) -> str:
    kept: list[str] = []
    at = 0
    while (found := text.find(secret[:_TELLING], at)) >= 0:
        kept += (text[at:found], "***")
        at = found
        for ours, theirs in zip(secret, text[found:], strict=False):
            if ours != theirs:
                break
            at += 1
    return "".join(kept) + text[at:]


@dataclass(frozen=True)
class Address:
    """A server's URL, taken apart.

    Attributes:
        tls: Whether the scheme is https.
        host: Name or address, without brackets.
        port: TCP port.
        base: Path in front of ``/completions``, such as ``/v1``.
        root: Path in front of ``/v1``: where ``/health`` and ``/metrics`` are.
        endpoint: ``"chat"``, ``"completions"``, or ``None`` when the URL leaves it open.
        query: With its leading ``?``, or empty.
        authorization: Value of the header of that name, from ``user:password@`` in the URL; or ``None``.
        secrets: What the URL holds that must not be shown.
    """

    tls: bool
    host: str
    port: int
    base: str
    root: str
    endpoint: str | None
    query: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)
    secrets: Secrets = field(default=Secrets(), repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Take a URL apart.

        Raises:
            OptionError: it is no http or https URL with a host and a valid port; the message holds no secret of it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # whose words hold parts of the URL, which may be a password's with a slash in it
            raise OptionError(
                "--llmperf-engine: the URL is not valid: its host or port.",
                remedy="Write http://host:port, with every special character of a password percent-encoded.",
            ) from None
        if port == 0:
            raise OptionError("--llmperf-engine: the URL's port is 0.", remedy="Write http://host:port.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError("--llmperf-engine: the URL names no host.", remedy="Write http://host:port.")
        if any(ord(c) <= 32 or ord(c) > 126 for c in url):
            raise OptionError(
                "--llmperf-engine: the URL holds a space, a control or a non-ASCII character.",
                remedy="Percent-encode it, or write the host's name in its ASCII form.",
            )
        path = parts.path.rstrip("/")
        endpoint = None
        for ending, name in _ENDPOINTS.items():
            if path.endswith(ending):
                path, endpoint = path.removesuffix(ending), name
                break
        root = path.removesuffix("/v1")
        basic = _basic(parts.username, parts.password)
        secrets = [v for v in (parts.username, parts.password, (basic or "").removeprefix("Basic ")) if v]
        for pair in parts.query.split("&"):
            name, equals, value = pair.partition("=")
            secrets.append(value if equals else name)
        # A server may tell them as it was told, or as it understood.
        secrets += [read(v) for v in secrets for read in (unquote, unquote_plus)]
        return cls(
            tls=parts.scheme == "https",
            host=parts.hostname,
            port=port or (443 if parts.scheme == "https" else 80),
            base=path if endpoint or path.endswith("/v1") else f"{path}/v1",
            root=root,
            endpoint=endpoint,
            query=f"?{parts.query}" if parts.query else "",
            authorization=basic,
            secrets=Secrets(tuple(dict.fromkeys(secrets))),
        )

    @property
    def shown(self) -> str:
        """The URL as it may be printed: without user, password and query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        ending = {"chat": "/chat/completions", "completions": "/completions", None: ""}[self.endpoint]
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.base if ending else self.root}{ending}"

    @property
    def host_header(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the server runs on this machine, by its address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None and password is None:
        return None
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def resolve(address: Address, *, timeout: float) -> tuple[int, tuple[object, ...]]:
    """The address family and socket address at which the server accepts connections.

    Raises:
        EngineError: the name does not resolve, or nothing accepts at any of its addresses.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter: a label that is empty, or longer than a label can be
        why = getattr(error, "strerror", None) or "it is no valid name"
        raise EngineError(
            f"The server's name {address.host} does not resolve ({why}).",
            remedy="Check the URL given to --llmperf-engine.",
        ) from None
    reasons = []
    for family, kind, protocol, _, where in found:
        try:
            # The name may have addresses of a family that this kernel does not have.
            with socket.socket(family, kind, protocol) as attempt:
                attempt.settimeout(timeout)
                attempt.connect(where)
                return family, where
        except OSError as error:
            reasons.append("no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error))
    raise EngineError(
        f"No server accepts connections at {address.shown}: {', '.join(dict.fromkeys(reasons))}.",
        remedy="Start the server, or check the URL given to --llmperf-engine.",
    )


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """The client's TLS settings.

    Args:
        ca_file: Certificates to trust instead of the system's.
        verify: Whether the server's certificate and name are checked.

    Raises:
        OptionError: the file cannot be read as certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(f"--llmperf-engine: ca_file {ca_file} holds no certificates ({error}).") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
