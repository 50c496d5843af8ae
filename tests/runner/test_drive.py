from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Chunk
from pytest_llmperf.errors import EngineError, RequestError
from pytest_llmperf.metrics import request_e2e_latency, request_itl, request_tpot, request_ttft
from pytest_llmperf.runner.drive import drive
from pytest_llmperf.runner.plan import Vocabulary, plan
from pytest_llmperf.trace import EngineStamps
from pytest_llmperf.workload import Workload

from ..fakes import MS, ScriptedEngine, tokens

WORDS = Vocabulary(100, frozenset())


def driven(engine, workload, *, read_timeout=60.0, repeat_id="r"):
    planned = plan(workload, WORDS, test="t", launch=2, repeat="0")

    async def work():
        try:
            return await drive(
                engine, workload, planned, launch=2, repeat=1, repeat_id=repeat_id, read_timeout=read_timeout
            )
        finally:
            # Nothing goes on after a repeat, however it ended.
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with engine.clock.runner() as runner:
        return runner.run(work())


def ms(stamps):
    return [stamp / MS for stamp in stamps]


class TestBatch:
    def test_all_are_due_and_sent_at_once(self):
        engine = ScriptedEngine(tokens(0.1, 0.01))
        repeat = driven(engine, Workload(4, 3, batch=5))
        assert (repeat.launch, repeat.repeat, repeat.loop) == (2, 1, "batch")
        assert ms(r.due_ns for r in repeat.requests) == [0] * 5
        assert ms(engine.arrivals_ns) == [0] * 5
        assert engine.most_in_flight == 5
        assert [ms(r.received_ns) for r in repeat.requests] == [[100, 110, 120]] * 5

    def test_a_batch_waits_for_the_one_before(self):
        engine = ScriptedEngine(lambda request, number: [(0.1 * (number + 1), 1)])
        repeat = driven(engine, Workload(4, 1, batch=2, requests=6))
        assert ms(r.due_ns for r in repeat.requests) == [0, 0, 200, 200, 600, 600]
        assert engine.most_in_flight == 2


class TestClosedLoop:
    def test_as_many_as_asked_are_kept_in_flight(self):
        engine = ScriptedEngine(lambda request, number: [(0.1 + 0.05 * (number % 3), 1)])
        repeat = driven(engine, Workload(4, 1, concurrency=3, requests=12))
        assert repeat.loop == "closed"
        assert engine.most_in_flight == 3
        assert len(engine.requests) == 12
        for request in repeat.requests[3:]:
            # Each is due, and sent, at the very moment at which another has ended.
            assert request.due_ns == request.sent_ns
            assert request.due_ns in {r.last_ns for r in repeat.requests}

    def test_a_failed_request_makes_room_for_the_next(self):
        engine = ScriptedEngine(lambda request, number: [RequestError("no")] if number % 2 else [(0.1, 1)])
        repeat = driven(engine, Workload(4, 1, concurrency=2, requests=10))
        assert len(repeat.requests) == 10
        assert [r.error for r in repeat.requests].count("no") == 5


class TestOpenLoop:
    def test_requests_are_sent_when_they_are_due_whatever_the_engine_does(self):
        engine = ScriptedEngine(tokens(10, 1))
        repeat = driven(engine, Workload(4, 2, rate=10, arrival="constant", requests=20))
        start = repeat.requests[0].due_ns
        assert ms(r.due_ns - start for r in repeat.requests) == [100 * i for i in range(20)]
        assert all(r.sent_ns == r.due_ns for r in repeat.requests)
        assert engine.most_in_flight == 20

    def test_waiting_in_a_queue_counts_from_when_the_request_was_due(self):
        # Offered 10 requests/s to a server that takes 500 ms for each, one at a time.
        engine = ScriptedEngine(tokens(0.5, 0), one_at_a_time=True)
        repeat = driven(engine, Workload(4, 1, rate=10, arrival="constant", requests=21))
        latencies = [request_e2e_latency(r) for r in repeat.requests]
        assert latencies == pytest.approx([0.5 + 0.4 * i for i in range(21)])

    def test_a_client_that_holds_requests_back_does_not_hide_their_wait(self):
        # One at a time on the client's side: what the engine sees takes 500 ms, what the user sees takes seconds.
        engine = ScriptedEngine(tokens(0.5, 0))
        workload = Workload(4, 1, rate=10, arrival="constant", requests=21, policy="static", max_batch=1)
        repeat = driven(engine, workload)
        assert engine.most_in_flight == 1
        assert [(r.last_ns - r.sent_ns) / NS_PER_S for r in repeat.requests] == pytest.approx([0.5] * 21)
        latencies = [request_e2e_latency(r) for r in repeat.requests]
        assert latencies == pytest.approx([0.5 + 0.4 * i for i in range(21)])
        assert [request_ttft(r) for r in repeat.requests] == pytest.approx(latencies)


