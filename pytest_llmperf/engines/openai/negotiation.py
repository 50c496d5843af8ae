"""Finding out what a server takes, with one short request after another."""

from __future__ import annotations

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


async def negotiate(
    endpoint: str | None, ask: Callable[[Dialect], Awaitable[Decoded]], *, shown: str
) -> tuple[Dialect, Decoded]:
    """The richest dialect that a server takes, and its answer.

    A server that answers with anything but a refusal of the request (an error of its own, a stream that breaks off,
    silence) has understood: that is for the measurement to count.

    Args:
        endpoint: The one that the URL names, or ``None``.
        ask: Sends a short request.
        shown: The server's URL for messages.

    Raises:
        EngineError: it refuses every request, or the API key.
    """
    refused = ""
    absent: set[str] = set()
    for dialect in ladder(endpoint):
        if dialect.endpoint in absent:
            continue
        answer = await ask(dialect)
        if (answer.error or "").startswith("TLS with"):
            raise EngineError(
                f"No connection to {shown}: {answer.error}.",
                remedy="Name the certificate to trust with --llmperf-engine URL,ca_file=PATH, or check none with "
                "verify=false.",
            )
        status = _status(answer)
        if status in _NOT_ALLOWED:
            raise EngineError(
                f"The server at {shown} refuses us: {answer.error}.",
                remedy="Put its API key into the environment variable LLMPERF_API_KEY (or name another with "
                "--llmperf-engine URL,api_key_env=NAME).",
            )
        if status not in _REFUSALS:
            if dialect.endpoint == "completions" and status is None and not answer.text:
                # A server without a tokenizer has no text, and only the ids tell its tokens.
                with_ids = replace(dialect, token_ids=True)
                again = await ask(with_ids)
                return (with_ids, again) if again.error is None else (dialect, answer)
            return dialect, answer
        refused = answer.error or ""
        if status in _ABSENT:
            absent.add(dialect.endpoint)
    raise EngineError(
        f"The server at {shown} refuses every request: {refused}.",
        remedy="Check the URL, and name the model it serves with --llmperf-model.",
    )


def _status(answer: Decoded) -> int | None:
    found = _STATUS.match(answer.error or "")
    return int(found[1]) if found else None
