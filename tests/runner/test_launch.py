from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from pytest_llmperf.engines.pool import EnginePool
from pytest_llmperf.errors import EngineError, RequestError, WorkloadError
from pytest_llmperf.metrics import REGISTRY, Context, summarize
from pytest_llmperf.runner import measure_launch
from pytest_llmperf.workload import Workload

from ..fakes import INFO, MS, SPEC, ScriptedEngine, tokens

QUICK = tokens(0.1, 0.01)


@pytest.fixture
def launched():
    """Measure a workload on an engine; the pool is closed afterwards."""
    pools = []

    def measure(engine, workload, *, repeats=3, launch=0, **kwargs):
        pools.append(pool := EnginePool(lambda spec, number: engine))
        for _ in range(launch):
            pool.next_launch()
        return measure_launch(
            pool.get(SPEC), workload, **{"test": "t", "repeats": repeats, "read_timeout": 60.0} | kwargs
        )

    yield measure
    for pool in pools:
        pool.close()


def values(launch):
    return {name: summarize(metric, [launch.repeats], Context()).value for name, metric in REGISTRY.items()}


class TestRepeats:
    def test_what_was_asked_for_is_measured(self, launched):
        engine = ScriptedEngine(QUICK)
        launch = launched(engine, Workload(4, 8, batch=2), repeats=3, launch=5)
        assert (launch.index, launch.info) == (5, INFO)
        assert [(r.launch, r.repeat) for r in launch.repeats] == [(5, 0), (5, 1), (5, 2)]
        assert [len(r.completed) for r in launch.repeats] == [2, 2, 2]
        assert (launch.warnings, launch.invalid) == ((), None)
        assert values(launch)["ttft"] == pytest.approx(0.1)
        assert values(launch)["tpot"] == pytest.approx(0.01)

    def test_no_two_repeats_or_warm_ups_send_the_same(self, launched):
        engine = ScriptedEngine(QUICK)
        launched(engine, Workload(16, 1, batch=2, warmup=2))
        assert len(engine.requests) == len({r.prompt for r in engine.requests}) == 10
        assert len({r.request_id for r in engine.requests}) == 10
        assert len({r.repeat_id for r in engine.requests}) == 5

    def test_special_tokens_are_never_sent(self, launched):
        info = replace(INFO, vocab_size=10, special_tokens=frozenset(range(3, 10)))
        engine = ScriptedEngine(QUICK, info=info)
        launched(engine, Workload(50, 1))
        assert {token for request in engine.requests for token in request.prompt} == {0, 1, 2}

    def test_progress_is_told(self, launched):
        told = []
        launched(ScriptedEngine(QUICK), Workload(4, 1, warmup=2), repeats=2, progress=told.append)
        assert told == ["warm-up 1/2", "warm-up 2/2", "repeat 1/2", "repeat 2/2"]


class TestWarmUp:
    def test_its_times_are_nowhere_in_the_metrics(self, launched):
        # The first request takes 5 s, every other 100 ms.
        engine = ScriptedEngine(lambda request, number: [(5.0 if number == 0 else 0.1, 1)] + [(0.01, 1)] * 3)
        launch = launched(engine, Workload(4, 4, warmup=1))
        steady = launched(ScriptedEngine(tokens(0.1, 0.01)), Workload(4, 4, warmup=0))
        assert values(launch) == pytest.approx(values(steady))
        assert len(engine.requests) == 4
        first_measured = min(r.due_ns for repeat in launch.repeats for r in repeat.requests)
        assert first_measured >= 5000 * MS
        percentiles = summarize(REGISTRY["e2e_latency"], [launch.repeats], Context()).percentiles
        assert max(percentiles.values()) == pytest.approx(0.13)

    def test_none_means_none(self, launched):
        engine = ScriptedEngine(lambda request, number: [(5.0 if number == 0 else 0.1, 1)])
        launch = launched(engine, Workload(4, 1, warmup=0), repeats=2)
        assert len(engine.requests) == 2
        assert launch.repeats[0].requests[0].last_ns == 5000 * MS

    def test_one_that_failed_does_not_count(self, launched):
        engine = ScriptedEngine(lambda request, number: [RequestError("cold")] if number == 0 else [(0.1, 1)])
        assert launched(engine, Workload(4, 1)).invalid is None

    def test_one_that_was_too_short_is_warned_about(self, launched):
        engine = ScriptedEngine(lambda request, number: [(0.2 if number <= 1 else 0.1, 1)])
        (warning,) = launched(engine, Workload(4, 1), repeats=4).warnings
        assert "2.00 times as long" in warning

    @pytest.mark.parametrize(("first", "repeats"), [(0.14, 4), (0.05, 4), (0.2, 2)])
    def test_a_first_repeat_within_the_usual_is_not(self, launched, first, repeats):
        engine = ScriptedEngine(lambda request, number: [(first if number <= 1 else 0.1, 1)])
        assert launched(engine, Workload(4, 1), repeats=repeats).warnings == ()


