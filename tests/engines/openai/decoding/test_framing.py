from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_llmperf.engines.openai.decoding.answer import decode
from pytest_llmperf.engines.openai.decoding.framing import unframe

from ..served import DONE, FRAMINGS, MS, answered, choice, event, frame, head, raw, text, usage

A, B = text("a"), text("b")
STOP = choice(text="", finish_reason="stop")


class TestEnds:
    @pytest.mark.parametrize("framing", FRAMINGS)
    @pytest.mark.parametrize("last", [[DONE], [STOP], [usage(2)], [usage(2), DONE]], ids=str)
    def test_a_complete_answer_is_good(self, framing, last):
        assert answered(A, B, *last, framing=framing).error is None

    @pytest.mark.parametrize(
        ("end", "how"), [("close", "closed"), ("reset", "was reset"), ("timeout", "timed out"), ("odd", "broke")]
    )
    @pytest.mark.parametrize("framing", ["chunked", "length"])
    @pytest.mark.parametrize(
        ("parts", "after"), [([A], "1 event"), ([A, B], "2 events"), ([], "0 events"), ([A, STOP], "2 events")], ids=str
    )
    def test_an_unfinished_message_has_failed(self, framing, end, how, parts, after):
        decoded = answered(*parts, framing=framing, end=end, whole=False)
        assert decoded.error == f"the connection {how} before the answer's end, after {after}"

    @pytest.mark.parametrize("framing", ["chunked", "length"])
    @pytest.mark.parametrize("end", ["close", "reset", "timeout"])
    def test_but_after_done_it_is_complete(self, framing, end):
        assert answered(A, DONE, framing=framing, end=end, error="it was slow", whole=False).error is None

    def test_only_an_orderly_end_of_the_connection_ends_a_body_without_a_length(self):
        assert answered(A, STOP, framing="close").error is None
        reset = answered(A, STOP, framing="close", end="reset")
        assert reset.error == "the connection was reset before the answer's end, after 2 events"
        short = answered(A, framing="close")
        assert short.error == "the connection closed before the answer's end, after 1 event"

    @pytest.mark.parametrize("framing", ["chunked", "length"])
    def test_a_complete_message_may_hold_half_an_answer(self, framing):
        decoded = answered(A, B, framing=framing)
        assert decoded.error == "cut short: no [DONE], finish_reason or usage, after 2 events"
        decoded = answered(A, STOP, b'data: {"cho', framing=framing)
        assert decoded.error == "the answer ended within an event, after 2 events"

    def test_a_usage_on_every_chunk_is_no_end(self):
        chunks = [usage(n, choices=[{"index": 0, "text": "a"}]) for n in (1, 2)]
        assert answered(*chunks).error == "cut short: no [DONE], finish_reason or usage, after 2 events"
        assert answered(*chunks, usage(2)).error is None
        assert answered(A, chunks[1]).error is None

    def test_why_the_client_gave_up_stands_unless_the_answer_is_complete(self):
        assert answered(A, error="read timeout", end="timeout", whole=False).error == "read timeout"
        assert answered(A, STOP, framing="close", error="read timeout", end="timeout").error == "read timeout"
        assert answered(A, DONE, error="read timeout", end="timeout", whole=False).error is None
        assert answered(A, STOP, error="read timeout", end="timeout").error is None
        assert answered(A, error="read timeout", end="timeout").error == "read timeout"
        assert answered({"error": "boom"}, error="read timeout", whole=False).error == "error event: boom"

    @pytest.mark.parametrize("framing", FRAMINGS)
    @pytest.mark.parametrize("cut", [1, 2])
    def test_a_last_event_may_lack_its_blank_line(self, framing, cut):
        decoded = answered(STOP, event(A)[:-cut], framing=framing)
        assert (decoded.text, decoded.error, decoded.received_ns) == ("a", None, (20 * MS,))

    def test_but_only_at_a_clean_end(self):
        decoded = answered(B, STOP, event(A)[:-1], framing="close", end="reset")
        assert (decoded.text, decoded.error is None) == ("b", False)

    def test_nothing_at_all(self):
        assert decode(raw([])).error == "the connection closed before any answer came"
        assert decode(raw([], end="refused")).error == "the connection was refused before any answer came"
        assert decode(raw([], end="refused", error="nobody listens")).error == "nobody listens"
        assert (
            decode(raw([b"HTTP/1.1 200 OK\r\nServ"])).error
            == "the connection closed in the middle of the answer's head"
        )


