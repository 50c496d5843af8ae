"""The server's own words about a failure, made fit for one line of a report."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["decode_text", "parse_json", "server_message", "tidy"]

#: Where servers put their message, the most telling first.
_KEYS = ("detail", "message", "msg", "error", "type", "code")
#: How deep it may lie: ``{"error": {"detail": [{"msg": ...}]}}``.
_DEPTH = 6


def tidy(text: str, limit: int = 300) -> str:
    """One line of printable characters, at most ``limit`` of them."""
    # A lone surrogate, which JSON can carry, is unprintable too: no report could be written with it.
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())[:limit].rstrip()


def decode_text(data: bytes) -> str:
    """UTF-8, with a replacement character for what is none."""
    return data.decode(errors="replace")


def parse_json(data: bytes) -> Any:
    """The JSON value in these bytes, or ``None`` when they hold none."""
    try:
        return json.loads(decode_text(data))
    except (ValueError, RecursionError):
        return None


def server_message(value: object) -> str | None:
    """What a server's JSON says went wrong, in the shapes in which servers say it; ``None`` when it says nothing."""
    for _ in range(_DEPTH):
        if isinstance(value, list):
            value = value[0] if value else None
        elif isinstance(value, dict):
            inner = value.get("error")
            value = (
                inner if isinstance(inner, dict) and inner else next((value[k] for k in _KEYS if value.get(k)), None)
            )
        else:
            break
    return tidy(str(value)) or None if type(value) in (str, int, float) else None
