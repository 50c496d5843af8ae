"""NVML through the real bindings, against a driver library that does as a scenario says."""

import pickle
import time

import pytest

from pytest_llmperf.errors import GpuError, GpuPermissionError, MachineError
from pytest_llmperf.gpu import (
    THROTTLE_CAUSES,
    Activity,
    EccErrors,
    GpuProcess,
    RemappedRows,
    Unreadable,
    value_or_none,
    why_unreadable,
)
from pytest_llmperf.gpu.nvml import Nvml, boards, cuda_version, visible_boards

READINGS = (
    "energy_j", "power_w", "mean_power_w", "sm_clock_mhz", "memory_clock_mhz", "clock_reasons", "temperature_c",
    "slowdown_temperature_c", "utilization", "memory_used_bytes", "processes", "supported_sm_clocks_mhz",
    "supported_memory_clocks_mhz", "persistent", "ecc_errors", "remapped_rows", "activity_meter", "fault_watch",
)  # fmt: skip


@pytest.fixture
def nvml(fake_nvml):
    with Nvml() as session:
        yield session


@pytest.fixture
def device(nvml):
    return nvml.device(nvml.boards()[0])


def opened(fake_nvml, base="h200", extra=""):
    """The first board of another scenario; its session ends with the fixture's."""
    fake_nvml.scenario(base, extra)
    session = Nvml()
    session.open()
    return session.device(session.boards()[0])


class TestReading:
    def test_has_no_truth_value(self):
        with pytest.raises(TypeError, match="isinstance"):
            bool(Unreadable("power: Not Supported"))

    def test_is_a_value_or_a_reason(self):
        assert (value_or_none(0.0), why_unreadable(0.0)) == (0.0, None)
        refused = Unreadable("power: Not Supported")
        assert (value_or_none(refused), why_unreadable(refused)) == (None, "power: Not Supported")


class TestBoards:
    def test_are_described(self, fake_nvml):
        (board,) = boards()
        assert (board.index, board.name, board.driver) == (0, "NVIDIA H200", "580.82.07")
        assert board.uuid.startswith("GPU-")
        assert (board.power_limit_w, board.memory_bytes) == (700, 143771 * 2**20)
        assert (board.compute_capability, board.max_sm_clock_mhz) == ((9, 0), 1980)
        assert board.pci_bus_id == "00000000:10:00.0"
        assert (board.mig_mode, board.mig_instances, board.mig) == (False, (), None)
        assert pickle.loads(pickle.dumps(board)) == board
        assert cuda_version() == "13.0"

    def test_those_in_use_are_the_ones_that_cuda_shows(self, fake_nvml, monkeypatch):
        fake_nvml.scenario("two-h200")
        assert [board.index for board in visible_boards()] == [0, 1]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        assert [board.index for board in visible_boards()] == [1, 0]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert visible_boards() == []

    def test_of_one_in_mig_mode_an_instance_is_used(self, fake_nvml, monkeypatch):
        fake_nvml.scenario(
            "h200", "[board 0]\nmig = on\nmig_device = MIG-aaaa 1 0 10000\nmig_device = MIG-bbbb 2 0 10000"
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bbbb")
        (board,) = visible_boards()
        assert board.mig_mode
        assert [part.uuid for part in board.mig_instances] == ["MIG-aaaa", "MIG-bbbb"]
        assert (board.mig.uuid, board.mig.gpu_instance, board.mig.compute_instance) == ("MIG-bbbb", 2, 0)

    def test_a_refused_description_is_absent(self, fake_nvml):
        fake_nvml.scenario("h200", "[board 0]\nerror.nvmlDeviceGetEnforcedPowerLimit = NOT_SUPPORTED")
        assert boards()[0].power_limit_w is None

    @pytest.mark.parametrize("code", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "UNKNOWN"])
    def test_without_a_driver_that_works_there_are_none(self, fake_nvml, code):
        fake_nvml.scenario("h200", f"[system]\nerror.nvmlInit = {code}\nerror.nvmlInitWithFlags = {code}")
        assert boards() == visible_boards() == []
        assert cuda_version() is None
        with pytest.raises(GpuError, match="The driver does not start"), Nvml():
            pass

    def test_without_a_driver_at_all_there_are_none(self, fake_nvml, tmp_path):
        code = "from pytest_llmperf.gpu.nvml import boards, cuda_version; print(boards(), cuda_version())"
        done = fake_nvml.python(code, LD_LIBRARY_PATH=str(tmp_path))
        assert done.stdout.split() == ["[]", "None"], done.stderr

    def test_a_lost_board_is_an_error_in_words(self, fake_nvml):
        fake_nvml.scenario("h200", "[board 0]\nerror.nvmlDeviceGetName = GPU_IS_LOST")
        with pytest.raises(MachineError, match=r"GPU is lost.*dmesg"):
            visible_boards()

    def test_every_session_is_ended(self, fake_nvml):
        boards()
        visible_boards()
        cuda_version()
        with pytest.raises(ZeroDivisionError), Nvml():
            1 / 0  # noqa: B018
        with Nvml() as nvml:
            nvml.close()
        assert len(fake_nvml.calls("nvmlInit")) == len(fake_nvml.calls("nvmlShutdown")) == 5

    def test_a_session_that_is_closed_says_so(self, nvml, device):
        nvml.close()
        nvml.close()
        with pytest.raises(GpuError, match="not open"):
            nvml.boards()
        assert "Uninitialized" in device.power_w().reason


