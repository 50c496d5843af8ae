"""Answers that are no stream: another status than 2xx, another content type, an encoding."""

from __future__ import annotations

import re

from pytest_llmperf.engines.openai.decoding.framing import Message
from pytest_llmperf.engines.openai.decoding.words import decode_text, parse_json, server_message, tidy

__all__ = ["refusal"]

#: Bytes of a body in which its first event begins, if it is a stream.
_LOOKED_AT = 4096
#: Lines that may stand before an event's data.
_ASIDE = (b":", b"event:", b"id:", b"retry:")


def refusal(message: Message) -> str | None:
    """Why a response is no stream of events, with the server's own message; ``None`` when it is one."""
    status = message.status or 0
    if not 200 <= status < 300:
        return f"HTTP {status}: {_reason(message)}".removesuffix(": ")
    kind = message.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", "text/event-stream") and not (kind == "text/plain" and _is_stream(message.body)):
        said = server_message(parse_json(message.body))
        return f"answered with content type {tidy(kind)} instead of text/event-stream" + (f": {said}" if said else "")
    coding = message.headers.get("content-encoding", "").lower()
    if coding not in ("", "identity"):
        return f"answered with content encoding {tidy(coding)}, which was not asked for"
    return None


def _is_stream(body: bytes) -> bool:
    """Whether the first line that says anything is an event's: some servers give streams a wrong name."""
    lines = body[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").splitlines()
    return next((line for line in lines if line and not line.startswith(_ASIDE)), b"").startswith(b"data:")


def _reason(message: Message) -> str:
    location = message.headers.get("location")
    if location and 300 <= (message.status or 0) < 400:
        # An address can hold secrets: a password before the host, keys in the query.
        place = re.split(r"[?#]", location)[0]
        return f"redirected to {tidy(re.sub(r'//[^/]*@', '//', place))}"
    return server_message(parse_json(message.body)) or tidy(decode_text(message.body), 200) or tidy(message.phrase)
