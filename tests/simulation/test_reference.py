"""Simulated boards beside real ones: near what was measured on an H200, and of the shape of what was on a V100.

Tests that stand and fall with the figures in ``boards/`` are here; everything else is tested on round numbers.
"""

import asyncio
from functools import cache
from pathlib import Path

import pytest

from benchmarks.simulation.fit import gains_of
from benchmarks.simulation.trial import points_of, simulate
from pytest_llmperf.engines import Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu.energy import by_counter
from pytest_llmperf.gpu.simulated import SimulatedDevice, SimulatedWatch
from pytest_llmperf.simulation.board import BoardModel

MEASURED = Path(__file__).parents[2] / "benchmarks" / "simulation" / "measured"


@cache
def measured(product, batch, input_len, output_len, clock=None, repeats=2):
    """Watts by the counter, output tokens per joule, and the samples."""
    device = SimulatedDevice(product)
    if clock is not None:
        device.lock_sm_clock(clock)
    choice = EngineChoice(f"sim:{product}", "sim", {}, "")
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


#: Relative errors that are allowed.
ALLOWED = {"ttft": 0.2, "tpot": 0.1, "throughput": 0.1, "power": 0.1}
#: The share of all points that keeps to them. TTFT of a few short prompts hangs on when each reached the engine.
MOST = {"ttft": 0.8, "tpot": 0.95, "throughput": 0.9, "power": 0.95}


def errors(point, gain=1.0):
    """Relative errors by figure, of those that were measured."""
    simulated = simulate(point, BoardModel.named("h200"), gain=gain)
    return {name: simulated[name] / figure - 1 for name in ALLOWED if (figure := point.figures[name]) is not None}


@pytest.mark.parametrize("point", points_of(MEASURED / "h200-reference.json"), ids=lambda point: point.test)
def test_mistral_on_an_h200_is_near_what_was_measured_there(point):
    found = errors(point)
    assert set(found) == set(ALLOWED)
    assert {name: error for name, error in found.items() if abs(error) > ALLOWED[name]} == {}


def test_so_are_other_loads_models_and_engine_arguments():
    points = [point for file in sorted(MEASURED.glob("h200-*.json")) for point in points_of(file)]
    gains = gains_of(BoardModel.named("h200"), points)  # boards of one product differ in what they draw
    found = [errors(point, gains.get(point.board, 1.0)) for point in points]
    assert len(found) > 90
    for name, allowed in ALLOWED.items():
        near = [abs(each[name]) <= allowed for each in found if name in each]
        assert sum(near) >= MOST[name] * len(near), name


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
