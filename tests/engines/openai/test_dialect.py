"""The ways to put a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.dialect import Dialect, ladder, words_for

prompts = st.lists(st.integers(0, 200_000), min_size=1, max_size=50).map(tuple)


@given(prompts, st.text(), st.integers(1, 10_000))
def test_a_completion(prompt, model, output):
    body = Dialect("completions").body(model, prompt, output, {})
    assert json.loads(body) == {
        "model": model, "temperature": 0, "prompt": list(prompt), "max_tokens": output, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "ignore_eos": True,
    }  # fmt: skip
    assert body.isascii()


@given(prompts)
def test_a_chat(prompt):
    dialect = Dialect("chat", exact_length=False, usage=None, limit="max_completion_tokens")
    fields = json.loads(dialect.body("m", prompt, 3, {"temperature": 1}))
    (message,) = fields.pop("messages")
    assert fields == {"model": "m", "temperature": 1, "max_completion_tokens": 3, "stream": True}
    assert message["role"] == "user"
    assert len(message["content"].split()) == len(prompt)


def test_what_is_not_json_is_not_sent():
    with pytest.raises(ValueError):
        Dialect("completions").body("m", (1,), 1, {"temperature": float("nan")})


def test_nothing_overrides_length_and_streaming():
    sampling = {"stream": False, "max_tokens": 9, "prompt": "x", "ignore_eos": False, "stream_options": {}}
    fields = json.loads(Dialect("completions", token_ids=True).body("m", (1,), 2, sampling))
    assert (fields["stream"], fields["max_tokens"], fields["prompt"], fields["ignore_eos"]) == (True, 2, [1], True)
    assert fields["return_token_ids"] is True
    assert fields["stream_options"]["include_usage"] is True


@given(prompts, st.integers(0, 60))
def test_words_are_as_many_as_there_is_room_for(prompt, overhead):
    words = words_for(prompt, overhead)
    assert len(words.split()) == max(1, len(prompt) - overhead)
    assert words == words_for(prompt, overhead)


@pytest.mark.parametrize("other", [(1, 2, 4), (2, 1, 3), (100, 2, 3), (101, 2, 3)])
def test_other_prompts_are_other_words(other):
    assert words_for((1, 2, 3), 0) != words_for(other, 0)


@pytest.mark.parametrize("endpoint", [None, "chat", "completions"])
def test_the_ladder_goes_down_from_the_richest(endpoint):
    rungs = list(ladder(endpoint))
    assert rungs[0] == Dialect(endpoint or "completions")
    assert len(set(rungs)) == len(rungs)
    assert {rung.endpoint for rung in rungs} == ({endpoint} if endpoint else {"completions", "chat"})
    assert [rung.endpoint for rung in rungs] == sorted((r.endpoint for r in rungs), reverse=True)


def test_what_a_record_says_of_it():
    assert Dialect("chat", exact_length=False, usage=None).described == "chat (nothing beyond the API)"
    assert Dialect("chat", usage="end", token_ids=True).described == "chat (ignore_eos, usage, token ids)"
