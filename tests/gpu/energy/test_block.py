"""Energy of a block of code, on the fake driver library."""

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from pytest_llmperf.errors import OptionError
from pytest_llmperf.gpu import Board, MigInstance
from pytest_llmperf.gpu.energy.block import PowerWindow, SharedWatch
from pytest_llmperf.gpu.nvml import Nvml

FLAT = "[boards]\npower = 200\n"


def boards() -> tuple[Board, ...]:
    with Nvml() as nvml:
        return tuple(nvml.boards())


@pytest.fixture
def window(fake_nvml):
    """Makes windows; a board of the V100's kind settles soonest."""
    fake_nvml.scenario("v100", FLAT)
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    yield lambda: PowerWindow(watch)
    watch.close()


def running(fake_nvml) -> set[int]:
    """The processes that read power and still live."""
    pids = {call.pid for call in fake_nvml.calls("nvmlDeviceGetPowerUsage")} - {os.getpid()}
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}  # noqa: PTH110


def test_a_block(window):
    with window() as p:
        assert (p.energy_j, p.reason) == (None, "the block has not ended yet")
        time.sleep(0.4)
    assert p.reason is None
    assert p.energy_j == pytest.approx(200 * p.seconds, rel=0.03)
    assert p.power_w == pytest.approx(200, rel=0.03)
    assert 0 < p.error_j < 0.04 * p.energy_j
    assert (p.source, p.warnings) == ("counter", ())
    ((uuid, board),) = p.boards.items()
    assert board.energy_j == p.energy_j
    assert board.integral_j == pytest.approx(200 * p.seconds, rel=0.03)
    assert [one.uuid for one in p.samples] == [uuid]
    assert p.samples[0].power()


def test_boards_are_added(fake_nvml):
    fake_nvml.scenario("two-h200", "[board 0]\npower = 200\n[board 1]\npower = 300\n")
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.6)
    finally:
        watch.close()
    assert [round(board.power_w, -1) for board in p.boards.values()] == [200, 300]
    assert p.power_w == pytest.approx(500, rel=0.03)
    assert p.energy_j == pytest.approx(sum(board.energy_j for board in p.boards.values()))


def test_windows_within_windows_and_after_each_other(window):
    with window() as outer:
        time.sleep(0.2)
        with window() as inner:
            time.sleep(0.3)
        time.sleep(0.2)
    with window() as later:
        time.sleep(0.3)
    for one in (outer, inner, later):
        assert one.power_w == pytest.approx(200, rel=0.05), one.reason
    assert outer.seconds > inner.seconds + 0.4
    assert outer.energy_j > inner.energy_j + 0.4 * 190


def test_a_window_measures_one_block(window, fake_nvml):
    again = pytest.raises(OptionError, match=r"entered twice.* Ask power_sampler\(\) for another")

    async def enter(p):
        async with p:
            raise AssertionError("it was entered")

    with window() as p:
        time.sleep(0.2)
        with again, p:
            raise AssertionError("it was entered")
        with again:
            asyncio.run(enter(p))
        time.sleep(0.2)
    assert p.power_w == pytest.approx(200, rel=0.05)
    assert p.seconds > 0.4
    before = p.energy_j
    with again, p:
        raise AssertionError("it was entered")
    assert p.energy_j == before
    with window() as later:
        time.sleep(0.3)
    assert later.samples[0].at_ns[0] > p.samples[0].at_ns[-1]  # nothing was left open


