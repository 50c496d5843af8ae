from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.blocks import BlockPool
from pytest_llmperf.simulation.scheduler import Scheduler, Sequence
from pytest_llmperf.simulation.server import NEVER, Served, Server
from pytest_llmperf.simulation.steps import Pace, StepModel
from tests.simulation.round_numbers import round_board

S = 1_000_000_000


class Steps:
    """A step of decodes takes 4 s on the GPU and 1 s to launch; with a prompt in it 10 s and 3 s.

    The GPU can begin at once, unless it is said how long a step is prepared.
    """

    decode, prefill, launch, prefill_launch, prepare_s = 4.0, 10.0, 1.0, 3.0, 0.0

    def __init__(self, **times):
        vars(self).update(times)
        self.works = []

    def cache_bytes(self, context):
        return 2 * context

    def attention_flops(self, context):
        return 3 * context

    def work(self, prefills, *, sampled, decodes, cache_bytes, attention_flops):
        prefills = tuple(prefills)
        self.works.append((prefills, sampled, decodes, cache_bytes, attention_flops))
        return self.works[-1]

    def launch_s(self, work):
        return self.prefill_launch if work[0] else self.launch

    def pace(self, work, sm_mhz, memory_mhz):
        return Pace(self.prefill if work[0] else self.decode, 0.5, 0.1)


class Gpu:
    def __init__(self):
        self.spans = []

    def run(self, start_ns, pace, *, stretch=1.0, until_ns=0):
        end_ns = max(start_ns + round(pace(1980, 3201).seconds * stretch * S), until_ns)
        assert not self.spans or start_ns >= self.spans[-1][1]
        self.spans.append((start_ns, end_ns))
        return end_ns


def scheduler(budget=2048, sequences=128, blocks=10_000, longest=4096, **kwargs):
    pool = BlockPool(blocks, 16, kwargs.pop("prefix_caching", False))
    return Scheduler(token_budget=budget, max_sequences=sequences, blocks=pool, max_model_len=longest, **kwargs)


def serve(arrivals, steps=None, gpu=None, *, skipping=True, horizons=None, withdrawals=(), **kwargs):
    """Serve requests of (arrival in ns, input, output); the server, and the times of each one's tokens in ns."""
    server = Server(scheduler(**kwargs), steps or Steps(), (gpu or Gpu()).run, skipping=skipping)
    everybody = []
    for arrives_ns, n_in, n_out in arrivals:
        everybody.append(Served(Sequence((7,) * n_in, n_out)))
        server.submit(everybody[-1], arrives_ns)
    for number, at_ns in withdrawals:
        server.withdraw(everybody[number], at_ns)
    while (when := server.next_ns()) is not None:
        server.advance(horizons(when) if horizons else NEVER)
    return server, everybody, [[at for a, b in s.spans for at in server.token_ns[a:b]] for s in everybody]


def seconds(times):
    return [[at / S for at in received] for received in times]


