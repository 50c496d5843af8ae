"""The fake driver library as pynvml sees it.

Times of a scenario count from a stamp that a test may put into the past: with a counter that ticks once a minute and
a beginning 90 s ago, all that is read is what was true at 60 s.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pynvml
import pytest

from tests.fake_nvml import build
from tests.fake_nvml.busy import busy_while
from tests.fake_nvml.fixture import SCENARIOS

MINUTE = "energy_period_ms = 60000\npower_period_ms = 60000\nnoise_w = 0\nenergy_start_j = 0\n"


def plain(keys: str = "", *, boards: int = 1, system: str = "") -> str:
    """A scenario of boards that draw 100 W when idle, 500 W at full load, and tick once a minute."""
    board = f"idle_w = 100\ndynamic_w = 400\nsm_clocks = 300:1500:100\nmemory_clocks = 2000 1000\n{MINUTE}{keys}\n"
    return f"[system]\n{system}\n" + "\n".join(f"[board {index}]\n{board}" for index in range(boards))


def ask(fake, code, **environment):
    """What a process of its own prints as JSON when it runs the code with an initialised ``n`` and the handle ``h``."""
    start = "import json, os, sys, time\nimport pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"
    show = "\ndef show(value): print(json.dumps(value))\n"
    done = fake.python(start + show + textwrap.dedent(code), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null")


def handle(index=0):
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def fields(board, *ids):
    """The fields' values, or the name of the code that each carries."""
    return [
        value.value.ullVal
        if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        else value.value.uiVal
        if value.nvmlReturn == pynvml.NVML_SUCCESS
        else value.nvmlReturn
        for value in pynvml.nvmlDeviceGetFieldValues(board, list(ids))
    ]


# ---- processes, and this one


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.ini")), ids=lambda path: path.stem)
def test_every_shipped_scenario_answers(fake_nvml, path):
    fake_nvml.scenario(path.stem)
    name, total, clocks, milliwatts = ask(
        fake_nvml,
        """
        memory = n.nvmlDeviceGetMemoryInfo(h)
        clocks = n.nvmlDeviceGetSupportedGraphicsClocks(h, n.nvmlDeviceGetSupportedMemoryClocks(h)[0])
        show([n.nvmlDeviceGetName(h), memory.total, clocks, n.nvmlDeviceGetPowerUsage(h)])
        """,
    )
    assert name
    assert total > 2**34
    assert clocks == sorted(clocks, reverse=True)
    assert milliwatts > 20_000


def test_a_subprocess_loads_this_library_and_no_other(fake_nvml):
    maps = ask(fake_nvml, "show([line.split()[-1] for line in open('/proc/self/maps') if 'nvidia-ml' in line])")
    assert set(maps) == {str(fake_nvml.library / build.LIBRARY)}


def test_this_process_and_its_children_see_the_same_board(fake_nvml):
    pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 1500, 1500)
    assert ask(fake_nvml, "show(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM))") == 1500


def test_another_scenario_is_read_at_the_next_init(fake_nvml):
    handle()
    pynvml.nvmlShutdown()
    fake_nvml.scenario("v100")
    assert pynvml.nvmlDeviceGetName(handle()) == "Tesla V100-SXM2-32GB"


def test_nothing_answers_before_init_or_after_the_last_shutdown(fake_nvml):
    board = handle()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    pynvml.nvmlDeviceGetName(board)
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetName(board)


def test_a_forked_child_has_locks_of_its_own(fake_nvml):
    code = """
    child = os.fork()
    for _ in range(200):
        n.nvmlDeviceGetPowerUsage(h)
    if not child:
        n.nvmlDeviceSetGpuLockedClocks(h, 900, 900)
        os._exit(0)
    os.waitpid(child, 0)
    show(n.nvmlDeviceGetClockInfo(h, 1))
    """
    assert ask(fake_nvml, code) == 900


def test_threads_may_call_at_once(fake_nvml):
    board = handle()

    def read():
        for _ in range(50):
            pynvml.nvmlDeviceGetPowerUsage(board)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake_nvml.calls("nvmlDeviceGetPowerUsage")) == 400


# ---- boards


