"""All boards at a clock or none, each unlocked once whatever happens."""

import itertools
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu.clocks import ClockLock, ExpectedClock, clock_step, common_clocks, snap
from pytest_llmperf.gpu.clocks.control import BoardId, Clock, DeviceControl
from pytest_llmperf.gpu.clocks.record import LockRecord, Owner, RecordFolder
from tests.gpu.devices import NO_PERMISSION, NOT_SUPPORTED, FakeDevice

CLOCKS = tuple(range(345, 1981, 15))


class TestSnap:
    @pytest.mark.parametrize(
        ("asked", "clock"),
        [(1500, 1500), (1501, 1500), (1499, 1500), (1508, 1515), (1, 345), (99999, 1980), (-5, 345)],
    )
    def test_to_the_nearest(self, asked, clock):
        assert snap(asked, CLOCKS) == clock

    def test_of_two_equally_near_ones_the_lower(self):
        assert snap(110, (100, 120)) == snap(110, (120, 100)) == 100

    def test_to_nothing_is_an_error(self):
        with pytest.raises(GpuError, match="no clock"):
            snap(1500, ())

    @given(st.integers(0, 4000), st.sets(st.integers(1, 3000), min_size=1))
    def test_no_supported_clock_is_nearer(self, asked, clocks):
        chosen = snap(asked, sorted(clocks))
        assert chosen in clocks
        assert all(abs(asked - clock) >= abs(asked - chosen) for clock in clocks)
        assert snap(chosen, sorted(clocks)) == chosen

    def test_a_step_is_the_distance_to_the_next(self):
        assert clock_step(1500, CLOCKS) == clock_step(345, CLOCKS) == 15
        assert clock_step(100, (100, 130, 90)) == 10
        assert clock_step(100, (100,)) == clock_step(100, ()) == 0

    def test_boards_have_the_clocks_that_all_of_them_have(self):
        devices = [FakeDevice(0, [], clocks=(100, 200, 300)), FakeDevice(1, [], clocks=(200, 300, 400))]
        assert common_clocks(devices) == (200, 300)
        assert common_clocks([]) == ()

    def test_a_board_that_does_not_say_is_named(self):
        with pytest.raises(GpuError, match=r"GPU 1 .*Not Supported"):
            common_clocks([FakeDevice(0, []), FakeDevice(1, [], clocks=None)])


def lock_on(tmp_path, *refusals, controls=None):
    """A lock on as many boards, with what each refuses, and the log of what they were told."""
    log = []
    devices = [FakeDevice(index, log, refuses=refuses) for index, refuses in enumerate(refusals)]
    control = DeviceControl({device.board.uuid: device for device in devices})
    lock = ClockLock(devices, controls=controls or [control], folder=tmp_path / "records")
    return lock, log, devices


def records(tmp_path):
    return RecordFolder(tmp_path / "records").all()


