"""Offers carried out, and the same requests asked for one by one."""

from __future__ import annotations

import asyncio
import random

import pytest

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer
from pytest_llmperf.errors import EngineError, RequestError
from tests.engines.simulated.engines import ask, ask_all, at_once, carry, requests, simulated
from tests.simulation.round_numbers import round_board

HOST = round_board().host
MS = 1_000_000


def ns(seconds):
    return round(seconds * NS_PER_S)


def lengths(n, seed=1):
    draw = random.Random(seed)
    return [(draw.randint(1, 3000), draw.randint(1, 90)) for _ in range(n)]


def due_times(n, rate, seed=2):
    draw = random.Random(seed)
    at, found = 0, []
    for _ in range(n):
        at += ns(draw.expovariate(rate))
        found.append(at)
    return tuple(found)


LOADS = {
    "plain": {},
    "noisy": {"launch_noise": 0.02, "repeat_noise": 0.01, "seed": 5, "slowdown": 1.7},
    "few blocks": {"num_gpu_blocks_override": 300, "max_model_len": 4096},
    "synchronous": {"async_scheduling": False},
    "prefix cache": {"enable_prefix_caching": True},
}


class TestCarriedAndAsked:
    """An offer that is foretold has the times of the same requests served as time passes."""

    @pytest.mark.parametrize("settings", LOADS.values(), ids=LOADS)
    def test_as_due(self, settings):
        asked, due = requests(*lengths(50)), due_times(50, 30)

        async def work(engine):
            return await asyncio.gather(*[ask(engine, r, at) for r, at in zip(asked, due, strict=True)])

        traces = carry(simulated(**settings), Offer(asked, due))[0]
        assert [list(trace.received_ns) for trace in traces] == ask_all(simulated(**settings), work)
        assert [trace.due_ns for trace in traces] == list(due)

    @pytest.mark.parametrize("settings", LOADS.values(), ids=LOADS)
    def test_at_once(self, settings):
        asked = requests(*lengths(40))

        async def work(engine):
            return await asyncio.gather(*[ask(engine, request) for request in asked])

        traces = carry(simulated(**settings), Offer(asked))[0]
        assert [list(trace.received_ns) for trace in traces] == ask_all(simulated(**settings), work)

    @pytest.mark.parametrize("settings", LOADS.values(), ids=LOADS)
    def test_in_lanes(self, settings):
        asked = requests(*lengths(40))

        async def work(engine):
            upcoming = iter(enumerate(asked))
            found = [[]] * len(asked)

            async def lane():
                for number, request in upcoming:
                    found[number] = await ask(engine, request)

            await asyncio.gather(*[lane() for _ in range(6)])
            return found

        traces = carry(simulated(**settings), Offer(asked, lanes=6))[0]
        assert [list(trace.received_ns) for trace in traces] == ask_all(simulated(**settings), work)

    @pytest.mark.parametrize("settings", LOADS.values(), ids=LOADS)
    def test_steps_done_in_one_go_change_nothing(self, settings):
        found = []
        for skipping in (True, False):
            engine = simulated(**settings)
            engine._skipping = skipping
            found.append(carry(engine, Offer(requests(*lengths(60)), due_times(60, 20))))
        assert found[0] == found[1]