def test_boards_are_found_by_index_uuid_serial_and_bus(fake_nvml):
    fake_nvml.scenario("two-h200", "[board 1]\nserial = 4711\npci = 0000:9b:00.0")
    board = handle(1)
    assert pynvml.nvmlDeviceGetCount() == 2
    uuid, pci = pynvml.nvmlDeviceGetUUID(board), pynvml.nvmlDeviceGetPciInfo(board)
    assert (pci.busId, pci.domain, pci.bus) == ("00000000:9B:00.0", 0, 0x9B)
    for found in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleBySerial("4711"),
        pynvml.nvmlDeviceGetHandleByPciBusId("00000000:9B:00.0"),
        pynvml.nvmlDeviceGetHandleByPciBusId("9b:00.0"),
    ):
        assert pynvml.nvmlDeviceGetIndex(found) == 1
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-none")
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)


def test_what_a_board_is(fake_nvml):
    board = handle()
    assert pynvml.nvmlDeviceGetArchitecture(board) == pynvml.NVML_DEVICE_ARCH_HOPPER
    assert pynvml.nvmlDeviceGetCudaComputeCapability(board) == (9, 0)
    assert pynvml.nvmlSystemGetDriverVersion() == "580.82.07"
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(board) == 700_000
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(board) == [200_000, 700_000]
    assert pynvml.nvmlDeviceGetPersistenceMode(board) == 1
    assert pynvml.nvmlDeviceGetPerformanceState(board) == 0


def test_a_machine_without_boards(fake_nvml):
    fake_nvml.scenario("[system]\ndriver = 1.2.3")
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 0


def test_an_unknown_function_is_absent(fake_nvml):
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetFanSpeed(handle())


# ---- clocks


def test_the_v100_steps_by_seven_and_eight_megahertz(fake_nvml):
    fake_nvml.scenario("v100")
    clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle(), 877)
    assert clocks[:5] == [1530, 1522, 1515, 1507, 1500]
    assert clocks[-3:] == [360, 352, 345]
    assert {1297, 900, 750} <= set(clocks)


def test_clocks_are_listed_for_known_memory_clocks(fake_nvml):
    fake_nvml.scenario(plain())
    board = handle()
    assert pynvml.nvmlDeviceGetSupportedMemoryClocks(board) == [2000, 1000]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(board, 1000) == list(range(1500, 299, -100))
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSupportedGraphicsClocks(board, 1234)


def test_the_clock_follows_load_and_lock(fake_nvml):
    fake_nvml.scenario(plain("idle_mhz = 300\nboost_mhz = 1400"))
    board = handle()

    def state():
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(board)
        assert reasons == pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(board)
        return pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM), reasons

    assert state() == (300, 0x1)
    fake_nvml.load(0, 0.5)
    assert state() == (1400, 0x0)
    pynvml.nvmlDeviceSetGpuLockedClocks(board, 950, 950)
    assert state() == (900, 0x2)
    fake_nvml.load(0, 0)
    assert state() == (900, 0x3)
    pynvml.nvmlDeviceResetGpuLockedClocks(board)
    assert state() == (300, 0x1)
    assert pynvml.nvmlDeviceGetMaxClockInfo(board, pynvml.NVML_CLOCK_SM) == 1500
    assert pynvml.nvmlDeviceGetClock(board, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT) == 300


def test_the_memory_clock_is_locked_apart(fake_nvml):
    fake_nvml.scenario(plain())
    board = handle()
    pynvml.nvmlDeviceSetMemoryLockedClocks(board, 1000, 1000)
    assert fake_nvml.locked_memory(0) == (1000, 1000)
    assert fake_nvml.locked(0) is None
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_MEM) == 1000
    pynvml.nvmlDeviceResetMemoryLockedClocks(board)
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_MEM) == 2000


def test_a_lock_outlives_a_killed_process(fake_nvml):
    code = "import os, signal, pynvml as n\nn.nvmlInit()\n"
    code += "n.nvmlDeviceSetGpuLockedClocks(n.nvmlDeviceGetHandleByIndex(0), 1200, 1500)\n"
    assert fake_nvml.python(code + "os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
    assert fake_nvml.locked(0) == (1200, 1500)
    assert pynvml.nvmlDeviceGetClockInfo(handle(), pynvml.NVML_CLOCK_SM) == 1200


def test_a_lock_upside_down_is_refused(fake_nvml):
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 1500, 1200)
    assert fake_nvml.locked(0) is None


