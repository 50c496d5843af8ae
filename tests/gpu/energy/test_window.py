"""What the boards of an engine said within a window, and how it is kept in a file."""

import json
import re
from array import array

import pytest

from pytest_llmperf.gpu import Activity, Unreadable
from pytest_llmperf.gpu.energy import NoEnergy
from pytest_llmperf.gpu.energy.window import NOBODY_READ, read_window
from pytest_llmperf.gpu.sampling.file import dump_samples, load_samples

from ..readings import S, board_samples


def test_joules_and_bytes_are_added_and_shares_averaged():
    first = board_samples("GPU-a", watts=200, clock=1500, memory=10, utilization=0.8, dram=0.5, tensor=0.1, sm=0.9)
    second = board_samples("GPU-b", watts=300, clock=1500, memory=20, utilization=0.4, dram=0.7, tensor=0.3, sm=0.8)
    found = read_window([first, second], S, 2 * S)
    assert found.energy.source == "counter"
    assert found.energy.watts == pytest.approx(500, rel=0.01)
    assert found.integral.value == pytest.approx(500)
    assert [board.uuid for board in found.boards] == ["GPU-a", "GPU-b"]
    assert found.memory_used == 30
    assert found.gpu_utilization == pytest.approx(0.6)
    assert found.dram_utilization == pytest.approx(0.6)
    assert found.tensor_utilization == pytest.approx(0.2)
    assert found.sm_activity == pytest.approx(0.85)
    assert found.sm_clock_hz == 1500e6


def test_without_a_counter_the_power_readings_stand():
    found = read_window([board_samples(watts=250, seconds=4, counter=False)], 0, 4 * S)
    assert (found.energy.value, found.energy.source) == (pytest.approx(1000), "integral")


def test_a_board_without_a_counter_among_others_stands_by_its_power_readings():
    found = read_window([board_samples("GPU-a"), board_samples("GPU-b", counter=False)], 0, 3 * S)
    assert (found.energy.source, found.energy.watts) == ("mixed", pytest.approx(400))
    assert [board.energy.source for board in found.boards] == ["counter", "integral"]


@pytest.mark.parametrize(
    ("window", "change", "reason"),
    [
        ((20, 80), {}, "too short"),
        ((20, 2000), {"fall": 1000}, "fell"),
    ],
)
def test_what_a_counter_does_not_tell_is_not_made_up_from_power(window, change, reason):
    samples = board_samples(tick_ms=100)
    for number, at in enumerate(samples.counter_at_ns):
        if at / 1e6 >= change.get("fall", float("inf")):
            samples.counter_j[number] -= 1e6
    found = read_window([samples], *(at * 1_000_000 for at in window))
    assert reason in found.energy.reason
    assert found.boards[0].energy == found.energy


def test_too_few_power_readings_are_no_energy():
    samples = board_samples(counter=False)
    assert isinstance(read_window([samples], S, S + 5_000_000).energy, NoEnergy)


def test_neither_is_null_with_both_reasons():
    found = read_window([board_samples(counter=False, power=False)], 0, 3 * S)
    assert found.energy == NoEnergy("the energy counter is not supported; the power is not supported")


def test_what_one_board_refuses_has_no_sum():
    second = board_samples(
        "GPU-b", memory_used=array("d", [float("nan")] * 16), refused={"memory_used": "no permission"}
    )
    assert read_window([board_samples("GPU-a"), second], 0, 3 * S).memory_used == Unreadable("no permission")


def test_activity_that_is_not_supported_says_so():
    found = read_window([board_samples(refused={"activity": "GPM is not supported"})], 0, 3 * S)
    assert found.dram_utilization == found.sm_activity == Unreadable("GPM is not supported")


def test_only_the_window_counts():
    samples = board_samples(utilization=0.5)
    samples.utilization = array("d", (0.0 if at < S else 1.0 for at in samples.slow_at_ns))
    assert read_window([samples], S, 2 * S).gpu_utilization == 1.0


@pytest.mark.parametrize("times", [1e3, 1e9])
def test_a_counter_that_jumps_says_more_than_the_board_can_draw(times):
    jumped, other = board_samples("GPU-a", power_limit_w=700.0), board_samples("GPU-b", power_limit_w=700.0)
    for number, at in enumerate(jumped.counter_at_ns):
        jumped.counter_j[number] *= times if at > 1.5 * S else 1
    found = read_window([jumped, other], S, 2 * S)
    assert re.fullmatch(
        r"the energy counter says 1e\+\d+ W, and the board's limit is 700 W", found.boards[0].energy.reason
    )
    assert found.energy == found.boards[0].energy
    assert found.boards[1].energy.watts == pytest.approx(200, rel=0.01)
    assert found.integral.value == pytest.approx(400)


def test_power_readings_beyond_what_the_board_can_draw_are_none():
    found = read_window([board_samples(watts=2e6, counter=False, power_limit_w=700.0)], S, 2 * S)
    assert found.integral == NoEnergy("the power readings say 2e+06 W, and the board's limit is 700 W")
    assert found.energy == NoEnergy(f"there is no energy counter; {found.integral.reason}")


@pytest.mark.parametrize(("watts", "limit"), [(1390, 700.0), (1e6, None)])
def test_a_limit_that_is_kept_nearly_or_not_known_refuses_nothing(watts, limit):
    found = read_window([board_samples(watts=watts, power_limit_w=limit)], S, 2 * S)
    assert found.energy.watts == pytest.approx(watts, rel=0.01)


def test_no_board_is_one_reason_for_everything():
    assert read_window([], 0, S) is NOBODY_READ


def test_samples_are_kept_in_strict_json():
    before = board_samples(power=False, throttle_ns={"thermal": 3}, dram=0.5, power_limit_w=300.0)
    before.active(0, 200_000_000, Activity(0.25, 0.1, 0.5))
    line = dump_samples(before, 2)
    assert "\n" not in line
    json.loads(line, parse_constant=pytest.fail)
    launch, after = load_samples(line)
    assert launch == 2
    assert (after.at_ns, after.counter_j, after.reasons) == (before.at_ns, before.counter_j, before.reasons)
    assert (after.throttle_ns, after.dram, after.tensor) == ({"thermal": 3}, 0.5, None)
    assert all(watts != watts for watts in after.power_w)
    assert after.power_limit_w == 300.0
    older = json.loads(line)
    assert after.activity() == [(0, 200_000_000, 0.25)]
    for name in ("power_limit_w", "activity_since_ns", "activity_at_ns", "sm_active"):
        del older[name]
    again = load_samples(json.dumps(older))[1]
    assert (again.power_limit_w, again.activity()) == (None, [])


def test_a_board_that_was_not_read_at_all_is_kept_too():
    samples = board_samples(seconds=-1)
    assert load_samples(dump_samples(samples, 0))[1].at_ns == array("q")
