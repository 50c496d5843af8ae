"""What the client notes of itself."""

import pytest

from pytest_llmperf.engines.openai.decoding.answer import Decoded
from pytest_llmperf.engines.openai.load.books import Books, Busiest
from pytest_llmperf.engines.openai.load.worker import Answer, Statistics
from pytest_llmperf.engines.openai.server_metrics import Snapshot

from ..loads import MS


def answer(number=0, *, late=0, received=(), bounds=(), connected_late=False, error=None):
    tokens = (2,) * len(received)
    decoded = Decoded("", received, tokens, bounds, "told", 1, sum(tokens), "server", error)
    return Answer(number, 1000 * MS, 1000 * MS + late, late, "kernel", connected_late, decoded)


def statistics(**fields):
    return Statistics(**{"wall_ns": 100, "cpu_ns": 10, "wake_ns": (), "drift_ns": 0, "stepped": False,
                         "realtime": True, "retried": 0, **fields})  # fmt: skip


def test_nothing_was_carried():
    assert Books().client_side(1, None) is None
    assert Books().warnings() == []


def test_figures():
    books = Books()
    received = tuple(1000 * MS + place * MS for place in range(10))
    books.note(
        [answer(0, received=received, bounds=(1, 2)), answer(1, late=3 * MS, connected_late=True)],
        [statistics(wake_ns=(1000, 3000)), statistics(cpu_ns=70, drift_ns=5, realtime=False, retried=2)],
    )
    side = books.client_side(2, None)
    assert (side.requests, side.output_tokens, side.workers, side.realtime) == (2, 20, 2, False)
    assert side.processor_share == pytest.approx(0.7)
    assert (side.lateness_p50, side.lateness_p99) == (0.003, 0.003)
    assert (side.wake_p50, side.wake_p99) == (3e-6, 3e-6)
    assert side.upper_bounds == pytest.approx(0.2)
    assert side.peak_chunk_rate == pytest.approx(100)
    assert (side.connected_late, side.retried) == (1, 2)
    assert side.wall_clock_drift == pytest.approx(5e-9)
    assert any("1 requests had to wait" in line for line in books.warnings())
    assert any("20% of the chunks came in one read" in line and "ulimit -r" in line for line in books.warnings())


def test_without_chunks_and_stamps():
    books = Books()
    books.note([answer(error="refused")], [statistics(wall_ns=0, stepped=True)])
    side = books.client_side(1, None)
    assert (side.wake_p50, side.wake_p99, side.upper_bounds, side.peak_chunk_rate) == (None, None, 0, 0)
    assert ["wall clock was set" in line for line in books.warnings()] == [True]


def test_the_busiest_moment():
    busiest = Busiest()
    for running, waiting in ((1, None), (5, 2), (3, 4)):
        values = {"running": running} | ({} if waiting is None else {"waiting": waiting})
        snapshot = object.__new__(Snapshot)
        object.__setattr__(snapshot, "values", values)
        busiest.note(snapshot)
    assert (busiest.running, busiest.waiting) == (5, 4)


def test_a_client_that_was_late_says_so():
    books = Books()
    books.note([answer(n, late=(20 if n > 90 else 0) * MS) for n in range(100)], [statistics()])
    assert any("up to 20.0 ms after they were due" in line for line in books.warnings())