def test_without_permission_nothing_is_set(fake_nvml):
    fake_nvml.scenario("no-permission")
    board = handle()
    for change in (
        lambda: pynvml.nvmlDeviceSetGpuLockedClocks(board, 1500, 1500),
        lambda: pynvml.nvmlDeviceResetGpuLockedClocks(board),
        lambda: pynvml.nvmlDeviceSetMemoryLockedClocks(board, 3201, 3201),
        lambda: pynvml.nvmlDeviceResetMemoryLockedClocks(board),
    ):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            change()
    assert fake_nvml.locked(0) is None


def test_a_locked_clock_drifts(fake_nvml):
    fake_nvml.scenario(plain("drift = 30:1100 60:0"))
    fake_nvml.begin(45)
    fake_nvml.load(0, 1, at_s=0)
    board = handle()
    pynvml.nvmlDeviceSetGpuLockedClocks(board, 1500, 1500)
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == 1100


# ---- energy and power


@pytest.mark.parametrize(
    ("keys", "joules"),
    [
        ("", 60 * 100),
        ("energy_start_j = 5000", 5000 + 60 * 100),
        ("energy_gain = 1.05", 60 * 105),
        ("power = 0:100 20:300", 20 * 100 + 40 * 300),
        ("power = 0:100 20/300", 20 * 200 + 40 * 300),
        ("power = 10:150 20:100", 10 * 100 + 10 * 150 + 40 * 100),
        ("power = 0:100 0.25:300\npower_repeat_s = 0.5", 60 * 200),
        ("load = 0.5", 60 * 300),
        ("load = 0:0 30:1 40:0", 60 * 100 + 10 * 400),
        ("load = 0/0 60/1", 60 * 100 + 60 * 200),
        ("energy_stall_s = 25", 25 * 100),
        ("energy_start_j = 9999\nenergy_fall_s = 45", 15 * 100),
        ("processes = 7:100\nloaded_w = 20", 60 * 120),
        ("load = 1\nboost_mhz = 900\nexponent = 1", 60 * 340),
    ],
)
def test_energy_is_the_integral_of_power_up_to_the_tick(fake_nvml, keys, joules):
    fake_nvml.scenario(plain(keys))
    fake_nvml.begin(90)
    board = handle()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(board) == pytest.approx(joules * 1000, abs=1)
    assert fields(board, pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION) == [pytest.approx(joules * 1000, abs=1)]


def test_load_between_two_readings_is_not_lost(fake_nvml):
    fake_nvml.scenario(plain())
    fake_nvml.begin(90)
    for at_s, load in ((10, 1), (20, 0), (30, 0.5), (40, 0)):
        fake_nvml.load(0, load, at_s=at_s)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle()) == 1000 * (60 * 100 + 10 * 400 + 10 * 200)


def test_thousands_of_changes_of_load_are_not_lost(fake_nvml):
    fake_nvml.scenario(plain())
    fake_nvml.begin(90)
    start = int((fake_nvml.state / "start").read_text())
    lines = [f"{start + number * 4_000_000} {number % 2}\n" for number in range(12_000)]
    (fake_nvml.state / "load.0").write_text("".join(lines))
    # More than the library remembers at a time: what it forgets has been counted.
    joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle()) / 1000
    assert joules == pytest.approx(60 * 100 + 24 * 400 + 12 * 400, rel=1e-6)


def test_a_bare_number_is_the_load_since_it_was_written(fake_nvml):
    fake_nvml.scenario(plain())
    board = handle()
    (fake_nvml.state / "load.0").write_text("1")
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == 1500
    (fake_nvml.state / "load.0").unlink()
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == 300


def test_all_processes_read_one_counter(fake_nvml):
    fake_nvml.scenario(plain())
    fake_nvml.begin(90)
    read = "show(n.nvmlDeviceGetTotalEnergyConsumption(h))"
    assert ask(fake_nvml, read) == ask(fake_nvml, read) == 6_000_000


def test_the_counter_only_moves_by_whole_ticks(fake_nvml):
    fake_nvml.scenario(plain("energy_period_ms = 20"))
    board = handle()
    seen = {pynvml.nvmlDeviceGetTotalEnergyConsumption(board) for _ in range(300)}
    assert all(millijoules % 2000 == 0 for millijoules in seen)


def test_what_is_set_while_running_does_not_change_what_has_been_counted(fake_nvml):
    fake_nvml.scenario(plain())
    fake_nvml.begin(90)
    board = handle()
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    fake_nvml.set(0, idle_w=300)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(board) == before
    assert fields(board, pynvml.NVML_FI_DEV_POWER_INSTANT) == [300_000]