def test_windows_in_threads(window, fake_nvml):
    found = []

    def measure(seconds):
        with window() as p:
            time.sleep(seconds)
        found.append(p)

    threads = [threading.Thread(target=measure, args=(0.3 + n / 10,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for one in found:
        assert one.power_w == pytest.approx(200, rel=0.05), one.reason
    assert len(running(fake_nvml)) == 1


def test_within_an_event_loop(window):
    async def run():
        with window() as blocking:
            await asyncio.sleep(0.3)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        async with window() as p:
            await asyncio.sleep(0.3)
        ticking.cancel()
        return blocking, p, ticks

    blocking, p, ticks = asyncio.run(run())
    assert blocking.power_w == pytest.approx(200, rel=0.05)
    assert p.power_w == pytest.approx(200, rel=0.05)
    assert ticks > 5


def test_an_exception_ends_the_sampling(window):
    p = window()
    with pytest.raises(ZeroDivisionError), p:
        time.sleep(0.3 / (time.sleep(0.3) is not None))
    assert p.power_w == pytest.approx(200, rel=0.05)
    before = p.samples[0].at_ns[-1]
    with window() as later:
        time.sleep(0.3)
    assert later.samples[0].at_ns[0] > before  # sampled anew: the first had ended


def test_too_short_a_block_has_a_reason(window):
    with window() as p:
        pass
    assert (p.energy_j, p.power_w, p.error_j, p.source) == (None, None, None, None)
    assert "too short" in p.reason
    assert p.seconds < 0.1


def test_a_board_that_counts_nothing(fake_nvml):
    fake_nvml.scenario("consumer", "[boards]\npower = 150\n")
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.5)
    finally:
        watch.close()
    assert (p.source, p.power_w) == ("integral", pytest.approx(150, rel=0.03))
    assert any("no energy counter" in warning for warning in p.warnings)


def test_a_mean_over_a_second_is_no_power(fake_nvml):
    """Ampere and newer without the instantaneous field: half a second after a step says nothing of it."""
    fake_nvml.scenario(
        "h100", "[boards]\npower = 80 100.5:400\nenergy = NOT_SUPPORTED\npower_instant = NOT_SUPPORTED\n"
    )
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.5)
    finally:
        watch.close()
    assert p.energy_j is None
    assert "energy counter" in p.reason
    assert "instantaneous power" in p.reason


def test_sensors_that_disagree_are_told(fake_nvml):
    fake_nvml.scenario("v100", f"{FLAT}energy_gain = 1.2\n")
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.6)
    finally:
        watch.close()
    assert p.power_w == pytest.approx(240, rel=0.03)
    (warning,) = p.warnings
    assert "disagree by -1" in warning


def test_a_counter_beyond_what_the_board_can_draw_is_told(fake_nvml):
    fake_nvml.scenario("v100", f"{FLAT}energy_gain = 1000\n")
    fake_nvml.begin(100)
    watch = SharedWatch(boards)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.6)
    finally:
        watch.close()
    assert p.energy_j is None
    assert p.reason == "the energy counter says 2e+05 W, and the board's limit is 300 W"
    (board,) = p.boards.values()
    assert board.integral_j == pytest.approx(200 * p.seconds, rel=0.03)


def test_without_a_board_there_is_a_reason():
    watch = SharedWatch(lambda: ())
    with PowerWindow(watch) as p:
        pass
    assert (p.energy_j, p.boards, p.samples) == (None, {}, ())
    assert "there is no GPU" in p.reason
    assert p.seconds is not None


def test_a_simulated_board_is_none():
    simulated = Board(0, "NVIDIA H200", "SIM-0", "none", None, None, simulated=True)
    with PowerWindow(SharedWatch(lambda: [simulated])) as p:
        pass
    assert "simulated" in p.reason


def test_two_instances_of_one_board_are_one_board(fake_nvml):
    fake_nvml.scenario("v100", FLAT)
    fake_nvml.begin(100)
    (board,) = boards()
    parts = [replace(board, mig=MigInstance(f"MIG-{n}")) for n in range(2)]
    watch = SharedWatch(lambda: parts)
    try:
        with PowerWindow(watch) as p:
            time.sleep(0.4)
    finally:
        watch.close()
    assert p.power_w == pytest.approx(200, rel=0.05)
    assert any("whole board" in warning for warning in p.warnings)


def test_a_sampling_process_that_dies_is_a_reason_and_is_replaced(window, fake_nvml):
    with window() as p, window() as inner:
        time.sleep(0.1)
        (pid,) = running(fake_nvml)
        os.kill(pid, signal.SIGKILL)
    assert "killed by signal 9" in inner.reason
    assert p.energy_j is None
    assert "ended before the block did" in p.reason
    with window() as again:
        time.sleep(0.3)
    assert again.power_w == pytest.approx(200, rel=0.05)


def test_a_sampling_process_that_hangs_is_a_reason(window, fake_nvml, monkeypatch):
    with window() as p, window() as inner:
        time.sleep(0.1)
        (pid,) = running(fake_nvml)
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr("pytest_llmperf.gpu.sampling.watch.ANSWER_S", 0.5)
    monkeypatch.setattr("pytest_llmperf.gpu.sampling.watch.ANSWER_S", 30.0)
    assert "did not answer within 0.5 s" in inner.reason
    assert "ended before the block did" in p.reason
    with window() as again:
        time.sleep(0.3)
    assert again.power_w == pytest.approx(200, rel=0.05)


def test_a_board_that_is_gone_is_a_reason(fake_nvml):
    fake_nvml.scenario("v100", FLAT)
    (board,) = boards()
    gone = Board(0, board.name, "GPU-gone", board.driver, None, None)
    watch = SharedWatch(lambda: [gone])
    try:
        with PowerWindow(watch) as p:
            pass
    finally:
        watch.close()
    assert "there is no board GPU-gone" in p.reason
