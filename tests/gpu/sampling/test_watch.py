"""Sampling from a process of its own, on the fake driver library."""

import asyncio
import os
import signal
import time
from itertools import pairwise

import pytest

from pytest_llmperf.errors import EngineError, GpuError
from pytest_llmperf.gpu.energy import Joules, by_counter, by_integral
from pytest_llmperf.gpu.nvml import Nvml
from pytest_llmperf.gpu.sampling import watch
from pytest_llmperf.gpu.sampling.sampler import REASONS
from pytest_llmperf.gpu.sampling.watch import BoardWatch


def sampled(seconds, uuids=None, times=1, **settings):
    with Nvml() as nvml:
        uuids = uuids or [board.uuid for board in nvml.boards()]

    async def run():
        boards = BoardWatch(uuids, **settings)
        try:
            for _ in range(times):
                await boards.begin()
                await asyncio.sleep(seconds)
                samples = await boards.end()
            return samples
        finally:
            boards.close()

    return asyncio.run(run())


def test_every_quantity_of_every_board(fake_nvml):
    fake_nvml.scenario("two-h200", "[boards]\nload = 0.5\n")
    before = time.monotonic_ns()
    samples = sampled(0.6)
    after = time.monotonic_ns()
    assert len({one.uuid for one in samples}) == len(samples) == 2
    for one in samples:
        assert one.power_limit_w == 700
        assert len(one.at_ns) == len(one.power_w) == len(one.sm_clock_mhz) == len(one.reasons) > 5
        assert all(a < b for a, b in pairwise(one.at_ns))
        assert before < one.at_ns[0] < one.at_ns[-1] < after
        assert min(one.power_w) > 70
        assert min(one.sm_clock_mhz) > 300
        assert not any(bits >> REASONS.index("gpu_idle") & 1 for bits in one.reasons)
        assert all(a <= b for a, b in pairwise(one.counter_j))
        assert len(one.slow_at_ns) == len(one.temperature_c) == len(one.memory_used) == len(one.utilization) > 1
        assert one.dram is not None
        assert 0 <= one.dram <= 1
        assert 0 <= one.sm <= 1
        looks = one.activity()
        assert len(looks) > 2
        assert all(end == begin for (_, end, _), (begin, _, _) in pairwise(looks))
        assert before < looks[0][0] < looks[-1][1] < after
        assert all(0 <= share <= 1 for _, _, share in looks)
        assert set(one.throttle_ns.values()) == {0}


@pytest.mark.parametrize("watched", [False, True])
def test_the_memory_clock_is_read_seldom_unless_it_has_to_be_seen_to_hold(fake_nvml, watched):
    fake_nvml.scenario("h200", "[boards]\nload = 0.5\n")
    (one,) = sampled(0.5, memory_clock=watched)
    read = [mhz for mhz in one.memory_clock_mhz if mhz == mhz]
    assert set(read) == {3201}
    assert len(one.memory_clock_mhz) == len(one.at_ns)
    assert len(read) == (len(one.at_ns) if watched else len(one.slow_at_ns))


def test_counter_and_integral_agree(fake_nvml):
    fake_nvml.scenario("h200", "[boards]\nload = 0.5\n")
    (one,) = sampled(1.2)
    start, end = one.at_ns[0], one.at_ns[-1]
    counted = by_counter(one.counter(), start, end)
    assert isinstance(counted, Joules)
    integral = by_integral(one.power(), counted.start_ns, counted.end_ns)
    assert integral.watts == pytest.approx(counted.watts, rel=0.25)


def test_what_a_board_refuses_is_named_once(fake_nvml):
    fake_nvml.scenario("consumer")
    (one,) = sampled(0.2)
    assert one.counter() == []
    assert "energy" in one.refused
    assert one.power()


def test_the_process_serves_again(fake_nvml):
    fake_nvml.scenario("h200")
    (one,) = sampled(0.1, times=3)
    assert one.at_ns


def test_a_board_that_is_not_there(fake_nvml):
    fake_nvml.scenario("h200")
    with pytest.raises(GpuError, match="there is no board GPU-none"):
        sampled(0.1, ["GPU-none"])


@pytest.fixture
def stopped(fake_nvml, monkeypatch):
    """A watch of one board whose process was stopped while it read."""
    fake_nvml.scenario("h200")
    with Nvml() as nvml:
        boards = BoardWatch([board.uuid for board in nvml.boards()])
    boards.begin_blocking()
    monkeypatch.setattr(watch, "ANSWER_S", 0.5)
    (pid,) = {call.pid for call in fake_nvml.calls("nvmlDeviceGetTotalEnergyConsumption")} - {os.getpid()}
    os.kill(pid, signal.SIGSTOP)
    yield boards
    boards.close()
    assert not os.path.exists(f"/proc/{pid}")  # noqa: PTH110


@pytest.mark.parametrize(
    "ask", [BoardWatch.peek_blocking, BoardWatch.end_blocking, lambda boards: asyncio.run(boards.end())]
)
def test_a_process_that_does_not_answer_is_ended_and_replaced(stopped, monkeypatch, ask):
    with pytest.raises(EngineError, match=r"sampler did not answer within 0\.5 s"):
        ask(stopped)
    with pytest.raises(EngineError, match="was ended"):
        ask(stopped)
    monkeypatch.setattr(watch, "ANSWER_S", 30.0)
    stopped.begin_blocking()
    assert stopped.end_blocking()[0].at_ns


@pytest.mark.parametrize("begin", [BoardWatch.begin_blocking, lambda boards: asyncio.run(boards.begin())])
def test_a_driver_call_that_does_not_return_ends_the_beginning(fake_nvml, monkeypatch, begin):
    fake_nvml.scenario("h200", "[boards]\nlatency.nvmlDeviceGetTotalEnergyConsumption_ms = 60000\n")
    with Nvml() as nvml:
        boards = BoardWatch([board.uuid for board in nvml.boards()])
    monkeypatch.setattr(watch, "ANSWER_S", 3.0)
    try:
        with pytest.raises(EngineError, match="did not answer within 3 s"):
            begin(boards)
    finally:
        boards.close()
