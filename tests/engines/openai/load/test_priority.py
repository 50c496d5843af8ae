"""The real-time class, where it is wanted and allowed."""

import os
import threading
from contextlib import suppress

import pytest

from pytest_llmperf.engines.openai.load.priority import realtime

from ..loads import carry, good
from ..player import Player


def in_a_thread(work):
    """What ``work`` returns; a thread of its own has a scheduling class of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("wanted", [True, False])
def test_it_lasts_as_long_as_the_block(wanted):
    def work():
        before = os.sched_getscheduler(0)
        with suppress(ZeroDivisionError), realtime(wanted) as granted:
            inside = os.sched_getscheduler(0)
            1 / 0  # noqa: B018
        return before, granted, inside, os.sched_getscheduler(0)

    before, granted, inside, after = in_a_thread(work)
    assert before == after == os.SCHED_OTHER
    assert inside == (os.SCHED_FIFO if granted else os.SCHED_OTHER)
    assert granted in (False, wanted)


def test_where_it_is_not_allowed_the_load_goes_on(monkeypatch):
    def forbidden(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    with Player(good) as player:
        answers = carry(player, 2, realtime=True)
    assert [a.decoded.error for a in answers] == [None] * 2
