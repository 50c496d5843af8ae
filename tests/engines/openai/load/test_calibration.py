"""The client's check of itself, and the loopback server that it is checked against."""

import asyncio
import math
from array import array
from itertools import pairwise

import psutil
import pytest

from pytest_llmperf.engines.account import Calibration
from pytest_llmperf.engines.openai.decoding.answer import Decoded
from pytest_llmperf.engines.openai.load import calibration
from pytest_llmperf.engines.openai.load.loopback import Paced, Pumped, Sent
from pytest_llmperf.engines.openai.load.worker import Answer
from pytest_llmperf.engines.openai.settings import Settings
from pytest_llmperf.engines.site import Site
from pytest_llmperf.errors import EngineError
from pytest_llmperf.piped import PipedProcess

from ..loads import MS, request
from ..player import GUARD_S

pytestmark = pytest.mark.timeout(90)


def test_it_is_made_once_a_session_and_tells_finite_figures(monkeypatch):
    monkeypatch.setattr(calibration, "_RATES", (2_000, 4_000))
    monkeypatch.setattr(calibration, "_TOLERABLE_S", 10.0)  # of what a busy machine can do, nothing is asked here
    site = Site()

    async def both():
        settings = Settings(realtime=False)
        return [await calibration.calibrate_once(site, settings) for _ in range(2)]

    first, second = asyncio.run(both())
    assert first is second
    assert list(site.calibrations.values()) == [first]
    figures = (first.first_p50, first.first_p99, first.gap_p50, first.gap_p99, first.chunk_rate)
    assert all(math.isfinite(figure) for figure in figures)
    assert min(first.first_p99, first.gap_p99, first.chunk_rate) >= 0
    assert first.rate_is_limit is False
    assert psutil.Process().children() == []


def test_nothing_is_done_where_none_is_asked_for():
    site = Site()
    assert asyncio.run(calibration.calibrate_once(site, Settings(calibrate=False))) is None
    assert site.calibrations == {}


def test_other_stamps_are_another_calibration(monkeypatch):
    made = []

    async def make(settings):
        made.append(settings)
        return Calibration(1, 0, 0, 0, 0, 1, False)

    monkeypatch.setattr(calibration, "_calibrate", make)

    async def several():
        site = Site()
        for settings in (Settings(), Settings(stamps="user"), Settings(workers=3), Settings(realtime=False)):
            await calibration.calibrate_once(site, settings)

    asyncio.run(several())
    assert [s.stamps for s in made] == ["kernel", "user", "kernel"]


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([0, 0, 0, 0], (400, False)),  # the loopback server ends it
        ([0, 9, 9], (100, True)),  # twice too much
        ([0, 9, 0, 0, 0], (400, False)),  # once may be an accident
        ([9, 9], (0, True)),
    ],
)
def test_the_highest_rate_that_was_taken(monkeypatch, errors, expected):
    left = iter(errors)

    async def try_rate(_server, _workers, rate):
        return min(rate, 400), next(left)

    monkeypatch.setattr(calibration, "_RATES", (100, 200, 400, 800))
    monkeypatch.setattr(calibration, "_TOLERABLE_S", 1)
    monkeypatch.setattr(calibration, "_try_rate", try_rate)
    assert asyncio.run(calibration._ceiling(None, None)) == expected


def test_nothing_measured_is_no_figure(monkeypatch):
    monkeypatch.setattr(calibration, "_errors", lambda *_: ([], []))
    with pytest.raises(EngineError, match=r"could measure nothing .*calibrate=false"):
        asyncio.run(calibration.calibrate_once(Site(), Settings(realtime=False)))
    assert psutil.Process().children() == []


def test_errors_are_measured_minus_true():
    def answer(number, received, error=None):
        return Answer(
            number, 100, 110, 10, "kernel", False, Decoded("", received, (1, 1), (), "told", 1, 2, "server", error)
        )

    sent = Sent(("1", "0", "2"), (150, 120, 1), (array("q", [200, 300]), array("q", [170, 180]), array("q", [1, 2])))
    first, gaps = calibration._errors([answer(0, (151, 163)), answer(1, (160, 250)), answer(2, (5, 6), "failed")], sent)
    assert first == pytest.approx([(51 - 50) / 1e9, (60 - 50) / 1e9])
    assert gaps == pytest.approx([(12 - 10) / 1e9, (90 - 100) / 1e9])


@pytest.mark.parametrize("plan", [Paced(3, 4, 5 * MS, 2 * MS), Pumped(3, 4, MS)])
def test_the_loopback_server_sends_what_it_says(plan):
    async def play():
        server = PipedProcess("pytest_llmperf.engines.openai.load.loopback")
        try:
            port = await server.reply()
            server.tell(plan)
            streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for number, (_, writer) in enumerate(streams):
                writer.write(request().replace(b"Host: player", b"X-Request-Id: %d" % number).replace(b"{}", b""))
            async with asyncio.timeout(GUARD_S):
                sent = await server.reply()
                answers = [await reader.readuntil(b"\r\n0\r\n\r\n") for reader, _ in streams]
            for _, writer in streams:
                writer.close()
                await writer.wait_closed()
            return sent, answers
        finally:
            server.kill()

    sent, answers = asyncio.run(play())
    assert sorted(sent.names) == ["0", "1", "2"]
    assert all(answer.count(b'"text"') == 4 for answer in answers)
    for received, times in zip(sent.received_ns, sent.sent_ns, strict=True):
        assert len(times) == 4
        assert times[0] >= received + (plan.first_ns if isinstance(plan, Paced) else 0)
        assert all(later > earlier for earlier, later in pairwise(times))
        if isinstance(plan, Paced):  # it catches up when it was late, but is never early
            due = received + plan.first_ns
            assert all(at >= due + place * plan.gap_ns for place, at in enumerate(times))
    assert psutil.Process().children() == []