class TestDisturbances:
    def test_during_the_warm_up_they_are_what_it_is_for(self, launched):
        launch = launched(ScriptedEngine(QUICK, disturbed=[["compiling"]]), Workload(4, 1))
        assert (launch.warnings, launch.invalid) == ((), None)

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_a_repeat_with_one_is_taken_as_one_more_warm_up(self, launched, times):
        engine = ScriptedEngine(
            lambda request, number: [(9.0 if 1 <= number <= times else 0.1, 1)],
            disturbed=[[], *[["compiling"]] * times],
        )
        launch = launched(engine, Workload(16, 1))
        assert len(engine.requests) == len({r.prompt for r in engine.requests}) == 1 + times + 3
        assert len({r.request_id for r in engine.requests}) == 1 + times + 3
        assert [r.repeat for r in launch.repeats] == [0, 1, 2]
        assert values(launch)["ttft"] == pytest.approx(0.1)
        assert launch.invalid is None
        (warning,) = launch.warnings
        assert "still compiled during repeat 1" in warning
        assert "compiling" in warning

    def test_one_in_a_later_repeat_costs_only_that_one(self, launched):
        engine = ScriptedEngine(QUICK, disturbed=[[], [], ["compiling"], [], []])
        launch = launched(engine, Workload(16, 1))
        assert len(engine.requests) == len({r.request_id for r in engine.requests}) == 5
        assert [r.repeat for r in launch.repeats] == [0, 1, 2]
        assert "during repeat 2" in launch.warnings[0]

    def test_an_engine_that_never_stops_makes_the_launch_invalid(self, launched):
        engine = ScriptedEngine(QUICK, disturbed=[["compiling"]] * 100)
        launch = launched(engine, Workload(4, 1))
        assert "kept compiling" in launch.invalid
        assert len(engine.requests) <= 1 + 4


class TestInvalid:
    WORKLOAD = Workload(4, 2, batch=4, warmup=0)

    def failing(self, *numbers):
        def script(request, number):
            return [(0.1, 1), RequestError(f"refused {number}")] if number in numbers else [(0.1, 1)] * 2

        return ScriptedEngine(script)

    def test_failed_requests_make_it_so_and_the_first_error_is_told(self, launched):
        launch = launched(self.failing(5, 2), self.WORKLOAD)
        assert launch.invalid == "2 of 12 requests failed, the first with: refused 2"

    @pytest.mark.parametrize(("allowed", "valid"), [(0, False), (1, False), (2, True), (3, True)])
    def test_unless_as_many_are_allowed(self, launched, allowed, valid):
        launch = launched(self.failing(5, 2), self.WORKLOAD, allowed_failures=allowed)
        assert (launch.invalid is None) == valid
        assert [len(r.completed) for r in launch.repeats] == [3, 3, 4]

    def test_a_repeat_without_any_completed_request_is_so_however_many_may_fail(self, launched):
        launch = launched(self.failing(4, 5, 6, 7), self.WORKLOAD, allowed_failures=99)
        assert launch.invalid == "in one repeat no request completed"

    @pytest.mark.parametrize("got", [1, 3])
    def test_another_output_length_than_asked_for_makes_it_so(self, launched, got):
        engine = ScriptedEngine(lambda request, number: [(0.1, 1)] * (got if number == 7 else 2))
        launch = launched(engine, self.WORKLOAD)
        assert launch.invalid == f"a request asked for 2 output tokens and got {got}"

    def test_a_stalled_stream_is_a_failed_request(self, launched):
        engine = ScriptedEngine(lambda request, number: [None] if number == 1 else [(0.1, 1)] * 2)
        launch = launched(engine, Workload(4, 2, batch=3, warmup=0), repeats=1, read_timeout=0.5)
        assert "1 of 3 requests failed" in launch.invalid
        assert "read timeout" in launch.invalid
        assert len(launch.repeats[0].completed) == 2


class TestPromptCount:
    def test_another_count_than_asked_for_is_warned_about(self, launched):
        engine = ScriptedEngine(QUICK)
        plain = engine.generate

        async def counting(request):
            async for chunk in plain(request):
                yield replace(chunk, input_tokens=5)

        engine.generate = counting
        launch = launched(engine, Workload(4, 2), repeats=2)
        (warning,) = launch.warnings
        assert "2 prompts" in warning
        assert "5 tokens instead of 4" in warning
        assert launch.invalid is None


class TestErrors:
    def test_a_request_longer_than_the_model_serves_is_refused_before_anything_is_sent(self, launched):
        engine = ScriptedEngine(QUICK, info=replace(INFO, max_model_len=100))
        with pytest.raises(WorkloadError, match=r"101 tokens and tiny-llama serves 100.*max_model_len"):
            launched(engine, Workload(90, 11))
        assert engine.requests == []

    def test_one_that_just_fits_is_served(self, launched):
        engine = ScriptedEngine(QUICK, info=replace(INFO, max_model_len=100))
        assert launched(engine, Workload(90, 10)).invalid is None

    @pytest.mark.parametrize("dies_at", [0, 2])
    def test_an_engine_that_dies_is_an_error_of_the_engine(self, launched, dies_at):
        engine = ScriptedEngine(lambda request, number: [EngineError("died")] if number == dies_at else [(0.1, 1)])
        with pytest.raises(EngineError, match="died"):
            launched(engine, Workload(4, 1))


class TestGarbageCollection:
    @pytest.mark.parametrize("enabled", [True, False])
    @pytest.mark.parametrize("error", [None, EngineError("died")])
    def test_it_rests_while_measuring_and_is_as_before_afterwards(self, launched, enabled, error):
        seen = []

        def script(request, number):
            seen.append(gc.isenabled())
            return [error] if error else [(0.1, 1)]

        before = gc.isenabled()
        (gc.enable if enabled else gc.disable)()
        try:
            if error:
                with pytest.raises(EngineError):
                    launched(ScriptedEngine(script), Workload(4, 1))
            else:
                launched(ScriptedEngine(script), Workload(4, 1))
            assert gc.isenabled() is enabled
        finally:
            (gc.enable if before else gc.disable)()
        assert set(seen) == {False}