def test_a_board_without_a_counter(fake_nvml):
    fake_nvml.scenario("consumer")
    board = handle()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    assert pynvml.nvmlDeviceGetFieldValues(board, [83])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_mean_looks_back_over_its_window(fake_nvml):
    fake_nvml.scenario(plain("power = 0:100 59.5:300\naverage_window_ms = 2000"))
    fake_nvml.begin(90)
    board = handle()
    assert pynvml.nvmlDeviceGetPowerUsage(board) == pytest.approx(200_000, abs=1)
    assert fields(board, 186, 185) == [pytest.approx(300_000, abs=1), pytest.approx(150_000, abs=1)]


def test_an_instantaneous_reading_has_no_window(fake_nvml):
    fake_nvml.scenario(plain("power = 0:100 60:300\nusage_window_ms = 0"))
    fake_nvml.begin(90)
    assert pynvml.nvmlDeviceGetPowerUsage(handle()) == 300_000


def test_a_field_carries_a_code_of_its_own(fake_nvml):
    fake_nvml.scenario(plain("power_average = NOT_SUPPORTED\nerror.field.74 = NO_PERMISSION"))
    codes = [value.nvmlReturn for value in pynvml.nvmlDeviceGetFieldValues(handle(), [185, 186, 74, 75, 9999])]
    assert codes == [pynvml.NVML_ERROR_NOT_SUPPORTED, 0, pynvml.NVML_ERROR_NO_PERMISSION, 0, 3]


# ---- throttling


def test_above_its_power_limit_the_clock_gives_way(fake_nvml):
    fake_nvml.scenario(plain("limit_w = 300\nexponent = 2\nload = 1"))
    fake_nvml.begin(90)
    board = handle()
    # 100 + 400 · (f / 1500)² = 300 W at 1061 MHz: the supported clock below is 1000.
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == 1000
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(board) == pynvml.nvmlClocksEventReasonSwPowerCap
    assert pynvml.nvmlDeviceGetPowerUsage(board) == pytest.approx(1000 * (100 + 400 * (1000 / 1500) ** 2), abs=1)
    assert fields(board, 74, 75, 76) == [60_000_000_000, 0, 0]
    violation = pynvml.nvmlDeviceGetViolationStatus(board, pynvml.NVML_PERF_POLICY_POWER)
    assert violation.violationTime == 60_000_000_000


def test_a_waveform_above_the_limit_is_capped_too(fake_nvml):
    fake_nvml.scenario(plain("limit_w = 300\npower = 0:100 30:900"))
    fake_nvml.begin(90)
    board = handle()
    assert pynvml.nvmlDeviceGetPowerUsage(board) <= 300_000
    assert fields(board, 74) == [30_000_000_000]


def test_a_lower_lock_avoids_the_cap(fake_nvml):
    fake_nvml.scenario(plain("limit_w = 300\nexponent = 2\nload = 1"))
    board = handle()
    pynvml.nvmlDeviceSetGpuLockedClocks(board, 900, 900)
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(board) == 0x2


def test_throttle_events_lower_the_clock_and_fill_their_counters(fake_nvml):
    events = "throttle = 0:sw_thermal 10:hw_thermal 25:power_brake 30:sync_boost 32:power_cap 33:off"
    fake_nvml.scenario(plain(f"{events}\nload = 1\ntemperature = 50"))
    fake_nvml.begin(90)
    board = handle()
    assert fields(board, 74, 75, 76, 269, 270, 271) == [s * 10**9 for s in (1, 25, 2, 10, 15, 5)]
    assert pynvml.nvmlDeviceGetTemperature(board, 0) == 50
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(board) == 0


def test_a_thermal_slowdown_is_hot_and_slow(fake_nvml):
    fake_nvml.scenario(plain("throttle = 5:hw_thermal\nload = 1\nslowdown_c = 88\nthrottled_mhz = 650"))
    fake_nvml.begin(30)
    board = handle()
    assert pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU) == 88
    assert pynvml.nvmlDeviceGetTemperatureV(board, pynvml.NVML_TEMPERATURE_GPU) == 88
    assert pynvml.nvmlDeviceGetTemperatureThreshold(board, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) == 88
    assert pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == 600
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(board) == 0x48


