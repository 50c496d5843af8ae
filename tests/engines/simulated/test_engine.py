from __future__ import annotations

import asyncio
import math
import shutil
import statistics
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_llmperf.arithmetic import Architecture, Hardware
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import SIMULATED, EngineChoice, specify
from pytest_llmperf.errors import EngineError
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.models import Model, resolve
from pytest_llmperf.simulation.board import BoardModel
from tests.engines.simulated.engines import requests
from tests.engines.simulated.engines import simulated as engine
from tests.simulation.round_numbers import round_board


class Span(NamedTuple):
    """A step as the board saw it, with the seconds that it would take by itself."""

    start_ns: int
    end_ns: int
    seconds: float
    memory: float
    compute: float
    until_ns: int


class Board:
    """Logs what it is told, and has the clocks that it is given."""

    def __init__(self, sm=1980, memory=3201):
        self.sm, self.memory = sm, memory
        self.log = []
        self.spans = []

    def attach(self, now, *, power_scale):
        self.log.append(("attach", now(), power_scale))

    def detach(self):
        self.log.append("detach")

    def load(self, size):
        self.log.append(("load", size))

    def unload(self):
        self.log.append("unload")

    def run(self, start_ns, pace, *, stretch=1.0, until_ns=0):
        seconds, memory, compute = pace(self.sm, self.memory)
        end_ns = max(start_ns + round(seconds * stretch * NS_PER_S), until_ns)
        assert not self.spans or start_ns >= self.spans[-1].end_ns
        self.spans.append(Span(start_ns, end_ns, seconds, memory, compute, until_ns))
        return end_ns

    def abandon(self):
        self.log.append("abandon")


async def ask(engine, request):
    return [chunk async for chunk in engine.generate(request)]


def serve(engine, *lengths, repeat_id="0"):
    """Send requests of these (input, output) lengths at once; their chunks."""

    async def work():
        await engine.open()
        requests = [Request(f"{i}", (7,) * n_in, n_out, repeat_id) for i, (n_in, n_out) in enumerate(lengths)]
        answers = await asyncio.gather(*[ask(engine, request) for request in requests])
        await engine.close()
        return answers

    with engine.clock.runner() as runner:
        return runner.run(work())


HOST = round_board().host


def times(engine, *lengths, **kwargs):
    return [[chunk.received_ns for chunk in chunks] for chunks in serve(engine, *lengths, **kwargs)]


def seconds(engine, *lengths, **kwargs):
    return max(map(max, times(engine, *lengths, **kwargs))) / NS_PER_S


class TestAnswer:
    def test_it_has_the_tokens_that_were_asked_for_one_at_a_time(self):
        for chunks, (n_in, n_out) in zip(serve(engine(), (5, 3), (1, 1)), [(5, 3), (1, 1)], strict=True):
            assert [chunk.tokens for chunk in chunks] == [1] * n_out
            assert {chunk.input_tokens for chunk in chunks} == {n_in}
            assert chunks[-1].output_tokens == n_out

    def test_its_stamps_are_those_of_its_tokens(self):
        (chunks,) = serve(engine(), (5, 3))
        stamps = chunks[-1].stamps
        delivery_ns = round(HOST.deliver_s * NS_PER_S)
        assert stamps.first_token_ns + delivery_ns == chunks[0].received_ns
        assert stamps.last_token_ns + delivery_ns == chunks[-1].received_ns
        assert stamps.queued_ns <= stamps.scheduled_ns <= stamps.first_token_ns

    def test_times_only_grow(self):
        (received,) = times(engine(), (100, 50))
        assert all(later > earlier for earlier, later in pairwise(received))
        assert received[0] > 0

    def test_a_prompt_longer_than_a_step_takes_is_served(self):
        assert len(times(engine(), (20_000, 2))[0]) == 2

    def test_more_requests_than_run_at_once_are_all_served(self):
        answers = times(engine(model="tiny-llama"), *[(1, 2)] * 300)
        assert [len(received) for received in answers] == [2] * 300
        assert answers[299][0] > answers[0][0]

    @pytest.mark.parametrize("name", SIMULATED)
    def test_every_board_serves_and_says_that_it_is_simulated(self, name):
        simulated = engine(name)
        assert len(times(simulated, (8, 2))[0]) == 2
        with simulated.clock.runner() as runner:
            info = runner.run(simulated.open())
        assert (info.simulated, info.kind, info.version) == (True, "sim", name)
        assert simulated.disturbances() == []


