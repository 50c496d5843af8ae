"""The conditions of a launch, from traces and samples small enough to compute by hand."""

from array import array
from dataclasses import replace

import pytest

from pytest_llmperf.conditions import CONDITIONS, observe
from pytest_llmperf.engines.account import Account, ServerSide
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.metrics import Missing
from pytest_llmperf.runner import Launch, judged
from pytest_llmperf.trace import EngineStamps
from tests.fakes import INFO, MS, repeat, request


def stamped(due, sent, queued, scheduled, first, last, lag=0.0, tokens=2):
    received = [first + lag, *([last + lag] if tokens > 1 else [])]
    stamps = EngineStamps(*(round(at * MS) for at in (queued, scheduled, first, last)))
    return replace(request(*received, due=due, sent=sent), engine=stamps)


def launch(*repeats, index=0, **more):
    return Launch(index, INFO, tuple(repeats), **more)


def of(name, one):
    return CONDITIONS[name].of_launch(one)


ONE = stamped(0, 1, 2, 5, 15, 115, lag=0.5)


def test_the_parts_of_a_latency_add_up_to_it():
    one = launch(repeat(ONE))
    found = {name: of(name, one) for name in ("send_delay", "queue_time", "prefill_time", "decode_time")}
    assert found == {name: pytest.approx(ms / 1e3) for name, ms in zip(found, (1, 4, 10, 100), strict=True)}
    assert sum(found.values()) + of("client_overhead", one) == pytest.approx(115.5e-3)


def test_a_launch_is_the_median_over_repeats_of_the_median_over_requests():
    quick, slow = stamped(0, 0, 0, 0, 10, 20), stamped(0, 0, 0, 0, 40, 50)
    one = launch(repeat(quick, quick, slow), repeat(slow), repeat(quick))
    assert of("prefill_time", one) == pytest.approx(0.010)


def test_failed_requests_count_for_nothing():
    failed = request(due=0, error="gone")
    assert of("prefill_time", launch(repeat(ONE, failed))) == pytest.approx(0.010)
    assert isinstance(of("send_delay", launch(repeat(failed))), Missing)
    assert isinstance(of("batch_occupancy", launch(repeat(failed))), Missing)


def server(**told):
    return Account(server=ServerSide(**told))


def test_without_stamps_the_servers_own_metrics_tell():
    account = server(queue_time_mean=0.003, prefill_time_mean=0.02, decode_time_mean=0.09)
    one = launch(repeat(request(20, 120)), account=account)
    assert [of(n, one) for n in ("queue_time", "prefill_time", "decode_time")] == [0.003, 0.02, 0.09]


def test_with_neither_the_client_knows_when_tokens_came_and_nothing_else():
    one = launch(repeat(request(20, 120)))
    assert of("decode_time", one) == pytest.approx(0.1)
    assert of("queue_time", one) == of("prefill_time", one) == of("client_overhead", one)
    assert "neither stamps" in of("queue_time", one).reason


def test_a_server_that_was_restarted_gives_its_reason():
    assert of("queue_time", launch(repeat(request(2)), account=server(reason="restarted"))).reason == "restarted"


def test_the_overhead_over_a_server_is_the_difference_of_means():
    requests = request(20, 120, due=0, sent=5), request(40, 140, due=0, sent=5)
    one = launch(repeat(*requests), account=server(requests=2, ttft_mean=0.022))
    assert of("client_overhead", one) == pytest.approx(0.003)
    others = launch(repeat(*requests), account=server(requests=3, ttft_mean=0.022))
    assert "not of these requests alone" in of("client_overhead", others).reason


def test_a_batch_that_is_served_in_two_halves_has_half_the_occupancy():
    first, second = stamped(0, 0, 0, 0, 10, 100), stamped(0, 0, 0, 100, 110, 200)
    assert of("batch_occupancy", launch(repeat(first, first, second, second))) == pytest.approx(2)
    assert of("batch_occupancy", launch(repeat(first, first, first, first))) == pytest.approx(4)


def test_the_occupancy_of_single_tokens_without_stamps_is_not_known():
    assert isinstance(of("batch_occupancy", launch(repeat(request(10)))), Missing)


