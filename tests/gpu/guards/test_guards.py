"""What makes a measurement doubtful, on the fake driver library and with real processes."""

import os
import subprocess
import sys
from array import array

import psutil
import pytest

from pytest_llmperf.gpu.guards import Findings, Guards, idle_throughout
from pytest_llmperf.gpu.guards.tenants import strangers
from pytest_llmperf.gpu.guards.xid import in_words
from pytest_llmperf.gpu.nvml import Nvml, boards
from pytest_llmperf.gpu.sampling.sampler import NOTHING, REASONS, BoardSamples, Sampling
from pytest_llmperf.local_processes import descendants
from tests.fake_nvml.fixture import SCENARIOS

IDLE, LOCKED = (1 << REASONS.index(name) for name in ("gpu_idle", "applications_clocks"))
#: Above any number that Linux gives out.
NOBODY = 2**22 + 4711
CLEAN = Findings()


@pytest.fixture
def guarded(fake_nvml):
    """Guards of all boards of a scenario, begun; by default what is ours is this very process."""
    with Nvml() as nvml:
        opened = []

        def guard(base=None, extra="", own=lambda: {os.getpid()}):
            if base is not None:
                nvml.close()
                fake_nvml.scenario(base, extra)
                nvml.open()
            guards = Guards([nvml.device(board) for board in nvml.boards()], own)
            opened.append(guards)
            guards.begin()
            return guards

        yield guard
        for guards in opened:
            guards.close()