class TestPhysics:
    def test_better_boards_are_faster(self):
        boards = [round_board(key) for key in ("v100", "a100-40gb", "a100", "h100", "h200")]
        boards.sort(key=lambda board: board.hardware.peak_bandwidth)
        taken = [seconds(engine(f"sim:{board.key}"), (512, 32)) for board in boards]
        assert taken == sorted(taken, reverse=True)
        assert len(set(taken)) == len(taken) == 5

    def test_a_larger_model_is_slower(self):
        assert seconds(engine(), (8, 8)) > 1.5 * seconds(engine(model="tiny-llama"), (8, 8))

    def test_a_small_batch_costs_little_more_time_than_one(self):
        one, eight = seconds(engine(), (1, 64)), seconds(engine(), *[(1, 64)] * 8)
        assert one < eight < 1.1 * one

    def test_a_longer_prompt_delays_the_first_token(self):
        firsts = [times(engine(), (length, 1))[0][0] for length in (1, 1024, 2048, 4096)]
        assert firsts == sorted(set(firsts))


NOISY = {"launch_noise": 0.01, "repeat_noise": 0.01}


class TestNoise:
    def test_without_noise_every_launch_and_repeat_is_the_same(self):
        assert times(engine(), (8, 8)) == times(engine(launch=3, seed=7), (8, 8), repeat_id="other")

    def test_one_seed_gives_the_same_times_again(self):
        one, again = (times(engine(seed=3, launch=1, **NOISY), (8, 8), (3, 4), repeat_id="r") for _ in range(2))
        assert one == again

    @pytest.mark.parametrize("other", [{"seed": 4}, {"launch": 2}, {"repeat_id": "s"}, {"args": {"max_model_len": 99}}])
    def test_another_seed_launch_or_repeat_gives_other_times(self, other):
        def taken(repeat_id="r", **changes):
            return times(engine(**{"seed": 3, "launch": 1, **NOISY, **changes}), (8, 8), repeat_id=repeat_id)

        assert taken(**other) != taken()

    @pytest.mark.parametrize("slowdown", [0.5, 1.05, 3])
    def test_a_slowdown_scales_every_time(self, slowdown):
        plain, slow = times(engine(), (64, 16), (3, 9)), times(engine(slowdown=slowdown), (64, 16), (3, 9))
        for before, after in zip(plain, slow, strict=True):
            # Each step is rounded to a nanosecond.
            assert after == pytest.approx([at * slowdown for at in before], abs=len(after) * (1 + slowdown))

    @pytest.mark.parametrize("asked", [0.01, 0.1])
    def test_noise_between_launches_has_the_deviation_that_was_asked_for(self, asked):
        logs = [math.log(seconds(engine(model="tiny-llama", launch=i, launch_noise=asked), (1, 1))) for i in range(400)]
        assert statistics.stdev(logs) == pytest.approx(asked, rel=0.15)
        assert statistics.mean(logs) == pytest.approx(
            math.log(seconds(engine(model="tiny-llama"), (1, 1))), abs=asked * 0.2
        )

    @pytest.mark.parametrize("asked", [0.01, 0.1])
    def test_noise_between_repeats_has_the_deviation_that_was_asked_for(self, asked):
        logs = [
            math.log(seconds(engine(model="tiny-llama", repeat_noise=asked), (1, 1), repeat_id=f"{i}"))
            for i in range(400)
        ]
        assert statistics.stdev(logs) == pytest.approx(asked, rel=0.15)

    def test_one_seed_gives_the_same_times_wherever_the_model_lies(self, tmp_path):
        taken = []
        for place in ("here", "there"):
            shutil.copytree(Path(resolve("tiny-llama").location), tmp_path / place / "model")
            taken.append(times(engine(model=str(tmp_path / place / "model"), **NOISY), (8, 8)))
        assert taken[0] == taken[1]

    def test_launches_share_their_noise_among_their_repeats(self):
        noisy = {"launch": 5, "launch_noise": 0.1}
        assert times(engine(**noisy), (8, 8), repeat_id="a") == times(engine(**noisy), (8, 8), repeat_id="b")