# ---- what else a board tells


def test_utilisation_says_only_that_a_kernel_ran(fake_nvml):
    board = handle()
    assert pynvml.nvmlDeviceGetUtilizationRates(board).gpu == 0
    fake_nvml.load(0, 0.5)
    rates = pynvml.nvmlDeviceGetUtilizationRates(board)
    assert (rates.gpu, rates.memory) == (100, 31)
    fake_nvml.set(0, utilization_gpu=7)
    assert pynvml.nvmlDeviceGetUtilizationRates(board).gpu == 7


def test_processes_and_their_memory(fake_nvml):
    fake_nvml.scenario(plain("memory_mib = 1000\nprocesses = self:200 4711:100 99:unknown\ngraphics_processes = 5:1"))
    board = handle()
    listed = [(one.pid, one.usedGpuMemory) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(board)]
    assert listed == [(os.getpid(), 200 * 2**20), (4711, 100 * 2**20), (99, None)]
    assert [one.pid for one in pynvml.nvmlDeviceGetGraphicsRunningProcesses(board)] == [5]
    memory = pynvml.nvmlDeviceGetMemoryInfo(board, pynvml.nvmlMemory_v2)
    assert (memory.total, memory.used, memory.free) == (1000 * 2**20, 300 * 2**20, 700 * 2**20)
    fake_nvml.set(0, processes="")
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(board) == []


def test_memory_errors(fake_nvml):
    keys = (
        "ecc_corrected_volatile = 3\necc_uncorrected_aggregate = 0:1 10:2\nretired_double = 2\nretired_pending = yes\n"
    )
    fake_nvml.scenario(plain(keys + "remapped_uncorrected = 4\nremap_failed = yes"))
    fake_nvml.begin(30)
    board = handle()
    assert pynvml.nvmlDeviceGetEccMode(board) == [1, 1]
    assert pynvml.nvmlDeviceGetTotalEccErrors(board, 0, 0) == 3
    assert pynvml.nvmlDeviceGetTotalEccErrors(board, 1, 1) == 2
    assert fields(board, 3, 4, 5, 6) == [3, 0, 0, 2]
    assert pynvml.nvmlDeviceGetRemappedRows(board) == (0, 4, 0, 1)
    assert len(pynvml.nvmlDeviceGetRetiredPages(board, 1)) == 2
    assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(board) == 1


def test_a_board_without_ecc(fake_nvml):
    fake_nvml.scenario("consumer")
    board = handle()
    for read in (
        lambda: pynvml.nvmlDeviceGetEccMode(board),
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(board, 1, 0),
        lambda: pynvml.nvmlDeviceGetRemappedRows(board),
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            read()


def test_xid_events_are_handed_out_once_to_those_who_registered_before(fake_nvml):
    fake_nvml.scenario(plain("xid = 1:13", boards=2))
    fake_nvml.begin(10)
    handle()
    events = pynvml.nvmlEventSetCreate()
    for index in range(2):
        board = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceRegisterEvents(board, pynvml.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 0)
    fake_nvml.xid(1, 79)
    fake_nvml.xid(1, 48)
    seen = [pynvml.nvmlEventSetWait(events, 1000) for _ in range(2)]
    assert [(one.eventType, one.eventData) for one in seen] == [(8, 79), (8, 48)]
    assert pynvml.nvmlDeviceGetIndex(seen[0].device) == 1
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 5)
    pynvml.nvmlEventSetFree(events)


def test_mig_devices(fake_nvml):
    migs = "mig = on\nmig_device = MIG-aaaa 7 0 16384\nmig_device = MIG-bbbb 8 0 32768"
    fake_nvml.scenario("h200", f"[board 0]\n{migs}")
    board = handle()
    assert pynvml.nvmlDeviceGetMigMode(board) == [1, 1]
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 1)
    assert pynvml.nvmlDeviceGetUUID(mig) == "MIG-bbbb"
    assert pynvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(board).value == 0
    assert pynvml.nvmlDeviceGetGpuInstanceId(mig) == 8
    assert pynvml.nvmlDeviceGetMemoryInfo(mig).total == 32768 * 2**20
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(board)
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID("MIG-aaaa")) == "MIG-aaaa"
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetPowerUsage(mig)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 2)


def test_without_mig_there_are_no_mig_devices(fake_nvml):
    board = handle()
    assert pynvml.nvmlDeviceGetMigMode(board) == [0, 0]
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 0)


