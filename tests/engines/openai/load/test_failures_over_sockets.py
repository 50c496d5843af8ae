"""Servers that do not take a connection, a request, or do not end an answer: each fails in its own words."""

import socket
import threading
from contextlib import ExitStack

import pytest

from pytest_llmperf.engines.openai.load.connection import Exchange
from pytest_llmperf.engines.openai.load.worker import Prepare

from ..loads import ANSWER, CLOCKS_NS, InThread, carry, good, one, opening, plain, request, steps
from ..player import Player, Reply
from ..served import event, frame, head, text

pytestmark = pytest.mark.timeout(60)

LARGE = request(b"x" * 20_000_000)


def test_refused():
    with Player(good) as player:
        player.refuse()
        answer = one(player)
    assert answer.decoded.error == f"connection refused by player:{player.port}"
    assert answer.due_ns <= answer.sent_ns


def test_refused_from_some_moment_on():
    with Player(good) as player, InThread(opening(player)) as client:
        assert client.carry([request()] * 2, lanes=1).answers[1].decoded.error is None
        assert client.ask(Prepare({0: request()}, 1)).connections == 1
        player.refuse()  # what stands still serves
        assert client.carry([request()], connections=None).answers[0].decoded.error is None


@pytest.mark.parametrize(
    ("played", "end", "error"),
    [
        ([], "close", "the connection closed before any answer came"),
        ([], "reset", "connection lost before the first byte of the answer: Connection reset by peer"),
        (ANSWER[:2], "reset", "connection lost after"),
        (ANSWER[:2], "close", "the connection closed before the answer's end, after 1 event"),
        ([b"HTTP/1.1 200"], "close", "the connection closed in the middle of the answer's head"),
    ],
)
def test_connections_that_end_early(played, end, error):
    pause = [(30, b"")] if played else []  # a reset throws away what was not read
    with Player(lambda _: Reply([*steps(played), *pause], end)) as player:
        answer = one(player)
    assert answer.decoded.error.startswith(error)
    assert len(player.asked) == 1  # a new connection that breaks is no stale one


@pytest.mark.parametrize(
    ("played", "where", "tokens"),
    [([], "before the first byte", ()), (ANSWER[:2], "in the middle of the answer", (1,))],
)
def test_silence(played, where, tokens):
    with Player(lambda _: Reply(steps(played), "hang")) as player:
        answer = one(player, timeout_ms=200)
        player.wait(lambda p: p.gone == 1)
    assert answer.decoded.error == f"read timeout: nothing came for 0.2 s ({where})"
    assert answer.decoded.tokens == tokens


def test_one_of_three_stalls_and_the_others_complete():
    stalled = Reply(steps(ANSWER[:2]), "hang")
    with Player(lambda asked: stalled if asked.body == b"2" else good()) as player:
        answers = carry(player, [request(b"%d" % n) for n in (1, 2, 3)], timeout_ms=500)
    errors = [a.decoded.error for a in answers]
    assert errors[0] is errors[2] is None
    assert errors[1] == "read timeout: nothing came for 0.5 s (in the middle of the answer)"


def test_slow_is_not_silent():
    parts = [event(text(f" {n}")) for n in range(8)]
    with Player(lambda _: Reply([(100, part) for part in frame([*parts, b"data: [DONE]\n\n"], "chunked")])) as player:
        answer = one(player, timeout_ms=700)
    assert (answer.decoded.error, answer.decoded.output_tokens) == (None, 8)


def test_a_server_that_does_not_take_the_request():
    with Player(good, reads="nothing") as player:
        answer = one(player, LARGE, timeout_ms=300)
    assert answer.decoded.error == "send timeout: the server took nothing more of the request for 0.3 s"
    assert answer.due_ns <= answer.sent_ns


def test_news_of_a_request_are_what_the_server_took_of_it():
    exchange = Exchange(1, b"")
    exchange.submitted_ns, exchange.moved_ns = 5, 7
    assert exchange.last_news_ns == 7
    exchange.sent_ns = 9
    assert exchange.last_news_ns == 9


@pytest.mark.parametrize("end", ["close", "hang", "reset"])
def test_an_answer_before_the_request_is_complete(end):
    body = b'{"error": {"message": "too long"}}'
    late = [(50, b"")] if end == "reset" else []  # a reset may overtake an answer that is still on its way
    reply = Reply([(5, head(f"Content-Length: {len(body)}", status="413 Too Large") + body), *late], end)
    with Player(lambda _: reply, reads="head") as player:
        # Side by side: now and then, answer and reset are both there when the client comes to look.
        answers = carry(player, [LARGE] * 12)
    assert {a.decoded.error for a in answers} == {"HTTP 413: too long"}
    assert all(a.due_ns <= a.sent_ns for a in answers)