@pytest.fixture
def child():
    """A process that is not ours as long as the test does not say so."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def samples(uuid="GPU-0", *, seconds=2.0, **arrays):
    """What was read over some seconds."""
    times = [array("q", [0, round(seconds * 1e9)])] * 2
    made = BoardSamples(uuid, counter_at_ns=times[0], slow_at_ns=times[1])
    for name, values in arrays.items():
        setattr(made, name, array("q" if name == "reasons" else "d", values))
    return made


@pytest.mark.parametrize("base", sorted(path.stem for path in SCENARIOS.glob("*.ini")))
def test_a_board_that_nothing_is_wrong_with_is_clean(guarded, base):
    assert guarded(base, "[boards]\npersistence = yes").end() == CLEAN


class TestOthersOnTheBoard:
    def test_make_it_invalid_by_name(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes=f"self:500 {child.pid}:1024")
        name = psutil.Process(child.pid).name()
        assert guarded().end() == Findings(f"another process computed on GPU 0: PID {child.pid} ({name}, 1,024 MiB)")

    def test_that_descend_from_us_are_ours(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes=f"self:500 {child.pid}:1024")
        assert guarded(own=lambda: descendants(os.getpid())).end() == CLEAN

    def test_that_are_gone_at_the_end_are_told_all_the_same(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes=f"self:500 {child.pid}:1024")
        guards = guarded()
        child.communicate()
        fake_nvml.set(0, processes="self:500")
        assert f"PID {child.pid} (python" in guards.end().invalid

    def test_that_come_meanwhile_and_stay_are_told(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes="self:500")
        guards = guarded()
        fake_nvml.set(0, processes=f"self:500 {child.pid}:unknown")
        assert f"PID {child.pid} (python" in guards.end().invalid
        assert "MiB" not in guards.end().invalid

    def test_of_the_launch_before_are_forgotten(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes=f"self:500 {child.pid}:1024")
        guards = guarded()
        fake_nvml.set(0, processes="self:500")
        guards.begin()
        assert guards.end() == CLEAN

    def test_that_only_later_turn_out_to_be_ours_are_no_fault(self, fake_nvml, guarded, child):
        own = {os.getpid()}
        fake_nvml.set(0, processes=f"self:500 {child.pid}:1024")
        guards = guarded(own=lambda: own)
        own.add(child.pid)
        assert guards.end() == CLEAN

    def test_may_be_dead_already(self, fake_nvml, guarded):
        zombie = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        fake_nvml.set(0, processes=f"self:500 {zombie.pid}:1")
        assert f"PID {zombie.pid} (python" in guarded().end().invalid
        zombie.wait()

    def test_may_be_hidden_from_us(self, fake_nvml, guarded):
        fake_nvml.set(0, processes=f"self:500 {NOBODY}:1024 {NOBODY + 1}:1")
        found = guarded().end()
        assert found.invalid.startswith("other processes computed on GPU 0")
        assert f"PID {NOBODY} (hidden from here, 1,024 MiB), PID {NOBODY + 1} (" in found.invalid

    def test_nobody_on_the_board_costs_no_search(self, guarded):
        def search():
            raise AssertionError("nobody was there to be looked for")

        assert guarded(own=search).end() == CLEAN

    def test_on_one_board_are_told_by_what_is_ours_on_another(self, fake_nvml, guarded):
        fake_nvml.scenario("two-h200")
        fake_nvml.set(0, processes="self:500")
        fake_nvml.set(1, processes=f"{NOBODY}:7")
        found = guarded("two-h200").end()
        assert found.invalid == f"another process computed on GPU 1: PID {NOBODY} (hidden from here, 7 MiB)"


class TestBoardsThatShouldBeEmpty:
    """Or hold one process of ours, whatever number the driver has for it."""

    @pytest.mark.parametrize(
        ("listed", "own", "who"),
        [
            ("", None, None),
            ("", 7, None),
            (f"{NOBODY}:5", None, f"another process computed on GPU 0: PID {NOBODY} (hidden from here, 5 MiB)"),
            (f"{NOBODY}:5", NOBODY, None),
            (f"{NOBODY}:5", 7, None),
            (f"{NOBODY}:5 {NOBODY + 1}:5", NOBODY + 1, f"another process computed on GPU 0: PID {NOBODY} "),
            (f"{NOBODY}:5 {NOBODY + 1}:5", 7, f"another process computed on GPU 0: PID {NOBODY + 1} "),
        ],
    )
    def test_who_is_there_is_told(self, fake_nvml, listed, own, who):
        fake_nvml.set(0, processes=listed)
        with Nvml() as nvml:
            found = strangers([nvml.device(board) for board in nvml.boards()], own)
        assert found is None if who is None else found.startswith(who)

    def test_of_a_board_that_lists_nobody_nothing_is_known(self, fake_nvml):
        fake_nvml.set(0, error__nvmlDeviceGetComputeRunningProcesses="NOT_SUPPORTED")
        with Nvml() as nvml:
            assert strangers([nvml.device(board) for board in nvml.boards()]) is None


class TestOthersWhereTheDriverCountsOtherwise:
    """In a container the driver may list the host's numbers: not even the engine is found among them."""

    def test_the_only_one_is_ours(self, fake_nvml, guarded):
        fake_nvml.set(0, processes=f"{NOBODY}:500")
        assert guarded().end() == CLEAN

    def test_of_several_nobody_can_be_told(self, fake_nvml, guarded):
        fake_nvml.set(0, processes=f"{NOBODY}:500 {NOBODY + 1}:500")
        found = guarded().end()
        assert found.invalid is None
        (warning,) = found.warnings
        assert "2 processes" in warning
        assert "PID namespace" in warning
        assert "--pid=host" in warning

    def test_the_only_one_that_we_see_and_do_not_know_is_named(self, fake_nvml, guarded, child):
        fake_nvml.set(0, processes=f"{child.pid}:500")
        found = guarded().end()
        assert found.invalid is None
        assert f"PID {child.pid} (python" in found.warnings[0]
        assert "taken for the engine" in found.warnings[0]

    def test_an_engine_on_two_boards_is_one_on_each(self, fake_nvml, guarded):
        fake_nvml.scenario("two-h200")
        fake_nvml.set(0, processes=f"{NOBODY}:500")
        fake_nvml.set(1, processes=f"{NOBODY + 1}:500")
        assert guarded("two-h200").end() == CLEAN


class TestMemory:
    def test_errors_that_were_not_corrected_make_it_invalid(self, fake_nvml, guarded):
        guards = guarded()
        fake_nvml.set(0, ecc_uncorrected_volatile=2)
        assert guards.end() == Findings("the memory of GPU 0 had 2 errors that could not be corrected")

    def test_corrected_errors_are_a_warning(self, fake_nvml, guarded):
        guards = guarded()
        fake_nvml.set(0, ecc_corrected_volatile=3)
        assert guards.end() == Findings(None, ("The memory of GPU 0 had 3 errors, which were corrected.",))

    def test_errors_of_before_are_not_this_launches(self, fake_nvml, guarded):
        guards = guarded()
        fake_nvml.set(0, ecc_uncorrected_volatile=2, ecc_corrected_volatile=3)
        guards.begin()
        assert guards.end() == CLEAN

    def test_bad_rows_are_a_warning(self, fake_nvml, guarded):
        fake_nvml.set(0, remap_pending="yes", remap_failed="yes")
        found = guarded().end()
        assert found.invalid is None
        assert [word in " ".join(found.warnings) for word in ("could not be replaced", "nvidia-smi -i 0 -r")] == [
            True
        ] * 2

    def test_replaced_rows_are_nothing(self, fake_nvml, guarded):
        fake_nvml.set(0, remapped_corrected=2, remapped_uncorrected=1)
        assert guarded().end() == CLEAN


