"""What every device keeps, real or simulated: the same questions to an NVML device on the fake library and to ours."""

import pytest

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu import THROTTLE_CAUSES, Activity, ActivityMeter, Board, Unreadable, Utilization
from pytest_llmperf.gpu.clocks import ClockLock, common_clocks, snap
from pytest_llmperf.gpu.clocks.control import DeviceControl
from pytest_llmperf.gpu.nvml import Nvml
from pytest_llmperf.gpu.simulated import SimulatedDevice

NAMES = {"v100": "Tesla V100-SXM2-32GB", "h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}


@pytest.fixture(params=[f"{kind}-{product}" for kind in ("nvml", "simulated") for product in NAMES])
def named(request):
    kind, product = request.param.split("-")
    if kind == "simulated":
        yield product, SimulatedDevice(product)
        return
    request.getfixturevalue("fake_nvml").scenario(product)
    with Nvml() as nvml:
        yield product, nvml.device(nvml.boards()[0])


@pytest.fixture
def device(named):
    return named[1]


def test_it_says_what_it_is(named):
    product, device = named
    board = device.board
    assert isinstance(board, Board)
    assert board.name == NAMES[product]
    assert board.uuid.startswith("GPU-")
    assert board.power_limit_w == {"v100": 300, "h100": 700, "h200": 700}[product]
    assert board.memory_bytes == {"v100": 32768, "h100": 81559, "h200": 143771}[product] * 2**20
    assert board.compute_capability == ((7, 0) if product == "v100" else (9, 0))
    assert board.max_sm_clock_mhz == device.supported_sm_clocks_mhz()[-1] == (1530 if product == "v100" else 1980)
    assert board.simulated == ("sim" in board.uuid)


def test_readings_are_of_their_kind_and_possible(device):
    board = device.board
    first = device.energy_j()
    assert isinstance(first, float)
    assert 0 < first <= device.energy_j()
    assert 0 < device.power_w() <= board.power_limit_w
    assert isinstance(device.temperature_c(), int)
    assert 0 < device.temperature_c() < device.slowdown_temperature_c()
    assert isinstance(device.utilization(), Utilization)
    assert 0 <= device.utilization().gpu <= 1
    assert 0 <= device.utilization().memory <= 1
    assert 0 <= device.memory_used_bytes() < board.memory_bytes
    assert device.processes() == ()
    assert device.persistent() is True
    assert set(device.throttle_ns()) == set(THROTTLE_CAUSES)
    assert set(device.throttle_ns().values()) == {0}
    assert isinstance(device.memory_clock_mhz(), int)


def test_an_idle_board_says_so_at_its_idle_power(named):
    product, device = named
    assert device.clock_reasons() == {"gpu_idle"}
    assert device.sm_clock_mhz() < device.board.max_sm_clock_mhz / 2
    assert device.power_w() == pytest.approx({"v100": 23, "h100": 70, "h200": 79}[product], abs=2)


def test_clocks_are_ascending_and_900_is_among_them(device):
    for clocks in (device.supported_sm_clocks_mhz(), device.supported_memory_clocks_mhz()):
        assert isinstance(clocks, tuple)
        assert list(clocks) == sorted(set(clocks))
    assert 900 in device.supported_sm_clocks_mhz()
    assert snap(903, common_clocks([device])) == 900


def test_a_lock_holds_until_it_is_undone(device):
    free = device.sm_clock_mhz()
    device.lock_sm_clock(900)
    assert device.sm_clock_mhz() == 900
    device.lock_sm_clock(1200)
    assert device.sm_clock_mhz() == 1200
    device.unlock_sm_clock()
    device.unlock_sm_clock()
    assert device.sm_clock_mhz() == free


def test_a_memory_clock_is_locked_where_there_is_a_choice(named):
    product, device = named
    if product == "v100":
        with pytest.raises(GpuError):
            device.lock_memory_clock(877)
        return
    free = device.memory_clock_mhz()
    device.lock_memory_clock(1593)
    assert device.memory_clock_mhz() == 1593
    device.unlock_memory_clock()
    assert device.memory_clock_mhz() == free == device.supported_memory_clocks_mhz()[-1]


def test_blocks_of_a_clock_lock_nest(device):
    lock = ClockLock([device], controls=[DeviceControl({device.board.uuid: device})], guarded=False)
    free = device.sm_clock_mhz()
    with lock.hold(1200):
        with lock.hold(900):
            assert device.sm_clock_mhz() == 900
        assert device.sm_clock_mhz() == 1200
    assert device.sm_clock_mhz() == free


def test_performance_counters_from_hopper_on(named):
    product, device = named
    meter = device.activity_meter()
    if product == "v100":
        assert isinstance(meter, Unreadable)
        assert "GPM" in meter.reason
        return
    reader: ActivityMeter = meter
    activity = reader.read()
    assert isinstance(activity, Activity)
    assert all(0 <= share <= 1 for share in (activity.sm, activity.tensor, activity.dram))
    reader.close()
    reader.close()
    assert isinstance(reader.read(), Unreadable)