class TestRefusals:
    @pytest.mark.parametrize("framing", FRAMINGS)
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (b'{"error": {"message": "overloaded", "code": 503}}', "overloaded"),
            (b'{"error": "overloaded"}', "overloaded"),
            (b'{"object": "error", "message": "over\\n  loaded", "code": 503}', "over loaded"),
            (b'{"detail": "overloaded"}', "overloaded"),
            (b'{"detail": [{"loc": ["body", "prompt"], "msg": "Field required"}]}', "Field required"),
            (b'[{"error": {"code": 429, "message": "overloaded"}}]', "overloaded"),
            (b'"overloaded"', "overloaded"),
            (b"  over\r\n\tloaded ", "over loaded"),
            (b"x" * 500, "x" * 200),
            (b"{}", "{}"),
            (b"", "Service Unavailable"),
            (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
        ],
        ids=str,
    )
    def test_a_status_comes_with_the_servers_message(self, framing, body, said):
        decoded = answered(body, framing=framing, status="503 Service Unavailable", kind="application/json")
        assert decoded.error == f"HTTP 503: {said}"
        assert (decoded.received_ns, decoded.tokens, decoded.output_tokens) == ((), (), 0)

    def test_a_status_counts_even_if_its_message_is_cut_or_looks_like_a_stream(self):
        cut = answered(b'{"error": {"mess', status="500 Oops", whole=False, end="reset", error="gone")
        assert cut.error == 'HTTP 500: {"error": {"mess'
        assert answered(A, DONE, status="500 Oops").error.startswith("HTTP 500: data: {")

    def test_a_status_without_any_words(self):
        assert decode(raw([b"HTTP/1.1 500\r\nContent-Length: 0\r\n\r\n"])).error == "HTTP 500"
        assert decode(
            raw([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nxx"])
        ).error == ("HTTP 101: Switching Protocols")

    def test_a_redirection_names_the_place_and_no_secret(self):
        where = "Location: https://me:secret@example.org/v1/?key=secret#x"
        decoded = decode(raw([head(where, "Content-Length: 0", status="307 Temporary Redirect")]))
        assert decoded.error == "HTTP 307: redirected to https://example.org/v1/"

    @pytest.mark.parametrize(
        "kind",
        ["text/event-stream", "TEXT/Event-Stream", "text/event-stream;charset=utf-8", " text/event-stream ; x", None],
    )
    def test_an_event_stream_or_no_content_type_is_right(self, kind):
        assert answered(A, DONE, kind=kind).error is None

    @pytest.mark.parametrize(
        ("kind", "body", "error"),
        [
            ("text/html; charset=utf-8", b"<html>", "text/html instead of text/event-stream"),
            ("Application/JSON", b'{"id": "x", "choices": []}', "application/json instead of text/event-stream"),
            (
                "application/json",
                b'{"error": {"message": "no such model"}}',
                "application/json instead of text/event-stream: no such model",
            ),
        ],
    )
    def test_any_other_content_type_is_none(self, kind, body, error):
        assert answered(body, kind=kind).error == f"answered with content type {error}"

    @pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b": ping\n\n", b"\r\nid: 7\r\nevent: x\r\nretry: 3\r\n"])
    def test_a_stream_by_the_name_of_plain_text_is_one(self, before):
        decoded = answered(before + event(A), DONE, kind="text/plain; charset=utf-8")
        assert (decoded.error, decoded.received_ns) == (None, answered(before + event(A), DONE).received_ns)

    @pytest.mark.parametrize("body", [b"", b"\n\n", b": ping\n\n", b"Oops\ndata: x\n\n", b" data: x\n\n", b"id: 7"])
    def test_plain_text_that_is_no_stream(self, body):
        assert answered(body, kind="text/plain").error == (
            "answered with content type text/plain instead of text/event-stream"
        )

    def test_a_body_without_a_content_type_that_is_an_error_says_so(self):
        pretty = b'{\n  "error": {\n    "message": "no such model"\n  }\n}\n'
        assert answered(pretty, kind=None).error == "answered without an event: no such model"

    def test_an_encoding_was_not_asked_for(self):
        reads = [head("Content-Encoding: gzip", "Content-Length: 2"), b"\x1f\x8b"]
        assert decode(raw(reads)).error == "answered with content encoding gzip, which was not asked for"
        reads = [head("Content-Encoding: identity"), event(A) + DONE]
        assert decode(raw(reads)).error is None