class TestReadings:
    def test_of_a_board_that_has_them_all(self, fake_nvml, device):
        fake_nvml.load(0, 0)
        assert device.energy_j() == pytest.approx(1_250_000, rel=0.1)
        assert 60 < device.power_w() < 100
        assert 60 < device.mean_power_w() < 100
        assert device.sm_clock_mhz() == 345
        assert device.memory_clock_mhz() == 3201
        assert device.clock_reasons() == {"gpu_idle"}
        assert set(device.throttle_ns()) == set(THROTTLE_CAUSES)
        assert all(time_ns == 0 for time_ns in device.throttle_ns().values())
        assert 20 < device.temperature_c() < 60
        assert device.slowdown_temperature_c() == 87
        assert 0 <= device.utilization().gpu <= 1
        assert 0 < device.memory_used_bytes() < 143771 * 2**20
        assert device.processes() == ()
        assert device.persistent() is True
        assert device.ecc_errors() == EccErrors(0, 0)
        assert device.remapped_rows() == RemappedRows(0, 0, pending=False, failed=False)
        assert device.supported_sm_clocks_mhz() == tuple(range(345, 1981, 15))
        assert device.supported_memory_clocks_mhz() == (1593, 2619, 3201)

    @pytest.mark.parametrize("code", ["NOT_SUPPORTED", "NO_PERMISSION", "GPU_IS_LOST", "UNKNOWN", "NOT_READY"])
    def test_none_raises_when_the_driver_refuses_everything(self, fake_nvml, device, code):
        fake_nvml.set(0, **{"error__*": code})
        for name in READINGS:
            reading = getattr(device, name)()
            assert isinstance(reading, Unreadable), name
            assert "nvml" in reading.reason
        assert all(isinstance(reading, Unreadable) for reading in device.throttle_ns().values())

    def test_a_reason_holds_the_drivers_words(self, fake_nvml, device):
        fake_nvml.set(0, energy="no")
        assert device.energy_j() == Unreadable("energy counter: Not Supported (nvmlDeviceGetTotalEnergyConsumption)")

    @pytest.mark.parametrize(
        ("code", "cause"), [("NOT_SUPPORTED", "absent"), ("GPU_IS_LOST", "lost"), ("UNKNOWN", "other")]
    )
    def test_a_refusal_tells_what_is_absent_from_what_is_lost(self, fake_nvml, device, code, cause):
        fake_nvml.set(0, **{"error__*": code})
        assert device.persistent().cause == device.fault_watch().cause == cause

    def test_processes_and_errors_are_told(self, fake_nvml, device):
        fake_nvml.set(0, processes="4711:1024", remap_pending="yes", remapped_uncorrected=2)
        assert device.processes() == (GpuProcess(4711, 2**30),)
        assert device.remapped_rows() == RemappedRows(0, 2, pending=True, failed=False)

    def test_a_driver_before_535_knows_the_reasons_by_their_former_name(self, device, monkeypatch):
        import pynvml

        monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
        assert device.clock_reasons() == {"gpu_idle"}

    def test_a_driver_after_cuda_13_knows_the_temperature_by_its_later_name(self, fake_nvml, device):
        fake_nvml.set(0, error__nvmlDeviceGetTemperature="FUNCTION_NOT_FOUND")
        assert device.temperature_c() > 0

    def test_bindings_that_lack_a_function_count_as_a_refusal(self, device, monkeypatch):
        import pynvml

        monkeypatch.delattr(pynvml, "nvmlDeviceGetRemappedRows")
        assert "Function Not Found" in device.remapped_rows().reason


class TestPower:
    """The old function is a mean of a second on some boards: it never stands in for what it is not."""

    @pytest.mark.parametrize(("base", "instantaneous"), [("v100", True), ("a100", True), ("h200", False)])
    def test_without_fields_the_old_function_is_what_it_is_on_that_board(self, fake_nvml, base, instantaneous):
        device = opened(fake_nvml, base, "[board 0]\npower_instant = no\npower_average = no")
        now, mean = device.power_w(), device.mean_power_w()
        assert isinstance(now, Unreadable) is not instantaneous
        assert isinstance(mean, Unreadable) is instantaneous
        assert why_unreadable(now) or "186" not in str(why_unreadable(now))

    def test_a_board_of_unknown_generation_counts_as_a_mean(self, fake_nvml):
        extra = "[board 0]\npower_instant = no\nerror.nvmlDeviceGetCudaComputeCapability = UNKNOWN"
        assert "field 186" in opened(fake_nvml, "v100", extra).power_w().reason

    def test_right_after_a_step_the_instantaneous_value_is_not_the_mean(self, fake_nvml):
        device = opened(fake_nvml, "h200", "[board 0]\npower = 0:80 1:400\nnoise_w = 0\naverage_window_ms = 600000")
        while (now := device.power_w()) < 390:
            time.sleep(0.005)
        assert now == pytest.approx(400, abs=1)
        assert device.mean_power_w() < 350

    def test_each_field_has_its_own_refusal(self, fake_nvml):
        device = opened(fake_nvml, "h200", "[board 0]\npower_average = no")
        assert device.power_w() > 0
        assert device.mean_power_w() > 0  # from the old function, which is the mean here


