"""The boards over time: what a chart may show of them, made from samples and traces whose truth is known."""

import json
import math
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gpu.sampling.sampler import REASONS
from pytest_llmperf.recording.curves import held
from pytest_llmperf.recording.timeline import timeline_record
from pytest_llmperf.results import Timeline
from pytest_llmperf.runner import Launch

from ..fakes import INFO, repeat, request
from ..gpu.readings import MS, S, board_samples

CAP = 1 << REASONS.index("sw_power_cap")
IDLE = 1 << REASONS.index("gpu_idle")


def launch(*repeats, samples=(), **changes):
    return Launch(3, INFO, repeats, samples=samples, **changes)


def batch(start_ms, first_ms, last_ms, number=0, size=2):
    return repeat(*[request(first_ms, last_ms, due=start_ms) for _ in range(size)], number=number)


def record(*repeats, samples, **changes):
    """As the file will hold it."""
    found = timeline_record(launch(*repeats, samples=samples, **changes))
    json.dumps(found, allow_nan=False)
    Timeline.model_validate(found)
    return found


def stretches(found):
    return list(pairwise([*found["seconds"], found["end"]]))


def at(found, name, seconds):
    """What a stretch that holds a moment shows."""
    (value,) = (v for v, (a, b) in zip(found[name], stretches(found), strict=True) if a <= seconds < b)
    return value


def phases(found):
    return [(p["phase"], p["start"], p["end"]) for p in found["phases"]]


WHOLE = batch(500, 700, 2500)


def test_the_window_begins_at_the_first_due_request():
    found = record(WHOLE, samples=(board_samples(),))
    assert found["launch"] == 3
    assert (found["seconds"][0], found["end"]) == (-0.1, 2.1)  # and a twentieth of it on either side
    assert phases(found) == [("prefill", 0, 0.2), ("decode", 0.2, 2)]
    assert set(found["power"]) == {200}
    assert set(found["sm_clock"]) == {1500e6}
    assert (found["capped"], found["capped_left_out"]) == ([], 0)


def test_of_the_time_about_the_window_there_is_only_what_was_read():
    found = record(batch(50, 200, 2950), samples=(board_samples(),))
    assert (found["seconds"][0], found["end"]) == (-0.05, 2.95)


def test_the_phases_of_a_batch_have_stretches_of_their_own():
    samples = board_samples(seconds=60)
    due, first, last = 1000, 1030, 59_000
    samples.power_w = array("d", (600.0 if due * MS <= t < first * MS else 200.0 for t in samples.at_ns))
    found = record(batch(due, first, last), samples=(samples,))
    assert at(found, "power", 0.015) == 600
    assert at(found, "power", 0.031) == 200
    assert len(found["power"]) <= 120


def test_power_is_added_and_the_slowest_clock_is_shown():
    first = board_samples("GPU-a", watts=200, clock=1500)
    second = board_samples("GPU-b", watts=300, clock=900)
    found = record(WHOLE, samples=(first, second))
    assert (set(found["power"]), set(found["sm_clock"])) == ({500}, {900e6})


def test_a_dip_of_the_clock_is_not_smoothed_away():
    samples = board_samples(seconds=60)
    samples.sm_clock_mhz[3000] = 345.0
    found = record(batch(0, 100, 60_000), samples=(samples,))
    assert at(found, "sm_clock", 30.0) == 345e6
    assert found["sm_clock"].count(345e6) == 1


def test_without_power_readings_the_counter_tells_the_power():
    found = record(WHOLE, samples=(board_samples(power=False, watts=240),))
    assert {round(watts) for watts in found["power"]} == {240}
    assert found["reason"].startswith("the SM activity")


def test_what_no_sensor_told_is_null_with_a_reason():
    nothing = array("d", [float("nan")] * 301)
    refused = {"sm_clock": "SM clock: no permission", "activity": "performance counters (GPM): not supported"}
    samples = board_samples(power=False, counter=False, sm_clock_mhz=nothing)
    samples.refused |= refused
    found = record(WHOLE, samples=(samples,))
    assert set(found["power"]) == set(found["sm_clock"]) == {None}
    assert found["sm_activity"] is None
    assert found["reason"] == "the power is not supported; " + "; ".join(refused.values())


def test_where_one_board_has_no_reading_there_is_no_sum():
    deaf = board_samples("GPU-b")
    for number in range(100, 150):
        deaf.power_w[number] = float("nan")
    found = record(WHOLE, samples=(board_samples("GPU-a"), deaf))
    assert at(found, "power", 0.75) is None
    assert (at(found, "power", 0.25), at(found, "power", 1.5)) == (400, 400)


