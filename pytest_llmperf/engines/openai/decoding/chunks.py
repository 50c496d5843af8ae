"""What one event of a completions or chat stream says: output, counts, the end, or an error.

Servers agree on little beyond the names of the fields, so every value is taken as it may come: missing, ``null``, or
of another type than OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_llmperf.engines.openai.decoding.words import server_message

__all__ = ["Chunk", "complaint", "read_chunk"]

#: No answer and no prompt is that long: a larger count is a fault.
_MOST_TOKENS = 10_000_000
#: Ends that are no answer: the server gave the request up.
_GIVEN_UP = ("abort", "error")
#: Where servers put what a model thinks before it answers.
_REASONING = ("reasoning", "reasoning_content", "thinking", "reasoning_details")
#: Of HTTP's status codes.
_LOWEST_ERROR = 400


class Chunk(NamedTuple):
    """One event.

    Attributes:
        text: New output, reasoning, refusals and tool calls included.
        token_ids: How many ids of new tokens it lists; 0 when it lists none.
        finished: Whether it says why the output ended.
        input_tokens: Prompt tokens as it reports them, or ``None``.
        output_tokens: Output tokens so far as it reports them, or ``None``.
    """

    text: str
    token_ids: int
    finished: bool
    input_tokens: int | None
    output_tokens: int | None


def complaint(event: Mapping[str, Any]) -> str | None:
    """Why an event means that the request failed, or ``None`` when it does not."""
    choice = _choice(event)
    if event.get("error") or event.get("object") == "error" or (not choice and _is_bare_error(event)):
        return f"error event: {server_message(event) or 'it gives no reason'}"
    reason = choice.get("finish_reason")
    if reason in _GIVEN_UP:
        return f'the server gave the request up: finish_reason is "{reason}"'
    return None


def read_chunk(event: Mapping[str, Any]) -> Chunk:
    """What an event without a :func:`complaint` says."""
    choice = _choice(event)
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    ids = choice.get("token_ids") or delta.get("token_ids")
    # Some servers report the usage within the choice.
    usage = event.get("usage") or choice.get("usage")
    if not usage and "x_groq" in event:
        usage = _of(event["x_groq"], "usage")
    asked = told = None
    if usage:
        asked = _count(_of(usage, "prompt_tokens", "input_tokens"))
        told = _count(_of(usage, "completion_tokens", "output_tokens"))
    return Chunk(
        _text(choice.get("text")) or _delta_text(delta),
        len(ids) if isinstance(ids, list) else 0,
        bool(choice.get("finish_reason")),
        asked,
        told,
    )


def _is_bare_error(event: Mapping[str, Any]) -> bool:
    """Whether an event without a choice is an error that no field calls one: ``{"code": 500, "message": ...}``."""
    if event.get("choices"):
        return False
    if event.get("detail"):
        return True
    status = event.get("status")
    if isinstance(status, str) and not status.isupper():
        status = None  # "queued" is a sign of life; errors are named as in "UNAVAILABLE"
    return bool(event.get("message")) and (_tells_failure(event.get("code")) or _tells_failure(status))


def _tells_failure(code: object) -> bool:
    """An HTTP status of an error, or an error's name."""
    if isinstance(code, str) and not code.strip().isdecimal():
        return bool(code.strip())
    if isinstance(code, bool) or not isinstance(code, str | int | float):
        return False
    return (float(code) if isinstance(code, str) else code) >= _LOWEST_ERROR


def _of(fields: object, *names: str) -> Any:
    """The first of these that is there."""
    if not isinstance(fields, dict):
        return None
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choice that is ours: we ask for one, so further ones (an index above 0) are somebody else's wish."""
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and not choice.get("index"):
            return choice
    return {}


def _delta_text(delta: Mapping[str, Any]) -> str:
    content = _text(delta.get("content"))
    if len(delta) == 1 and content:
        return content
    # Servers that renamed the field send the same text under both names, and once more in parts.
    reasoning = next((text for name in _REASONING if (text := _text(delta.get(name)))), "")
    return reasoning + content + _text(delta.get("refusal")) + _calls(delta)


def _calls(delta: Mapping[str, Any]) -> str:
    listed = delta.get("tool_calls")
    calls = [call.get("function") for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    functions = [f for f in (*calls, delta.get("function_call")) if isinstance(f, dict)]
    return "".join(_text(function.get(part)) for function in functions for part in ("name", "arguments"))


def _text(value: object, depth: int = 4) -> str:
    """A string, or a list of parts that hold text, a summary, or thoughts, which are again a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        return "".join(_text(part, depth - 1) for part in value)
    if isinstance(value, dict) and depth:
        return _text(value.get("text") or value.get("thinking") or value.get("summary"), depth - 1)
    return ""


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