class TestActivity:
    def test_is_measured_between_two_samples(self, fake_nvml, device):
        meter = device.activity_meter()
        fake_nvml.load(0, 1)
        time.sleep(0.15)
        activity = meter.read()
        assert isinstance(activity, Activity)
        assert 0 < activity.dram <= 0.62
        assert 0 < activity.sm <= 0.92
        assert isinstance(meter.read(), Activity)

    def test_what_was_allocated_is_freed(self, fake_nvml, nvml, device):
        meter = device.activity_meter()
        for _ in range(3):
            meter.read()
        device.activity_meter()
        meter.close()
        meter.close()
        nvml.close()
        assert len(fake_nvml.calls("nvmlGpmSampleAlloc")) == len(fake_nvml.calls("nvmlGpmSampleFree")) == 5

    def test_a_meter_that_is_closed_says_so(self, device):
        meter = device.activity_meter()
        meter.close()
        assert "closed" in meter.read().reason

    def test_a_board_before_hopper_has_none(self, fake_nvml):
        assert isinstance(opened(fake_nvml, "a100").activity_meter(), Unreadable)

    def test_a_sample_that_fails_is_a_reason_and_the_next_counts_again(self, fake_nvml, device):
        meter = device.activity_meter()
        fake_nvml.set(0, error__nvmlGpmSampleGet="UNKNOWN")
        assert isinstance(meter.read(), Unreadable)
        fake_nvml.set(0, error__nvmlGpmSampleGet=None)
        assert isinstance(meter.read(), Unreadable)
        assert isinstance(meter.read(), Activity)


class TestFaults:
    def test_are_told_once_and_only_those_since_the_watch_began(self, fake_nvml, device):
        fake_nvml.xid(0, 31)
        watch = device.fault_watch()
        assert watch.read() == []
        for number in (13, 43, 13):
            fake_nvml.xid(0, number)
        assert watch.read() == [13, 43, 13]
        assert watch.read() == []

    def test_of_another_board_are_not_told(self, fake_nvml):
        fake_nvml.scenario("two-h200")
        with Nvml() as session:
            watches = [session.device(board).fault_watch() for board in session.boards()]
            fake_nvml.xid(1, 79)
            assert [watch.read() for watch in watches] == [[], [79]]

    def test_what_was_created_is_freed(self, fake_nvml, nvml, device):
        watch = device.fault_watch()
        device.fault_watch()
        watch.close()
        watch.close()
        assert "closed" in watch.read().reason
        nvml.close()
        assert len(fake_nvml.calls("nvmlEventSetCreate")) == len(fake_nvml.calls("nvmlEventSetFree")) == 2

    def test_a_board_that_cannot_be_watched_leaves_nothing_behind(self, fake_nvml, device):
        fake_nvml.set(0, error__nvmlDeviceRegisterEvents="NOT_SUPPORTED")
        assert device.fault_watch() == Unreadable("Xid errors: Not Supported (nvmlDeviceRegisterEvents)")
        assert len(fake_nvml.calls("nvmlEventSetFree")) == 1

    def test_of_a_board_that_is_lost_meanwhile_are_a_reason(self, fake_nvml, device, monkeypatch):
        import pynvml

        def lost(events, timeout_ms):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

        watch = device.fault_watch()
        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", lost)
        assert watch.read().cause == "lost"


class TestLocking:
    def test_sets_and_resets_both_clocks(self, fake_nvml, device):
        device.lock_sm_clock(1500)
        device.lock_memory_clock(2619)
        assert fake_nvml.locked(0) == (1500, 1500)
        assert fake_nvml.locked_memory(0) == (2619, 2619)
        assert "applications_clocks" in device.clock_reasons()
        device.unlock_sm_clock()
        device.unlock_memory_clock()
        assert fake_nvml.locked(0) is fake_nvml.locked_memory(0) is None

    def test_without_permission_it_raises_that(self, fake_nvml):
        with pytest.raises(
            GpuPermissionError, match="lock the SM clock of GPU 0 at 1500 MHz: Insufficient Permissions"
        ):
            opened(fake_nvml, "no-permission").lock_sm_clock(1500)

    def test_any_other_refusal_is_an_error_too(self, fake_nvml):
        device = opened(fake_nvml, "h200", "[board 0]\nerror.nvmlDeviceSetGpuLockedClocks = NOT_SUPPORTED")
        with pytest.raises(GpuError, match="Not Supported") as caught:
            device.lock_sm_clock(1500)
        assert not isinstance(caught.value, GpuPermissionError)
