"""Answers of every kind through a real socket: the client finds their ends, and keeps bytes and times together."""

from dataclasses import replace

import pytest

from pytest_llmperf.engines.openai.decoding.answer import decode
from pytest_llmperf.engines.openai.load import client

from ..decoding.test_streams import STREAMS, play
from ..loads import ANSWER, CLOCKS_NS, MS, PARTS, InThread, carry, good, one, opening, plain, request, steps
from ..player import Player, Reply
from ..served import DONE, FRAMINGS, event, frame, head, text, usage

pytestmark = pytest.mark.timeout(60)

#: The player plays them so much faster.
HASTE = 10


@pytest.fixture
def soon(monkeypatch):
    """A server may take a tenth of a second to end an answer after its closing mark."""
    monkeypatch.setattr(client, "_CLOSING_NS", 100 * MS)


def reply(stream, framing) -> Reply:
    played = play(stream, framing)
    moments = [0, *(chunk["at_ms"] for chunk in stream["chunks"])]
    moments += [moments[-1]] * (len(played.reads) - len(moments))
    waits = [later - earlier for earlier, later in zip([0, *moments], moments, strict=False)]
    keeps = framing != "close"
    end = "hang" if stream["end"] == "hang" else "keep" if keeps else "close"
    return Reply([(wait / HASTE, read) for wait, read in zip(waits, played.reads, strict=True)], end)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", STREAMS)
def test_the_cases_of_the_file(name, framing):
    stream = STREAMS[name]
    with Player(lambda _: reply(stream, framing)) as player:
        answer = one(player, timeout_ms=300 if stream["end"] == "hang" else 20_000)
    played = play(stream, framing)
    # With the number of each read for its time, decoding tells which read brought which chunk.
    ideal = decode(replace(played, times=list(range(len(played.reads)))))
    got = answer.decoded
    assert (got.text, got.tokens, got.token_source) == (ideal.text, ideal.tokens, ideal.token_source)
    assert got.input_tokens == ideal.input_tokens
    if stream["end"] == "hang":
        assert got.error == "read timeout: nothing came for 0.3 s (in the middle of the answer)"
    else:
        assert got.error == ideal.error
    (asked,) = player.asked
    for received, read in zip(got.received_ns, ideal.received_ns, strict=True):
        assert received >= asked.sent[read] - CLOCKS_NS
    assert answer.due_ns <= answer.sent_ns
    assert all(received >= answer.sent_ns for received in got.received_ns)


@pytest.mark.parametrize("stamps", [True, False])
def test_chunks_that_wait_for_each_other_have_ordered_times(stamps):
    with Player(lambda _: Reply(steps(ANSWER, 5))) as player:
        answer = one(player, kernel_stamps=stamps)
    sent = player.asked[0].sent
    first, second = answer.decoded.received_ns
    assert sent[1] - CLOCKS_NS <= first
    assert max(first, sent[2] - CLOCKS_NS) <= second
    if not stamps:
        assert answer.time_source == "user"
    assert answer.time_source in ("user", "kernel", "mixed")


def test_an_answer_in_single_bytes():
    data = b"".join(ANSWER)
    with Player(lambda _: Reply([(0.1, data[i : i + 1]) for i in range(len(data))])) as player:
        answers = carry(player, 2, lanes=1)
    for answer in answers:
        assert (answer.decoded.text, answer.decoded.tokens, answer.decoded.error) == (" a b", (1, 1), None)
    assert player.accepted == 1


