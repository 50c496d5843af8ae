"""The answers of a server token by token, with log-probabilities: how to ask for them, and where they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_llmperf.engines.openai.decoding.words import parse_json, server_message, tidy
from pytest_llmperf.engines.openai.dialect import Dialect, words_for
from pytest_llmperf.fingerprint import Answer, Unavailable

__all__ = ["form_of", "read", "request_body"]

#: The likeliest tokens of each position: the chosen one and the runner-up.
_BEST = 2
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
        fields |= {"prompt": list(prompt), "logprobs": _BEST}
    else:
        fields |= {"messages": [{"role": "user", "content": words_for(tuple(prompt), 0)}], "logprobs": True}
        fields["top_logprobs"] = _BEST
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
    tokens = choice.get("token_ids")
    logprobs, best = _logprobs(choice.get("logprobs"))
    if not isinstance(tokens, list) or not _all(tokens, int):
        return Unavailable("the server does not tell the ids of its tokens")
    if not isinstance(logprobs, list) or not _all(logprobs, int, float):
        return Unavailable("the server does not tell the log-probabilities of its tokens")
    try:
        return Answer.of(tokens, logprobs, best if isinstance(best, list) else [()] * len(tokens))
    except ValueError as error:
        return Unavailable(f"the server told {error}", failed=True)


def _logprobs(told: Any) -> tuple[Any, Any]:
    """Of the tokens, and of the likeliest at each position; as completions or chats tell them."""
    if not isinstance(told, dict):
        return None, None
    content = told.get("content")
    if isinstance(content, list):
        entries = [one if isinstance(one, dict) else {} for one in content]
        return [one.get("logprob") for one in entries], [_numbers(one.get("top_logprobs")) for one in entries]
    best = told.get("top_logprobs")
    return told.get("token_logprobs"), [_numbers(one) for one in best] if isinstance(best, list) else None


def _numbers(best: Any) -> list[float]:
    """The log-probabilities of the likeliest tokens; nothing where a server tells them in another way."""
    if isinstance(best, dict):
        found = list(best.values())
    else:
        found = [one.get("logprob") for one in best if isinstance(one, dict)] if isinstance(best, list) else []
    return found if _all(found, int, float) else []


def _all(values: list[Any], *kinds: type) -> bool:
    return bool(values) and all(type(value) in kinds for value in values)
