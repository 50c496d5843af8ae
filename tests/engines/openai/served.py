"""Answers as a server would send them, in any framing and any cut."""

from __future__ import annotations

import json

from pytest_llmperf.engines.openai.decoding.answer import RawAnswer, decode

MS = 1_000_000
FRAMINGS = ("chunked", "close", "length")
DONE = b"data: [DONE]\n\n"


def event(payload, newline="\n") -> bytes:
    """One event with a JSON object (or bytes as they are) as its data."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    return b"data: " + data + newline.encode() * 2


def choice(**fields) -> dict:
    return {"choices": [{"index": 0, **fields}]}


def text(words, **fields) -> dict:
    """A completions chunk."""
    return choice(text=words, finish_reason=None, **fields)


def chat(**delta) -> dict:
    """A chat chunk."""
    return choice(delta=delta, finish_reason=None)


def usage(output, prompt=7, choices=()) -> dict:
    return {
        "choices": list(choices),
        "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": 0},
    }


def head(*headers: str, status="200 OK", kind: str | None = "text/event-stream; charset=utf-8") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Server: test", *([f"Content-Type: {kind}"] if kind else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def frame(parts, framing, *, whole=True, status="200 OK", kind="text/event-stream") -> list[bytes]:
    """The head, then each part of the body as one write; ``whole=False``: framing says that more is to come."""
    if framing == "chunked":
        first = head("Transfer-Encoding: chunked", status=status, kind=kind)
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part]
        return [first, *chunks, *([b"0\r\n\r\n"] if whole else [])]
    if framing == "length":
        length = sum(map(len, parts)) + (0 if whole else 1)
        return [head(f"Content-Length: {length}", status=status, kind=kind), *parts]
    return [head("Connection: close", status=status, kind=kind), *parts]


def raw(reads, times=None, end="close", error=None) -> RawAnswer:
    """Reads, 10 ms apart unless told otherwise."""
    times = [10 * MS * index for index in range(len(reads))] if times is None else list(times)
    return RawAnswer(times, list(reads), end, error)


def answered(*events, framing="chunked", end="close", error=None, whole=True, count_tokens=None, **header):
    """What is decoded of these events, each in a read of its own (10 ms apart, the head at 0)."""
    parts = [part if isinstance(part, bytes) else event(part) for part in events]
    return decode(raw(frame(parts, framing, whole=whole, **header), end=end, error=error), count_tokens=count_tokens)
