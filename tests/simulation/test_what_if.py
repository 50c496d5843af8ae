"""Simulated boards beside each other: what one would try on them comes out as it should."""

from functools import cache
from itertools import pairwise

import pytest

from benchmarks.simulation.trial import Point, simulate
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.simulation.board import BOARDS, BoardModel
from pytest_llmperf.workload import Workload

NEWER = ("a100", "h100", "h200")


@cache
def measured(key, lengths, batch=1, clock=None, **arguments):
    point = Point("", "", "", "mistral-7b", arguments, Workload(*lengths, batch=batch), {})
    return simulate(point, BoardModel.named(key), sm_mhz=clock)


@pytest.mark.parametrize("lengths", [(512, 1), (1, 128), (512, 128)], ids=str)
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("key", BOARDS)
def test_most_tokens_per_joule_are_neither_at_the_lowest_clock_nor_at_the_highest(key, batch, lengths):
    clocks = BoardModel.named(key).product.supported_sm_clocks_mhz
    tried = sorted({*clocks[::6], clocks[-1]})
    efficiency = [(f := measured(key, lengths, batch, clock))["throughput"] / f["power"] for clock in tried]
    best = efficiency.index(max(efficiency))
    assert 0.4 * clocks[-1] < tried[best] < 0.85 * clocks[-1]
    assert efficiency[0] < 0.8 * efficiency[best]
    # At the highest the power limit may have taken most of the difference back.
    assert efficiency[-1] < 0.99 * efficiency[best]


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_the_newer_the_board_the_faster_it_decodes(batch):
    tpots = [measured(key, (512, 64), batch)["tpot"] for key in ("v100", "a100-40gb", "a100", "h100", "h200")]
    assert all(after < before for before, after in pairwise(tpots))


@pytest.mark.parametrize("key", NEWER)
def test_weights_of_8_bits_decode_faster(key):
    whole, half = measured(key, (512, 64))["tpot"], measured(key, (512, 64), quantization="fp8")["tpot"]
    assert 0.45 * whole < half < 0.8 * whole


@pytest.mark.parametrize("key", NEWER)
def test_two_gpus_decode_faster_but_not_twice_as_fast(key):
    # A real pair of H200 takes 28 % off.
    change = measured(key, (512, 64), tensor_parallel_size=2)["tpot"] / measured(key, (512, 64))["tpot"] - 1
    assert -0.42 < change < -0.20


@pytest.mark.parametrize("key", BOARDS)
def test_over_a_second_no_board_draws_more_than_its_limit(key):
    model = BoardModel.named(key)
    device = SimulatedDevice(model)
    engine = SimulatedEngine(
        specify(EngineChoice(f"sim:{key}", "sim", {}, ""), "mistral-7b", {}), board=device, model=model
    )

    async def work():
        await engine.open()
        begun = engine.clock.now()
        prompts = tuple(Request(str(number), (7,) * 2048, 1, "0") for number in range(96))
        await engine.carry(Offer(prompts))
        ended = engine.clock.now()
        device.power_w()  # a reading takes in what was told last
        await engine.close()
        return begun, ended

    with engine.clock.runner() as runner:
        begun, ended = (device.timeline.inside(at) for at in runner.run(work()))
    limit = model.hardware.power_limit_w
    means = [
        device.history.mean("watts", start, start + NS_PER_S)
        for start in range(begun, ended - NS_PER_S, NS_PER_S // 10)
    ]
    assert len(means) > 3
    assert max(means) < 1.02 * limit
    # And prefill of newer boards does reach it.
    assert max(means) > 0.7 * limit
