"""Finding out what a server takes, with one short request after another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from pytest_llmperf.engines.openai.decoding.answer import Decoded
from pytest_llmperf.engines.openai.dialect import Dialect, ladder
from pytest_llmperf.errors import EngineError

__all__ = ["PROBE_TOKENS", "negotiate"]

#: A single token may be half a character, whose text comes later.
PROBE_TOKENS = 4

_STATUS = re.compile(r"HTTP (\d{3})\b")
#: The request itself is not to the server's taste.
_REFUSALS = (400, 404, 405, 415, 422, 501)
#: There is no such endpoint.
_ABSENT = (404, 405, 501)
_NOT_ALLOWED = (401, 403)
#: Not now: the model is still being loaded, or too much is asked at once.
_BUSY = (429, 503)
#: The server failed itself.
_BROKEN = 500
#: How often a busy server is asked again.
_PATIENCE = 9
#: What "max_tokens" is called by servers that no longer take that name.
_NEWER_LIMIT = "max_completion_tokens"

_Ask = Callable[[Dialect], Awaitable[Decoded]]


async def negotiate(endpoint: str | None, ask: _Ask, *, shown: str, pause: float = 1.0) -> tuple[Dialect, Decoded]:
    """The richest dialect that a server takes, and its answer.

    A server that answers with anything but a refusal of the request (a stream that breaks off, silence) has
    understood: that is for the measurement to count. So has one that is still busy after it was asked again for a
    while, and one that fails itself, unless it does so on prompts of token ids only.

    Args:
        endpoint: The one that the URL names, or ``None``.
        ask: Sends a short request.
        shown: The server's URL for messages.
        pause: Seconds before a busy server is asked again.

    Raises:
        EngineError: it refuses every request, or the API key.
    """
    refused = ""
    asked: set[Dialect] = set()
    absent: set[str] = set()
    failed: tuple[Dialect, Decoded] | None = None
    ask = _patiently(ask, pause)
    steps = list(ladder(endpoint))
    while steps:
        dialect = steps.pop(0)
        if dialect.endpoint in absent or dialect in asked:
            continue
        asked.add(dialect)
        answer = await ask(dialect)
        _raise_if_hopeless(answer, shown)
        status = _status(answer)
        if status in _REFUSALS:
            refused = answer.error or ""
            if status in _ABSENT:
                absent.add(dialect.endpoint)
            elif _NEWER_LIMIT in refused:
                steps.insert(0, replace(dialect, limit=_NEWER_LIMIT))
        elif status == _BROKEN and endpoint is None and dialect.endpoint == "completions":
            # Some servers fail in this way on prompts that are no text.
            failed = dialect, answer
            absent.add("completions")
        elif failed is not None and answer.error is not None:
            break
        else:
            return await _with_text(dialect, answer, ask)
    if failed is not None:
        return failed
    raise EngineError(
        f"The server at {shown} refuses every request: {refused}.",
        remedy="Check the URL, and name the model it serves with --llmperf-model.",
    )


def _patiently(ask: _Ask, pause: float) -> _Ask:
    """Asks again while the server is busy, and once more where it failed; in all no more often than is reasonable."""
    left = _PATIENCE
    deadline: float | None = None

    async def again(dialect: Dialect) -> Decoded:
        nonlocal left, deadline
        now = asyncio.get_running_loop().time
        deadline = now() + _PATIENCE * pause if deadline is None else deadline
        answer = await ask(dialect)
        while _status(answer) in _BUSY and left > 0 and now() < deadline:
            left -= 1
            await asyncio.sleep(pause)
            answer = await ask(dialect)
        return await ask(dialect) if _status(answer) == _BROKEN else answer

    return again


def _raise_if_hopeless(answer: Decoded, shown: str) -> None:
    if (answer.error or "").endswith("speaks plain HTTP there"):
        raise EngineError(f"No connection to {shown}: {answer.error}.", remedy="Write http:// instead of https://.")
    if (answer.error or "").startswith("TLS with"):
        raise EngineError(
            f"No connection to {shown}: {answer.error}.",
            remedy="Name the certificate to trust with --llmperf-engine URL,ca_file=PATH, or check none with "
            "verify=false.",
        )
    if _status(answer) in _NOT_ALLOWED:
        raise EngineError(
            f"The server at {shown} refuses us: {answer.error}.",
            remedy="Put its API key into the environment variable LLMPERF_API_KEY (or name another with "
            "--llmperf-engine URL,api_key_env=NAME).",
        )


async def _with_text(dialect: Dialect, answer: Decoded, ask: _Ask) -> tuple[Dialect, Decoded]:
    """The dialect, asking for token ids where there is no text: of a server without a tokenizer only they tell."""
    if dialect.endpoint == "completions" and _status(answer) is None and not answer.text:
        with_ids = replace(dialect, token_ids=True)
        again = await ask(with_ids)
        if again.error is None:
            return with_ids, again
    return dialect, answer


def _status(answer: Decoded) -> int | None:
    found = _STATUS.match(answer.error or "")
    return int(found[1]) if found else None