class TestFaults:
    def test_make_it_invalid_in_words(self, fake_nvml, guarded):
        guards = guarded()
        for number in (31, 43, 31):
            fake_nvml.xid(0, number)
        found = guards.end()
        assert found.invalid.startswith("GPU 0 reported Xid 31 (GPU memory page fault")
        assert found.invalid.count("Xid 31") == 1
        assert "Xid 43 (the GPU stopped" in found.invalid

    def test_between_two_launches_are_neithers(self, fake_nvml, guarded):
        guards = guarded()
        assert guards.end() == CLEAN
        fake_nvml.xid(0, 45)
        guards.begin()
        assert guards.end() == CLEAN

    def test_of_the_second_launch_are_seen_too(self, fake_nvml, guarded):
        guards = guarded()
        guards.end()
        guards.begin()
        fake_nvml.xid(0, 79)
        assert guards.end().invalid == "GPU 0 reported Xid 79 (the GPU has fallen off the bus)"

    def test_that_nobody_knows_are_looked_up(self):
        assert in_words([999]) == "Xid 999 (see docs.nvidia.com/deploy/xid-errors)"

    def test_are_listened_to_once_and_for_all_until_closed(self, fake_nvml, guarded):
        guards = guarded()
        guards.begin()
        guards.close()
        guards.close()
        assert len(fake_nvml.calls("nvmlEventSetCreate")) == len(fake_nvml.calls("nvmlEventSetFree")) == 1

    @pytest.mark.parametrize("code", ["GPU_IS_LOST", "RESET_REQUIRED"])
    def test_a_board_that_is_lost_makes_it_invalid(self, fake_nvml, guarded, code):
        fake_nvml.scenario("two-h200")
        guards = guarded("two-h200")
        fake_nvml.set(1, **{"error__*": code})
        found = guards.end()
        assert found.invalid.startswith("GPU 1 was lost: it does not answer any more (")
        assert "GPU 0" not in found.invalid
        assert found.warnings == ()

    def test_a_board_that_is_lost_before_makes_it_invalid_too(self, fake_nvml, guarded):
        guards = guarded()
        fake_nvml.set(0, **{"error__*": "GPU_IS_LOST"})
        guards.begin()
        assert "GPU 0 was lost" in guards.end().invalid


class TestHeat:
    @pytest.mark.parametrize(
        ("degrees", "invalid", "warned"),
        [([40, 83], False, False), ([84, 40], False, True), ([86, NOTHING], False, True), ([40, 87], True, False)],
    )
    def test_is_judged_by_the_boards_own_limit(self, guarded, degrees, invalid, warned):
        guards = guarded()
        found = guards.end([samples(boards()[0].uuid, temperature_c=degrees)])
        assert (found.invalid is not None, found.warnings != ()) == (invalid, warned)
        said = found.invalid or " ".join(found.warnings)
        assert ("slows down at 87 °C" in said) is (invalid or warned)

    @pytest.mark.parametrize(
        ("functions", "what"),
        [(["Temperature", "TemperatureV"], "temperature"), (["TemperatureThreshold"], "slowdown temperature")],
    )
    def test_that_surprisingly_cannot_be_read_is_told_once(self, fake_nvml, guarded, functions, what):
        fake_nvml.set(0, **{f"error__nvmlDeviceGet{function}": "UNKNOWN" for function in functions})
        guards = guarded()
        found = guards.end([samples(boards()[0].uuid, temperature_c=[40])])
        assert found.invalid is None
        (warning,) = found.warnings
        assert warning.startswith("What would make a measurement doubtful could not be looked at: ")
        assert f"{what}: Unknown Error" in warning
        guards.begin()
        assert guards.end() == CLEAN

    def test_without_a_limit_says_nothing(self, fake_nvml, guarded):
        fake_nvml.set(0, error__nvmlDeviceGetTemperatureThreshold="NOT_SUPPORTED")
        guards = guarded()
        assert guards.end([samples(boards()[0].uuid, temperature_c=[200])]) == CLEAN

    def test_that_was_not_read_says_nothing(self, guarded):
        guards = guarded()
        assert guards.end([samples(boards()[0].uuid, temperature_c=[NOTHING])]) == CLEAN


class TestPersistence:
    def test_switched_off_is_a_warning_with_the_command(self, fake_nvml, guarded):
        fake_nvml.scenario("two-h200")
        fake_nvml.set(1, persistence="no")
        found = guarded("two-h200").end()
        assert found.invalid is None
        (warning,) = found.warnings
        assert warning.endswith("sudo nvidia-smi -i 1 -pm 1")