class TestPolicies:
    RATE = Workload(4, 1, rate=10, arrival="constant", requests=7)

    def test_static_waits_for_a_whole_batch_and_for_its_end(self):
        engine = ScriptedEngine(tokens(0.05, 0))
        repeat = driven(engine, self.RATE.replace(policy="static", max_batch=3))
        start = repeat.requests[0].due_ns
        # The last batch will never be full, and goes when its last request has come.
        assert ms(r.sent_ns - start for r in repeat.requests) == [200] * 3 + [500] * 3 + [600]
        assert ms(r.due_ns - start for r in repeat.requests) == [100 * i for i in range(7)]

    def test_static_does_not_send_while_a_batch_is_running(self):
        engine = ScriptedEngine(tokens(0.45, 0))
        repeat = driven(engine, self.RATE.replace(policy="static", max_batch=3))
        start = repeat.requests[0].due_ns
        assert ms(r.sent_ns - start for r in repeat.requests) == [200] * 3 + [650] * 3 + [1100]
        assert engine.most_in_flight == 3

    def test_dynamic_waits_no_longer_than_max_wait(self):
        engine = ScriptedEngine(tokens(0.01, 0))
        repeat = driven(engine, self.RATE.replace(policy="dynamic", max_batch=4, max_wait=0.15))
        start = repeat.requests[0].due_ns
        assert ms(r.sent_ns - start for r in repeat.requests) == [150, 150, 350, 350, 550, 550, 600]

    def test_dynamic_sends_a_full_batch_at_once(self):
        engine = ScriptedEngine(tokens(0.01, 0))
        repeat = driven(engine, self.RATE.replace(policy="dynamic", max_batch=2, max_wait=10))
        start = repeat.requests[0].due_ns
        assert ms(r.sent_ns - start for r in repeat.requests) == [100, 100, 300, 300, 500, 500, 600]

    def test_dynamic_takes_what_has_come_when_the_batch_before_ends(self):
        engine = ScriptedEngine(tokens(0.5, 0))
        repeat = driven(engine, self.RATE.replace(policy="dynamic", max_batch=4, max_wait=0.05))
        start = repeat.requests[0].due_ns
        # The first goes alone after 50 ms; when it ends at 550, five have come, and four make a batch.
        assert ms(r.sent_ns - start for r in repeat.requests) == [50] + [550] * 4 + [1050] * 2
        assert engine.most_in_flight == 4


class TestRequests:
    def test_the_engine_gets_what_was_planned(self):
        engine = ScriptedEngine(tokens(0.1, 0.1))
        workload = Workload({"uniform": [2, 9]}, {"uniform": [2, 9]}, batch=4, sampling={"top_p": 0.5})
        repeat = driven(engine, workload, repeat_id="test/0/warmup-0")
        planned = plan(workload, WORDS, test="t", launch=2, repeat="0")
        assert [(r.prompt, r.output_len) for r in engine.requests] == [(p.prompt, p.output_len) for p in planned]
        assert {r.repeat_id for r in engine.requests} == {"test/0/warmup-0"}
        assert len({r.request_id for r in engine.requests}) == 4
        assert dict(engine.requests[0].sampling) == {"top_p": 0.5}
        for trace, sent in zip(repeat.requests, planned, strict=True):
            assert (trace.asked_input, trace.asked_output) == (len(sent.prompt), sent.output_len)
            assert trace.output_tokens == sent.output_len

    def test_a_chunk_without_tokens_is_no_token(self):
        engine = ScriptedEngine(lambda request, number: [(0.1, 0), (0.2, 1), (0.1, 0), (0.3, 2), (5, 0)])
        (trace,) = driven(engine, Workload(4, 3)).requests
        assert ms(trace.received_ns) == [300, 700]
        assert (trace.tokens, trace.output_tokens, trace.token_source) == ((1, 2), 3, "counted")
        assert request_ttft(trace) == pytest.approx(0.3)
        assert request_tpot(trace) == pytest.approx(0.4 / 2)
        assert request_itl(trace) == pytest.approx((0.4, 0))
        assert request_e2e_latency(trace) == pytest.approx(0.7)

    def test_what_the_server_counts_is_believed(self):
        engine = ScriptedEngine(tokens(0.1, 0.1))
        plain = engine.generate
        stamps = EngineStamps(1, 2, 3, 4)

        async def counting(request):
            async for chunk in plain(request):
                yield replace(chunk, input_tokens=5)
            yield Chunk(engine.clock.now() + 10**9, 0, output_tokens=9, stamps=stamps)

        engine.generate = counting
        (trace,) = driven(engine, Workload(4, 3)).requests
        assert (trace.input_tokens, trace.output_tokens, trace.token_source) == (5, 9, "server")
        assert ms(trace.received_ns) == [100, 200, 300]
        assert trace.engine == stamps


