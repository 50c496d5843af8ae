"""When requests leave: not before they are due, in order, and never more at once than there are lanes."""

import threading
import time
from itertools import pairwise

import pytest

from pytest_llmperf.engines.openai.load.worker import Prepare

from ..loads import CLOCKS_NS, MS, InThread, carry, good, opening, request
from ..player import GUARD_S, Player, Reply

pytestmark = pytest.mark.timeout(60)


def numbered(count):
    return [request(b"%d" % number) for number in range(count)]


def together(count, then=good):
    """Answers come once so many requests are in flight at the same time."""
    barrier = threading.Barrier(count)

    def answer(asked) -> Reply:
        reply = then(asked)
        reply.gate = lambda: barrier.wait(GUARD_S)
        return reply

    return answer


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_lanes_are_all_used_and_never_exceeded(lanes):
    with Player(together(lanes)) as player:
        answers = carry(player, numbered(lanes * 6), lanes=lanes, connections=lanes)
    assert [a.decoded.error for a in answers] == [None] * lanes * 6
    assert player.peak == lanes
    assert player.accepted == lanes
    assert sorted(int(a.body) for a in player.asked) == list(range(lanes * 6))


def test_lanes_open_no_connection_that_they_do_not_need():
    with Player(good) as player:
        answers = carry(player, 40, lanes=3)
    assert [a.decoded.error for a in answers] == [None] * 40
    assert player.accepted == 3


def test_a_lane_follows_when_one_has_failed():
    with Player(lambda asked: Reply((), "close")) as player:
        answers = carry(player, 9, lanes=2)
    assert len(player.asked) == 9
    assert all(a.decoded.error for a in answers)
    assert player.peak <= 2


def test_hundreds_at_once():
    with Player(together(320)) as player:
        answers = carry(player, 320, connections=100)
    assert [a.decoded.error for a in answers] == [None] * 320
    assert player.peak == 320


def test_nothing_leaves_before_it_is_due():
    with Player(good) as player, InThread(opening(player)) as client:
        client.ask(Prepare(dict(enumerate(numbered(20))), 4))
        start = time.monotonic_ns() + 20 * MS
        due = tuple(start + 3 * MS * place for place in range(20))
        answers = client.carry(numbered(20), connections=None, due_ns=due).answers
    for answer, when in zip(answers, due, strict=True):
        assert answer.due_ns == when <= answer.sent_ns
        assert answer.decoded.error is None
    came = {int(asked.body): asked.received_ns for asked in player.asked}
    assert all(came[place] >= when for place, when in enumerate(due))
    assert all(earlier.sent_ns <= later.sent_ns for earlier, later in pairwise(answers))


def test_a_due_time_in_the_past_means_at_once():
    with Player(together(3)) as player:
        due = tuple(time.monotonic_ns() - 10_000 * MS + place for place in range(3))
        answers = carry(player, 3, due_ns=due)
    assert tuple(a.due_ns for a in answers) == due
    assert [a.decoded.error for a in answers] == [None] * 3


def test_a_due_time_does_not_wait_for_those_before():
    # The first is answered only when the last is there.
    with Player(together(5)) as player:
        start = time.monotonic_ns() + 10 * MS
        answers = carry(player, 5, due_ns=tuple(start + place * MS for place in range(5)))
    assert [a.decoded.error for a in answers] == [None] * 5


def test_times_of_one_request_are_in_order():
    with Player(good) as player:
        answers = carry(player, 50, lanes=5)
    by_place = sorted(player.asked, key=lambda asked: asked.received_ns)
    assert len(by_place) == 50
    for answer in answers:
        stamps = (answer.due_ns, answer.sent_ns, *answer.decoded.received_ns)
        assert list(stamps) == sorted(stamps)


def test_a_request_counts_as_sent_when_its_last_byte_is_handed_over():
    with Player(good) as player:
        (answer,) = carry(player, [request(b"x" * 30_000_000)])
    (asked,) = player.asked
    # The last bytes wait in buffers of both sides at most.
    assert answer.due_ns < answer.sent_ns <= asked.received_ns + CLOCKS_NS


def test_nothing_to_carry():
    with Player(good) as player:
        assert carry(player, []) == ()
