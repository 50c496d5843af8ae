from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.runner import Launch, RatePlan, search_rate
from pytest_llmperf.workload import Workload

from ..fakes import INFO, repeat, request

SLO = {"ttft": 0.1}
WORK = Workload(4, 4, slo=SLO)


def launch(work, *, slow=False, piling_up=False, invalid=None):
    """What a server makes of a rate: all within the limit, all beyond it, or ever later though within it."""
    requests = []
    for n in range(work.request_count):
        due = 1000 * n / work.rate
        latency = 200 if slow else 50
        last = due + latency + (due if piling_up else 0)
        requests.append(request(due + latency, last, due=due))
    return Launch(0, INFO, (repeat(*requests, loop="open"),), invalid=invalid)


def server(capacity, seen=None):
    def measure(work):
        if seen is not None:
            seen.append(work)
        return launch(work, slow=work.rate > capacity)

    return measure


@given(capacity=st.floats(1, 900), precision=st.sampled_from([0.02, 0.05, 0.3]))
def test_the_capacity_is_found_to_within_the_precision(capacity, precision):
    found = search_rate(WORK, RatePlan(1, 1000, precision=precision, seconds=0.1), server(capacity))
    assert found.rate <= capacity <= found.rate * (1 + precision) * (1 + 1e-9)
    assert not found.reached_the_top(RatePlan(1, 1000))
    assert [t.met for t in found.trials] == [t.rate <= capacity for t in found.trials]


def test_what_is_measured_at_the_rate_found_is_kept():
    found = search_rate(WORK, RatePlan(1, 64, seconds=0.1), server(10))
    (kept,) = found.launch.repeats
    spacing = (kept.requests[1].due_ns - kept.requests[0].due_ns) / 1e9
    assert spacing == pytest.approx(1 / found.rate, rel=1e-6)


def test_a_capacity_beyond_the_upper_end():
    plan = RatePlan(1, 48, seconds=0.1)
    found = search_rate(WORK, plan, server(1e9))
    assert [t.rate for t in found.trials] == [1, 2, 4, 8, 16, 32, 48]
    assert found.rate == 48
    assert found.reached_the_top(plan)


def test_not_even_the_lowest():
    found = search_rate(WORK, RatePlan(4, 48, seconds=0.1), server(1))
    assert found.rate is None
    assert len(found.trials) == 1
    assert found.launch.repeats


def test_a_server_that_does_not_keep_up_fails_though_its_first_seconds_are_within_the_limits():
    found = search_rate(WORK, RatePlan(8, 64, seconds=20), lambda work: launch(work, piling_up=work.rate > 16))
    assert found.trials[0].kept_up == pytest.approx(1, abs=0.05)
    assert all(t.attained == 1 for t in found.trials)
    assert all(t.met == (t.rate <= 16) for t in found.trials)
    assert found.rate == pytest.approx(16, rel=0.05)


def test_trials_offer_the_rate_for_the_time_asked_and_only_the_first_is_warmed_up():
    seen = []
    search_rate(WORK, RatePlan(1, 64, seconds=10), server(1e9, seen))
    assert [work.request_count for work in seen] == [20, 20, 40, 80, 160, 320, 640]
    assert [work.warmup for work in seen] == [1, 0, 0, 0, 0, 0, 0]
    assert {dict(work.slo)["ttft"] for work in seen} == {0.1}


def test_an_untrustworthy_trial_ends_the_search():
    def measure(work):
        return launch(work, invalid="the engine kept compiling" if work.rate == 4 else None)

    found = search_rate(WORK, RatePlan(1, 64, seconds=0.1), measure)
    assert found.rate is None
    assert found.launch.invalid == "the engine kept compiling"
    assert len(found.trials) == 3


def test_a_server_that_sheds_load_is_beyond_its_capacity():
    def measure(work):
        good = launch(work).repeats[0].requests
        shed = [request(due=r.due_ns / 1e6, error="HTTP 503") if work.rate > 10 and n % 50 == 0 else r
                for n, r in enumerate(good)]  # fmt: skip
        return Launch(0, INFO, (repeat(*shed, loop="open"),))

    found = search_rate(WORK, RatePlan(2, 64, seconds=20), measure)
    assert found.rate == pytest.approx(10, rel=0.05)
    assert all((t.failed > 0) == (t.rate > 10) for t in found.trials)
    assert search_rate(WORK, RatePlan(2, 64, seconds=20), measure, allowed_failures=100).rate == 64


def test_failed_requests_are_not_met():
    def measure(work):
        good = launch(work).repeats[0].requests
        failed = tuple(request(due=r.due_ns / 1e6, error="reset") for r in good[: len(good) // 4])
        return Launch(0, INFO, (repeat(*failed, *good[len(good) // 4 :], loop="open"),))

    found = search_rate(WORK, RatePlan(2, 64, seconds=20), measure)
    assert found.rate is None
    assert found.trials[0].attained < 0.9


def test_without_limits():
    with pytest.raises(WorkloadError, match="needs limits to meet"):
        search_rate(Workload(4, 4), RatePlan(1, 2), server(1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 0}, {"low": -1}, {"low": True}, {"low": "1"}, {"low": math.nan}, {"high": math.inf}, {"high": 0.5},
        {"attainment": 0}, {"attainment": 1.1}, {"precision": 0}, {"precision": 2}, {"seconds": 0},
    ],
)  # fmt: skip
def test_plans_that_make_no_sense(wrong):
    with pytest.raises(WorkloadError):
        RatePlan(**{"low": 1, "high": 10, **wrong})