def test_the_spread_between_repeats():
    one = launch(repeat(request(100)), repeat(request(110)), repeat(request(90)))
    assert of("repeat_spread", one) == pytest.approx(0.2)
    assert isinstance(of("repeat_spread", launch(repeat(request(100)))), Missing)


def samples(*reasons, **more):
    """A board that was looked at every 10 ms, from 60 ms on."""
    bits = [sum(1 << REASONS.index(name) for name in names) for names in reasons]
    at = [(60 + 10 * number) * MS for number in range(len(bits))]
    count = len(bits)
    return BoardSamples(
        "GPU-1", at_ns=array("q", at), power_w=array("d", [300.0] * count), sm_clock_mhz=array("d", [1500.0] * count),
        memory_clock_mhz=array("d", [2619.0] * count), reasons=array("q", bits), **more,
    )  # fmt: skip


def watched(board):
    return judged(launch(repeat(request(10, 1000)), samples=(board,)), None)


def test_what_held_the_clock_back_is_told_by_its_cause():
    one = watched(samples(("sw_power_cap",), ("sw_power_cap", "hw_thermal_slowdown"), (), ("gpu_idle",), ()))
    assert of("power_cap_share", one) == pytest.approx(0.5)  # of the four busy samples
    assert of("thermal_share", one) == pytest.approx(0.25)
    assert of("other_throttle_share", one) == 0


def test_the_boards_own_account_sees_between_two_samples():
    # From the first to the last sample there are 40 ms.
    one = watched(samples((), (), (), (), (), throttle_ns={"sw_power_cap": 10 * MS, "thermal": 0}))
    assert of("power_cap_share", one) == pytest.approx(0.25)
    assert of("thermal_share", one) == 0


def test_unread_reasons_are_unknown_and_not_zero():
    board = samples((), (), refused={"clock_reasons": "not supported"})
    board.reasons[:] = array("q", [-1, -1])
    assert of("power_cap_share", watched(board)) == Missing("not supported")


def test_temperature_and_memory_clock_of_the_boards():
    one = watched(samples((), (), temperature_c=array("d", [61.0, float("nan"), 64.0])))
    assert of("temperature", one) == 64
    assert of("memory_clock", one) == pytest.approx(2.619e9)
    refused = watched(samples((), (), refused={"temperature": "no sensor"}))
    assert of("temperature", refused) == Missing("no sensor")


def test_of_two_boards_the_one_that_is_worse_off_counts():
    cool = samples((), (), temperature_c=array("d", [50.0]))
    hot = replace(samples(("sw_power_cap",), (), temperature_c=array("d", [70.0])), uuid="GPU-2")
    both = judged(launch(repeat(request(10, 1000)), samples=(cool, hot)), None)
    assert (of("temperature", both), of("power_cap_share", both)) == (70, 0.5)
    unread = replace(cool, temperature_c=array("d"), refused={"temperature": "no sensor"})
    assert of("temperature", launch(repeat(request(10, 1000)), samples=(hot, unread))) == Missing("no sensor")


def test_where_no_board_was_read_every_figure_of_a_board_has_a_reason():
    one = launch(repeat(ONE))
    for name in ("sm_clock", "memory_clock", "power", "power_cap_share", "temperature", "memory_used"):
        assert isinstance(of(name, one), Missing), name


def test_a_server_tells_preemptions_and_cache_hits():
    one = launch(repeat(ONE), account=server(preemptions=3, prefix_cache_hit_rate=0.0))
    assert (of("preemptions", one), of("prefix_cache_hit_rate", one)) == (3, 0)
    assert isinstance(of("preemptions", launch(repeat(ONE))), Missing)


def test_one_launch_without_a_number_leaves_a_condition_without_any():
    known = launch(repeat(ONE))
    found = observe([known, launch(repeat(request(20, 120)), index=1)])
    assert (found["prefill_time"].launches, found["prefill_time"].value) == ((), None)
    assert "neither stamps" in found["prefill_time"].reason
    assert observe([known, known])["prefill_time"].value == pytest.approx(0.010)


def test_every_condition_says_what_it_is():
    assert all(c.formula and c.unit for c in CONDITIONS.values())
