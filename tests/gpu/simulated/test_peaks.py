"""What a measurement of its peaks would come to on a simulated board: by its parameters, at the clock in force."""

import pytest

from pytest_llmperf.gpu.clocks import ClockLock
from pytest_llmperf.gpu.simulated import SimulatedBoards
from pytest_llmperf.simulation.board import BOARDS, BoardModel


@pytest.mark.parametrize("key", BOARDS)
def test_what_a_board_runs_at_freely(key):
    (found,) = SimulatedBoards(key).peaks()
    model = BoardModel.named(key)
    assert found.device == model.product.name
    assert found.copy_bandwidth == model.memory.copy_bandwidth <= model.hardware.peak_bandwidth
    assert found.matmul_flops["float16"] == model.compute.matmul_share * model.hardware.flops["float16"]
    assert ("bfloat16" in found.matmul_flops) == ("bfloat16" in model.hardware.flops)
    assert (found.host_to_device, found.device_to_host, found.peer_to_peer) == (None, None, {})
    assert "simulated" in found.method


def test_the_machine_balance_of_the_v100_is_173():
    (found,) = SimulatedBoards("v100").peaks()
    assert BoardModel.named("v100").hardware.peak_flops("float16") / found.copy_bandwidth == pytest.approx(173, abs=0.2)


def test_a_lower_clock_takes_from_products_and_below_the_knee_from_copies():
    boards = SimulatedBoards("v100")
    (free,) = boards.peaks()
    found = {}
    for mhz in (1200, 900, 750):
        with ClockLock(boards.devices[:1], controls=[boards], guarded=False).hold(mhz):
            (found[mhz],) = boards.peaks()
    for mhz, peaks in found.items():
        assert peaks.matmul_flops["float16"] == pytest.approx(free.matmul_flops["float16"] * mhz / 1530)
        assert f"at {mhz} MHz" in peaks.method
    assert found[1200].copy_bandwidth == found[900].copy_bandwidth == free.copy_bandwidth
    assert found[750].copy_bandwidth == pytest.approx(free.copy_bandwidth * 750 / 900)
    assert boards.peaks() == [free]


def test_every_board_reaches_every_other():
    boards = SimulatedBoards("h200")
    boards.grow(3)
    found = boards.peaks()
    bandwidth = BoardModel.named("h200").links.bandwidth
    assert [sorted(one.peer_to_peer) for one in found] == [["1", "2"], ["0", "2"], ["0", "1"]]
    assert {rate for one in found for rate in one.peer_to_peer.values()} == {bandwidth}