class TestFailures:
    def test_a_failed_request_leaves_the_others_alone(self):
        def script(request, number):
            return [(0.1, 1), RequestError("refused", remedy="Ask less.")] if number == 1 else [(0.1, 1)] * 3

        repeat = driven(ScriptedEngine(script), Workload(4, 3, batch=3))
        assert [r.error for r in repeat.requests] == [None, "refused Ask less.", None]
        assert len(repeat.completed) == 2
        assert repeat.requests[1].tokens == (1,)

    @pytest.mark.parametrize("script", [[], [(0.1, 0)]])
    def test_an_answer_without_any_token_has_failed(self, script):
        (trace,) = driven(ScriptedEngine(lambda request, number: script), Workload(4, 1)).requests
        assert trace.error == "the stream ended without any output token"

    @pytest.mark.parametrize("load", [{"batch": 3}, {"concurrency": 3, "requests": 3}, {"rate": 1000, "requests": 3}])
    @pytest.mark.parametrize("before", [[], [(0.1, 1)], [(0.1, 1), (0.1, 0)]])
    def test_one_stream_of_three_that_stalls_for_ever_fails_alone(self, load, before):
        def script(request, number):
            return [*before, None] if number == 1 else [(0.1, 1)] * 4

        engine = ScriptedEngine(script)
        repeat = driven(engine, Workload(4, 4, **load), read_timeout=0.5)
        assert [r.error for r in repeat.requests] == [None, "read timeout: nothing came for 0.5 s", None]
        assert len(repeat.completed) == 2
        assert engine.clock.now() <= 2 * NS_PER_S
        assert engine.in_flight == 0

    def test_a_slow_stream_that_keeps_coming_has_not_stalled(self):
        engine = ScriptedEngine(tokens(0.45, 0.45))
        repeat = driven(engine, Workload(4, 20), read_timeout=0.5)
        assert len(repeat.completed) == 1

    def test_news_without_tokens_is_a_sign_of_life(self):
        engine = ScriptedEngine(lambda request, number: [(0.4, 0)] * 10 + [(0.4, 1)])
        assert len(driven(engine, Workload(4, 1), read_timeout=0.5).completed) == 1

    @pytest.mark.parametrize("load", [{"batch": 3}, {"concurrency": 3}, {"rate": 20, "requests": 300}])
    def test_a_dead_engine_ends_the_repeat_at_once(self, load):
        def script(request, number):
            return [(0.1, 1), EngineError("died")] if number == 1 else [(0.1, 1), None]

        engine = ScriptedEngine(script)
        with pytest.raises(EngineError, match="died"):
            driven(engine, Workload(4, 4, **load))
        assert engine.clock.now() <= NS_PER_S
        assert engine.in_flight == 0

    def test_a_dead_engine_is_noticed_before_the_next_request_is_due(self):
        engine = ScriptedEngine(lambda request, number: [(0.1, 1), EngineError("died")])
        with pytest.raises(EngineError, match="died"):
            driven(engine, Workload(4, 4, rate=0.001, arrival="constant", requests=3))
        assert engine.clock.now() <= NS_PER_S

    @pytest.mark.parametrize("policy", [{"policy": "static"}, {"policy": "dynamic", "max_wait": 1}])
    def test_a_dead_engine_ends_a_policys_repeat_at_once(self, policy):
        engine = ScriptedEngine(lambda request, number: [EngineError("died")])
        with pytest.raises(EngineError, match="died"):
            driven(engine, Workload(4, 4, rate=10, max_batch=2, **policy))
        assert len(engine.requests) == 2

    @pytest.mark.parametrize("load", [{"batch": 3}, {"rate": 5, "requests": 300}])
    def test_an_error_of_our_own_is_not_taken_for_a_failed_request(self, load):
        engine = ScriptedEngine(lambda request, number: [ZeroDivisionError("a bug")])
        with pytest.raises(ZeroDivisionError):
            driven(engine, Workload(4, 4, **load))

    @pytest.mark.parametrize(
        ("stamps", "why"),
        [((-1,), "go backwards"), ((200 * MS, 100 * MS), "go backwards"), ((10**18,), "two different clocks")],
    )
    def test_stamps_that_cannot_be_are_an_error_and_no_latency(self, stamps, why):
        engine = ScriptedEngine(tokens(0.1, 0.1))

        async def generate(request):
            for stamp in stamps:
                yield Chunk(stamp, 1)

        engine.generate = generate
        (trace,) = driven(engine, Workload(4, 1)).requests
        assert trace.error.startswith("impossible time stamps: ")
        assert why in trace.error
        assert not trace.completed

    def test_stopping_by_hand_leaves_nothing_running(self):
        engine = ScriptedEngine(lambda request, number: [None])
        planned = plan(Workload(4, 4, batch=3), WORDS, test="t", launch=0, repeat="0")

        async def work():
            repeat = asyncio.ensure_future(
                drive(engine, Workload(4, 4, batch=3), planned, launch=0, repeat=0, repeat_id="r", read_timeout=60)
            )
            await engine.clock.sleep_until(NS_PER_S)
            assert engine.in_flight == 3
            repeat.cancel()
            with pytest.raises(asyncio.CancelledError):
                await repeat
            assert engine.in_flight == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with engine.clock.runner() as runner:
            runner.run(work())