class TestOffer:
    def test_a_trace_has_what_was_asked_for_and_what_came(self):
        (trace,) = at_once(simulated(), (512, 7))
        assert (trace.asked_input, trace.asked_output, trace.input_tokens, trace.output_tokens) == (512, 7, 512, 7)
        assert (trace.tokens, trace.token_source, trace.error) == ((1,) * 7, "server", None)
        assert trace.engine.queued_ns == trace.engine.scheduled_ns == ns(HOST.ingest_s)
        assert trace.engine.first_token_ns == trace.received_ns[0] - ns(HOST.deliver_s)
        assert trace.engine.last_token_ns == trace.received_ns[-1] - ns(HOST.deliver_s)

    def test_requests_at_once_are_submitted_one_after_the_other(self):
        traces = at_once(simulated(), *[(512, 2)] * 5)
        assert {trace.due_ns for trace in traces} == {0}
        assert [trace.sent_ns for trace in traces] == [i * ns(HOST.submit_s) for i in range(5)]

    def test_the_first_step_holds_only_what_had_arrived(self):
        traces = at_once(simulated(), *[(512, 2)] * 16)
        scheduled = [trace.engine.scheduled_ns for trace in traces]
        assert scheduled[0] < scheduled[1] == scheduled[2]
        assert scheduled == sorted(scheduled)

    def test_the_next_request_of_a_lane_is_due_when_one_has_ended(self):
        traces = carry(simulated(), Offer(requests(*[(100, 10)] * 3), lanes=1))[0]
        assert [trace.due_ns for trace in traces] == [0, traces[0].last_ns, traces[1].last_ns]
        assert all(trace.sent_ns == trace.due_ns for trace in traces)

    def test_what_is_past_due_is_sent_at_once(self):
        engine = simulated()
        first, second = carry(engine, Offer(requests((100, 10))), Offer(requests((100, 10)), (5 * MS,)))
        assert second[0].due_ns == 5 * MS
        assert second[0].sent_ns == first[0].last_ns

    def test_the_clock_is_at_its_end(self):
        engine = simulated()
        traces = at_once(engine, (512, 9), (3, 30))
        assert engine.clock.now() == max(trace.last_ns for trace in traces)

    def test_a_repeat_is_the_same_after_another_and_later(self):
        offer = requests(*lengths(12))
        engine = simulated(repeat_noise=0.01)

        async def work(engine):
            found = []
            for at_ns in (0, 0, 10 * NS_PER_S + 12345):
                await engine.clock.sleep_until(engine.clock.now() + at_ns)
                start = engine.clock.now()
                traces = await engine.carry(Offer(offer))
                found.append([[at - start for at in trace.received_ns] for trace in traces])
            return found

        first, second, third = ask_all(engine, work)
        assert first == second == third

    def test_nothing_is_offered(self):
        assert carry(simulated(), Offer(())) == [[]]

    def test_one_that_is_too_long_fails_and_its_lane_goes_on(self):
        asked = requests((100, 10), (90, 11), (50, 5))
        for lanes in (1, None):
            traces = carry(simulated(max_model_len=100), Offer(asked, lanes=lanes))[0]
            assert [trace.completed for trace in traces] == [False, False, True]
            assert "100 prompt tokens and 10 output tokens" in traces[0].error
            assert "max_model_len (100)" in traces[0].error

    def test_a_single_request_that_is_too_long_is_refused(self):
        async def work(engine):
            with pytest.raises(RequestError, match=r"refused.*max_model_len \(100\)"):
                await ask(engine, requests((100, 1))[0])
            return await ask(engine, requests((99, 1))[0])

        assert len(ask_all(simulated(max_model_len=100), work)) == 1


