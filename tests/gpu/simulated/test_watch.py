"""What a watch reads afterwards is what would have been read in time."""

import asyncio
from itertools import pairwise

import pytest

from pytest_llmperf.clock import NS_PER_S, VirtualClock
from pytest_llmperf.gpu.energy import by_counter, by_integral
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.gpu.simulated import SimulatedDevice, SimulatedWatch
from pytest_llmperf.simulation.steps import Pace
from tests.simulation.round_numbers import round_board

MS = 1_000_000


def measured(product="h200", live=None, steps=200, before=50):
    """A board that works in steps of varying weight; its samples from begin to end, the device, and the span."""
    device = SimulatedDevice(round_board(product))
    clock = VirtualClock()
    seen = []

    async def engine(number):
        for step in range(number):
            pace = Pace((4 + step % 5) / 1000, 0.3 + (step % 7) / 20, (step % 3) / 10)
            await clock.sleep_until(device.run(clock.now(), lambda *_, pace=pace: pace))

    async def look(begin):
        number = 0
        while True:
            await clock.sleep_until(begin + number * 10 * MS)
            seen.append((clock.now(), device.power_w(), device.sm_clock_mhz()))
            number += 1

    async def work():
        device.attach(clock.now)
        device.load(10**9)
        watch = SimulatedWatch([device])
        await engine(before)
        await watch.begin()
        begin = clock.now()
        looking = asyncio.ensure_future(look(begin)) if live else None
        await engine(steps)
        end = clock.now()
        if looking is not None:
            looking.cancel()
        (samples,) = await watch.end()
        return samples, begin, end

    with clock.runner() as runner:
        samples, begin, end = runner.run(work())
    return samples, device, begin, end, seen


def test_every_quantity():
    samples, _, begin, end, _ = measured()
    assert samples.uuid == "GPU-sim-h200-0"
    lengths = {len(v) for v in (samples.at_ns, samples.power_w, samples.sm_clock_mhz, samples.reasons)}
    assert len(lengths) == 1
    assert {b - a for a, b in pairwise(samples.at_ns[:-1])} == {10 * MS}
    assert len(samples.counter_at_ns) == len(samples.counter_j)
    assert all(a < b for a, b in pairwise(samples.counter_at_ns))
    assert all(a <= b for a, b in pairwise(samples.counter_j))
    assert len(samples.slow_at_ns) == len(samples.temperature_c) == len(samples.memory_used) > 2
    busy = [bits for at, bits in zip(samples.at_ns, samples.reasons, strict=True) if begin <= at < end]
    assert not any(bits >> REASONS.index("gpu_idle") & 1 for bits in busy)
    assert samples.at_ns[0] == begin - 200 * MS
    assert samples.at_ns[-1] > end + 100 * MS
    assert 0 < samples.dram < 0.7
    assert samples.sm == pytest.approx(1)
    looks = samples.activity()
    assert (looks[0][0], looks[-1][1]) == (samples.at_ns[0], samples.at_ns[-1])
    assert all(end == start for (_, end, _), (start, _, _) in pairwise(looks))
    within = [share for start, stop, share in looks if begin <= start and stop <= end]
    assert within == pytest.approx([1] * len(within))
    assert looks[-1][2] < 1  # it ended meanwhile
    assert samples.refused == {}
    capped = samples.throttle_ns.pop("sw_power_cap")
    assert 0 <= capped <= end - begin
    assert set(samples.throttle_ns.values()) == {0}


def test_reading_late_is_reading_in_time():
    samples, *_, seen = measured(live=True)
    read = dict(zip(samples.at_ns, zip(samples.power_w, samples.sm_clock_mhz, strict=True), strict=True))
    assert len(seen) > 50
    assert {at: (power, clock) for at, power, clock in seen} == {at: read[at] for at, *_ in seen}


@pytest.mark.parametrize("product", ["v100", "h200"])
def test_counter_and_integral_agree_with_the_truth(product):
    samples, device, begin, end, _ = measured(product)
    counted = by_counter(samples.counter(), begin, end)
    inside = device.timeline.inside
    truth = device.history.mean("watts", inside(counted.start_ns), inside(counted.end_ns))
    # A step lies within 2 ms.
    assert counted.watts == pytest.approx(truth, rel=0.004 / counted.seconds)
    assert counted.seconds > (end - begin) / NS_PER_S - 0.21
    integral = by_integral(samples.power(), counted.start_ns, counted.end_ns)
    assert integral.watts == pytest.approx(truth, rel=0.1)


def test_it_is_the_same_each_time_and_again():
    assert measured()[0] == measured()[0]


def test_it_begins_alike_whatever_was_before():
    first, *_ = measured(before=50)
    other, *_ = measured(before=321)

    def shifted(samples):
        return [at - samples.at_ns[0] for at in samples.at_ns], samples.power_w, samples.temperature_c[1:]

    assert shifted(first) == shifted(other)


def test_it_disturbs_nothing():
    assert measured()[2:4] == measured(live=True)[2:4]


def test_it_serves_again_and_over_the_opening_of_an_engine():
    device = SimulatedDevice(round_board())
    watch = SimulatedWatch([device])
    assert watch.uuids == ("GPU-sim-h200-0",)

    async def twice():
        await watch.begin()
        device.wait(1)
        idle = await watch.end()
        await watch.begin()
        device.wait(0.5)
        device.attach(lambda: 0)
        return idle, await watch.end()

    # On this loop nothing is waited for: it is not the engine's.
    (idle,), (over,) = asyncio.run(twice())
    assert isinstance(idle, BoardSamples)
    assert set(idle.power_w) == {80, 80.001}
    assert over.at_ns[-1] == 0
    # Half a second, two steps of the counter before it, and up to the next whole second of the board's life.
    assert over.at_ns[0] == pytest.approx(-1.2e9, abs=1)
    watch.close()


def test_performance_counters_only_where_the_product_has_them():
    samples = measured("v100")[0]
    assert (samples.dram, samples.tensor, samples.sm) == (None, None, None)
    assert "none that NVML reads" in samples.refused["activity"]


@pytest.mark.parametrize(("key", "apart_ms"), [("h200", 50), ("v100", 10)])
def test_a_span_of_many_minutes_is_read_less_often_but_twice_an_update(key, apart_ms):
    device, clock = SimulatedDevice(key), VirtualClock()

    async def work():
        device.attach(clock.now)
        watch = SimulatedWatch([device])
        await watch.begin()
        await clock.sleep_until(clock.now() + 2000 * NS_PER_S)
        return (await watch.end())[0]

    with clock.runner() as runner:
        samples = runner.run(work())
    assert {b - a for a, b in pairwise(samples.at_ns[:-1])} == {apart_ms * MS}


def test_a_span_of_hours_is_read_near_its_ends_and_now_and_then():
    device, clock = SimulatedDevice("h200"), VirtualClock()

    async def work():
        device.attach(clock.now)
        watch = SimulatedWatch([device])
        await watch.begin()
        begun = clock.now()
        await clock.sleep_until(begun + 9000 * NS_PER_S)
        ended = clock.now()
        return (await watch.end())[0], begun, ended

    with clock.runner() as runner:
        samples, begun, ended = runner.run(work())
    assert len(samples.counter_at_ns) < 25_000  # of 180,000 looks
    energy = by_counter(samples.counter(), begun, ended)
    assert energy.watts == pytest.approx(device.product.model.power.idle_w, rel=1e-6)