def test_gpm_measures_between_two_samples(fake_nvml):
    fake_nvml.load(0, 0.5)
    board = handle()
    assert pynvml.nvmlGpmQueryDeviceSupport(board).isSupportedDevice == 1
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(board, first)
    pynvml.nvmlGpmSampleGet(board, second)
    get = pynvml.c_nvmlGpmMetricsGet_t(version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=4)
    get.sample1, get.sample2 = first, second
    for number, metric in enumerate((2, 10, 5, 400)):
        get.metrics[number].metricId = metric
    pynvml.nvmlGpmMetricsGet(get)
    got = [(get.metrics[number].nvmlReturn, get.metrics[number].value) for number in range(3)]
    assert got == [(0, pytest.approx(46)), (0, pytest.approx(31)), (0, pytest.approx(6))]
    assert get.metrics[3].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    for sample in (first, second):
        pynvml.nvmlGpmSampleFree(sample)


def test_a_board_without_gpm(fake_nvml):
    fake_nvml.scenario("a100")
    board = handle()
    assert pynvml.nvmlGpmQueryDeviceSupport(board).isSupportedDevice == 0
    sample = pynvml.nvmlGpmSampleAlloc()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlGpmSampleGet(board, sample)
    pynvml.nvmlGpmSampleFree(sample)


# ---- errors, latency, the log


def test_one_of_two_boards_refuses(fake_nvml):
    fake_nvml.scenario("two-h200", "[board 1]\nerror.nvmlDeviceSetGpuLockedClocks = NO_PERMISSION")
    first, second = handle(0), handle(1)
    pynvml.nvmlDeviceSetGpuLockedClocks(first, 1500, 1500)
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceSetGpuLockedClocks(second, 1500, 1500)
    assert (fake_nvml.locked(0), fake_nvml.locked(1)) == ((1500, 1500), None)


def test_the_nth_call_fails(fake_nvml):
    rules = "error.nvmlDeviceGetName = UNKNOWN call 2\nerror.nvmlDeviceGetName = GPU_IS_LOST from 4"
    fake_nvml.scenario(plain(rules))
    board = handle()
    results = []
    for _ in range(5):
        try:
            results.append(bool(pynvml.nvmlDeviceGetName(board)))
        except pynvml.NVMLError as error:
            results.append(error.value)
    assert results == [True, 999, True, 15, 15]


def test_a_board_is_lost_after_a_time(fake_nvml):
    fake_nvml.scenario(plain("error.* = GPU_IS_LOST after 20 until 40", boards=1))
    fake_nvml.begin(30)
    board = handle()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(board)
    assert pynvml.nvmlDeviceGetCount() == 1
    fake_nvml.begin(50)
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetPowerUsage(handle())


def test_the_driver_is_not_loaded(fake_nvml):
    fake_nvml.scenario("[system]\nerror.nvmlInit = DRIVER_NOT_LOADED call 1")
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    pynvml.nvmlInit()


def test_errors_come_and_go_while_running(fake_nvml):
    board = handle()
    fake_nvml.set(0, error__nvmlDeviceGetPowerUsage="GPU_IS_LOST", temperature=91)
    assert pynvml.nvmlDeviceGetTemperature(board, 0) == 91
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(board)
    fake_nvml.set(0, error__nvmlDeviceGetPowerUsage=None)
    pynvml.nvmlDeviceGetPowerUsage(board)
    assert pynvml.nvmlDeviceGetTemperature(board, 0) == 91


def test_a_call_takes_its_time(fake_nvml):
    fake_nvml.scenario(plain("latency.nvmlDeviceGetTotalEnergyConsumption_ms = 30"))
    board = handle()
    fake_nvml.forget_calls()
    pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    pynvml.nvmlDeviceGetName(board)
    energy, name = fake_nvml.calls()
    assert name.at_ns - energy.at_ns >= 30_000_000


