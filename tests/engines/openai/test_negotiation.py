"""Finding out what a server takes."""

import asyncio

import pytest

from pytest_llmperf.engines.openai.decoding.answer import Decoded
from pytest_llmperf.engines.openai.dialect import Dialect
from pytest_llmperf.engines.openai.negotiation import negotiate
from pytest_llmperf.errors import EngineError


def said(error=None, words=" a"):
    return Decoded(words, (1,), (1,), (), "told", 5, 1, "server", error)


def settle(answer, endpoint=None, pause=0.001):
    """The dialect that comes out, its answer, and all that were asked."""
    asked = []

    async def ask(dialect):
        asked.append(dialect)
        return answer(dialect)

    return *asyncio.run(negotiate(endpoint, ask, shown="http://host:1", pause=pause)), asked


def test_the_richest_that_is_taken():
    dialect, answer, asked = settle(lambda _: said())
    assert dialect == Dialect("completions")
    assert answer == said()
    assert len(asked) == 1


@pytest.mark.parametrize("status", [400, 415, 422])
def test_less_is_asked_of_a_server_that_refuses(status):
    def answer(dialect):
        return said(f"HTTP {status}: no" if dialect.exact_length or dialect.usage == "each" else None)

    dialect, _, asked = settle(answer)
    assert (dialect.endpoint, dialect.exact_length, dialect.usage) == ("completions", False, "end")
    assert len(asked) == 4


@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_endpoint_that_is_not_there_is_asked_once(status):
    dialect, _, asked = settle(lambda d: said(f"HTTP {status}: no" if d.endpoint == "completions" else None))
    assert dialect == Dialect("chat")
    assert [d.endpoint for d in asked] == ["completions", "chat"]


def test_the_newer_name_of_the_limit():
    def answer(dialect):
        return said(None if dialect.limit == "max_completion_tokens" else "HTTP 400: use max_completion_tokens")

    dialect, _, asked = settle(answer, "chat")
    assert dialect == Dialect("chat", limit="max_completion_tokens")
    assert len(asked) == 2


def test_the_newer_name_of_the_limit_with_less_besides():
    def answer(dialect):
        if dialect.limit == "max_tokens":
            return said("HTTP 400: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
        return said("HTTP 400: unknown argument ignore_eos" if dialect.exact_length else None)

    dialect, _, asked = settle(answer, "chat")
    assert dialect == Dialect("chat", exact_length=False, limit="max_completion_tokens")
    assert len(asked) == len(set(asked))


def test_a_newer_name_that_is_refused_as_well_costs_the_older_nothing():
    def answer(dialect):
        if dialect.limit != "max_tokens" or dialect.usage is not None:
            return said("HTTP 422: unknown field, expected one of model, max_tokens, max_completion_tokens")
        return said()

    dialect, _, asked = settle(answer, "chat")
    assert dialect == Dialect("chat", exact_length=False, usage=None)
    assert len(asked) == len(set(asked))


def test_prompts_of_token_ids_on_which_the_server_fails():
    dialect, answer, asked = settle(lambda d: said("HTTP 500: oops" if d.endpoint == "completions" else None))
    assert (dialect, answer.error) == (Dialect("chat"), None)
    assert [d.endpoint for d in asked] == ["completions", "completions", "chat"]
    # Nor does a chat work, or the URL names the endpoint: the measurement counts it.
    for other in ("HTTP 500: oops", "HTTP 404: no", "HTTP 400: no", "error event: x"):
        dialect, answer, _ = settle(
            lambda d, other=other: said("HTTP 500: ids" if d.endpoint == "completions" else other)
        )
        assert (dialect, answer.error) == (Dialect("completions"), "HTTP 500: ids")
    dialect, answer, _ = settle(lambda _: said("HTTP 500: ids"), "completions")
    assert (dialect, answer.error) == (Dialect("completions"), "HTTP 500: ids")


def test_a_server_that_failed_once():
    answers = iter(["HTTP 500: boom", None])
    dialect, answer, _ = settle(lambda _: said(next(answers)))
    assert (dialect, answer.error) == (Dialect("completions"), None)


@pytest.mark.parametrize("busy", ["HTTP 503: loading the model", "HTTP 429: slow down"])
def test_a_busy_server_is_asked_again(busy):
    answers = iter([busy, busy, busy, "HTTP 400: no ignore_eos", None])
    dialect, answer, asked = settle(lambda _: said(next(answers)), pause=0.01)
    assert (dialect.usage, answer.error, len(asked)) == ("end", None, 5)


def test_patience_has_an_end():
    dialect, answer, asked = settle(lambda _: said("HTTP 503: loading"))
    assert (dialect, answer.error) == (Dialect("completions"), "HTTP 503: loading")
    assert 2 <= len(asked) <= 10


@pytest.mark.parametrize(
    "error",
    ["HTTP 500: boom", "HTTP 503: busy", "HTTP 429: slow down", "error event: x", "read timeout: nothing came for 1 s"],
)
def test_whatever_else_goes_wrong_is_for_the_measurement_to_count(error):
    dialect, answer, _ = settle(lambda _: said(error))
    assert dialect == Dialect("completions")
    assert answer.error == error


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused(status):
    with pytest.raises(EngineError, match=rf"http://host:1 refuses us: HTTP {status}: no\. Put its API key into"):
        settle(lambda _: said(f"HTTP {status}: no"))


def test_everything_is_refused():
    with pytest.raises(EngineError, match=r"refuses every request: HTTP 400: chat\. Check the URL"):
        settle(lambda d: said(f"HTTP 400: {d.endpoint}"))
    with pytest.raises(EngineError, match="refuses every request: HTTP 404: completions"):
        settle(lambda d: said(f"HTTP 404: {d.endpoint}"), "completions")


def test_a_certificate_that_is_not_trusted():
    with pytest.raises(EngineError, match=r"No connection to http://host:1: TLS with .*ca_file=PATH"):
        settle(lambda _: said("TLS with host:1 failed: CERTIFICATE_VERIFY_FAILED", ""))


def test_without_text_the_ids_are_asked_for():
    empty = "the stream ended without any output token"
    dialect, answer, _ = settle(lambda d: said(None if d.token_ids else empty, ""))
    assert (dialect.token_ids, answer.error) == (True, None)
    dialect, answer, asked = settle(lambda d: said("HTTP 400: what?" if d.token_ids else empty, ""))
    assert (dialect.token_ids, answer.error) == (False, empty)
    assert len(asked) == 2
    # A chat has no token ids to give.
    assert len(settle(lambda d: said(empty, ""), "chat")[2]) == 1