class TestPipeline:
    def test_tokens_come_out_when_the_gpu_has_done_a_step(self):
        # Launched at 0 until 3, done at 10; the decode launched at 3 waits for the GPU and is done at 14, and so on.
        _, _, times = serve([(0, 5, 3)])
        assert seconds(times) == [[10, 14, 18]]

    def test_where_launching_is_the_slower_they_come_out_when_the_successor_has_been_launched(self):
        # The first step is launched from 0 to 3, the second until 8: then the first one's token comes out. The third is
        # launched until 13. Nothing follows, and it ends with its launch.
        _, _, times = serve([(0, 5, 3)], Steps(decode=1, prefill=1, launch=5))
        assert seconds(times) == [[8, 13, 13]]

    def test_the_gpu_begins_when_a_step_is_prepared(self):
        gpu = Gpu()
        _, _, times = serve([(0, 5, 3)], Steps(prepare_s=0.5), gpu)
        # The later ones are prepared while the GPU is at work.
        assert [start for start, _ in gpu.spans] == [0.5 * S, 10.5 * S, 14.5 * S]
        assert seconds(times) == [[10.5, 14.5, 18.5]]

    def test_without_asynchronous_scheduling_the_gpu_waits_for_each(self):
        gpu = Gpu()
        server = serve([(0, 5, 3)], Steps(prepare_s=0.5), gpu, async_scheduling=False)[0]
        assert gpu.spans == [(0.5 * S, 10.5 * S), (11 * S, 15 * S), (15.5 * S, 19.5 * S)]
        assert server.token_ns == [10.5 * S, 15 * S, 19.5 * S]

    def test_without_asynchronous_scheduling_the_next_step_is_launched_when_the_last_has_ended(self):
        gpu = Gpu()
        _, _, times = serve([(0, 5, 3)], Steps(launch=1), gpu, async_scheduling=False)
        assert seconds(times) == [[10, 14, 18]]
        assert gpu.spans == [(0, 10 * S), (10 * S, 14 * S), (14 * S, 18 * S)]

    def test_without_it_nobody_else_is_scheduled_before_that(self):
        _, everybody, _ = serve([(0, 5, 3), (1 * S, 5, 3)], async_scheduling=False)
        assert [served.scheduled_ns for served in everybody] == [0, 10 * S]

    def test_without_it_a_launch_is_not_hidden(self):
        steps = Steps(decode=1, prefill=1, launch=5)
        assert seconds(serve([(0, 5, 3)], steps, async_scheduling=False)[2]) == [[3, 8, 13]]

    def test_the_first_step_holds_only_what_had_arrived(self):
        _, everybody, times = serve([(0, 5, 1), (1, 5, 1), (2, 5, 1)])
        assert [served.scheduled_ns for served in everybody] == [0, 3 * S, 3 * S]
        assert seconds(times) == [[10], [20], [20]]

    def test_who_arrives_during_a_step_takes_part_in_the_next_but_one(self):
        # At 3 both steps are launched; at 10 the first is done, and the third is scheduled.
        _, everybody, times = serve([(0, 5, 4), (4 * S, 5, 1)])
        assert everybody[1].queued_ns == everybody[1].scheduled_ns == 10 * S
        assert seconds(times) == [[10, 14, 24, 28], [24]]

    def test_an_idle_engine_begins_when_somebody_arrives(self):
        _, _, times = serve([(0, 5, 1), (100 * S, 5, 1)])
        assert seconds(times) == [[10], [110]]

    def test_a_long_prompt_is_divided_into_steps_of_the_budget(self):
        steps = Steps()
        _, _, times = serve([(0, 100, 2)], steps, budget=64)
        assert [work[0] for work in steps.works] == [((0, 64),), ((64, 36),), ()]
        assert [work[1] for work in steps.works] == [0, 1, 1]
        assert seconds(times) == [[20, 24]]

    def test_a_factor_is_on_the_launch_and_on_the_gpu(self):
        server = Server(scheduler(), Steps(decode=1, prefill=1, launch=5, prepare_s=2), (gpu := Gpu()).run)
        server.submit(served := Served(Sequence((7,) * 5, 3), factor=2.0), 0)
        while server.next_ns() is not None:
            server.advance()
        ((first, end),) = served.spans
        assert seconds([server.token_ns[first:end]]) == [[16, 26, 26]]
        assert [start for start, _ in gpu.spans] == [4 * S, 10 * S, 20 * S]

    def test_the_work_of_a_step_has_the_contexts_with_the_new_token(self):
        steps = Steps()
        serve([(0, 5, 4)], steps)
        assert steps.works[1:] == [((), 1, 1, 2 * context, 3 * context) for context in (6, 7, 8)]


class TestWithdrawal:
    def test_who_is_withdrawn_before_it_arrives_gets_nothing(self):
        _, _, times = serve([(0, 5, 9), (0, 5, 9)], withdrawals=[(0, 19 * S)])
        assert seconds(times)[0] == []
        assert len(times[1]) == 9

    @pytest.mark.parametrize("skipping", [True, False])
    def test_in_the_middle(self, skipping):
        server = Server(scheduler(), Steps(), Gpu().run, skipping=skipping)
        leaving, staying = Served(Sequence((7,) * 5, 9)), Served(Sequence((7,) * 5, 9))
        server.submit(leaving, 0)
        server.submit(staying, 0)
        while (when := server.next_ns()) is not None and when <= 20 * S:
            server.advance(20 * S)
        server.withdraw(leaving, 20 * S)
        assert server.scheduler.blocks.used == 2
        while server.next_ns() is not None:
            server.advance(NEVER)
        assert [leaving.spans, staying.spans] == [[(0, 3)], [(0, 9)]]
        assert server.scheduler.blocks.used == 0

    def test_at_rest_nothing_is_left(self):
        server = Server(scheduler(), Steps(), Gpu().run)
        for arrives_ns in (0, 1, 99 * S):
            server.submit(Served(Sequence((7,) * 5, 9)), arrives_ns)
        for _ in range(4):
            server.advance()
        server.rest(50 * S)
        assert server.next_ns() is None
        assert server.scheduler.blocks.used == 0
        server.submit(served := Served(Sequence((7,) * 5, 1)), 20 * S)
        while server.next_ns() is not None:
            server.advance()
        assert server.token_ns[served.spans[0][0]] == 60 * S

    def test_who_can_never_be_served_is_an_error(self):
        with pytest.raises(EngineError, match="KV blocks"):
            serve([(0, 100, 100)], blocks=5)