class TestLock:
    def test_all_boards_within_the_block_and_none_after_it(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {})
        with lock.hold(1500):
            assert log == [(0, "lock", 1500), (1, "lock", 1500)]
            assert lock.clock == Clock(1500)
            (record,) = records(tmp_path)
            assert record.owner.pid == os.getpid()
            assert [board.index for board in record.boards] == [0, 1]
            assert (record.clock, record.stale) == (Clock(1500), False)
        assert log[2:] == [(0, "unlock"), (1, "unlock")]
        assert lock.clock is None
        assert records(tmp_path) == []

    def test_the_memory_clock_too_when_asked(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(1500, 2619):
            pass
        assert log == [(0, "lock", 1500), (0, "lock memory", 2619), (0, "unlock memory"), (0, "unlock")]

    def test_the_memory_clock_alone(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {})
        with lock.hold(None, 2619):
            assert lock.clock == records(tmp_path)[0].clock == Clock(None, 2619)
        assert log == [(0, "lock memory", 2619), (1, "lock memory", 2619), (0, "unlock memory"), (1, "unlock memory")]

    def test_an_inner_block_that_lets_the_sm_clock_run_free(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(None, 2619), lock.hold(1500, 2619):
            assert records(tmp_path)[0].clock == Clock(1500, 2619)
        assert [entry[1:] for entry in log] == [
            ("lock memory", 2619), ("lock", 1500), ("lock memory", 2619), ("lock memory", 2619), ("unlock",),
            ("unlock memory",),
        ]  # fmt: skip

    def test_freed_boards_are_unlocked_for_a_while_and_stay_in_the_record(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {})
        assert not lock.own
        with lock.hold(1500), lock.hold(900, 2619):
            before, told = records(tmp_path), len(log)
            with lock.free():
                assert [entry[1:] for entry in log[told:] if entry[0] == 1] == [("unlock memory",), ("unlock",)]
                assert records(tmp_path) == before
                assert lock.own
            assert records(tmp_path) == before
            assert lock.clock == Clock(900, 2619)
            assert [entry[1:] for entry in log[told + 4 :] if entry[0] == 1] == [("lock", 900), ("lock memory", 2619)]
        assert records(tmp_path) == []
        assert log[-2:] == [(0, "unlock"), (1, "unlock")]

    def test_freeing_alone_leaves_the_clock_alone_that_is_not_held(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(None, 2619), lock.free():
            pass
        assert [entry[1:] for entry in log] == [
            ("lock memory", 2619), ("unlock memory",), ("lock memory", 2619), ("unlock memory",),
        ]  # fmt: skip

    def test_what_fails_while_the_boards_are_freed_leaves_them_held(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {})
        with lock.hold(1500):
            with pytest.raises(KeyboardInterrupt), lock.free():
                raise KeyboardInterrupt
            assert log[4:] == [(0, "lock", 1500), (1, "lock", 1500)]

    def test_a_board_that_refuses_to_be_freed_leaves_all_held(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {}, {})
        with lock.hold(1500):
            devices[1].refuses["unlock"] = NOT_SUPPORTED
            with pytest.raises(GpuError, match="Not Supported"), lock.free():
                pytest.fail("it was not free")
            assert log[2:] == [(0, "unlock"), (0, "lock", 1500), (1, "lock", 1500)]
            devices[1].refuses.clear()

    def test_a_board_that_refuses_to_be_locked_again_does_not_keep_others_from_it(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {}, {})
        with lock.hold(1500):
            with pytest.raises(GpuError, match="Not Supported"), lock.free():
                devices[0].refuses["lock"] = NOT_SUPPORTED
            assert log[4:] == [(1, "lock", 1500)]
            assert records(tmp_path)[0].clock == Clock(1500)
        assert log[5:] == [(0, "unlock"), (1, "unlock")]

    def test_nothing_is_freed_where_nothing_is_held(self, tmp_path):
        lock, _, _ = lock_on(tmp_path, {})
        with pytest.raises(AssertionError, match="nothing is held"), lock.free():
            pass

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_a_block_that_fails_unlocks_once(self, tmp_path, error):
        lock, log, _ = lock_on(tmp_path, {}, {})
        with pytest.raises(error), lock.hold(1500):
            raise error
        lock.close()
        lock.close()
        assert log[2:] == [(0, "unlock"), (1, "unlock")]

    def test_a_sweep_returns_to_the_sessions_clock(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(1500):
            for clock in (900, 1200):
                with lock.hold(clock):
                    assert lock.clock == records(tmp_path)[0].clock == Clock(clock)
                assert lock.clock == records(tmp_path)[0].clock == Clock(1500)
        assert [entry[1:] for entry in log] == [
            ("lock", 1500), ("lock", 900), ("lock", 1500), ("lock", 1200), ("lock", 1500), ("unlock",),
        ]  # fmt: skip

    def test_a_memory_clock_of_an_inner_block_ends_with_it(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(1500), lock.hold(1500, 2619):
            pass
        assert [entry[1:] for entry in log[2:]] == [
            ("lock memory", 2619), ("lock", 1500), ("unlock memory",), ("unlock",),
        ]  # fmt: skip

    def test_closing_ends_all_blocks_and_leaving_them_does_no_more(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        with lock.hold(1500), lock.hold(900):
            lock.close()
            assert log[-1] == (0, "unlock")
        assert log.count((0, "unlock")) == 1

    def test_it_can_be_used_again(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})
        for _ in range(2):
            with lock.hold(1500):
                pass
        assert log == [(0, "lock", 1500), (0, "unlock")] * 2

    def test_a_forked_child_unlocks_nothing(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {})

        def child(pipe):
            lock.close()
            pipe.send(list(log))

        ours, theirs = multiprocessing.Pipe()
        with lock.hold(1500):
            process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
            process.start()
            process.join()
            assert ours.recv() == [(0, "lock", 1500)]
        assert log[-1] == (0, "unlock")


class TestRefusals:
    def test_when_the_second_board_refuses_the_first_is_released(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {"lock": NOT_SUPPORTED})
        with pytest.raises(GpuError, match="Not Supported"), lock.hold(1500):
            raise AssertionError
        assert log == [(0, "lock", 1500), (0, "unlock")]
        assert lock.clock is None
        assert records(tmp_path) == []

    def test_a_refused_memory_clock_leaves_nothing_locked(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {"lock memory": NOT_SUPPORTED})
        refusal = "GPU 1 .* cannot hold its memory clock at 2619 MHz.*Not Supported.*--gpu-memory-clock"
        with pytest.raises(GpuError, match=refusal), lock.hold(1500, 2619):
            raise AssertionError
        assert sorted(entry[:2] for entry in log if "unlock" in entry[1]) == [
            (0, "unlock"), (0, "unlock memory"), (1, "unlock"),
        ]  # fmt: skip

    def test_when_an_inner_clock_is_refused_the_outer_one_stays(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {}, {("lock", 900): NOT_SUPPORTED})
        with lock.hold(1500):
            with pytest.raises(GpuError, match="Not Supported"), lock.hold(900):
                raise AssertionError
            assert lock.clock == records(tmp_path)[0].clock == Clock(1500)
            assert log[2:] == [(0, "lock", 900), (0, "lock", 1500), (1, "lock", 1500)]
        assert log[-2:] == [(0, "unlock"), (1, "unlock")]

    def test_without_permission_the_three_ways_out_are_named(self, tmp_path):
        lock, log, _ = lock_on(tmp_path, {"lock": NO_PERMISSION})
        with pytest.raises(GpuPermissionError) as caught, lock.hold(1500):
            raise AssertionError
        for words in ("CAP_SYS_ADMIN", "sudo -n nvidia-smi", "--gpu-clock-mode expect", "-i 0 -lgc 1500,1500"):
            assert words in str(caught.value)
        assert log == []
        assert records(tmp_path) == []

    def test_without_permission_the_next_control_is_tried(self, tmp_path):
        log = []
        devices = [FakeDevice(0, log, refuses={"lock": NO_PERMISSION})]
        other = [FakeDevice(0, log)]
        controls = [DeviceControl({"GPU-0": board}) for board in (devices[0], other[0])]
        with ClockLock(devices, controls=controls, folder=tmp_path).hold(1500):
            assert log == [(0, "lock", 1500)]
        assert log == [(0, "lock", 1500), (0, "unlock")]

    def test_a_release_that_fails_is_shouted_and_the_others_are_released(self, tmp_path, capsys):
        lock, log, _ = lock_on(tmp_path, {"unlock": NOT_SUPPORTED}, {})
        with pytest.warns(UserWarning, match="STILL LOCKED"), lock.hold(1500):
            pass
        assert log[2:] == [(1, "unlock")]
        shouted = capsys.readouterr().err
        assert "STILL LOCKED at 1500 MHz: GPU 0" in shouted
        assert "GPU 1" not in shouted
        assert "sudo nvidia-smi -i 0 -rgc" in shouted
        (record,) = records(tmp_path)
        assert [board.index for board in record.boards] == [0]
        assert record.stale
        lock.close()
        assert log[2:] == [(1, "unlock")]

    def test_a_memory_clock_that_stays_locked_has_its_own_command(self, tmp_path, capsys):
        lock, _, _ = lock_on(tmp_path, {"unlock memory": NOT_SUPPORTED})
        with pytest.warns(UserWarning, match="-rmc"), lock.hold(1500, 2619):
            pass
        assert "sudo nvidia-smi -i 0 -rgc; sudo nvidia-smi -i 0 -rmc" in capsys.readouterr().err
        lock, _, _ = lock_on(tmp_path / "other", {"unlock memory": NOT_SUPPORTED})
        with pytest.warns(UserWarning, match=r"Undo it with: sudo nvidia-smi -i 0 -rmc$"), lock.hold(None, 2619):
            pass

    def test_boards_that_a_living_process_holds_are_refused_by_its_name(self, tmp_path):
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            lock, log, devices = lock_on(tmp_path, {}, {})
            folder = RecordFolder(tmp_path / "records")
            held = LockRecord.mine((BoardId.of(devices[1]),), Clock(1500), "driver")
            folder.write(replace(held, owner=Owner.of(other.pid)))
            with pytest.raises(GpuError, match=f"GPU 1 .* by process {other.pid}.*kill {other.pid}"), lock.hold(900):
                raise AssertionError
            assert log == []
            (record,) = folder.all()
            assert record.owner.pid == other.pid
            # Other boards are nobody's business.
            with ClockLock(devices[:1], folder=folder.folder).hold(900):
                assert log == [(0, "lock", 900)]
            other.communicate(b"\n")

    def test_two_locks_of_one_process_do_not_fight(self, tmp_path):
        first, _, _ = lock_on(tmp_path, {})
        second, log, _ = lock_on(tmp_path, {}, {})
        with first.hold(1500), pytest.raises(GpuError, match="nest the blocks"), second.hold(900):
            raise AssertionError
        assert log == []


class TestBorrowed:
    """A process that was started by the one that holds the boards; here both are this one."""

    def borrower(self, tmp_path, devices, pid=None, clock=None):
        control = DeviceControl({device.board.uuid: device for device in devices})
        within = (os.getpid() if pid is None else pid, clock or Clock(1500))
        return ClockLock(devices, controls=[control], folder=tmp_path / "records", within=within)

    def test_the_clock_is_changed_and_put_back_and_the_record_follows(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {}, {})
        with lock.hold(1500):
            with self.borrower(tmp_path, devices).hold(900):
                assert [record.clock for record in records(tmp_path)] == [Clock(900)]
            assert [record.clock for record in records(tmp_path)] == [Clock(1500)]
        assert [entry[1:] for entry in log if entry[0] == 1] == [
            ("lock", 1500), ("lock", 900), ("lock", 1500), ("unlock",),
        ]  # fmt: skip

    def test_what_another_process_holds_is_not_freed_from_here(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {})
        borrowed = self.borrower(tmp_path, devices)
        with lock.hold(1500), borrowed.hold(900):
            assert (lock.own, borrowed.own) == (True, False)
            with pytest.raises(AssertionError, match="another process"), borrowed.free():
                pass
        assert ("unlock",) not in [entry[1:] for entry in log[:-1]]

    def test_what_was_not_put_back_is_undone_all_the_same(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {})
        with lock.hold(None, 2619):
            borrowed = self.borrower(tmp_path, devices, clock=Clock(None, 2619))
            borrowed._enter(Clock(900, 2619))  # and then the process dies
        assert sorted(entry[1:] for entry in log[-2:]) == [("unlock",), ("unlock memory",)]
        borrowed.close()
        assert len(log) == 5  # nothing was locked again

    def test_once_the_lock_is_released_a_change_is_refused(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {})
        borrowed = self.borrower(tmp_path, devices)
        with lock.hold(1500):
            borrowed._enter(Clock(900))
        with pytest.raises(GpuError, match="released it"), borrowed.hold(1200):
            raise AssertionError
        borrowed.close()
        assert log[-1] == (0, "unlock")

    def test_without_a_lock_to_borrow_it_makes_its_own(self, tmp_path):
        _, log, devices = lock_on(tmp_path, {})
        with self.borrower(tmp_path, devices).hold(900):
            assert records(tmp_path)[0].clock == Clock(900)
        assert log == [(0, "lock", 900), (0, "unlock")]
        assert records(tmp_path) == []

    def test_the_lock_of_another_process_than_the_one_named_is_none_to_borrow(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {})
        with lock.hold(1500), pytest.raises(GpuError, match="locked at 1500"):
            self.borrower(tmp_path, devices, pid=1)._enter(Clock(900))
        assert log == [(0, "lock", 1500), (0, "unlock")]

    def test_a_board_that_refuses_leaves_the_owners_clock(self, tmp_path):
        lock, log, devices = lock_on(tmp_path, {}, {("lock", 900): NOT_SUPPORTED})
        with lock.hold(1500):
            with pytest.raises(GpuError, match="Not Supported"), self.borrower(tmp_path, devices).hold(900):
                raise AssertionError
            assert records(tmp_path)[0].clock == Clock(1500)
            assert log[-2:] == [(0, "lock", 1500), (1, "lock", 1500)]


class TestExpected:
    def test_sets_nothing(self):
        with ExpectedClock().hold(1500, 2619), ExpectedClock().hold(900):
            pass


STEPS = st.lists(
    st.tuples(st.sampled_from([None, 900, 1200, 1500]), st.none() | st.just(2619)).filter(any), min_size=1, max_size=5
)


@example([(None, 2619), (None, 2619), (900, None)], {0, 1, 5, 6})
@given(STEPS, st.sets(st.integers(0, 30)))
def test_whatever_is_nested_and_refused_nothing_stays_locked(tmp_path_factory, steps, refused):
    """The n-th call that locks is refused for each n of ``refused``; those that unlock succeed."""
    state = {}
    count = itertools.count()

    class Control:
        name = "driver"

        def lock(self, board, clock):
            before = state.get(board.index, clock)
            if next(count) in refused and before != clock:
                raise NOT_SUPPORTED
            sm = before.sm_mhz if clock.sm_mhz is None else clock.sm_mhz
            memory = before.memory_mhz if clock.memory_mhz is None else clock.memory_mhz
            state[board.index] = Clock(sm, memory)

        def unlock(self, board, *, sm=True, memory=False):
            before = state.pop(board.index)  # a KeyError when it is not locked
            left = Clock(None if sm else before.sm_mhz, None if memory else before.memory_mhz)
            if left != Clock(None):
                state[board.index] = left

    devices = [FakeDevice(index, []) for index in range(2)]
    lock = ClockLock(devices, controls=[Control()], guarded=False)

    def nest(rest):
        if not rest:
            return
        with lock.hold(*rest[0]):
            assert state == {0: Clock(*rest[0]), 1: Clock(*rest[0])}
            nest(rest[1:])
            assert state == {0: Clock(*rest[0]), 1: Clock(*rest[0])}

    try:
        nest(steps)
    except GpuError:
        lock.close()
    assert state == {}
