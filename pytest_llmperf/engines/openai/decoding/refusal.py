"""Answers that are no stream: another status than 2xx, another content type, an encoding."""

from __future__ import annotations

import re

from pytest_llmperf.engines.openai.decoding.framing import Message
from pytest_llmperf.engines.openai.decoding.words import decode_text, parse_json, server_message, tidy

__all__ = ["refusal"]


def refusal(message: Message) -> str | None:
    """Why a response is no stream of events, with the server's own message; ``None`` when it is one."""
    status = message.status or 0
    if not 200 <= status < 300:
        return f"HTTP {status}: {_reason(message)}".removesuffix(": ")
    kind = message.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", "text/event-stream"):
        said = server_message(parse_json(message.body))
        return f"answered with content type {tidy(kind)} instead of text/event-stream" + (f": {said}" if said else "")
    coding = message.headers.get("content-encoding", "").lower()
    if coding not in ("", "identity"):
        return f"answered with content encoding {tidy(coding)}, which was not asked for"
    return None


def _reason(message: Message) -> str:
    location = message.headers.get("location")
    if location and 300 <= (message.status or 0) < 400:
        # An address can hold secrets: a password before the host, keys in the query.
        place = re.split(r"[?#]", location)[0]
        return f"redirected to {tidy(re.sub(r'//[^/]*@', '//', place))}"
    return server_message(parse_json(message.body)) or tidy(decode_text(message.body), 200) or tidy(message.phrase)
