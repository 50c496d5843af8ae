"""How many connections there are, and which is used: what an ordinary client would have, and no more."""

import time
from itertools import pairwise

from ..loads import MS, InThread, carry, good, opening, request
from ..player import Player, Reply
from ..served import DONE, event, frame, head, text, usage


def test_a_slow_open_loop_has_few_connections():
    with Player(lambda _: good()) as player, InThread(opening(player)) as client:
        start = time.monotonic_ns() + 50 * MS
        due = tuple(start + n * 60 * MS for n in range(20))
        answers = client.carry([request()] * 20, connections=4, due_ns=due).answers
    assert [a.decoded.error for a in answers] == [None] * 20
    assert player.accepted <= 10  # an ordinary client would have one or two, a busy machine a few more
    assert len({a.connection for a in player.asked[4:]}) <= 6


def test_bursts_get_their_connections_ahead():
    with Player(lambda _: good()) as player, InThread(opening(player)) as client:
        start = time.monotonic_ns() + 300 * MS
        answers = client.carry([request()] * 30, connections=4, due_ns=(start,) * 30).answers
    assert not any(a.connected_late for a in answers)


def test_the_end_that_lingers_does_not_keep_a_lane():
    data = frame([event(text(" a")), event(usage(1)), DONE], "close")
    replies = Reply([(0, b"".join(data)), (400, b"")], "close")
    with Player(lambda _: replies) as player:
        answers = carry(player, 6, lanes=1)
    assert [a.decoded.error for a in answers] == [None] * 6
    ends = [a.decoded.received_ns[-1] for a in answers]
    assert max(later - earlier for earlier, later in pairwise(ends)) < 350_000_000


def test_a_connection_that_is_dropped_after_work_is_a_failed_request():
    replies = {0: good(), 1: Reply([(300, b"")], "close"), 2: good()}
    with Player(lambda asked: replies[len(player.asked) - 1]) as player:
        answers = carry(player, 3, lanes=1)
    assert [a.decoded.error is None for a in answers] == [True, False, True]
    assert "closed" in answers[1].decoded.error


def test_an_answer_without_end_is_given_up():
    endless = [(0, head("Transfer-Encoding: chunked"))] + [
        (0, frame([event(text("x")) * 50], "chunked", whole=False)[1])
    ] * 60
    with Player(lambda _: Reply(endless, "hang")) as player:
        (answer,) = carry(player, 1, most_events=1000)
    assert "did not end" in answer.decoded.error


def test_comments_alone_do_not_keep_a_request_alive():
    pings = [(0, head("Connection: close"))] + [(20, b": ping\n\n")] * 200
    with Player(lambda _: Reply(pings, "hang")) as player:
        (answer,) = carry(player, 1, timeout_ms=60)
    assert "no event came" in answer.decoded.error


def test_an_answer_without_end_is_given_up_also_when_it_speaks_of_its_closing_mark():
    endless = [(0, head("Transfer-Encoding: chunked"))]
    endless += [(0, frame([event(text(" [DONE]")) * 50], "chunked", whole=False)[1])] * 60
    with Player(lambda _: Reply(endless, "hang")) as player:
        (answer,) = carry(player, 1, most_events=1000)
    assert "did not end" in answer.decoded.error
