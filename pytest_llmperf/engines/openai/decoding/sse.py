"""Server-sent events, as the HTML standard defines them (section 9.2.6), in a body that has come as a whole.

Decoding after the load makes cuts a non-issue: a line, a character or a line end that two reads share is whole
again, and an event's time is that of the read that brought the last byte of its blank line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Event", "events"]

_BOM = b"\xef\xbb\xbf"
_BLANK = frozenset((b"\n", b"\r\n", b"\r"))


class Event(NamedTuple):
    """One event.

    Attributes:
        kind: Its ``event:`` field; empty without one.
        data: Its ``data:`` lines, joined by line feeds.
        end: Bytes of the body up to and including its blank line.
        whole: Whether that blank line came; otherwise the body ended before it.
    """

    kind: bytes
    data: bytes
    end: int
    whole: bool


def events(body: bytes) -> Iterator[Event]:
    """The events that carry data or announce an error, in order; comments and other fields are skipped."""
    end = len(_BOM) if body.startswith(_BOM) else 0
    kind = b""
    data: list[bytes] = []
    # Of bytes, splitlines knows exactly the line ends of the standard: \n, \r\n and \r.
    for line in body[end:].splitlines(keepends=True):
        end += len(line)
        if line.startswith(b"data:"):
            data.append(_value(line, 5))
        elif line in _BLANK:
            if data or kind == b"error":
                yield Event(kind, b"\n".join(data), end, True)
            kind, data = b"", []
        elif line.startswith(b"event:"):
            kind = _value(line, 6)
        elif line.startswith(b"error:"):
            # Not in the standard: llama.cpp's server names the field after the event.
            kind = b"error"
            data.append(_value(line, 6))
    if data or kind == b"error":
        yield Event(kind, b"\n".join(data), end, False)


def _value(line: bytes, start: int) -> bytes:
    """A field's value: one space after the colon belongs to the syntax, every other one to the value."""
    return line[start + 1 if line.startswith(b" ", start) else start :].rstrip(b"\r\n")