@pytest.mark.parametrize("cut", range(1, 6))
def test_the_terminator_cut_across_reads(cut):
    data = b"".join(ANSWER)
    with Player(lambda _: Reply([(0, data[:-cut]), (5, data[-cut:])])) as player:
        answers = carry(player, 3, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 3
    assert (player.accepted, [a.nth for a in player.asked]) == (1, [0, 1, 2])


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("done", [[DONE], []])
def test_the_terminator_cut_without_a_closing_mark(cut, done):
    data = b"".join(frame([event(text(" a")), event(usage(1)), *done], "chunked"))
    with Player(lambda _: Reply([(0, data[:-40]), (10, data[-40:-cut]), (10, data[-cut:])])) as player:
        answers = carry(player, 2, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 2
    assert player.accepted == 1


def test_bytes_in_a_text_that_look_like_the_terminator():
    tricky = b": 0\r\n\r\n"  # a comment that ends as an answer does
    body = [event(text(" a")), tricky, event(text(" b")), event(usage(2)), DONE]
    with Player(lambda _: Reply(steps(frame(body, "chunked"), 3))) as player:
        answer = one(player)
    assert (answer.decoded.text, answer.decoded.error) == (" a b", None)


@pytest.mark.parametrize("done", [[DONE], []])
def test_trailers_after_the_last_chunk(done, soon):
    data = b"".join(frame([event(text(" a")), event(usage(1)), *done], "chunked"))[:-2] + b"X-Took: 1\r\nX: 2\r\n\r\n"
    with Player(lambda _: Reply([(0, data[:200]), (5, data[200:])])) as player:
        # Far shorter than the read timeout, which would end it too.
        answer = one(player, timeout_ms=600_000)
    assert (answer.decoded.text, answer.decoded.error) == (" a", None)


@pytest.mark.parametrize("cut", [None, 4])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_silence_after_the_closing_mark_ends_soon(framing, cut, soon):
    reads = frame(PARTS, framing, whole=False)
    data = b"".join(reads)
    at = data.index(b"[DONE]") + (cut or 0)
    with Player(lambda _: Reply([(0, data[:40]), (5, data[40:at]), (5, data[at:])], "hang")) as player:
        answer = one(player, timeout_ms=600_000)
    assert (answer.decoded.text, answer.decoded.tokens, answer.decoded.error) == (" a b", (1, 1), None)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_closing_mark_within_a_text_closes_nothing(framing, soon):
    parts = [event(text(' say "data: [DONE]"')), event(text(" b")), event(usage(2)), DONE]
    reads = frame(parts, framing)
    waits = [0, 0, 600, 0, 0, 0]  # longer than a server may take after the mark
    with Player(lambda _: Reply(list(zip(waits, reads, strict=False)), "close")) as player:
        answer = one(player)
    assert answer.decoded.error is None
    assert answer.decoded.text == ' say "data: [DONE]" b'


@pytest.mark.parametrize("apart", [0, 5])
def test_interim_answers_come_before_the_answer(apart):
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>; rel=preload\r\n\r\n"
    with Player(lambda _: Reply([(0, interim), *steps(ANSWER, apart)])) as player:
        answers = carry(player, 2, lanes=1)
    assert [(a.decoded.text, a.decoded.error) for a in answers] == [(" a b", None)] * 2
    assert player.accepted == 1


def test_connections_are_used_again_after_answers_of_any_status():
    def answer(asked):
        return [good(), plain({"error": {"message": "no"}}, "400 Bad Request"), plain(b"", "503 Busy")][asked.nth % 3]

    with Player(answer) as player:
        answers = carry(player, 6, lanes=1)
    errors = [a.decoded.error for a in answers]
    assert errors == [None, "HTTP 400: no", "HTTP 503: Busy"] * 2
    assert player.accepted == 1
    assert [a.connected_late for a in answers] == [True, *[False] * 5]


def test_a_connection_that_the_server_closes_is_not_used_again():
    data = frame(PARTS, "chunked")
    data[0] = head("Transfer-Encoding: chunked", "Connection: close")
    with Player(lambda _: Reply(steps(data), "close")) as player:
        answers = carry(player, 3, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 3
    assert player.accepted >= 3
    assert {a.nth for a in player.asked} == {0}


def test_http_1_0():
    data = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(PARTS)
    with Player(lambda _: Reply([(0, data)], "close")) as player:
        answers = carry(player, 2, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 2


def test_a_server_that_ends_only_its_own_direction():
    with Player(lambda _: Reply(steps(frame(PARTS, "close")), "half")) as player:
        answer = one(player)
        player.wait(lambda p: p.gone >= 1)  # and the client closes then
    assert answer.decoded.error is None


@pytest.mark.parametrize("end", ["keep", "close"])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "what the server sent is not HTTP"),
        (b"\x00\xff" * 500, "what the server sent is not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n\x00\x01", "HTTP 101"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "the HTTP framing broke"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://u:pw@b/?k=1\r\nContent-Length: 0\r\n\r\n",
         "HTTP 302: redirected to http://b/"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<html",
         "answered with content type text/html instead"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n", "cut short"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "cut short"),
    ],
    ids=["ssh", "binary", "101", "framing", "redirect", "html", "empty", "204"],
)  # fmt: skip
def test_what_is_no_stream(data, error, end):
    with Player(lambda asked: Reply([(0, data)], end) if asked.connection == 0 else good()) as player:
        bad, well = carry(player, 2, lanes=1) if end == "close" or b"HTTP" not in data else (one(player), None)
    assert bad.decoded.error.startswith(error)
    assert bad.decoded.tokens == ()
    # The next request is not hurt: it comes on another connection, or on the same where that is in order.
    if well is not None and player.asked[-1].connection > 0:
        assert well.decoded.error is None


def test_an_upgrade_that_is_only_offered():
    data = frame(PARTS, "chunked")
    data[0] = head("Transfer-Encoding: chunked", "Upgrade: h2,h2c", "Connection: Upgrade")
    with Player(lambda _: Reply(steps(data))) as player:
        answers = carry(player, 2, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 2


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("end", ["close", "reset"])
def test_truncated_answers(framing, end):
    data = b"".join(frame([event(text(" a")), event(text(" b"))], framing, whole=False))
    with Player(lambda _: Reply([(0, data), (20, b"")], end)) as player:
        answer = one(player)
    assert answer.decoded.error is not None
    assert answer.decoded.tokens == (1, 1)


def test_an_answer_with_something_after_its_end():
    data = b"".join(ANSWER) + b"HTTP/1.1 500 Surplus\r\nContent-Length: 0\r\n\r\n"
    with Player(lambda asked: Reply([(0, data)])) as player:
        answers = carry(player, 3, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 3


def test_large_answers():
    words = " word" * 4000
    parts = [*(event(text(words)) for _ in range(20)), event(usage(80_000)), DONE]
    with Player(lambda _: Reply(steps(frame(parts, "chunked")))) as player:
        answers = carry(player, 3)
    for answer in answers:
        assert answer.decoded.error is None
        assert answer.decoded.text == words * 20
        assert answer.decoded.output_tokens == 80_000


def test_a_large_request_arrives_whole():
    body = bytes(range(256)) * 20_000
    with Player(good) as player:
        answers = carry(player, [request(body), request(b"{}")], lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 2
    assert [a.body for a in player.asked] == [body, b"{}"]
    assert answers[0].sent_ns <= player.asked[0].received_ns + CLOCKS_NS


def test_one_client_carries_many_loads():
    with Player(good) as player, InThread(opening(player)) as thread:
        for _ in range(10):
            done = thread.carry([request()] * 4, connections=4)
            assert [a.decoded.error for a in done.answers] == [None] * 4
            assert not any(a.connected_late for a in done.answers)
    assert player.accepted == 4