def test_a_server_that_hangs_up_on_the_request():
    with Player(lambda _: Reply([(5, b"")], "reset"), reads="head") as player:
        answers = carry(player, [LARGE] * 4)
    assert all(a.decoded.error.startswith("connection lost before the first byte of the answer: ") for a in answers)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_stale_connection_is_tried_again_once(end):
    with (
        Player(lambda asked: Reply((), end) if asked.nth == 1 else good()) as player,
        InThread(opening(player)) as client,
    ):
        first = client.carry([request()])
        second = client.carry([request()])
    assert [c.answers[0].decoded.error for c in (first, second)] == [None, None]
    assert [c.statistics.retried for c in (first, second)] == [0, 1]
    assert second.answers[0].connected_late
    assert [(a.connection, a.nth) for a in player.asked] == [(0, 0), (0, 1), (1, 0)]
    assert second.answers[0].sent_ns >= player.asked[1].received_ns - CLOCKS_NS


def test_a_server_that_breaks_every_connection_is_tried_twice_and_no_more():
    with Player(lambda asked: good() if not asked.connection and not asked.nth else Reply((), "close")) as player:
        first, second = carry(player, 2, lanes=1)
    assert first.decoded.error is None
    assert second.decoded.error == "the connection closed before any answer came"
    assert len(player.asked) == 3


def test_a_connection_that_breaks_in_the_answer_is_not_tried_again():
    with Player(lambda asked: Reply(steps(ANSWER[:1]), "close") if asked.nth else good()) as player:
        first, second = carry(player, 2, lanes=1)
    assert (first.decoded.error, len(player.asked)) == (None, 2)
    assert second.decoded.error is not None


def test_connections_that_the_server_has_closed_meanwhile_are_replaced():
    with Player(good, idle_ms=30) as player, InThread(opening(player)) as client:
        for loads in range(3):
            assert client.carry([request()] * 2).answers[0].decoded.error is None
            done = threading.Event()
            done.wait(0.15)
            answers = client.carry([request()] * 2, connections=2).answers
            assert [a.decoded.error for a in answers] == [None] * 2
            assert not any(a.connected_late for a in answers), loads


def test_a_full_backlog_is_a_connect_timeout():
    with Player(good, backlog=0, accepts=False) as player, ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(player.where)
        answers = carry(player, 2, connect_timeout_ns=200_000_000)
    assert {a.decoded.error for a in answers} == {f"connect timeout: player:{player.port} did not accept in 0.2 s"}


def test_connections_that_cannot_be_opened_ahead_cost_nobody_an_answer():
    with (
        Player(good, backlog=0, accepts=False) as player,
        InThread(opening(player, connect_timeout_ns=200_000_000)) as client,
    ):
        with ExitStack() as stack:
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(player.where)
            assert client.ask(Prepare({0: request()}, 3)).connections == 0
        player.refuse()
        (answer,) = client.carry([request()], connections=None).answers
    assert answer.decoded.error.startswith("connection refused")


def test_no_route():
    with Player(good) as player:
        where = ("255.255.255.255", 80)  # everybody: no address to connect to
        answer = one(player, where=where, connect_timeout_ns=200_000_000)
    assert answer.decoded.error.startswith(f"no connection to player:{player.port}: ")


def test_out_of_open_files(monkeypatch):
    def none_left(*_, **__):
        raise OSError(24, "Too many open files")

    with Player(good) as player, InThread(opening(player)) as client:
        monkeypatch.setattr("pytest_llmperf.engines.openai.load.client.Connection", none_left)
        done = client.carry([request()] * 3)
    assert {a.decoded.error for a in done.answers} == {
        "no connection: this process has too many open files (raise ulimit -n)"
    }


def test_failures_and_successes_keep_their_places():
    kinds = [good, lambda _: plain({"message": "busy"}, "503 Busy"), lambda _: Reply((), "reset")]
    with Player(lambda asked: kinds[int(asked.body) % 3](asked)) as player:
        answers = carry(player, [request(b"%d" % n) for n in range(30)], lanes=4)
    for place, answer in enumerate(answers):
        error = answer.decoded.error
        assert answer.number == place
        assert [error is None, error == "HTTP 503: busy", str(error).startswith("connection lost")][place % 3], error