def trace(seed, n):
    draw = random.Random(seed)
    at = 0
    for _ in range(n):
        at += round(draw.expovariate(draw.choice([4, 40])) * S)
        yield at, draw.randint(1, 3000), draw.randint(1, 120)


CASES = {
    "plain": {},
    "small budget": {"budget": 300},
    "few sequences": {"sequences": 3},
    "few blocks": {"blocks": 300},
    "synchronous": {"async_scheduling": False, "blocks": 400},
    "no chunks": {"chunked_prefill": False, "budget": 4096},
    "prefix cache": {"prefix_caching": True, "blocks": 500},
}


class TestSkipping:
    @pytest.mark.parametrize("model", ["mistral-7b", "window"])
    @pytest.mark.parametrize("case", CASES)
    def test_changes_nothing(self, case, model):
        config = dict(resolve("mistral-7b").config)
        if model == "window":
            config["sliding_window"] = 500
        steps = StepModel(Architecture.from_config(config), round_board())
        found = []
        for skipping in (True, False):
            gpu = Gpu()
            server, everybody, times = serve(trace(3, 60), steps, gpu, skipping=skipping, **CASES[case])
            stamps = [(s.queued_ns, s.scheduled_ns, s.sequence.preemptions) for s in everybody]
            found.append((times, stamps, gpu.spans, server.token_ns, server.preemptions))
        assert found[0] == found[1]
        assert all(later > earlier for received in found[0][0] for earlier, later in pairwise(received))

    @pytest.mark.parametrize("window", [7, 60, 100, 131, 400])
    def test_sees_where_a_window_is_full(self, window):
        steps = Steps()
        steps.cache_bytes = lambda context: 2 * min(context, window)
        serve([(0, 5, 200), (0, 50, 300)], steps)
        decodes = [work for work in steps.works if not work[0]]
        assert len(decodes) == 299
        for ahead, work in enumerate(decodes, 1):
            contexts = [length + ahead for length, count in ((5, 200), (50, 300)) if ahead < count]
            assert work[2:] == (len(contexts), sum(2 * min(at, window) for at in contexts), 3 * sum(contexts))

    def test_up_to_any_horizon(self):
        draw = random.Random(7)
        plain = serve(trace(5, 40), Steps(decode=0.01, prefill=0.03, launch=0.005, prefill_launch=0.02), skipping=False)
        for _ in range(5):
            steps = Steps(decode=0.01, prefill=0.03, launch=0.005, prefill_launch=0.02)
            near = serve(trace(5, 40), steps, horizons=lambda when: when + draw.randint(0, S // 2))
            assert near[2] == plain[2]

    def test_never_goes_beyond_the_horizon(self):
        server = Server(scheduler(), Steps(), Gpu().run)
        server.submit(Served(Sequence((7,) * 5, 500)), 0)
        for horizon_ns in range(20 * S, 2000 * S, 37 * S):
            while (when := server.next_ns()) is not None and when <= horizon_ns:
                server.advance(horizon_ns)
            assert server.token_ns[-1] <= horizon_ns < server.token_ns[-1] + 4 * S

    def test_asks_for_every_step_what_it_takes(self):
        steps = Steps()
        serve([(0, 5, 200), (0, 9, 300)], steps)
        contexts = [work[3] // 2 for work in steps.works if work[2] == 2]
        assert contexts == list(range(contexts[0], contexts[0] + 2 * len(contexts), 2))
        assert len(contexts) > 150
        assert sum(work[1] for work in steps.works) == 500
