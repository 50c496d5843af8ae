"""Tokens per joule and its kin, from a window whose joules are known."""

from dataclasses import replace

import pytest

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy
from pytest_llmperf.gpu.energy.window import NOBODY_READ, WindowReadings
from pytest_llmperf.metrics import REGISTRY, Context, LaunchReadings, summarize
from pytest_llmperf.metrics.energy import prompt_tokens_within

from ..fakes import MS, repeat, request

NOTHING = Unreadable("not asked")


def readings(value, start_ms, end_ms, *, idle=50.0, seconds=None):
    energy = Joules(value, 0.1, round(start_ms * MS), round(end_ms * MS), "counter")
    window = WindowReadings((), energy, energy, 1.5e9, 0.9, 0.64, 0.05, 2.0**30, 0.8)
    return LaunchReadings(window, idle, (), (end_ms - start_ms) / 1e3 if seconds is None else seconds)


def summary(name, repeats, read):
    return summarize(REGISTRY[name], [repeats], Context(), [replace(read, repeats=tuple(repeats))])


#: 100 tokens, one every 10 ms from 10 ms on, of a prompt of 1000.
DECODE = repeat(request(*range(10, 1010, 10), prompt=1000))


def test_tokens_per_joule_of_tokens_and_energy_of_the_same_window():
    # 390 J for 100 output tokens and 1000 prompt tokens.
    found = summary("tpj", [DECODE], readings(390, 0, 1000))
    assert found.value == pytest.approx(0.2564, abs=5e-5)
    assert (found.launches, found.percentiles["p50"]) == (((found.value,),), found.value)
    assert summary("jpt", [DECODE], readings(390, 0, 1000)).value == pytest.approx(3.9)


def test_a_token_outside_of_the_joules_is_not_counted():
    assert summary("tpj", [DECODE], readings(100, 100, 600)).value == pytest.approx(50 / 100)


def test_power_and_the_energy_of_the_whole_workload():
    read = readings(200, 100, 600, seconds=1.0)
    assert summary("power", [DECODE, DECODE], read).value == pytest.approx(400)
    # 400 W over a second that held two repeats.
    assert summary("energy", [DECODE, DECODE], read).value == pytest.approx(200)


def test_net_takes_off_the_idle_power_of_the_same_time():
    read = readings(390, 0, 1000, idle=90.0)
    assert summary("net_tpj", [DECODE], read).value == pytest.approx(100 / 300)
    assert summary("net_jpt", [DECODE], read).value == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("idle", "reason"),
    [(Unreadable("the board was busy"), "the board was busy"), (390.0, "the boards drew no more than when they idle")],
)
def test_net_without_an_idle_power_below_it_is_null(idle, reason):
    read = readings(390, 0, 1000, idle=idle)
    assert summary("net_tpj", [DECODE], read).reason == reason
    assert summary("tpj", [DECODE], read).value is not None


def test_a_prompt_is_spread_over_its_prefill():
    one = request(100, prompt=1000)
    assert prompt_tokens_within(one, 0, 50 * MS) == pytest.approx(500)
    assert prompt_tokens_within(one, 25 * MS, 1000 * MS) == pytest.approx(750)
    assert prompt_tokens_within(one, 200 * MS, 300 * MS) == 0


def test_a_prefill_that_took_no_time_counts_where_it_ended():
    one = request(100, due=100, prompt=8)
    assert prompt_tokens_within(one, 50 * MS, 150 * MS) == 8
    assert prompt_tokens_within(one, 100 * MS, 150 * MS) == 0


def test_joules_per_prompt_token_of_repeated_prefills():
    prefills = [repeat(request(20 * n + 20, due=20 * n, prompt=512), number=n) for n in range(100)]
    found = summary("prefill_jpt", prefills, readings(450, 500, 1500))
    assert found.value == pytest.approx(450 / (50 * 512))
    assert "a prompt of one token" in summary("decode_jpt", prefills, readings(450, 500, 1500)).reason


def test_joules_per_output_token_of_decodes_alone():
    decodes = [repeat(request(*range(10, 1010, 10), prompt=1))]
    assert summary("decode_jpt", decodes, readings(200, 0, 1000)).value == pytest.approx(2.0)
    assert "one output token" in summary("prefill_jpt", decodes, readings(200, 0, 1000)).reason


def test_both_phases_in_one_window_are_not_told_apart():
    for name in ("prefill_jpt", "decode_jpt"):
        assert "holds prefill and decode" in summary(name, [DECODE], readings(390, 0, 1000)).reason


@pytest.mark.parametrize("name", [name for name, metric in REGISTRY.items() if metric.of_launch is not None])
def test_without_a_board_every_figure_of_a_board_is_null_with_one_reason(name):
    single = [repeat(request(100, prompt=1))]
    found = summary(name, single, LaunchReadings(NOBODY_READ, 50.0))
    assert (found.value, found.reason) == (None, "the engine runs on no GPU that can be read from here")


@pytest.mark.parametrize("name", ["power", "energy", "tpj", "jpt", "net_tpj", "net_jpt"])
def test_a_window_that_is_too_short_says_so(name):
    window = WindowReadings((), NoEnergy("too short"), NoEnergy("too short"), *[NOTHING] * 6)
    assert summary(name, [DECODE], LaunchReadings(window, 50.0)).reason == "too short"


def test_no_token_and_no_joule_are_no_ratio():
    assert summary("tpj", [DECODE], readings(100, 2000, 3000)).reason == "no token came within the energy window"
    assert summary("tpj", [DECODE], readings(0, 0, 1000)).reason == "the boards counted no energy within the window"


@pytest.mark.parametrize(
    ("name", "value"),
    [("dram_utilization", 0.64), ("tensor_utilization", 0.05), ("sm_activity", 0.8), ("gpu_utilization", 0.9),
     ("sm_clock", 1.5e9), ("memory_used", 2.0**30)],
)  # fmt: skip
def test_what_the_boards_say_themselves(name, value):
    assert summary(name, [DECODE], readings(390, 0, 1000)).value == value


def test_a_launch_with_a_repeat_in_which_nothing_completed_has_no_energy():
    failed = repeat(request(error="reset"))
    assert summary("tpj", [DECODE, failed], readings(390, 0, 1000)).reason == "no request completed"


def test_a_launch_is_one_value():
    found = summarize(
        REGISTRY["power"], [[DECODE, DECODE], [DECODE]], Context(), [readings(100, 0, 1000), readings(300, 0, 1000)]
    )
    assert (found.launches, found.value) == (((100.0,), (300.0,)), 200.0)
