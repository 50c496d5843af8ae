"""Idle power: of made-up samples, and of boards of the fake driver library against what they draw."""

import asyncio
import json
import math
from array import array
from dataclasses import replace

import pytest

from pytest_llmperf.clock import MonotonicClock, VirtualClock
from pytest_llmperf.errors import EngineError
from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy.idle import BoardIdle, Floor, IdleLadder, IdlePower, idle_of, idle_power, idle_window_s
from pytest_llmperf.gpu.energy.sensor import Gauge, Sensor
from pytest_llmperf.gpu.nvml import Nvml
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.gpu.sampling.watch import BoardWatch

MS = 1_000_000
IDLE = 1 << REASONS.index("gpu_idle")


def samples(uuid="GPU-0", *, watts=80.0, seconds=1.5, counter_ms=100, utilization=(0.0,), reasons=(IDLE,), refused=()):
    """Of a steady board; ``counter_ms`` 0 is a counter that stands still, ``None`` none at all."""
    made = BoardSamples(uuid, refused=dict(refused))
    for number in range(round(seconds * 100)):
        made.at_ns.append(number * 10 * MS)
        made.power_w.append(math.nan if watts is None else watts)
        made.sm_clock_mhz.append(345)
        made.reasons.append(reasons[number % len(reasons)])
        if counter_ms is not None and number % 2 == 0:
            made.counter_at_ns.append(number * 10 * MS)
            ticks = number * 10 // counter_ms if counter_ms else 0
            made.counter_j.append(5000 + (watts or 0) * ticks * counter_ms / 1e3)
    made.utilization = array("d", utilization)
    return made


def watts(value, **boards):
    return IdlePower({uuid: BoardIdle(one, 0.1, "counter") for uuid, one in (boards or {"GPU-0": value}).items()})


def test_the_counter_between_its_steps():
    power = idle_of([samples()])
    assert power.watts == pytest.approx(80)
    # Two steps, each known to 20 ms, 1.3 s apart.
    assert power.error == pytest.approx(80 * math.sqrt(2 / 12) * 0.02 / 1.3, rel=0.01)
    assert power.boards["GPU-0"].source == "counter"


def test_two_boards_add_up_and_so_do_the_squares_of_their_errors():
    power = idle_of([samples("GPU-0", watts=80.0), samples("GPU-1", watts=60.0)])
    assert power.watts == pytest.approx(140)
    first, second = (board.error for board in power.boards.values())
    assert power.error == pytest.approx(math.hypot(first, second))


@pytest.mark.parametrize("counter_ms", [None, 0])
def test_without_a_counter_that_steps_the_power_readings_count(counter_ms):
    (board,) = idle_of([samples(counter_ms=counter_ms)]).boards.values()
    assert (board.watts, board.source) == (pytest.approx(80), "integral")


def test_a_counter_that_jumps_leaves_the_power_readings():
    one = samples()
    one.power_limit_w = 700.0
    one.counter_j = array("d", (joules * (1000 if n > 40 else 1) for n, joules in enumerate(one.counter_j)))
    (board,) = idle_of([one]).boards.values()
    assert (board.watts, board.source) == (pytest.approx(80), "integral")


def test_a_power_sensor_that_says_nothing_but_zero_is_no_figure():
    found = idle_of([samples(watts=0.0)])
    assert isinstance(found, Unreadable)
    assert "says 0 W" in found.reason


