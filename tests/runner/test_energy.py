"""One energy window a launch, and a workload too short for it."""

from dataclasses import replace

import pytest

from pytest_llmperf.engines.pool import EnginePool
from pytest_llmperf.errors import RequestError
from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.runner import Launch, measure_launch, with_readings
from pytest_llmperf.workload import Workload

from ..fakes import INFO, SPEC, ScriptedEngine, repeat, request, tokens
from ..gpu.readings import board_samples

IDLE = Unreadable("not measured")


def launch(*repeats, samples=(), **changes):
    return Launch(0, INFO, repeats, samples=samples, **changes)


def ran(start_ms, end_ms):
    return repeat(request(end_ms, due=start_ms))


def test_the_window_is_from_the_first_due_request_to_the_last_token():
    found = with_readings(launch(ran(500, 1000), ran(1010, 1500), samples=(board_samples(watts=300),)), 40.0).readings
    assert found.seconds == pytest.approx(1.0)
    assert found.busy == pytest.approx(0.99)
    assert found.window.energy.watts == pytest.approx(300, rel=0.01)
    assert found.idle_w == 40.0


def test_a_window_with_much_idling_between_the_repeats_is_said():
    told = with_readings(launch(ran(500, 1000), ran(1500, 2000), samples=(board_samples(),)), IDLE).warnings
    assert told[0].startswith("33% of the energy window lie between the repeats")


def test_sensors_that_disagree_are_said():
    samples = board_samples(watts=300)
    samples.power_w = type(samples.power_w)("d", (330.0 for _ in samples.power_w))
    (told,) = with_readings(launch(ran(500, 1500), samples=(samples,)), IDLE).warnings
    assert told.startswith("The energy counter and the power readings disagree by +10")


@pytest.mark.parametrize("where", ["repeats", "filling"])
def test_what_failed_requests_took_is_not_told_from_the_others(where):
    half = repeat(request(1000, due=500), request(error="reset"))
    whole = launch(ran(500, 1000), samples=(board_samples(),))
    found = with_readings(replace(whole, **{where: (half,)}), IDLE).readings.window.energy
    assert found.reason == "1 requests failed, and what they took cannot be told from the others'"


def test_a_launch_without_samples_stays_as_it_is():
    plain = launch(ran(0, 10))
    assert with_readings(plain, IDLE) is plain


def test_a_launch_in_which_nothing_completed_has_no_window():
    failed = launch(repeat(request(error="reset")), samples=(board_samples(),))
    assert with_readings(failed, IDLE) is failed


@pytest.fixture
def running():
    pool = EnginePool(lambda *_: ScriptedEngine(tokens(0.010, 0.010), info=replace(INFO)))
    yield pool.get(SPEC)
    pool.close()


@pytest.mark.parametrize(("fill_s", "repeats"), [(0.0, 2), (0.05, 2), (0.1, 3), (0.4, 10)])
def test_a_workload_too_short_for_the_sensors_is_repeated(running, fill_s, repeats):
    # Each repeat takes 40 ms of virtual time.
    found = measure_launch(running, Workload(4, 4), test="t", repeats=2, read_timeout=5, fill_s=fill_s)
    assert len(found.repeats) == 2
    assert [trace.repeat for trace in found.watched] == list(range(repeats))


def test_every_repeat_that_fills_the_window_sends_prompts_of_its_own(running):
    measure_launch(running, Workload(4, 4), test="t", repeats=1, read_timeout=5, fill_s=0.4)
    prompts = [request.prompt for request in running.engine.requests]
    assert len(set(prompts)) == len(prompts) == 11  # and the warm-up


def test_a_workload_that_never_completes_is_not_repeated_for_ever():
    pool = EnginePool(lambda *_: ScriptedEngine(lambda *_: [RequestError("no")]))
    try:
        found = measure_launch(pool.get(SPEC), Workload(4, 4, warmup=0), test="t", repeats=1, read_timeout=5, fill_s=9)
    finally:
        pool.close()
    assert len(found.repeats) == 1
    assert found.invalid