class TestBoard:
    def test_is_told_of_every_step_and_of_nothing_else(self):
        board = Board()
        times(engine(board=board), (512, 5))
        # Of five tokens, the first with the prompt.
        assert len(board.spans) == 5
        assert board.spans[0].start_ns == round((HOST.ingest_s + HOST.prepare_s) * NS_PER_S)
        assert all(later.start_ns == earlier.end_ns for earlier, later in pairwise(board.spans))
        assert all(0 < span.memory < 1 and 0 < span.compute < 1 for span in board.spans)

    def test_a_token_is_delivered_a_little_after_the_end_of_its_step(self):
        board = Board()
        (received,) = times(engine(board=board), (512, 5))
        # It comes out of the engine when the next step has been launched, too.
        launched = [*(span.until_ns for span in board.spans[1:]), 0]
        ends = [max(span.end_ns, later) for span, later in zip(board.spans, launched, strict=True)]
        assert received == [end + round(HOST.deliver_s * NS_PER_S) for end in ends]

    def test_shares_are_bytes_and_flops_over_the_peaks(self):
        board = Board()
        serve(engine(board=board), (1000, 2))
        model = Architecture.from_config(resolve("mistral-7b").config)
        hardware = Hardware.named("NVIDIA H200")
        prefill, decode = board.spans
        flops = prefill.compute * hardware.peak_flops("bfloat16") * prefill.seconds
        assert flops == pytest.approx(model.prefill_flops(1000), rel=1e-6)
        moved = decode.memory * hardware.peak_bandwidth * decode.seconds
        assert moved == pytest.approx(model.decode_read_bytes(1, 1001), rel=1e-6)

    def test_is_attached_loaded_unloaded_and_detached_once(self):
        board = Board()
        simulated = engine(board=board, power_scale=1.1)
        serve(simulated, (1, 2))
        with simulated.clock.runner() as runner:
            runner.run(simulated.close())
        attach, (load, size), *rest = board.log
        assert attach == ("attach", 0, 1.1)
        assert (load, size) == ("load", pytest.approx(0.9 * 150754820096, rel=1e-4))
        assert rest == ["abandon", "unload", "detach"]

    def test_that_is_never_opened_hears_nothing(self):
        board = Board()
        simulated = engine(board=board)
        with simulated.clock.runner() as runner:
            runner.run(simulated.close())
        assert board.log == []

    @pytest.mark.parametrize("noise", [{}, {"launch_noise": 0.02, "repeat_noise": 0.01, "slowdown": 1.3}])
    def test_at_its_highest_clocks_changes_no_latency(self, noise):
        lengths = [(17 * i + 1, 3 * i + 2) for i in range(20)]
        assert times(engine(board=Board(), **noise), *lengths) == times(engine(**noise), *lengths)

    @pytest.mark.parametrize(("slower", "by"), [(Board(sm=990), 2), (Board(memory=1593), 3201 / 1593)])
    def test_decides_how_long_everything_takes(self, slower, by):
        free, locked = (seconds(engine(board=board), (512, 256)) for board in (Board(), slower))
        assert 1.05 * free < locked < by * free

    def test_power_scale_scales_power_and_changes_no_time(self):
        watts, received = [], []
        for scale in (1.0, 1.1):
            device = SimulatedDevice(round_board())
            received.append(times(engine(board=device, power_scale=scale), (8, 64)))
            watts.append([level.watts for level, _ in device.history.pieces(0, device.timeline.now())])
        assert received[0] == received[1] == times(engine(), (8, 64))
        assert watts[1][1:] == pytest.approx([1.1 * each for each in watts[0][1:]])


class TestModel:
    def test_a_model_without_a_config_is_refused(self):
        spec = specify(EngineChoice("sim:h200", "sim", {}, ""), "tiny-llama", {})
        hub = type(spec)(spec.choice, Model("org/name", "org/name", None, True, True), {})
        with pytest.raises(EngineError, match=r"config\.json of org/name"):
            SimulatedEngine(hub)


class TestClosing:
    def test_closing_twice_or_before_opening_is_fine(self):
        simulated = engine()
        with simulated.clock.runner() as runner:
            runner.run(simulated.close())
            runner.run(simulated.open())
            runner.run(simulated.close())
            runner.run(simulated.close())

    def test_closing_drops_what_was_running(self):
        simulated = engine()

        async def work():
            answer = asyncio.ensure_future(ask(simulated, Request("0", (1,) * 8, 1000)))
            await simulated.clock.sleep_until(10_000_000)
            await simulated.close()
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            before = simulated.clock.now()
            await simulated.clock.sleep_until(before + NS_PER_S)

        with simulated.clock.runner() as runner:
            runner.run(work())
        assert len(times(simulated, (8, 2))[0]) == 2


class TestAloneOnIt:
    def test_an_offer_beside_another_is_refused(self):
        made = engine()

        async def work():
            await made.open()
            offer = Offer(tuple(requests((64, 32))))
            return await asyncio.gather(made.carry(offer), made.carry(offer), return_exceptions=True)

        with made.clock.runner() as runner:
            done, refused = runner.run(work())
        assert len(done) == 1
        assert isinstance(refused, EngineError)
        assert "one offer at a time" in str(refused)

    def test_so_is_a_request_and_afterwards_it_is_served(self):
        made = engine()
        (request,) = requests((64, 4))

        async def ask():
            return [chunk async for chunk in made.generate(request)]

        async def work():
            await made.open()
            carried = asyncio.ensure_future(made.carry(Offer(tuple(requests((64, 32))))))
            await asyncio.sleep(0)
            with pytest.raises(EngineError, match="one offer at a time"):
                await ask()
            await carried
            return await ask()

        with made.clock.runner() as runner:
            assert len(runner.run(work())) == 4


@pytest.mark.parametrize("dtype", ["auto", "half"])
def test_a_board_without_bfloat16_serves_in_float16(dtype):
    made = engine("sim:v100", gpu=BoardModel.named("v100"), args={"dtype": dtype})
    with made.clock.runner() as runner:
        assert runner.run(made.open()).dtype == "float16"