def test_readings_that_scatter_are_less_certain():
    made = samples(counter_ms=None)
    made.power_w = array("d", [79.0 if number // 10 % 2 else 81.0 for number in range(150)])
    power = idle_of([made])
    assert power.watts == pytest.approx(80, abs=0.3)
    assert power.error == pytest.approx(1 / math.sqrt(15), rel=0.1)  # of the 15 values, not of the 150 readings


def test_neither_counter_nor_power_is_no_figure():
    refused = {"energy": "energy counter: Not Supported", "power": "power: No Permission"}
    power = idle_of([samples(), samples("GPU-1", watts=None, counter_ms=None, refused=refused)])
    for words in ("GPU-1", "Not Supported", "No Permission"):
        assert words in power.reason
    assert idle_of([]).reason == "no board was read"


@pytest.mark.parametrize(
    ("utilization", "reasons", "busy"),
    [
        ([0.0, 0.9, 0.9], [IDLE], True),
        ([0.9] + [0.0] * 9, [IDLE], False),  # what ran before is still in the first
        ([0.9] * 2 + [0.0] * 9, [IDLE], True),
        ([0.02] * 3, [IDLE], False),  # a desktop
        ([0.0] * 3, [0], False),  # a clock that is held need not be called idle
        ([], [0], True),
        ([math.nan] * 3, [0, 0, IDLE], True),
        ([math.nan] * 3, [0] + [IDLE] * 4, True),
        ([math.nan] * 3, [0] + [IDLE] * 9, False),
        ([], [-1], False),
    ],
)
def test_a_board_that_worked_was_not_idle(utilization, reasons, busy):
    power = idle_of([samples("GPU-0"), samples("GPU-1", utilization=utilization, reasons=reasons)])
    if busy:
        assert power.reason.startswith("the board was busy")
        assert "GPU-1 worked in" in power.reason
    else:
        assert power.watts == pytest.approx(160)


class Watched:
    """A watch that notes the time of its calls, and reads one set of samples after the other, the last one forever."""

    def __init__(self, clock, *reads, broken=False):
        self.clock, self.reads, self.broken, self.at = clock, list(reads) or [samples()], broken, []

    async def begin(self):
        self.at.append(self.clock.now())

    async def end(self):
        self.at.append(self.clock.now())
        if self.broken:
            raise EngineError("The process ended.")
        return [self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]]


def test_first_it_settles_then_it_is_read():
    clock = VirtualClock()
    watch = Watched(clock)
    with clock.runner() as runner:
        power = runner.run(idle_power(watch, clock, settle_s=0.5, window_s=1.25))
    assert watch.at == [500 * MS, 1750 * MS]
    assert power.watts == pytest.approx(80)


def read(*reads, patiently=False):
    clock = VirtualClock()
    watch = Watched(clock, *reads)
    with clock.runner() as runner:
        power = runner.run(idle_power(watch, clock, settle_s=1, window_s=1.5, patiently=patiently))
    return power, len(watch.at) // 2


def falling(first, last, **more):
    """A board that drops from one power to another in the middle."""
    made, after = samples(watts=first, **more), samples(watts=last, **more)
    half = len(made.at_ns) // 2
    made.power_w[half:] = after.power_w[half:]
    if made.counter_j:
        joules, at = [], len(made.counter_j) // 2
        for number, value in enumerate(made.counter_j):
            since = max(0, number // 5 * 5 - at // 5 * 5)  # whole ticks of 100 ms at the lower power
            joules.append(value - (first - last) * since * 0.02)
        made.counter_j[:] = type(made.counter_j)(made.counter_j.typecode, joules)
    return made


@pytest.mark.parametrize("counter_ms", [100, None])
def test_a_board_that_has_not_come_to_rest_is_read_again(counter_ms):
    power, times = read(
        falling(120.0, 80.0, counter_ms=counter_ms), falling(84.0, 79.0, counter_ms=counter_ms),
        samples(watts=79.0, counter_ms=counter_ms),
    )  # fmt: skip
    assert times == 4
    assert power.watts == pytest.approx(79)


def test_one_that_never_rests_says_so_in_its_error():
    power, times = read(falling(120.0, 80.0))
    assert times == 15
    assert power.restless == ("GPU-0",)
    assert power.watts == pytest.approx(100, rel=0.1)
    assert power.error == pytest.approx(20, rel=0.15)
    assert read(samples())[0].error < 1


def test_one_that_falls_slowly_is_waited_for_where_there_is_time():
    slowly = [samples(watts=79 + 20 * math.exp(-1.5 * n / 5)) for n in range(30)]
    power, times = read(*slowly, patiently=True)
    assert times > 5
    assert power.watts == pytest.approx(79, abs=2)
    assert not power.restless
    assert read(samples(watts=79.0), patiently=True)[1] == 2
    hasty, times = read(*slowly)
    assert (round(hasty.watts), times) == (99, 1)


def test_one_that_swings_between_readings_is_restless_and_its_error_says_so():
    power, times = read(*[samples(watts=120.0 if n % 2 else 80.0) for n in range(30)], patiently=True)
    assert times == 15
    assert power.error == pytest.approx(20, rel=0.1)
    floor = Floor(("GPU-0",), power, watts(110.0), watts(125.0), Unreadable("no clock"))
    assert floor.restless == ["bare: GPU-0 had not come to rest when it was read (80 W, +- 20 W)."]


def test_one_that_is_busy_is_not_waited_for():
    power, times = read(samples(utilization=(0.9,)))
    assert (power.cause, times) == ("busy", 1)


def test_how_long_to_read():
    no, slow = Unreadable("no"), Gauge(0.1, 0.005)
    fast = Sensor(Gauge(0.02, 1e-4), no)
    assert idle_window_s([]) == idle_window_s([fast]) == idle_window_s([Sensor(no, no)]) == 1
    assert idle_window_s([fast, Sensor(slow, slow)]) == Sensor(slow, slow).shortest_window_s() > 1
    assert idle_window_s([Sensor(no, slow)]) == pytest.approx(2)


def test_what_net_energy_takes_off():
    ladder = IdleLadder(watts(79.0), watts(125.0), {"900": watts(128.0), "1200": Unreadable("the board was busy")})
    assert ladder.floor(None).watts == 125
    assert ladder.floor("900").watts == 128
    assert ladder.floor("1200").reason == "the board was busy"
    assert "(900+memory2619)" in ladder.floor("900+memory2619").reason
    assert "not measured" in IdleLadder().floor(None).reason


def test_the_record_of_a_ladder():
    two = watts(0, **{"GPU-0": 60.0, "GPU-1": 70.0})
    ladder = IdleLadder(watts(79.0), Unreadable("the clock was held"), {"1200": Unreadable("busy"), "900": two})
    found = ladder.to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found["held_w"]) == ["900", "1200"]
    assert replace(ladder, context=watts(110.0)).to_json()["context_w"] == 110
    assert found == {
        "bare_w": 79,
        "bare_at_mhz": None,
        "context_w": None,
        "loaded_w": None,
        "held_w": {"900": 130, "1200": None},
        "standard_error_w": {"bare": 0.1, "held 900": math.hypot(0.1, 0.1)},
        "boards_w": {"GPU-0": {"bare": 79, "held 900": 60}, "GPU-1": {"held 900": 70}},
        "reasons": {"context": "only check_idle measures it", "loaded": "the clock was held", "held 1200": "busy"},
    }


def test_a_floor_is_invalid_where_a_board_was_not_idle_or_lost_and_not_for_what_it_cannot_have():
    floor = Floor(("GPU-0",), watts(79.0), Unreadable("no libcuda", "absent"), watts(125.0), Unreadable("no clock"))
    assert floor.invalid is None
    assert replace(floor, bare=Unreadable("PID 1 was there", "busy")).invalid == "bare: PID 1 was there"
    both = replace(floor, context=Unreadable("gone", "lost"), locked=Unreadable("it worked", "busy"))
    assert both.invalid == "context: gone; locked: it worked"


def test_a_board_that_worked_is_told_from_one_that_cannot_be_read():
    assert idle_of([samples(utilization=(0.9,))]).cause == "busy"
    assert idle_of([]).cause == "other"


def measured(seconds=1.0, times=1):
    """By the real sampler."""
    with Nvml() as nvml:
        watch = BoardWatch([board.uuid for board in nvml.boards()])

    async def work():
        clock = MonotonicClock()
        return [await idle_power(watch, clock, settle_s=0, window_s=seconds) for _ in range(times)]

    try:
        return asyncio.run(work())[-1]
    finally:
        watch.close()


LOADED = "[boards]\nprocesses = 500:9000\n"


@pytest.mark.parametrize(
    ("scenario", "bare", "loaded", "held"),
    [
        ("v100", 23, 17, 12 * (900 - 345) / (1530 - 345)),
        ("h200", 79, 46, 8 * (900 - 345) / (1980 - 345)),
        ("two-h200", 79 + 82, 2 * 46, 2 * 8 * (900 - 345) / (1980 - 345)),
    ],
)
def test_every_rung_of_the_ladder(fake_nvml, scenario, bare, loaded, held):
    def near(power, truth):
        assert power.watts == pytest.approx(truth, abs=max(4 * power.error, 0.01 * truth))
        assert {board.source for board in power.boards.values()} == {"counter"}

    fake_nvml.scenario(scenario)
    near(measured(), bare)
    fake_nvml.scenario(scenario, LOADED)
    near(measured(), bare + loaded)
    with Nvml() as nvml:
        for board in nvml.boards():
            nvml.device(board).lock_sm_clock(900)
        # V100's clocks are steps of 7.5 MHz.
        assert measured().watts == pytest.approx(bare + loaded + held, rel=0.03)
        for board in nvml.boards():
            nvml.device(board).unlock_sm_clock()


def test_a_consumer_board_by_its_power(fake_nvml):
    fake_nvml.scenario("consumer", LOADED)
    power = measured()
    assert power.watts == pytest.approx(52, rel=0.03)
    assert {board.source for board in power.boards.values()} == {"integral"}


def test_a_stalled_counter_leaves_the_power(fake_nvml):
    fake_nvml.scenario("h200", "[board 0]\nenergy_stall_s = 0\n")
    power = measured()
    assert power.watts == pytest.approx(79, rel=0.03)
    assert {board.source for board in power.boards.values()} == {"integral"}


def test_one_busy_board_of_two(fake_nvml):
    fake_nvml.scenario("two-h200", "[board 1]\nload = 0.3\n")
    assert measured(0.5).reason.startswith("the board was busy")
