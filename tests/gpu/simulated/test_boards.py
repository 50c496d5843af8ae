"""Several simulated boards: made on demand, of one time and one clock, each doing its share of an engine's steps."""

import asyncio

import pytest

from pytest_llmperf.clock import NS_PER_S, VirtualClock
from pytest_llmperf.errors import EngineError, GpuError
from pytest_llmperf.gpu.clocks import ClockLock
from pytest_llmperf.gpu.energy import by_counter
from pytest_llmperf.gpu.simulated import SimulatedBoards, SimulatedWatch
from pytest_llmperf.simulation.steps import Pace

MS = 1_000_000


def decode(*_clocks):
    return Pace(0.005, 0.6, 0.02)


def lock(boards):
    return ClockLock(boards.devices[:1], controls=[boards], guarded=False)


def clocks(boards):
    return [device.sm_clock_mhz() for device in boards.devices]


class TestHowMany:
    def test_one_at_first_and_as_many_as_are_asked_for(self):
        boards = SimulatedBoards("h200")
        seen = [len(boards.devices)]
        for count in (2, 1, 8):
            boards.group(count)
            seen.append(len(boards.devices))
        assert seen == [1, 2, 2, 8]
        told = [(device.board.index, device.board.uuid) for device in boards.devices]
        assert told == [(number, f"GPU-sim-h200-{number}") for number in range(8)]
        assert len({device.board.name for device in boards.devices}) == 1

    def test_no_more_than_a_server_has(self):
        boards = SimulatedBoards("h200")
        with pytest.raises(EngineError, match=r"(?s)has 8 GPUs, and 9 are asked for.*tensor_parallel_size"):
            boards.group(9)
        assert len(boards.devices) == 1


class TestClocks:
    def test_one_lock_holds_all_of_them_and_those_that_come(self):
        boards = SimulatedBoards("h200")
        boards.group(2)
        with lock(boards).hold(900):
            boards.group(3)
            assert clocks(boards) == [900] * 3
        assert clocks(boards) == [345] * 3
        boards.group(4)
        assert clocks(boards) == [345] * 4

    def test_what_comes_has_the_clock_of_the_inner_block_and_then_the_outer_ones(self):
        boards = SimulatedBoards("h200")
        holder = lock(boards)
        with holder.hold(1200, 2619):
            with holder.hold(900, 2619):
                boards.group(2)
                assert clocks(boards) == [900] * 2
            assert clocks(boards) == [1200] * 2
            with holder.free():
                boards.group(3)
                assert clocks(boards) == [345] * 3
            assert clocks(boards) == [1200] * 3
            assert {device.memory_clock_mhz() for device in boards.devices} == {2619}
        assert {device.memory_clock_mhz() for device in boards.devices} == {3201}

    def test_a_refused_memory_clock_leaves_nothing_locked(self):
        boards = SimulatedBoards("v100")
        boards.group(2)
        with pytest.raises(GpuError, match="memory clock"), lock(boards).hold(900, 877):
            pass
        assert clocks(boards) == [135, 135]


class TestSteps:
    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_each_board_that_works_does_its_share_and_the_others_rest(self, count):
        boards, now = SimulatedBoards("h200"), [0]
        boards.group(4)
        group = boards.group(count)
        group.attach(lambda: now[0], power_scale=1.0)
        group.load(10**9)
        for _ in range(200):
            now[0] = group.run(now[0], decode)
        assert now[0] == NS_PER_S
        working, resting = boards.devices[:count], boards.devices[count:]
        assert len({device.power_w() for device in working}) == 1
        assert {device.utilization().gpu for device in working} == {1.0}
        assert {device.utilization().gpu for device in resting} <= {0.0}
        assert {device.power_w() for device in resting} <= {SimulatedBoards("h200").devices[0].power_w()}
        assert all(device.memory_used_bytes() > 10**9 for device in working)
        assert all(device.memory_used_bytes() < 10**9 for device in resting)
        assert {device.now() for device in boards.devices} == {NS_PER_S}

    def test_the_last_board_to_end_a_step_counts(self):
        boards = SimulatedBoards("h200")
        group = boards.group(2)
        group.attach(lambda: 0, power_scale=1.0)
        group.load(1)
        boards.devices[1].lock_sm_clock(990)
        assert group.run(0, lambda sm, _: Pace(0.005 * 1980 / sm, 0.1, 0.1)) == 10 * MS

    def test_what_is_abandoned_is_abandoned_on_all(self):
        boards, now = SimulatedBoards("h200"), [0]
        group = boards.group(2)
        group.attach(lambda: now[0], power_scale=1.0)
        group.load(1)
        group.run(0, lambda *_: Pace(10.0, 0.5, 0.1))
        now[0] = NS_PER_S
        group.abandon()
        now[0] = 2 * NS_PER_S
        assert {device.utilization().gpu for device in boards.devices} == {0.0}
        assert group.run(now[0], decode) == now[0] + 5 * MS

    def test_all_are_free_when_the_engine_has_closed_and_serve_another(self):
        boards = SimulatedBoards("h200")
        readings = []
        for _ in range(2):
            now = [0]
            group = boards.group(2)
            group.attach(lambda now=now: now[0], power_scale=1.0)
            group.load(10**9)
            for _ in range(100):
                now[0] = group.run(now[0], decode)
            readings.append([device.power_w() for device in boards.devices])
            group.unload()
            group.detach()
            boards.wait(0.7)
            assert len({device.memory_used_bytes() for device in boards.devices}) == 1
        assert readings[0] == readings[1]


def test_a_watch_reads_all_boards_over_one_span():
    boards, clock = SimulatedBoards("h200"), VirtualClock()
    group = boards.group(3)
    working = boards.group(2)
    assert group is not working

    async def engine(steps):
        for _ in range(steps):
            await clock.sleep_until(working.run(clock.now(), decode))

    async def measure():
        working.attach(clock.now, power_scale=1.0)
        working.load(10**9)
        await engine(3)
        watch = SimulatedWatch(boards.devices)
        before = clock.now()
        await watch.begin()
        assert clock.now() - before <= 3 * NS_PER_S  # as long as for one board
        begin = clock.now()
        await engine(400)
        end = clock.now()
        return begin, end, await watch.end()

    with clock.runner() as runner:
        begin, end, samples = runner.run(measure())
    assert [one.uuid for one in samples] == [device.board.uuid for device in boards.devices]
    energy = [by_counter(one.counter(), begin, end).watts for one in samples]
    assert energy[0] == energy[1] > 3 * energy[2]
    assert len({tuple(one.at_ns) for one in samples}) == 1


def test_their_own_time_passes_for_all_of_them():
    boards = SimulatedBoards("h200")
    boards.group(3)
    before = [device.timeline.now() for device in boards.devices]

    async def sleep():
        await boards.sleep_until(boards.now() + NS_PER_S)

    asyncio.run(sleep())
    boards.wait(0.5)
    passed = [device.timeline.now() - was for device, was in zip(boards.devices, before, strict=True)]
    assert passed == [1.5 * NS_PER_S] * 3