def test_every_call_is_logged(fake_nvml):
    fake_nvml.scenario("two-h200")
    board = handle(1)
    pynvml.nvmlDeviceSetGpuLockedClocks(board, 1200, 1500)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("two words")
    ask(fake_nvml, "n.nvmlDeviceGetFieldValues(h, [186, 185])")
    log = [(call.function, call.board, call.argument, call.result) for call in fake_nvml.calls()]
    assert log[:4] == [
        ("nvmlInit", None, "0", "SUCCESS"),
        ("nvmlDeviceGetHandleByIndex_v2", None, "1", "SUCCESS"),
        ("nvmlDeviceSetGpuLockedClocks", 1, "1200-1500", "SUCCESS"),
        ("nvmlDeviceGetHandleByUUID", None, "two_words", "NOT_FOUND"),
    ]
    assert log[-1] == ("nvmlDeviceGetFieldValues", 0, "186,185", "SUCCESS")
    assert fake_nvml.calls()[0].pid == os.getpid() != fake_nvml.calls()[-1].pid


# ---- scenarios that are wrong


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[system]\n[board 1]", r"line 2: \[board 1\] is no section"),
        ("[system]\ncolour = red", "line 2: colour is no key of the system section"),
        ("[system]\npermission = maybe", "line 2: permission must be root or none"),
        ("[board 0]\n\ncolour = red", "line 3: colour is no key of a board"),
        ("[board 0]\nidle_w = many", "line 2: idle_w has a value"),
        ("[board 0]\nidle_w = 1e999", "line 2: idle_w has a value"),
        ("[board 0]\nname", "line 2: this is no `key = value` line"),
        ("[board 0]\npower = 0:100 0:", "line 2: power has"),
        ("[board 0]\npower = 5:100 1:200", "line 2: power has"),
        ("[board 0]\nsm_clocks = 300:200:15", "line 2: sm_clocks has"),
        ("[board 0]\nthrottle = 3:warm", "line 2: throttle has"),
        ("[board 0]\nerror.nvmlInit = NOT_A_CODE", "line 2: error.nvmlInit has"),
        ("[board 0]\nerror.nvmlInit = UNKNOWN sometimes 3", "line 2: error.nvmlInit has"),
        ("[board 0]\nprocesses = 12", "line 2: processes has"),
        ("[board 0]\nmig_device = MIG-a 1", "line 2: mig_device has"),
        ("[board 0]\nlike = 0\n[board 1]\nlike = 7", "line 4: like names no board"),
    ],
)
def test_a_wrong_scenario_is_refused_with_its_line(fake_nvml, text, said):
    fake_nvml.scenario(text)
    done = fake_nvml.python("import pynvml\npynvml.nvmlInit()")
    assert done.returncode
    assert re.search(said, done.stderr)
    assert "NVMLError_Unknown" in done.stderr


def test_a_wrong_setting_is_said_and_fails_the_boards_calls(fake_nvml, capfd):
    board = handle()
    fake_nvml.set(0, colour="red")
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetName(board)
    assert "set.0, line 1: colour is no key of a board" in capfd.readouterr().err
    fake_nvml.set(0, colour=None)
    assert pynvml.nvmlDeviceGetName(board) == "NVIDIA H200"


def test_without_its_environment_the_library_says_what_it_needs(fake_nvml):
    done = fake_nvml.python("import os, pynvml\ndel os.environ['FAKE_NVML_STATE']\npynvml.nvmlInit()")
    assert "FAKE_NVML_STATE" in done.stderr
    assert done.returncode


# ---- the build


def test_the_library_is_compiled_once_for_each_state_of_its_source(fake_nvml_library):
    before = (fake_nvml_library / build.LIBRARY).stat().st_mtime_ns
    there = {"XDG_CACHE_HOME": str(fake_nvml_library.parents[1])}
    command = [sys.executable, build.__file__]
    done = subprocess.run(command, env={**os.environ, **there}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(fake_nvml_library)
    assert (fake_nvml_library / build.LIBRARY).stat().st_mtime_ns == before


def test_a_compiler_that_refuses_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "FLAGS", ("-fno-such-flag",))
    monkeypatch.setattr(build, "_cache", lambda: tmp_path)
    with pytest.raises(RuntimeError, match="no-such-flag"):
        build.build()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# ---- the busy server


def test_the_board_is_busy_while_requests_are_in_flight(fake_nvml):
    fake_nvml.scenario(plain())
    board, requests = handle(), [0]

    def until(mhz):
        for _ in range(2000):
            if pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM) == mhz:
                return True
            time.sleep(0.005)
        return False

    with busy_while(lambda: requests[0], fake_nvml.state / "load.0"):
        assert until(300)
        requests[0] = 4
        assert until(1500)
    assert until(300)
