"""Mistral-7B on a simulated V100: what measurements on a real one found comes out of it.

The clock is locked as on the real board, and everything is measured from outside: the tokens that the engine gave out,
the power that the board has drawn. Ranges are wider than the batches and lengths of the findings wherever nothing says
that they end there.
"""

from functools import cache
from itertools import pairwise

import pytest

from benchmarks.simulation.trial import Point, simulate
from pytest_llmperf.arithmetic import Architecture, Hardware, critical_batch
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.steps import StepModel
from pytest_llmperf.workload import Workload

V100 = BoardModel.named("v100")
CLOCKS = V100.product.supported_sm_clocks_mhz
#: 750 to 1300 MHz in steps of 50, each at the nearest clock that the board has.
SWEEP = tuple(min(CLOCKS, key=lambda clock: abs(clock - asked)) for asked in range(750, 1301, 50))
PREFILL, DECODE, END_TO_END = (512, 1), (1, 256), (512, 256)
UNLOCKED = None


@cache
def measured(lengths, batch, clock, **arguments):
    workload = Workload(*lengths, batch=batch)
    return simulate(Point("", "", "", "mistral-7b", arguments, workload, {}), V100, sm_mhz=clock)


def tokens_per_joule(lengths, batch, clock, **arguments):
    """Output tokens: of requests of one shape that is all tokens but for a factor."""
    figures = measured(lengths, batch, clock, **arguments)
    return figures["throughput"] / figures["power"]


def latency(lengths, batch, clock):
    figures = measured(lengths, batch, clock)
    return figures["ttft"] + (lengths[1] - 1) * (figures["tpot"] or 0)


def watts(lengths, batch, clock):
    return measured(lengths, batch, clock)["power"]


def rises(values):
    return all(before < after for before, after in pairwise(values))


