"""The answers of a server token by token, with log-probabilities: how to ask for them, and where they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_llmperf.engines.openai.decoding.words import parse_json, server_message, tidy
from pytest_llmperf.engines.openai.dialect import Dialect, words_for
from pytest_llmperf.fingerprint import Answer, Unavailable

__all__ = ["form_of", "read", "request_body"]

#: The server failed, or was asked too much at once; what else it says against a request is a refusal.
_BUSY = 429
_BROKEN = 500


def form_of(dialect: Dialect) -> str:
    """What the model sees of a prompt: its tokens, or what a chat template makes of words."""
    return "tokens" if dialect.endpoint == "completions" else "chat"


def request_body(dialect: Dialect, model: str, prompt: Sequence[int], length: int) -> bytes:
    """The JSON that asks for one greedy answer, in one piece, with everything that vLLM tells of its tokens.

    Args:
        dialect: What the server takes.
        model: As the server names it.
        prompt: Token ids; for a chat they choose the words, whatever its template adds to them.
        length: Tokens to generate.
    """
    fields: dict[str, Any] = {"model": model, "temperature": 0, dialect.limit: length, "return_token_ids": True}
    if dialect.endpoint == "completions":
        fields |= {"prompt": list(prompt), "logprobs": 1}
    else:
        fields |= {"messages": [{"role": "user", "content": words_for(tuple(prompt), 0)}], "logprobs": True}
    if dialect.exact_length:
        fields["ignore_eos"] = True
    return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()


def read(reply: tuple[int, str] | None) -> Answer | Unavailable:
    """The answer in a reply's status and text, or why there is none.

    A server that does not know how to tell its tokens is no failure; one that is silent or breaks is.
    """
    if reply is None:
        return Unavailable("the server gave no whole answer", failed=True)
    status, text = reply
    content = parse_json(text.encode())
    if not 200 <= status < 300:
        said = server_message(content) or tidy(text, 200)
        broken = status == _BUSY or status >= _BROKEN
        what = "the server failed" if broken else "the server refuses to tell its tokens"
        return Unavailable(f"{what} (HTTP {status}: {said})".replace(": )", ")"), failed=broken)
    choices = content.get("choices") if isinstance(content, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return Unavailable("the server's answer holds no choice", failed=True)
    tokens, logprobs = choice.get("token_ids"), _logprobs(choice.get("logprobs"))
    if not isinstance(tokens, list) or not _all(tokens, int):
        return Unavailable("the server does not tell the ids of its tokens")
    if not isinstance(logprobs, list) or not _all(logprobs, int, float):
        return Unavailable("the server does not tell the log-probabilities of its tokens")
    try:
        return Answer.of(tokens, logprobs)
    except ValueError as error:
        return Unavailable(f"the server told {error}", failed=True)


def _logprobs(told: Any) -> Any:
    """Those of a completion, or of a chat, which tells them token by token."""
    if not isinstance(told, dict):
        return None
    content = told.get("content")
    if isinstance(content, list):
        return [one.get("logprob") if isinstance(one, dict) else None for one in content]
    return told.get("token_logprobs")


def _all(values: list[Any], *kinds: type) -> bool:
    return bool(values) and all(type(value) in kinds for value in values)
