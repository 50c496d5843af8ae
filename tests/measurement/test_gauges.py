"""Measurements without a workload: what they come to, what gates them, and what they hold for."""

from types import SimpleNamespace

import pytest

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy.idle import BoardIdle, Floor, IdlePower
from pytest_llmperf.measurement import HardwareMeasurement, IdleMeasurement
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.runner import Launch

REAL, SIMULATED = (SimpleNamespace(simulated=simulated) for simulated in (False, True))


def launch(info=REAL, **fields):
    return Launch(0, info, (), **fields)


def watts(*values):
    return IdlePower({f"GPU-{n}": BoardIdle(value, 0.1, "counter") for n, value in enumerate(values)})


def floor(bare=20.0, context=40.0, loaded=50.0, locked=None, uuids=("GPU-0",)):
    rungs = [one if isinstance(one, Unreadable) else watts(one, 1000.0) for one in (bare, context, loaded)]
    return Floor(uuids, *rungs, Unreadable("no clock is held") if locked is None else watts(locked, 1000.0))


def idle(*floors, invalid=None):
    measurement = IdleMeasurement("test")
    for one in floors:
        measurement.add(one, launch(invalid=invalid), 2.5)
    return measurement


def test_the_engines_boards_are_summed_and_the_launches_kept():
    found = idle(floor(bare=20.0), floor(bare=24.0), floor(bare=21.0)).summaries()
    assert found["bare_power"].launches == ((20.0,), (24.0,), (21.0,))
    assert found["bare_power"].value == 21
    assert found["bare_power"].percentiles["p50"] == 21
    assert (found["locked_power"].value, found["locked_power"].reason) == (None, "no clock is held")
    assert idle(floor(uuids=("GPU-0", "GPU-1"))).summaries()["loaded_power"].value == 1050


def test_a_launch_without_a_rung_leaves_the_test_without_it():
    found = idle(floor(), floor(context=Unreadable("no libcuda"))).summaries()
    assert (found["context_power"].value, found["context_power"].reason) == (None, "no libcuda")
    assert found["bare_power"].value == 20


def test_an_idle_measurement_holds_for_its_boards_and_sends_nothing():
    measurement = idle(floor(uuids=("GPU-1", "GPU-0")), floor(), invalid="bare: PID 1")
    assert measurement.boards == "GPU-0+GPU-1"
    assert measurement.invalid == "bare: PID 1"
    assert measurement.workload is measurement.slo is None
    assert (measurement.work, measurement.windows()) == ({}, [])
    assert measurement.wall_seconds() == [2.5, 2.5]
    assert measurement.digest != HardwareMeasurement("test").digest


def test_what_gates_them():
    assert idle().gated({"tpot": 0.05}) == dict.fromkeys(
        ("bare_power", "context_power", "loaded_power", "locked_power"), 0.10
    )
    assert idle().gated({"bare_power": 0.02}, 0.3)["bare_power"] == 0.02
    assert idle().gated({}, 0.3)["loaded_power"] == 0.3
    assert set(HardwareMeasurement("test").gated({}).values()) == {0.05}
    assert set(HardwareMeasurement("test").gated({}, 0.3).values()) == {0.3}
    assert HardwareMeasurement("test", processor=True).gated({"tpot": 0.05}, 0.5) == {}
    assert HardwareMeasurement("test", processor=True).gated({"copy_bandwidth": 0.2}) == {"copy_bandwidth": 0.2}


def device(copy=4e12, down=50e9, up=40e9, peers=None, flops=None):
    flops = {"float16": 7e14, "bfloat16": 8e14} if flops is None else flops
    return DevicePeaks("NVIDIA H200", copy, down, up, peers or {}, flops)


def hardware(*found, processor=False, info=REAL):
    measurement = HardwareMeasurement("test", processor)
    measurement.add(found, launch(info), 1.0)
    return {name: one.value if one.reason is None else one.reason for name, one in measurement.summaries().items()}


def test_of_several_devices_the_slowest_counts():
    slow = device(3.9e12, 45e9, 41e9, {"0": 1e11}, {"float16": 6e14, "bfloat16": 9e14})
    assert hardware(device(peers={"1": 3e11}), slow) == {
        "copy_bandwidth": 3.9e12,
        "host_to_device": 45e9,
        "device_to_host": 40e9,
        "peer_to_peer": 1e11,
        "matmul_flops": 8e14,
    }


def test_a_dtype_that_one_of_them_lacks_is_not_compared():
    assert hardware(device(), device(flops={"float16": 6e14}))["matmul_flops"] == 6e14


def test_what_a_device_does_not_have_is_missing_with_its_reason():
    one = hardware(device())
    assert one["peer_to_peer"] == "there is one device only"
    assert hardware(device(), device())["peer_to_peer"] == "no device reaches another"
    processor = hardware(DevicePeaks("a CPU", 4e10), processor=True)
    assert processor["copy_bandwidth"] == 4e10
    assert processor["host_to_device"] == "a processor's memory is the host's own"
    assert processor["matmul_flops"] == "matrix products are measured on GPUs only"
    simulated = hardware(device(down=None, up=None), info=SIMULATED)
    assert simulated["device_to_host"] == "the link to the host is not simulated"


def test_nothing_measured_is_no_value():
    assert HardwareMeasurement("test", processor=True).summaries()["copy_bandwidth"].reason == "nothing was measured"
    assert idle().summaries()["bare_power"].reason == "nothing was measured"


@pytest.mark.parametrize("measurement", [IdleMeasurement("test"), HardwareMeasurement("test")])
def test_its_record_has_no_requests(measurement):
    assert measurement.record() == {"requests": None, "conditions": {}}