def active(samples, values, every_ms=200):
    samples.activity_since_ns = array("q", (n * every_ms * MS for n in range(len(values))))
    samples.activity_at_ns = array("q", (n * every_ms * MS for n in range(1, len(values) + 1)))
    samples.sm_active = array("d", values)
    return samples


def test_the_activity_of_the_sms_belongs_to_the_time_before_it_was_read():
    first = active(board_samples("GPU-a"), [0.0, 0.0, 0.5, 1.0, *[1.0] * 11])
    second = active(board_samples("GPU-b"), [0.0, 0.0, 0.5, 0.6, *[1.0] * 11])
    found = record(WHOLE, samples=(first, second))
    assert at(found, "sm_activity", 0.05) == 0.5  # 550 ms after the first read: in the third span
    assert at(found, "sm_activity", 0.25) == 0.8
    assert found["reason"] is None


def test_a_board_that_does_not_tell_its_activity_leaves_them_all_without():
    found = record(WHOLE, samples=(active(board_samples("GPU-a"), [0.5] * 15), board_samples("GPU-b")))
    assert found["sm_activity"] is None


class TestCapped:
    def capped(self, reasons, repeat=WHOLE, **changes):
        samples = board_samples(**changes)
        samples.reasons = array("q", map(reasons, samples.at_ns))
        return record(repeat, samples=(samples,))

    def test_from_the_first_reading_with_a_reason_to_the_first_without(self):
        found = self.capped(lambda t: CAP if S <= t < 1.5 * S else 0)
        assert found["capped"] == [{"start": 0.5, "end": 1.0, "reason": "sw_power_cap"}]

    def test_an_idle_board_and_a_locked_clock_are_no_capping(self):
        assert self.capped(lambda t: IDLE | 1 << REASONS.index("applications_clocks"))["capped"] == []

    def test_what_was_never_read_is_not_known(self):
        found = self.capped(lambda t: -1)
        assert (found["capped"], found["capped_left_out"]) == (None, 0)
        assert "what holds the clock down was not read" in found["reason"]

    def test_a_reading_that_failed_is_no_capping(self):
        assert self.capped(lambda t: -1 if t < S else 0)["capped"] == []

    def test_each_reason_for_itself(self):
        heat = 1 << REASONS.index("hw_thermal_slowdown")
        found = self.capped(lambda t: CAP | heat if t >= 2 * S else CAP if t >= S else 0)
        assert [(c["reason"], c["start"]) for c in found["capped"]] == [
            ("sw_power_cap", 0.5),
            ("hw_thermal_slowdown", 1.5),
        ]

    def test_what_a_chart_cannot_tell_apart_is_joined(self):
        found = self.capped(lambda t: CAP if t // (100 * MS) % 2 else 0, batch(0, 100, 60_000), seconds=60)
        assert len(found["capped"]) == 1
        assert found["capped_left_out"] == 0

    def test_of_many_the_longest_are_kept_in_order_and_the_others_counted(self):
        def reasons(t):  # every three seconds, in the second half for longer
            return CAP if t % (3 * S) < (0.7 if t < 60 * S else 1.0) * S else 0

        found = self.capped(reasons, batch(0, 100, 120_000), seconds=120)
        assert len(found["capped"]) == 20
        starts = [c["start"] for c in found["capped"]]
        assert starts == sorted(starts)
        assert starts[0] >= 60
        assert found["capped_left_out"] == 20


class TestPhases:
    def shown(self, *repeats):
        return phases(record(*repeats, samples=(board_samples(),)))

    def test_one_output_token_is_prefill_alone(self):
        repeats = [repeat(request(1000, due=500), request(1200, due=500)), repeat(request(2000, due=1300), number=1)]
        assert self.shown(*repeats) == [("prefill", 0, 0.7), ("prefill", 0.8, 1.5)]

    def test_prefill_lasts_until_every_request_has_its_first_token(self):
        both = repeat(request(700, 2400, due=500), request(900, 2500, due=500))
        assert self.shown(both) == [("prefill", 0, 0.4), ("decode", 0.4, 2)]

    @pytest.mark.parametrize("loop", ["closed", "open"])
    def test_where_requests_overlap_it_is_a_load(self, loop):
        both = repeat(request(700, 1400, due=500), request(1500, 2500, due=600), loop=loop)
        assert self.shown(both) == [("load", 0, 2)]

    def test_a_batch_of_which_a_part_waited_for_the_others_is_a_load(self):
        assert self.shown(repeat(request(700, 1400, due=500), request(1500, 2500, due=500))) == [("load", 0, 2)]

    def test_a_batch_that_was_not_sent_at_once_is_a_load(self):
        assert self.shown(repeat(request(700, 1400, due=500), request(900, 2500, due=600))) == [("load", 0, 2)]

    def test_repeats_that_only_filled_the_sensors_window_are_there_too(self):
        found = record(WHOLE, samples=(board_samples(),), filling=(batch(2550, 2600, 2900, 1),))
        assert [p["phase"] for p in found["phases"]] == ["prefill", "decode"] * 2

    def test_of_many_repeats_neighbours_are_joined_and_none_is_lost(self):
        many = [batch(10 * n, 10 * n + 3, 10 * n + 9, n) for n in range(100)]
        found = self.shown(*many)
        assert len(found) <= 40
        assert {phase for phase, _, _ in found} == {"load"}
        assert (found[0][1], found[-1][2]) == (0, 0.999)
        assert all(b >= a for (_, _, a), (_, b, _) in pairwise(found))

    def test_many_prefills_are_still_prefills(self):
        many = [repeat(request(10 * n + 8, due=10 * n), number=n) for n in range(100)]
        found = self.shown(*many)
        assert len(found) <= 40
        assert {phase for phase, _, _ in found} == {"prefill"}


@pytest.mark.parametrize(
    "nothing",
    [
        launch(WHOLE),
        launch(repeat(request(error="reset")), samples=(board_samples(),)),
        launch(WHOLE, samples=(board_samples(seconds=-1),)),
        launch(batch(5000, 5100, 6000), samples=(board_samples(),)),
    ],
    ids=["nobody read", "nothing completed", "no reading", "readings of another time"],
)
def test_there_is_no_timeline_without_boards_or_requests(nothing):
    assert timeline_record(nothing) is None


@st.composite
def loads(draw):
    """Boards with readings at odd moments, some missing; repeats somewhere within."""
    gaps = draw(st.lists(st.integers(1 * MS, 400 * MS), min_size=2, max_size=300))
    times = array("q", [10**15])
    for gap in gaps:
        times.append(times[-1] + gap)
    boards = []
    for uuid in draw(st.sampled_from(["a", "ab"])):
        watts = draw(st.lists(st.floats(0, 1500), min_size=len(times), max_size=len(times)))
        holes = draw(st.sets(st.integers(0, len(times) - 1), max_size=5))
        samples = board_samples(uuid, seconds=-1)
        samples.at_ns = array("q", times)
        samples.power_w = array("d", (math.nan if n in holes else w for n, w in enumerate(watts)))
        samples.sm_clock_mhz = array("d", (1000.0 + w for w in watts))
        samples.reasons = array("q", (CAP if w > 700 else 0 for w in watts))
        boards.append(samples)
    span = times[-1] - times[0]
    count = draw(st.integers(1, 30))
    marks = sorted(draw(st.lists(st.integers(1, 10**6), min_size=3 * count, max_size=3 * count)))
    moments = [(times[0] + span * mark // 10**6) / MS for mark in marks]
    repeats = [batch(*moments[3 * n : 3 * n + 3], n) for n in range(count)]
    return boards, repeats


@given(loads())
def test_nothing_is_lost_and_the_joules_are_kept(load):
    boards, repeats = load
    found = timeline_record(launch(*repeats, samples=tuple(boards)))
    if found is None:  # a window of no length
        assert repeats[-1].span[1] - repeats[0].span[0] < 10 * MS
        return
    Timeline.model_validate(found)
    count = len(found["seconds"])
    assert 1 <= count <= 120
    assert len(found["power"]) == len(found["sm_clock"]) == count
    assert all(a < b for a, b in stretches(found))
    window = (repeats[-1].span[1] - repeats[0].span[0]) / S
    for one in (*found["phases"], *found["capped"]):
        assert one["start"] <= one["end"]
    assert all(p["start"] >= -1e-5 and p["end"] <= window * (1 + 1e-3) + 1e-5 for p in found["phases"])
    assert [p["start"] for p in found["phases"]] == sorted(p["start"] for p in found["phases"])

    origin = repeats[0].span[0]
    edges = [(round(a * S) + origin, round(b * S) + origin) for a, b in stretches(found)]
    of_boards = [held(board.at_ns, board.power_w) for board in boards]
    for watts, (begin, end) in zip(found["power"], edges, strict=True):
        parts = [[(max(s, begin), min(e, end), v) for s, e, v in p if s < end and e > begin] for p in of_boards]
        if not all(parts):
            assert watts is None
            continue
        means = [sum((e - s) * v for s, e, v in p) / sum(e - s for s, e, v in p) for p in parts]
        assert watts == pytest.approx(sum(means), rel=5.1e-4)


def test_a_launch_of_many_minutes_is_thinned_to_what_a_page_can_hold():
    found = record(batch(0, 5000, 600_000), samples=(replace(board_samples(seconds=600)),))
    assert len(json.dumps(found)) < 6000
