"""Whole answers with log-probabilities: what is asked of a server, and what is made of what it says."""

import asyncio
import json

import pytest

from pytest_llmperf.engines.openai.dialect import Dialect, words_for
from pytest_llmperf.engines.openai.outputs import form_of, read, request_body
from pytest_llmperf.fingerprint import Answer, Outputs, Unavailable

from .loads import engine, good, openai, plain
from .player import Player, Reply

pytestmark = pytest.mark.timeout(90)

PROMPTS = ((20, 21, 22), (30, 31))
COMPLETION = {
    "choices": [
        {
            "text": " a b",
            "token_ids": [5, 6],
            "logprobs": {"token_logprobs": [-0.5, -1], "top_logprobs": [{" a": -0.5, " c": -2.5}, {" b": -1}]},
        }
    ]
}
CHAT = {
    "choices": [
        {
            "message": {"role": "assistant", "content": " a b"},
            "token_ids": [5, 6],
            "logprobs": {
                "content": [
                    {"token": " a", "logprob": -0.5, "top_logprobs": [{"logprob": -0.5}, {"logprob": -2.5}]},
                    {"token": " b", "logprob": -1, "top_logprobs": []},
                ]
            },
        }
    ]
}
ANSWER = Answer((5, 6), (-0.5, -1.0), (2.0, None))


def changed(content, **fields):
    return {"choices": [{**content["choices"][0], **fields}]}


def told(content, status=200):
    return read((status, content if isinstance(content, str) else json.dumps(content)))


@pytest.mark.parametrize("content", [COMPLETION, CHAT])
def test_a_good_answer(content):
    assert told(content) == ANSWER


def test_a_completion_without_runners_up_has_no_margins():
    assert told(changed(COMPLETION, logprobs={"token_logprobs": [-0.5, -1]})).margins == (None, None)


@pytest.mark.parametrize("best", [[{"a": "b", "c": 1}, None], [7, [None, "x"]], [{}, []]])
def test_odd_runners_up_are_none(best):
    found = told(changed(COMPLETION, logprobs={"token_logprobs": [-0.5, -1], "top_logprobs": best}))
    assert found.margins == (None, None)


@pytest.mark.parametrize(
    ("content", "reason", "failed"),
    [
        (changed(COMPLETION, token_ids=None), "the server does not tell the ids of its tokens", False),
        (changed(COMPLETION, token_ids=[]), "the server does not tell the ids of its tokens", False),
        (changed(COMPLETION, token_ids=["5", "6"]), "the server does not tell the ids of its tokens", False),
        (changed(COMPLETION, token_ids=[5, True]), "the server does not tell the ids of its tokens", False),
        (changed(COMPLETION, logprobs=None), "the server does not tell the log-probabilities of its tokens", False),
        (changed(CHAT, logprobs={"content": [3, 4]}), "the server does not tell the log-probabilities of its tokens",
         False),
        (changed(COMPLETION, logprobs={"token_logprobs": [-1]}),
         "the server told 2 tokens, 1 log-probabilities and 2 of runners-up", True),
        ({"choices": []}, "the server's answer holds no choice", True),
        ({"choices": [[]]}, "the server's answer holds no choice", True),
        ([], "the server's answer holds no choice", True),
        ("data: {}", "the server's answer holds no choice", True),
        ("", "the server's answer holds no choice", True),
    ],
)  # fmt: skip
def test_answers_without_what_is_needed(content, reason, failed):
    assert told(content) == Unavailable(reason, failed)


@pytest.mark.parametrize(
    ("status", "failed"), [(400, False), (404, False), (422, False), (429, True), (500, True), (503, True)]
)
def test_a_refusal_is_no_failure_and_a_broken_server_is(status, failed):
    found = told({"error": {"message": "not here"}}, status)
    assert found.failed == failed
    assert f"HTTP {status}: not here" in found.reason


def test_silence_is_a_failure():
    assert read(None) == Unavailable("the server gave no whole answer", failed=True)


def test_what_is_asked_of_completions_and_of_chats():
    asked = json.loads(request_body(Dialect("completions"), "m", (1, 2), 24))
    assert asked == {
        "model": "m", "prompt": [1, 2], "max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 2,
        "return_token_ids": True,
    }  # fmt: skip
    plainer = Dialect("chat", exact_length=False, limit="max_completion_tokens", overhead=1)
    assert json.loads(request_body(plainer, "m", (1, 2), 24)) == {
        "model": "m", "messages": [{"role": "user", "content": words_for((1, 2), 0)}], "max_completion_tokens": 24,
        "temperature": 0, "logprobs": True, "top_logprobs": 2, "return_token_ids": True,
    }  # fmt: skip
    assert (form_of(Dialect("completions")), form_of(plainer)) == ("tokens", "chat")


# Over sockets


def either(whole):
    """Streams to the load client; answers whole to who asks for no stream."""

    def answer(asked):
        return good() if json.loads(asked.body).get("stream") else whole(asked)

    return answer


def asked_of(player, **treatment):
    client = engine(player.url + treatment.pop("path", ""), **treatment)

    async def main():
        try:
            await client.open()
            return await client.outputs(PROMPTS, 2)
        finally:
            await client.close()

    return asyncio.run(main())


def whole_ones(player):
    bodies = [(a, json.loads(a.body)) for a in player.asked if a.path.endswith("completions")]
    return [(a, body) for a, body in bodies if not body.get("stream")]


@pytest.mark.parametrize(
    ("path", "content", "form"), [("", COMPLETION, "tokens"), ("/v1/chat/completions", CHAT, "chat")]
)
def test_one_prompt_after_the_other(path, content, form):
    with Player(openai(either(lambda _: plain(content)))) as player:
        found = asked_of(player, path=path)
        asked = whole_ones(player)
    assert found == Outputs(Outputs.digest(PROMPTS, 2, form), (ANSWER, ANSWER))
    assert len(asked) == 2
    assert all(one.header("Content-Type") == "application/json" for one, _ in asked)
    if form == "tokens":
        assert [body["prompt"] for _, body in asked] == [[20, 21, 22], [30, 31]]


def test_after_the_first_refusal_nothing_more_is_asked():
    with Player(openai(either(lambda _: plain({"detail": "no logprobs"}, "400 Bad Request")))) as player:
        found = asked_of(player)
        assert len(whole_ones(player)) == 1
    assert found == Unavailable("the server refuses to tell its tokens (HTTP 400: no logprobs)")


def test_the_key_is_sent_and_never_told(monkeypatch):
    monkeypatch.setenv("LLMPERF_API_KEY", "sk-very-secret")

    def echo(asked):
        return plain({"detail": f"bad key: {asked.header('Authorization')}"}, "500 Internal Server Error")

    with Player(openai(either(echo))) as player:
        found = asked_of(player)
        assert whole_ones(player)[0][0].header("Authorization") == "Bearer sk-very-secret"
    assert "bad key" in found.reason
    assert "secret" not in found.reason


def test_a_server_that_breaks_off():
    with Player(openai(either(lambda _: Reply((), "close")))) as player:
        assert asked_of(player) == Unavailable("the server gave no whole answer", failed=True)
