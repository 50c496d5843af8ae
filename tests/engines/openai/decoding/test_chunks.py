"""What servers really send, and what they should not."""

from __future__ import annotations

import json

import pytest

from ..served import DONE, MS, answered, chat, choice, event, text, usage

END = (usage(2), DONE)


class TestOutput:
    @pytest.mark.parametrize(
        ("chunk", "words"),
        [
            (text("a"), "a"),
            (chat(content="a"), "a"),
            (chat(role="assistant", content="a"), "a"),
            (chat(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab"),
            (chat(content=["a", {"type": "image"}, 7]), "a"),
            (chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), "hm"),
            (chat(reasoning_content="hm"), "hm"),
            (chat(reasoning="hm", content=None), "hm"),
            (chat(reasoning="hm", reasoning_content="hm"), "hm"),
            (chat(reasoning="hm", content="a"), "hma"),
            (chat(thinking="hm"), "hm"),
            (chat(thinking="hm", content="a"), "hma"),
            (chat(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), "hm"),
            (chat(reasoning_details=[{"type": "reasoning.summary", "summary": "hm"}], content=""), "hm"),
            (chat(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), "hm"),
            (chat(reasoning_details=[{"type": "reasoning.encrypted", "data": "eA=="}], content="a"), "a"),
            (chat(reasoning_details=[None, 7, {"text": None, "summary": None}], content="a"), "a"),
            (chat(refusal="no"), "no"),
            (chat(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}]), "f"),
            (chat(tool_calls=[{"index": 0, "function": {"arguments": '{"a'}}]), '{"a'),
            (chat(tool_calls=[None, {"function": None}, {"function": {"name": "g", "arguments": "{}"}}]), "g{}"),
            (chat(function_call={"name": "f", "arguments": "{}"}), "f{}"),
            ({"choices": [{"text": "a"}]}, "a"),
            ({"choices": [{"index": None, "delta": {"content": "a"}}]}, "a"),
            ({"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}]}, "a"),
            ({"choices": [None, "x", {"index": 0, "text": "a"}]}, "a"),
            ({**text("a"), "error": None}, "a"),
            ({**text("a"), "error": {}, "usage": None}, "a"),
            (chat(content="a", obfuscation="zzz"), "a"),
            (choice(text="", delta={"content": "a"}), "a"),
        ],
        ids=json.dumps,
    )
    def test_text_in_any_of_its_places_is_output(self, chunk, words):
        decoded = answered(chunk, text("!"), *END)
        assert (decoded.text, decoded.error) == (words + "!", None)
        assert decoded.received_ns == (10 * MS, 20 * MS)

    @pytest.mark.parametrize(
        "chunk",
        [
            chat(role="assistant", content=""),
            chat(role="assistant", content=None),
            chat(),
            chat(content=7),
            chat(content={"a": 1}),
            chat(content=[]),
            chat(tool_calls=[]),
            chat(tool_calls={"function": {"name": "f"}}),
            chat(tool_calls=[{"index": 0, "function": {"name": None, "arguments": ""}}]),
            text(""),
            text(None),
            text("", token_ids=[]),
            text("", token_ids=None),
            text("", token_ids=7),
            choice(delta=None),
            choice(delta=[]),
            choice(index=1, text="b"),
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
            {"choices": [{"index": 0, "content_filter_offsets": {"check_offset": 4}, "finish_reason": None}]},
            {"choices": None},
            {"choices": "abc"},
            {"choices": {"index": 0, "text": "a"}},
            {"choices": [[]]},
            {},
            {"object": "chat.completion.chunk"},
            {"usage": 7},
            {"x_groq": {"id": "req_1"}},
            {"x_groq": 7},
            {"x_groq": {"usage": 7}},
            {"code": 200, "message": "fine"},
            {"code": "0", "message": "fine"},
            {"status": 102, "message": "working"},
            {"status": "queued"},
            {"status": "queued", "message": "two are before you"},
            {"code": None, "status": True, "message": "fine"},
            {"message": "hello"},
            {"detail": None},
            {"choices": [{"index": 0, "delta": {}}], "code": 500, "message": "x", "detail": "x"},
            {"usage": []},
            b": ping\n\n",
            b": OPENROUTER PROCESSING\n\n",
            b"data:\n\n",
            b"data: \n\n",
            b"event: ping\n\n",
            b"retry: 300\nid: 7\n\n",
        ],
        ids=str,
    )
    def test_what_brings_none_is_no_chunk(self, chunk):
        decoded = answered(chunk, text("a"), chunk, text("b"), chunk, *END)
        assert (decoded.text, decoded.tokens, decoded.error) == ("ab", (1, 1), None)
        assert decoded.received_ns == (20 * MS, 40 * MS)

    def test_the_halves_of_a_character_may_come_escaped_in_two_events(self):
        halves = [b'{"choices": [{"text": "\\ud83d"}]}', b'{"choices": [{"text": "\\ude00"}]}']
        decoded = answered(*map(event, halves), DONE)
        assert decoded.text == "\N{GRINNING FACE}"
        assert answered(event(halves[0]), DONE).text == "\N{REPLACEMENT CHARACTER}"

    def test_invalid_utf8_is_replaced_not_fatal(self):
        decoded = answered(event(b'{"choices": [{"text": "a\xff"}]}'), DONE)
        assert (decoded.text, decoded.error) == ("a\N{REPLACEMENT CHARACTER}", None)


class TestErrors:
    @pytest.mark.parametrize(
        ("part", "reason"),
        [
            ({"error": {"message": "boom", "code": 500}}, "boom"),
            ({"error": "boom", "error_type": "generation"}, "boom"),
            ({"error": {"code": 502, "message": "boom"}, **text("")}, "boom"),
            ({"error": {"code": 502}}, "502"),
            ({"error": {"x": 1}}, "it gives no reason"),
            ({"error": True}, "it gives no reason"),
            ({"error": ["boom"]}, "boom"),
            ({"object": "error", "message": "boom", "type": "BadRequestError", "code": 400}, "boom"),
            ({"error": {"message": {"detail": [{"loc": ["x"], "msg": "boom"}]}}}, "boom"),
            ({"error": {"message": "bo\n  om\x1b \ud800"}}, "bo om"),
            ({"code": 500, "message": "boom"}, "boom"),
            ({"code": "500", "message": "boom"}, "boom"),
            ({"code": "rate_limit_exceeded", "message": "boom", "type": "x"}, "boom"),
            ({"status": 429, "message": "boom"}, "boom"),
            ({"status": 10**4000, "message": "boom"}, "boom"),
            ({"status": "UNAVAILABLE", "message": "boom", "code": 0}, "boom"),
            ({"code": 400.0, "message": "boom", "choices": []}, "boom"),
            ({"detail": "boom"}, "boom"),
            ({"detail": [{"loc": ["x"], "msg": "boom"}]}, "boom"),
            (b'event: error\ndata: {"error": {"message": "boom"}}\n\n', "boom"),
            (b'event:error\ndata:{"message": "boom"}\n\n', "boom"),
            (b"event: error\ndata: boom\n\n", "boom"),
            (b"event: error\n\n", "it gives no reason"),
            (b'error: {"code": 500, "message": "boom", "type": "server_error"}\n\n', "boom"),
        ],
        ids=str,
    )
    def test_an_error_event_fails_the_answer_whatever_came_before(self, part, reason):
        part = json.dumps(part).join(("data: ", "\n\n")).encode() if isinstance(part, dict) else part
        decoded = answered(text("a"), part, {"error": "a second one"}, text("b"), *END)
        assert decoded.error == f"error event: {reason}"
        assert (decoded.text, decoded.tokens) == ("a", (1,))

    @pytest.mark.parametrize("reason", ["abort", "error"])
    def test_a_request_that_the_server_gave_up_has_failed(self, reason):
        decoded = answered(text("a"), choice(text="", finish_reason=reason), *END)
        assert decoded.error == f'the server gave the request up: finish_reason is "{reason}"'

    @pytest.mark.parametrize(
        "data", [b"ping", b"null", b"[1]", b"7", b'"a"', b"{", b"{'a': 1}", b"[" * 100_000, b"9" * 5000]
    )
    def test_what_is_no_object_is_named(self, data):
        decoded = answered(text("a"), event(data), *END)
        said = data[:80].decode()
        assert decoded.error == f"an event holds something else than a JSON object: {said}"

    def test_what_comes_after_done_is_ignored(self):
        decoded = answered(text("a"), DONE, text("b"), {"error": "boom"}, usage(9))
        assert (decoded.text, decoded.output_tokens, decoded.error) == ("a", 1, None)

    @pytest.mark.parametrize(
        "done", [b"data:[DONE]\n\n", b"data:  [DONE] \n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]"]
    )
    def test_done_may_have_spaces_around_it(self, done):
        assert answered(text("a"), done, end="reset", whole=False).error is None

    def test_a_stream_without_output_has_failed(self):
        assert answered(chat(role="assistant"), usage(0), DONE).error == "the stream ended without any output token"
        decoded = answered(chat(role="assistant"), usage(5), DONE)
        assert (decoded.received_ns, decoded.output_tokens, decoded.input_tokens) == ((), 0, 7)
        assert (decoded.token_source, decoded.error) == ("counted", "the stream ended without any output token")


class TestCounts:
    @pytest.mark.parametrize(
        "last",
        [
            [usage(4)],
            [usage(4, choices=[{"index": 0, "text": "", "finish_reason": "stop"}])],
            [{**choice(text="", finish_reason="length"), "usage": usage(4)["usage"]}],
            [{**choice(text=""), "usage": None}, usage(4)],
            [usage(4), {"choices": [], "usage": None}, {"choices": []}],
            [usage(3), usage(4)],
            [usage(4.0)],
            [{"choices": [], "usage": {"input_tokens": 7, "output_tokens": 4}}],
            [{"usage": {"prompt_tokens": None, "input_tokens": 7, "completion_tokens": 4, "output_tokens": 9}}],
            [{**choice(delta={}, finish_reason="stop"), "x_groq": {"id": "req_1", "usage": usage(4)["usage"]}}],
            [{"choices": [{"index": 0, "delta": {}, "usage": usage(4)["usage"]}]}],
            [{**usage(4), "choices": None}],
            [{"usage": {**usage(4)["usage"], "completion_tokens_details": {"reasoning_tokens": 3}}}],
        ],
        ids=str,
    )
    def test_the_last_usage_counts_wherever_it_rides(self, last):
        decoded = answered(text("a"), text("b"), *last, DONE, count_tokens=lambda _: 99)
        assert (decoded.output_tokens, decoded.input_tokens, decoded.token_source) == (4, 7, "server")
        assert (decoded.tokens, decoded.chunk_tokens) == ((1, 3), "apportioned")
        assert decoded.received_ns == (10 * MS, 20 * MS)

    @pytest.mark.parametrize("number", [-1, True, "4", 4.5, None, [], 10**12, float("nan"), float("inf"), 0])
    def test_a_count_that_cannot_be_is_none(self, number):
        decoded = answered(text("a"), text("b"), usage(number, prompt=number or "x"), DONE)
        assert (decoded.output_tokens, decoded.input_tokens, decoded.token_source) == (2, None, "counted")
        assert decoded.error is None

    def test_without_usage_the_joined_text_is_counted_once(self):
        asked = []
        decoded = answered(text("a"), text("b c"), DONE, count_tokens=lambda words: asked.append(words) or 5)
        assert asked == ["ab c"]
        assert (decoded.tokens, decoded.token_source, decoded.chunk_tokens) == ((1, 4), "counted", "apportioned")

    @pytest.mark.parametrize("counter", [None, lambda _: 0])
    def test_without_a_count_each_chunk_is_a_token(self, counter):
        decoded = answered(text("a"), text("b"), DONE, count_tokens=counter)
        assert (decoded.tokens, decoded.token_source, decoded.chunk_tokens) == ((1, 1), "counted", "apportioned")

    @pytest.mark.parametrize("place", [lambda ids: text("", token_ids=ids), lambda ids: chat(token_ids=ids)])
    @pytest.mark.parametrize("counted", [[usage(6)], []])
    def test_token_ids_are_output_without_text_and_tell_each_chunks_tokens(self, place, counted):
        decoded = answered(place([5, 6]), place([7]), place([]), place([8, 9, 9]), *counted, DONE)
        assert (decoded.text, decoded.tokens, decoded.chunk_tokens) == ("", (2, 1, 3), "told")
        assert decoded.token_source == ("server" if counted else "counted")
        assert decoded.received_ns == (10 * MS, 20 * MS, 40 * MS)

    def test_token_ids_that_contradict_the_usage_tell_nothing(self):
        decoded = answered(text("a", token_ids=[5]), text("b", token_ids=[6]), usage(5), DONE)
        assert (decoded.tokens, decoded.chunk_tokens) == ((1, 4), "apportioned")

    def test_token_ids_on_some_chunks_only_tell_nothing(self):
        decoded = answered(text("a", token_ids=[5, 6]), text("b"), usage(3), DONE)
        assert (decoded.tokens, decoded.chunk_tokens) == ((1, 2), "apportioned")

    def test_a_usage_on_every_chunk_tells_each_chunks_tokens(self):
        chunks = [usage(n, choices=[{"text": words}]) for n, words in ((2, "a"), (3, "b"), (7, "c"))]
        decoded = answered(usage(0, choices=[{"text": ""}]), *chunks, usage(7), DONE)
        assert (decoded.tokens, decoded.chunk_tokens, decoded.token_source) == ((2, 1, 4), "told", "server")

    def test_tokens_without_text_count_with_the_chunk_that_shows_them(self):
        chunks = [
            usage(n, choices=[{"index": 0, "text": words}]) for n, words in ((1, "a"), (2, ""), (3, "é"), (4, ""))
        ]
        decoded = answered(*chunks, usage(4), DONE)
        assert (decoded.tokens, decoded.chunk_tokens) == ((1, 3), "told")
        assert decoded.received_ns == (10 * MS, 30 * MS)

    @pytest.mark.parametrize("totals", [(0, 1, 3), (1, 1, 3), (3, 3, 3), (2, 1, 3)])
    def test_totals_that_do_not_grow_with_the_chunks_tell_nothing(self, totals):
        chunks = [usage(n, choices=[{"index": 0, "text": "a"}]) for n in totals]
        decoded = answered(*chunks, usage(5), DONE)
        assert (decoded.tokens, decoded.chunk_tokens, decoded.output_tokens) == ((1, 2, 2), "apportioned", 5)

    def test_fewer_tokens_than_chunks_keep_the_first_and_the_last(self):
        decoded = answered(*[text(c) for c in "abcde"], usage(2), DONE)
        assert (decoded.tokens, decoded.output_tokens, decoded.text) == ((1, 1), 2, "abcde")
        assert decoded.received_ns == (10 * MS, 50 * MS)

    def test_bounds_follow_the_chunks_that_are_kept(self):
        decoded = answered(text("a"), event(text("b")) + event(text("c")), event(text("d")) + DONE, usage(3))
        assert (decoded.received_ns, decoded.upper_bounds) == ((10 * MS, 20 * MS, 20 * MS, 30 * MS), (1, 3))
        decoded = answered(text("a"), event(text("b")) + event(text("c")), event(text("d")) + event(usage(2)), DONE)
        assert (decoded.received_ns, decoded.upper_bounds) == ((10 * MS, 30 * MS), (1,))


def test_servers_by_name():
    """Whole answers in the manner of several servers and services."""
    manners = {
        "vllm, completions": [
            {**text(" a", stop_reason=None, token_ids=[5], prompt_token_ids=[1]), "object": "text_completion"},
            {**choice(text=" b", token_ids=[6], finish_reason="length"), "usage": None},
            usage(2),
            DONE,
        ],
        "sglang, chat": [
            chat(role="assistant", content="", reasoning_content=None, tool_calls=None),
            chat(role=None, content=" a", reasoning_content=None, tool_calls=None),
            chat(role=None, content=" b", reasoning_content=None, tool_calls=None),
            choice(delta={"content": None}, finish_reason="length", matched_stop=None),
            usage(2),
            DONE,
        ],
        "tgi": [
            b'data:{"object":"text_completion","choices":[{"index":0,"text":" a","logprobs":null}]}\n\n',
            b'data:{"object":"text_completion","choices":[{"index":0,"text":" b","finish_reason":"length"}]}\n\n',
            b'data:{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n',
            b"data: [DONE]\n\n",
        ],
        "llama.cpp": [
            chat(role="assistant", content=None),
            chat(content=" a"),
            chat(content=" b"),
            {**choice(delta={}, finish_reason="length"), "timings": {"predicted_n": 2}, **usage(2, choices=[{}])},
            DONE,
        ],
        "azure": [
            {"choices": [], "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0}]},
            {**chat(role="assistant", content=""), "usage": None},
            {**chat(content=" a"), "usage": None, "obfuscation": "x"},
            {**chat(content=" b"), "usage": None},
            choice(content_filter_offsets={}, finish_reason=None),
            choice(delta={}, finish_reason="stop"),
            usage(2),
            DONE,
        ],
        "openrouter": [
            b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
            chat(role="assistant", content=" a", reasoning=None, reasoning_details=[]),
            b": OPENROUTER PROCESSING\n\n",
            chat(role="assistant", content=" b"),
            usage(2, choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": None}]),
            DONE,
        ],
        "ollama": [
            chat(role="assistant", content=" a"),
            chat(role="assistant", content=" b"),
            choice(delta={"role": "assistant", "content": ""}, finish_reason="stop"),
            usage(2),
            DONE,
        ],
    }
    for name, parts in manners.items():
        for framing in ("chunked", "close"):
            decoded = answered(*parts, framing=framing)
            assert (decoded.text, decoded.tokens, decoded.error) == (" a b", (1, 1), None), name
            assert (decoded.token_source, decoded.input_tokens) == ("server", 7), name