class TestReadTimeout:
    def test_who_waits_too_long_has_failed_and_leaves(self):
        settings = {"max_num_seqs": 1, "max_num_batched_tokens": 2048}
        asked = requests((100, 200), (100, 200), (100, 20))
        patient = carry(simulated(**settings), Offer(asked, (0, 0, 0)))[0]
        timeout_ns = patient[1].first_ns + 100 * MS
        first, second, third = carry(simulated(**settings), Offer(asked, (0, 0, 0), read_timeout_ns=timeout_ns))[0]
        assert (first.completed, second.completed) == (True, True)
        assert third.error == f"read timeout: nothing came for {timeout_ns / NS_PER_S:g} s"
        assert third.received_ns == ()
        assert (third.token_source, third.engine) == ("counted", None)

    def test_who_has_some_tokens_keeps_them(self):
        # A decode step takes seconds when everything is a thousand times slower.
        offer = Offer(requests((100, 5)), read_timeout_ns=3 * NS_PER_S)
        (trace,) = carry(simulated(slowdown=1000), offer)[0]
        assert trace.error == "read timeout: nothing came for 3 s"
        assert not trace.received_ns
        (whole,) = carry(simulated(slowdown=1000), Offer(requests((100, 5)), read_timeout_ns=10**15))[0]
        gap = whole.received_ns[1] - whole.received_ns[0]
        offer = Offer(requests((100, 5), (2048, 5)), (0, whole.received_ns[1]), read_timeout_ns=whole.first_ns + gap)
        (some, _) = carry(simulated(slowdown=1000), offer)[0]
        assert some.error is not None
        assert 1 < len(some.received_ns) < 5

    def test_a_lane_goes_on_when_it_has_been_over(self):
        offer = Offer(requests((100, 5), (100, 5)), lanes=1, read_timeout_ns=3 * NS_PER_S)
        engine = simulated(slowdown=1000)
        first, second = carry(engine, offer)[0]
        assert second.due_ns == first.due_ns + 3 * NS_PER_S
        assert engine._server.scheduler.blocks.used == 0

    def test_nothing_fails_that_is_in_time_to_the_nanosecond(self):
        (whole,) = at_once(simulated(), (100, 5))
        enough = carry(simulated(), Offer(requests((100, 5)), read_timeout_ns=whole.first_ns))[0][0]
        too_little = carry(simulated(), Offer(requests((100, 5)), read_timeout_ns=whole.first_ns - 1))[0][0]
        assert enough == whole
        assert too_little.error is not None


class Board:
    def __init__(self):
        self.log = []

    def attach(self, now, *, power_scale):
        self.log.append("attach")

    def detach(self):
        self.log.append("detach")

    def load(self, size):
        self.log.append("load")

    def unload(self):
        self.log.append("unload")

    def abandon(self):
        self.log.append("abandon")

    def run(self, start_ns, pace, *, stretch=1.0, until_ns=0):
        return max(until_ns, start_ns + ns(pace(1980, 3201).seconds))

    def foresee(self, start_ns, ramp, until_ns):
        return None


class TestCancelling:
    def test_leaves_no_request_under_way_and_the_board_told(self):
        board = Board()

        async def work(engine):
            carrying = asyncio.ensure_future(engine.carry(Offer(requests((512, 500)))))
            await engine.clock.sleep_until(300 * MS)
            carrying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await carrying
            assert board.log == ["attach", "load", "abandon"]
            assert engine.clock.now() == 300 * MS
            return await engine.carry(Offer(requests((512, 20))))

        (trace,) = ask_all(simulated(board=board), work)
        assert trace.due_ns == 300 * MS
        (alone,) = at_once(simulated(board=Board()), (512, 20))
        assert [at - 300 * MS for at in trace.received_ns] == list(alone.received_ns)

    def test_a_single_request_frees_its_place(self):
        async def work(engine):
            asking = asyncio.ensure_future(ask(engine, requests((512, 500))[0]))
            await engine.clock.sleep_until(300 * MS)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await engine.clock.sleep_until(400 * MS)
            assert engine._server.scheduler.blocks.used == 0
            return await engine.carry(Offer(requests((512, 20))))

        (trace,) = ask_all(simulated(), work)
        assert trace.completed

    def test_an_offer_beside_single_requests_is_carried_too(self):
        async def work(engine):
            asking = asyncio.ensure_future(ask(engine, requests((512, 200))[0]))
            await engine.clock.sleep_until(100 * MS)
            (trace,) = await engine.carry(Offer(requests((512, 20))))
            return trace, await asking

        trace, received = ask_all(simulated(), work)
        assert trace.completed
        assert len(received) == 200
        assert trace.last_ns < received[-1]

    def test_a_mistake_of_the_simulation_is_an_engine_error(self):
        class Broken(Board):
            def run(self, start_ns, pace, *, stretch=1.0, until_ns=0):
                raise ZeroDivisionError("oops")

        with pytest.raises(EngineError, match="The simulation failed: ZeroDivisionError: oops"):
            at_once(simulated(board=Broken()), (5, 5))

        async def work(engine):
            with pytest.raises(EngineError, match="The simulation failed: ZeroDivisionError: oops"):
                await ask(engine, requests((5, 5))[0])

        ask_all(simulated(board=Broken()), work)
