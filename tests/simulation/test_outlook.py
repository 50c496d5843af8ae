"""An engine core on a GPU that tells how many steps will go: nothing changes but how long it takes to find out."""

from __future__ import annotations

import random

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.ramp import foresee
from pytest_llmperf.simulation.scheduler import Sequence
from pytest_llmperf.simulation.server import NEVER, Served, Server
from pytest_llmperf.simulation.steps import StepModel
from tests.simulation.test_server import CASES, Gpu, S, Steps, scheduler, trace


class Foreseeing(Gpu):
    def __init__(self):
        super().__init__()
        self.at_once = 0

    def foresee(self, start_ns, ramp, until_ns):
        return foresee(ramp, start_ns, until_ns, 1980, 3201)

    def follow(self, course, count):
        self.at_once += count
        starts = [course.start_ns, *course.ends_ns]
        self.spans += list(zip(starts[:count], course.ends_ns[:count], strict=True))


def serve(arrivals, steps, *, at_once, horizon=lambda when: NEVER, withdrawals=(), **kwargs):
    """The times of the tokens of requests of (arrival, input, output), what else can be seen, and the GPU."""
    gpu = Foreseeing()
    server = Server(scheduler(**kwargs), steps, gpu.run, outlook=gpu if at_once else None)
    everybody, left = [], sorted(withdrawals, key=lambda each: each[1])
    for arrives_ns, n_in, n_out in arrivals:
        everybody.append(Served(Sequence((7,) * n_in, n_out)))
        server.submit(everybody[-1], arrives_ns)
    while (when := server.next_ns()) is not None:
        if left and when >= left[0][1]:
            number, at_ns = left.pop(0)
            server.withdraw(everybody[number], at_ns)
        until = min(horizon(when), left[0][1] - 1 if left else NEVER)
        before = len(server.token_ns)
        server.advance(until)
        # The first token of an advance may be due anyway; no further one is given out beyond the horizon.
        assert all(at <= until for at in server.token_ns[before + 1 :])
    times = [[at for a, b in each.spans for at in server.token_ns[a:b]] for each in everybody]
    stamps = [(each.queued_ns, each.scheduled_ns) for each in everybody]
    return (times, stamps, server.token_ns, server.preemptions, gpu.spans), gpu


@pytest.mark.parametrize("model", ["mistral-7b", "window"])
@pytest.mark.parametrize("case", CASES)
def test_changes_nothing(case, model):
    config = dict(resolve("mistral-7b").config)
    if model == "window":
        config["sliding_window"] = 500
    steps = StepModel(Architecture.from_config(config), BoardModel.named("h200"))
    withdrawals = [(5, 21 * S), (9, 50 * S), (20, 51 * S)]
    found, gpu = serve(trace(3, 60), steps, at_once=True, withdrawals=withdrawals, **CASES[case])
    assert found == serve(trace(3, 60), steps, at_once=False, withdrawals=withdrawals, **CASES[case])[0]
    # Where only one step is under way the GPU waits for each to be prepared.
    assert (gpu.at_once > 0) == (case != "synchronous")


@pytest.mark.parametrize(("decode", "launch"), [(0.01, 0.005), (0.01, 0.01), (0.004, 0.009)])
def test_up_to_any_horizon(decode, launch):
    def steps():
        return Steps(decode=decode, prefill=0.03, launch=launch, prefill_launch=0.02)

    for seed in range(4):
        draw = random.Random(seed)
        near, gpu = serve(
            trace(seed, 40), steps(), at_once=True, horizon=lambda when, draw=draw: when + draw.randint(0, S // 2)
        )
        assert near == serve(trace(seed, 40), steps(), at_once=False)[0]
        assert (gpu.at_once > 0) == (decode >= launch)