class TestClock:
    """Findings 1, 5, 7: what the SM clock does."""

    @pytest.mark.parametrize("batch", [1, 4, 16])
    @pytest.mark.parametrize("lengths", [PREFILL, DECODE, END_TO_END], ids=str)
    def test_tokens_per_joule_are_most_near_900_mhz(self, lengths, batch):
        efficiency = {clock: tokens_per_joule(lengths, batch, clock) for clock in SWEEP}
        best = max(efficiency, key=efficiency.get)
        assert 850 <= best <= 950
        # No flat top: the ends of the sweep are clearly worse, and it falls towards them all the way.
        assert efficiency[SWEEP[0]] < 0.96 * efficiency[best]
        assert efficiency[SWEEP[-1]] < 0.85 * efficiency[best]
        assert rises([efficiency[clock] for clock in SWEEP if clock <= best])
        assert rises([efficiency[clock] for clock in reversed(SWEEP) if clock >= best])

    @pytest.mark.parametrize("batch", [2, 8, 32, 64, 128])
    @pytest.mark.parametrize("lengths", [(128, 1), (2048, 1), (1, 128), (128, 128), (2048, 256)], ids=str)
    def test_and_not_for_those_batches_and_lengths_alone(self, lengths, batch):
        clocks = [clock for clock in CLOCKS if 780 <= clock <= 1020][::3]
        assert 850 <= max(clocks, key=lambda clock: tokens_per_joule(lengths, batch, clock)) <= 950

    @pytest.mark.parametrize(
        "arguments", [{"enforce_eager": True}, {"max_num_batched_tokens": 512, "max_num_seqs": 16}], ids=str
    )
    @pytest.mark.parametrize("lengths", [PREFILL, DECODE, END_TO_END], ids=str)
    def test_nor_for_the_engines_defaults(self, lengths, arguments):
        clocks = [clock for clock in CLOCKS if 780 <= clock <= 1020][::3]
        best = max(clocks, key=lambda clock: tokens_per_joule(lengths, 4, clock, **arguments))
        assert 850 <= best <= 950

    @pytest.mark.parametrize("batch", [1, 4, 16])
    @pytest.mark.parametrize("lengths", [PREFILL, DECODE, END_TO_END], ids=str)
    def test_power_rises_with_it_and_above_the_optimum_more_than_in_a_straight_line(self, lengths, batch):
        power = [watts(lengths, batch, clock) for clock in SWEEP]
        assert rises(power)
        slopes = [
            (after - before) / (high - low)
            for (low, before), (high, after) in pairwise(zip(SWEEP, power, strict=True))
            if low >= 900
        ]
        # By thirds of the way, for clocks are whole MHz.
        assert slopes[0] < slopes[len(slopes) // 2] < slopes[-1]

    @pytest.mark.parametrize(("lengths", "highest"), [(PREFILL, 1300), (DECODE, 1530), (END_TO_END, 1530)], ids=str)
    def test_in_the_upper_range_power_rises_more_than_the_clock_itself(self, lengths, highest):
        low, high = (min(CLOCKS, key=lambda clock: abs(clock - asked)) for asked in (1100, highest))
        assert watts(lengths, 1, high) / watts(lengths, 1, low) > 1.02 * high / low

    @pytest.mark.parametrize("batch", [1, 16])
    def test_it_lowers_latency(self, batch):
        for lengths in (PREFILL, END_TO_END):
            assert rises([latency(lengths, batch, clock) for clock in reversed(SWEEP)])
        # What is computed gains by the clock throughout, what is read hardly any more above the knee.
        assert latency(PREFILL, batch, 1297) < 0.75 * latency(PREFILL, batch, 900)
        assert 0.97 < latency(DECODE, 1, 1297) / latency(DECODE, 1, 900) < 1


class TestBatch:
    """Findings 2, 3, 6, 7: what the batch does."""

    @pytest.mark.parametrize("clock", [750, 900, 1102, 1297, UNLOCKED])
    def test_up_to_16_it_hardly_changes_the_power_of_decoding(self, clock):
        power = [watts(DECODE, batch, clock) for batch in (1, 2, 4, 8, 16)]
        assert max(power) < 1.10 * min(power)

    @pytest.mark.parametrize("clock", [750, 900, 1102, 1297, UNLOCKED])
    def test_nor_very_much_that_of_whole_requests(self, clock):
        # The more there are, the more of the time is prefill, which draws more.
        power = [watts(END_TO_END, batch, clock) for batch in (1, 2, 4, 8, 16)]
        assert max(power) < (1.10 if clock in (750, 900) else 1.20) * min(power)
        assert power[2] < 1.10 * power[0]

    @pytest.mark.parametrize("lengths", [DECODE, END_TO_END], ids=str)
    def test_the_larger_the_more_tokens_per_joule(self, lengths):
        efficiency = [tokens_per_joule(lengths, batch, 900) for batch in (1, 2, 4, 8, 16, 32, 64)]
        assert rises(efficiency)
        assert efficiency[4] > 2.4 * efficiency[2]

    @pytest.mark.parametrize(("clock", "wall"), [(900, 102), (UNLOCKED, 173)])
    def test_throughput_rises_with_it_up_to_the_memory_wall_and_hardly_beyond(self, clock, wall):
        # FLOPs go with the clock and so does the wall.
        batches = (1, 8, 16, wall // 2, wall, 2 * wall)
        throughput = [measured(DECODE, batch, clock, max_num_seqs=512)["throughput"] for batch in batches]
        assert rises(throughput)
        assert throughput[2] > 13 * throughput[0]
        assert throughput[4] > 1.3 * throughput[3]
        assert throughput[5] < 1.2 * throughput[4]

    def test_throughput_rises_with_the_clock(self):
        for lengths, batch in [(PREFILL, 1), (PREFILL, 16), (DECODE, 16), (DECODE, 128), (END_TO_END, 16)]:
            assert rises([measured(lengths, batch, clock)["throughput"] for clock in SWEEP])

    @pytest.mark.parametrize("clock", [900, UNLOCKED])
    def test_it_raises_the_latency_of_whole_requests_steeply(self, clock):
        latencies = [latency(END_TO_END, batch, clock) for batch in (1, 2, 4, 8, 16, 32, 64)]
        assert rises(latencies)
        assert latencies[4] > 1.3 * latencies[0]
        assert latencies[6] > 2.5 * latencies[0]
        increments = [after - before for before, after in pairwise(latencies)]
        assert rises(increments)

    def test_173_is_the_critical_one(self):
        architecture = Architecture.from_config(resolve("mistral-7b").config).served_as("float16")
        copied = Hardware.named(V100.product.name).with_measured(bandwidth=V100.memory.copy_bandwidth)
        assert critical_batch(architecture, copied) == pytest.approx(173, abs=3)

    def test_the_simulated_step_turns_compute_bound_there(self):
        architecture = Architecture.from_config(resolve("mistral-7b").config).served_as("float16")
        steps = StepModel(architecture, V100)

        def shares(tokens):
            """Of the time that weights are read at best, and products made at best."""
            work = steps.work((), sampled=tokens, decodes=tokens, cache_bytes=0, attention_flops=0)
            pace = steps.pace(work, 1530, 877)
            return pace.memory / V100.memory.weights_share, pace.compute / V100.compute.matmul_share

        batches = range(1, 400)
        turn = next(batch for batch in batches if shares(batch)[1] > shares(batch)[0])
        assert turn == pytest.approx(173, rel=0.06)


class TestPhases:
    """Findings 4 and 8: at rest, prefill, decode."""

    def test_at_rest_it_draws_23_watts(self):
        device = SimulatedDevice(V100)
        device.wait(3)
        assert device.power_w() == pytest.approx(23, abs=0.5)

    @pytest.mark.parametrize("clock", SWEEP)
    def test_a_decoded_token_takes_some_50_times_the_energy_of_a_prompt_token(self, clock):
        decoded = 1 / tokens_per_joule(DECODE, 1, clock)
        prefilled = 1 / tokens_per_joule(PREFILL, 1, clock) / PREFILL[0]
        assert 45 < decoded / prefilled < 65

    def test_also_at_free_clocks_though_it_is_more_there(self):
        decoded = 1 / tokens_per_joule(DECODE, 1, UNLOCKED)
        prefilled = 1 / tokens_per_joule(PREFILL, 1, UNLOCKED) / PREFILL[0]
        assert 50 < decoded / prefilled < 65

    @pytest.mark.parametrize("clock", [*SWEEP, UNLOCKED])
    def test_prefill_draws_more_than_decode(self, clock):
        assert watts(PREFILL, 1, clock) > 1.2 * watts(DECODE, 1, clock)

    def test_prefill_peaks_near_full_utilisation(self):
        assert watts(PREFILL, 8, UNLOCKED) > 0.95 * V100.hardware.power_limit_w > 1.5 * watts(DECODE, 1, UNLOCKED)

    def test_decode_is_flat(self):
        # However far the context has grown: four times the tokens change nothing.
        assert watts((1, 1024), 1, 900) == pytest.approx(watts((1, 256), 1, 900), rel=0.01)
        assert watts((1, 1024), 16, 900) == pytest.approx(watts((1, 256), 16, 900), rel=0.03)

    @pytest.mark.parametrize("batch", [1, 16])
    def test_over_a_request_power_begins_with_a_peak_and_goes_on_flat(self, batch):
        device = SimulatedDevice(V100)
        device.lock_sm_clock(900)
        spec = specify(EngineChoice("sim:v100", "sim", {}, ""), "mistral-7b", {})
        engine = SimulatedEngine(spec, board=device)

        async def work():
            await engine.open()
            asked = tuple(Request(str(number), (7,) * 512, 256, "0") for number in range(batch))
            traces = await engine.carry(Offer(asked))
            device.power_w()  # a reading takes in what was told last
            await engine.close()
            return traces

        with engine.clock.runner() as runner:
            traces = runner.run(work())
        prefilled, ended = max(trace.first_ns for trace in traces), max(trace.last_ns for trace in traces)
        span, lead = (ended - prefilled) // 10, 50_000_000
        tenths = [
            device.history.mean("watts", start, start + span)
            for start in map(device.timeline.inside, range(prefilled + lead, ended - span - lead, span))
        ]
        prefill = device.history.mean("watts", device.timeline.inside(lead), device.timeline.inside(prefilled - lead))
        assert max(tenths) < 1.04 * min(tenths)
        assert prefill > 1.15 * max(tenths)
