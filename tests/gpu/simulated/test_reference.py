"""A simulated engine on a simulated board: near what was measured on a real one, and of its shape."""

import asyncio
from functools import cache

import pytest

from pytest_llmperf.engines import Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu.energy import by_counter
from pytest_llmperf.gpu.simulated import SimulatedDevice, SimulatedWatch


@cache
def measured(product, batch, input_len, output_len, clock=None, repeats=2, **settings):
    """Watts by the counter, output tokens per joule, and the samples."""
    device = SimulatedDevice(product)
    if clock is not None:
        device.lock_sm_clock(clock)
    choice = EngineChoice(f"sim:{product}", "sim", settings, "")
    engine = SimulatedEngine(specify(choice, "mistral-7b", {}), board=device)
    watch = SimulatedWatch([device])

    async def ask(number):
        request = Request(str(number), (7,) * input_len, output_len, "0")
        return [chunk async for chunk in engine.generate(request)]

    async def work():
        await engine.open()
        await watch.begin()
        begin = engine.clock.now()
        for _ in range(repeats):
            await asyncio.gather(*map(ask, range(batch)))
        end = engine.clock.now()
        (samples,) = await watch.end()
        await engine.close()
        return samples, begin, end

    with engine.clock.runner() as runner:
        samples, begin, end = runner.run(work())
    energy = by_counter(samples.counter(), begin, end)
    tokens_per_s = repeats * batch * output_len / ((end - begin) / 1e9)
    return energy.watts, tokens_per_s / energy.watts, samples


@pytest.mark.parametrize(("batch", "watts"), [(1, 456.5), (4, 474.4), (16, 537.8), (64, 672.0)])
def test_power_of_mistral_on_an_h200_is_near_what_was_measured_there(batch, watts):
    assert measured("h200", batch, 512, 256)[0] == pytest.approx(watts, rel=0.1)


def test_the_boards_counters_show_what_is_known_of_decode():
    samples = measured("h200", 1, 512, 256)[2]
    assert samples.dram == pytest.approx(0.62, abs=0.05)
    assert samples.sm == pytest.approx(1, abs=0.01)
    assert samples.tensor < 0.05


@pytest.mark.parametrize("load", [(16, 512, 1), (1, 1, 128), (2, 512, 64)])
def test_tokens_per_joule_have_a_maximum_near_900_mhz_on_a_v100(load):
    clocks = (652, 750, 802, 900, 1005, 1102, 1200, 1297)
    efficiency = {clock: measured("v100", *load, clock, repeats=4)[1] for clock in clocks}
    assert 800 <= max(efficiency, key=efficiency.get) <= 1010


def test_a_larger_batch_gives_more_tokens_per_joule_at_hardly_more_power():
    one, eight = measured("v100", 1, 1, 64, 900, 4), measured("v100", 8, 1, 64, 900, 4)
    assert eight[1] > 5 * one[1]
    assert one[0] < eight[0] < 1.1 * one[0]


def test_a_power_scale_scales_power_and_nothing_else():
    plain, scaled = measured("h200", 1, 1, 128), measured("h200", 1, 1, 128, power_scale=1.1)
    assert scaled[0] == pytest.approx(1.1 * plain[0], rel=1e-3)
    assert scaled[2].at_ns == plain[2].at_ns
