"""Whether a clock was held is told from samples and the board's own account, and never from silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.clocks.check import ClockSample, verify

LOCKED = frozenset({"applications_clocks"})
REFUSED = Unreadable("SM clock: Not Supported")


def samples(*clocks, reasons=LOCKED):
    return [ClockSample(i * 100_000_000, mhz, reasons) for i, mhz in enumerate(clocks)]


def with_reasons(mhz, *reasons):
    return [ClockSample(i * 100_000_000, mhz, frozenset(names)) for i, names in enumerate(reasons)]


def test_a_clock_that_was_held():
    verdict = verify(samples(1500, 1500, 1515), {"sw_power_cap": 7}, {"sw_power_cap": 7}, 1500)
    assert (verdict.invalid, verdict.warnings) == (None, ())
    assert verdict.observed_mhz == (1500, 1500, 1515)
    assert verdict.throttled_fraction == 0


def test_a_clock_that_fell_is_invalid_and_says_so():
    verdict = verify(samples(1500, 1500, 1100), {}, {}, 1500)
    assert "1 of 3 samples at 1100 MHz" in verdict.invalid
    assert "1500 MHz" in verdict.invalid
    assert verdict.observed_mhz == (1100, 1500, 1500)


def test_where_somebody_else_has_to_lock_the_command_is_named():
    fell = samples(1500, 1100)
    assert verify(fell, {}, {}, 1500, expected=True).invalid.endswith(": sudo nvidia-smi -lgc 1500,1500")
    assert "sudo" not in verify(fell, {}, {}, 1500).invalid
    assert verify(samples(1500), {}, {}, 1500, expected=True).invalid is None
    idle = verify(with_reasons(345, {"gpu_idle"}), {}, {}, 1500, expected=True)
    assert "sudo" not in idle.invalid  # it may well be locked


@pytest.mark.parametrize("mhz", [1480, 1520])
def test_more_than_one_step_away_is_elsewhere_above_too(mhz):
    assert verify(samples(mhz), {}, {}, 1500).invalid
    assert not verify(samples(mhz), {}, {}, 1500, step_mhz=20).invalid


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("sw_power_cap", "power cap"),
        ("hw_slowdown", "hardware slowdown"),
        ("sw_thermal_slowdown", "thermal"),
        ("hw_thermal_slowdown", "thermal"),
        ("hw_power_brake_slowdown", "power brake"),
        ("sync_boost", "sync boost"),
    ],
)
def test_throttling_is_invalid_with_a_requested_clock_and_a_warning_without(reason, words):
    seen = with_reasons(1500, {"applications_clocks"}, {"applications_clocks", reason})
    asked = verify(seen, {}, {}, 1500)
    assert "1 of 2 samples throttled" in asked.invalid
    assert words in asked.invalid
    assert asked.throttled_fraction == 0.5
    free = verify(seen, {}, {}, None)
    assert free.invalid is None
    assert words in free.warnings[0]
    assert free.throttled_fraction == 0.5


def test_the_lock_itself_is_no_throttling():
    assert verify(with_reasons(1500, {"applications_clocks"}, set()), {}, {}, 1500).invalid is None


def test_an_idle_board_may_show_any_clock():
    seen = with_reasons(345, {"gpu_idle"}) + samples(1500)
    verdict = verify(seen, {}, {}, 1500)
    assert verdict.invalid is None
    assert verdict.observed_mhz == (1500, 1500, 1500)
    assert verdict.throttled_fraction == 0


def test_what_happened_between_two_samples_is_in_the_boards_own_account():
    verdict = verify(samples(1500, 1500, 1500), {"sw_power_cap": 1}, {"sw_power_cap": 20_000_001}, 1500)
    assert "power cap 20 ms" in verdict.invalid
    assert verdict.throttled_fraction == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("ns", "said"), [(1_070_000_000, "1070 ms"), (99_400_000, "99.4 ms"), (32_345_678_901, "32346 ms")]
)
def test_times_are_written_out(ns, said):
    assert f"power cap {said})" in verify(samples(1500), {"sw_power_cap": 0}, {"sw_power_cap": ns}, 1500).invalid


def test_causes_overlap_and_the_share_is_no_more_than_all():
    after = {"thermal": 300_000_000, "sw_thermal_slowdown": 300_000_000}
    assert verify(samples(1500, 1500), dict.fromkeys(after, 0), after, None).throttled_fraction == 1


def test_an_account_that_fell_is_said_and_not_subtracted():
    verdict = verify(samples(1500, 1500), {"thermal": 10}, {"thermal": 3}, 1500)
    assert verdict.invalid is None
    assert "thermal" in verdict.warnings[0]
    assert verdict.throttled_fraction == 0


def test_an_account_that_cannot_be_read_says_nothing():
    refused = {"thermal": Unreadable("throttle time: Not Supported")}
    assert verify(samples(1500), refused, {"thermal": 3}, 1500).invalid is None
    assert verify(samples(1500), {"thermal": 3}, refused, 1500).invalid is None


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([], "no sample"),
        (samples(REFUSED, REFUSED), "Not Supported"),
        (with_reasons(345, {"gpu_idle"}, {"gpu_idle"}), "idle in all of 2"),
    ],
)
def test_when_no_sample_is_any_good_there_is_a_reason(seen, words):
    asked = verify(seen, {}, {}, 1500)
    assert words in asked.invalid
    assert asked.observed_mhz is None
    assert asked.throttled_fraction is None
    free = verify(seen, {}, {}, None)
    assert free.invalid is None
    assert words in free.warnings[0]


def test_samples_without_reasons_count_as_busy_and_say_nothing_of_throttling():
    verdict = verify(samples(1500, reasons=Unreadable("reasons: Not Supported")), {}, {}, 1500)
    assert verdict.invalid is None
    assert verdict.throttled_fraction is None
    assert verify(samples(900, reasons=Unreadable("reasons: Not Supported")), {}, {}, 1500).invalid


class TestMemoryClock:
    def seen(self, *memory, reasons=LOCKED):
        return [ClockSample(i * 100_000_000, 1500, reasons, mhz) for i, mhz in enumerate(memory)]

    def test_one_that_was_held(self):
        verdict = verify(self.seen(2619, None, 2619, None), {}, {}, 1500, memory_mhz=2619)
        assert verdict.invalid is None
        assert verdict.observed_memory_mhz == (2619, 2619, 2619)
        assert verify(self.seen(2618), {}, {}, 1500, memory_mhz=2619).invalid is None  # as whole MHz

    @pytest.mark.parametrize("other", [2604, 3201, 1593])
    def test_a_single_sample_elsewhere_is_invalid(self, other):
        verdict = verify(self.seen(2619, 2619, other), {}, {}, 1500, memory_mhz=2619)
        assert "memory clock was held at 2619 MHz is refuted" in verdict.invalid
        assert f"1 of 3 samples at {other} MHz" in verdict.invalid
        assert "SM clock" not in verdict.invalid

    def test_both_clocks_are_named_when_both_were_lost(self):
        verdict = verify(self.seen(1593), {}, {}, 900, memory_mhz=2619)
        assert "SM clock was held at 900 MHz" in verdict.invalid
        assert "memory clock was held at 2619 MHz" in verdict.invalid

    def test_held_alone_it_leaves_the_sm_clock_free(self):
        verdict = verify(with_reasons(700, {"sw_power_cap"}), {}, {}, None, memory_mhz=2619)
        assert "no sample" in verdict.invalid
        assert "power cap" not in verdict.invalid
        assert "power cap" in verdict.warnings[0]
        capped = self.seen(2619, reasons=frozenset({"sw_power_cap"}))
        verdict = verify(capped, {}, {}, None, memory_mhz=2619)
        assert verdict.invalid is None
        assert "power cap" in verdict.warnings[0]

    @pytest.mark.parametrize(
        ("memory", "reasons", "words"),
        [
            ([None, None], LOCKED, "no sample"),
            ([REFUSED], LOCKED, "Not Supported"),
            ([2619], frozenset({"gpu_idle"}), "idle in all of 1"),
        ],
    )
    def test_silence_is_no_proof(self, memory, reasons, words):
        seen = self.seen(*memory, reasons=reasons)
        verdict = verify(seen, {}, {}, None, memory_mhz=2619)
        assert words in verdict.invalid
        assert verdict.observed_memory_mhz is None
        assert "memory" not in (verify(seen + self.seen(1593), {}, {}, 1500).invalid or "")

    def test_one_that_nobody_asked_for_is_observed_and_not_judged(self):
        verdict = verify(self.seen(1593, 3201), {}, {}, 1500)
        assert (verdict.invalid, verdict.warnings) == (None, ())
        assert verdict.observed_memory_mhz == (1593, 2397, 3201)


NAMES = st.frozensets(st.sampled_from(["gpu_idle", "applications_clocks", "sw_power_cap", "bit_20"]))
SAMPLES = st.lists(
    st.builds(
        lambda mhz, reasons: (mhz, reasons),
        st.integers(0, 3000) | st.just(REFUSED),
        NAMES | st.just(Unreadable("reasons: Not Supported")),
    )
)


@given(SAMPLES, st.none() | st.integers(100, 2000))
def test_a_verdict_is_always_whole(pairs, requested):
    verdict = verify([ClockSample(i, *pair) for i, pair in enumerate(pairs)], {}, {}, requested)
    if requested is None:
        assert verdict.invalid is None
    elif verdict.observed_mhz is None:
        assert verdict.invalid
    if verdict.observed_mhz is not None:
        low, middle, high = verdict.observed_mhz
        assert low <= middle <= high
    assert verdict.throttled_fraction is None or 0 <= verdict.throttled_fraction <= 1