class TestRefusals:
    FUNCTIONS = (
        "TotalEccErrors",
        "RemappedRows",
        "PersistenceMode",
        "ComputeRunningProcesses",
        "TemperatureThreshold",
        "Temperature",
    )

    @pytest.mark.parametrize("function", [*(f"nvmlDeviceGet{name}" for name in FUNCTIONS), "nvmlDeviceRegisterEvents"])
    def test_what_a_board_does_not_have_is_no_suspicion(self, fake_nvml, guarded, function):
        fake_nvml.set(0, **{f"error__{function}": "NOT_SUPPORTED"})
        assert guarded().end() == CLEAN

    def test_a_board_without_ecc_is_clean(self, fake_nvml, guarded):
        fake_nvml.set(0, ecc="no")
        assert guarded().end() == CLEAN

    def test_a_surprise_is_told_once(self, fake_nvml, guarded):
        fake_nvml.set(0, error__nvmlDeviceGetTotalEccErrors="NO_PERMISSION", error__nvmlDeviceRegisterEvents="UNKNOWN")
        guards = guarded()
        found = guards.end()
        assert found.invalid is None
        (warning,) = found.warnings
        assert warning.count("nvmlDeviceGetTotalEccErrors") == warning.count("nvmlDeviceRegisterEvents") == 1
        assert "Insufficient Permissions" in warning
        guards.begin()
        assert guards.end() == CLEAN
        fake_nvml.set(0, error__nvmlDeviceGetComputeRunningProcesses="UNKNOWN")
        (warning,) = guards.end().warnings
        assert "processes: Unknown Error" in warning
        assert "Ecc" not in warning

    def test_a_board_that_refuses_everything_is_one_warning(self, fake_nvml, guarded):
        guards = guarded()
        fake_nvml.set(0, **{"error__*": "UNKNOWN"})
        guards.begin()
        found = guards.end()
        assert found.invalid is None
        assert len(found.warnings) == 1


class TestIdleness:
    @pytest.mark.parametrize(("load", "idle"), [(0, True), (0.4, False)])
    def test_of_a_sampled_board(self, fake_nvml, guarded, load, idle):
        fake_nvml.load(0, load)
        guards = guarded("h200", "[board 0]\nlatency.nvmlDeviceGetTotalEnergyConsumption_ms = 0")
        rounds = iter(range(12))
        with Nvml() as nvml:
            sampling = Sampling([nvml.device(nvml.boards()[0])], 0.001)
            sampling.settle()
            sampling.run(lambda _: next(rounds, None) is None)
            read = sampling.finish()
        assert idle_throughout(read) is idle
        found = guards.end(read)
        assert found.invalid is None
        assert [warning.startswith("The boards were idle") for warning in found.warnings] == [True] * idle

    @pytest.mark.parametrize(
        ("one", "idle"),
        [
            (samples(reasons=[IDLE] * 20), True),
            (samples(reasons=[IDLE | LOCKED] * 20 + [-1]), True),
            (samples(reasons=[IDLE] * 20 + [LOCKED]), False),
            (samples(reasons=[IDLE] * 3), False),
            (samples(reasons=[-1] * 20), False),
            (samples(reasons=[LOCKED] * 20, utilization=[0, 0]), True),
            (samples(reasons=[LOCKED] * 20, utilization=[0, 0.1]), False),
            (samples(reasons=[LOCKED] * 20, utilization=[0, 0], seconds=0.5), False),
            (samples(reasons=[-1] * 20, utilization=[NOTHING, NOTHING]), False),
        ],
    )
    def test_by_what_was_read(self, one, idle):
        assert idle_throughout([one]) is idle

    def test_of_one_board_while_another_works_is_none(self):
        idle, busy = samples(reasons=[IDLE] * 20), samples(reasons=[0] * 20)
        assert idle_throughout([idle, idle])
        assert not idle_throughout([idle, busy])

    def test_without_samples_is_unknown(self):
        assert not idle_throughout([])


class TestCounter:
    @pytest.mark.parametrize(
        ("joules", "seconds", "stuck"), [([5, 5], 2, True), ([5, 6], 2, False), ([5, 5], 0.2, False)]
    )
    def test_that_stands_still_is_a_warning(self, guarded, joules, seconds, stuck):
        guards = guarded()
        found = guards.end([samples(boards()[0].uuid, counter_j=joules, seconds=seconds)])
        assert found.invalid is None
        assert found.warnings == (("The energy counter of GPU 0 did not move while it was measured.",) if stuck else ())