class TestHttp:
    def test_interim_responses_are_skipped(self):
        early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\n\r\n"
        reads = frame([event(A), DONE], "chunked")
        decoded = decode(raw([early, *reads]))
        assert (decoded.text, decoded.error, decoded.received_ns) == ("a", None, (20 * MS,))
        assert decode(raw([early])).error == "the connection closed in the middle of the answer's head"

    @pytest.mark.parametrize("framing", ["chunked", "length"])
    def test_what_follows_the_message_is_ignored(self, framing):
        reads = frame([event(A), event(STOP)], framing)
        another = b"".join(frame([event(B), DONE], "chunked", status="500 Oops"))
        for extra in ([another], [b"garbage"], [b"\0"]):
            decoded = decode(raw([*reads, *extra]))
            assert (decoded.text, decoded.error) == ("a", None)
            assert unframe([*reads, *extra]).broken is None
            joined = decode(raw([*reads[:-1], reads[-1] + extra[0]]))
            assert (joined.text, joined.error) == ("a", None)

    def test_chunk_extensions_and_trailers_are_no_body(self):
        body = event(A) + DONE
        reads = [
            head("transfer-encoding: Chunked"),
            b"%X;name=value\r\n" % len(body),
            body,
            b"\r\n0\r\nContent-Type: x\r\n\r\n",
        ]
        message = unframe(reads)
        assert (message.body, message.complete, message.headers["content-type"][:4]) == (body, True, "text")
        assert decode(raw(reads)).received_ns == (20 * MS,)

    def test_the_headers_do_not_depend_on_cuts(self):
        reads = frame([event(A), DONE], "chunked", status="200 Very well")
        connection = b"".join(reads)
        whole = unframe([connection])
        for at in range(len(connection)):
            cut = unframe([connection[:at], connection[at:]])
            assert (cut.headers, cut.body, cut.phrase) == (whole.headers, whole.body, "Very well")

    @pytest.mark.parametrize(
        "garbage",
        [b"\x16\x03\x01\x00", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/2 200\r\n\r\n", b"\0" * 99, b"HTTP/1.1 OK\r\n\r\n"],
    )
    def test_garbage_is_named(self, garbage):
        assert decode(raw([garbage])).error.startswith("what the server sent is not HTTP (")
        assert decode(raw([garbage], error="gone")).error == "gone"

    def test_framing_that_breaks_later_keeps_what_came(self):
        reads = [*frame([event(A)], "chunked", whole=False), b"zz\r\n", event(B)]
        decoded = decode(raw(reads))
        assert (decoded.text, decoded.tokens) == ("a", (1,))
        assert decoded.error == "the HTTP framing broke: Invalid character in chunk size, after 1 event"
        assert decode(raw([*frame([event(A), DONE], "chunked", whole=False), b"zz\r\n"])).error is None


class TestTimes:
    def test_an_event_followed_by_anything_in_its_read_has_an_upper_bound(self):
        first, second = (b"%x\r\n%b\r\n" % (len(e), e) for e in (event(A), event(B)))
        done, end = (b"%x\r\n%b\r\n" % (len(e), e) for e in (DONE, b""))
        start = head("Transfer-Encoding: chunked")
        for reads, bounds in [
            ([start, first, second, done], ()),
            ([start + first, second, done], ()),
            ([start, first + second, done], (0,)),
            ([start, first + second[:1], second[1:], done], (0,)),
            ([start, first + second[:4], second[4:], done], (0,)),
            ([start, first + second[:9], second[9:], done], (0,)),
            ([start, first[:-3], first[-3:] + second, done], (0,)),
            ([start, first[:-2], first[-2:] + second, done], ()),
            ([start, first[:-1], first[-1:] + second, done], ()),
            ([start, first, second + done], (1,)),
            ([start, first + second + done], (0, 1)),
        ]:
            decoded = decode(raw([*reads, end]))
            assert (decoded.text, decoded.upper_bounds, decoded.error) == ("ab", bounds, None)

    def test_the_terminator_in_the_same_read_makes_an_upper_bound(self):
        reads = frame([event(A), event(usage(2, choices=[{"text": "b"}]))], "chunked")
        decoded = decode(raw([*reads[:-2], reads[-2] + reads[-1]]))
        assert (decoded.text, decoded.upper_bounds, decoded.error) == ("ab", (1,), None)

    def test_a_segment_that_overtook_another_had_to_wait(self):
        reads = frame([event(A), event(B), DONE], "chunked")
        decoded = decode(raw(reads, [0, 30, 20, 40, 40]))
        assert decoded.received_ns == (30, 30)


def test_importing_the_plugin_does_not_load_the_parser():
    code = "import pytest_llmperf.plugin, pytest_llmperf.engines.openai.decoding.answer, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "httptools" not in done.stdout.split()
