from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_llmperf.overhead import client_overhead
from pytest_llmperf.trace import EngineStamps

from .fakes import MS, repeat, request


def stamped(trace, first, last):
    return replace(trace, engine=EngineStamps(0, 0, round(first * MS), round(last * MS)))


def test_without_stamps_of_the_engine_nothing_is_said():
    assert client_overhead([repeat(request(10, 20))]) is None
    assert client_overhead([]) is None


def test_a_failed_request_is_not_looked_at():
    failed = stamped(request(10, 20, error="broke off"), 9, 19)
    assert client_overhead([repeat(failed)]) is None


def test_what_the_client_adds_is_the_difference_to_the_engines_stamps():
    first = stamped(request(12, 32, 52, due=2), first=10, last=50)
    second = stamped(request(14, 36, 58, due=2), first=10, last=50)
    overhead = client_overhead([repeat(first), repeat(second, number=1)])
    assert overhead.requests == 2
    assert overhead.first_token_p50 == pytest.approx(0.003)
    assert overhead.first_token_p99 == pytest.approx(0.00398)
    assert overhead.engine_ttft == pytest.approx(0.008)
    assert overhead.engine_tpot == pytest.approx(0.020)
    assert overhead.tpot_ratio == pytest.approx(21 / 20)


def test_requests_without_stamps_are_left_out():
    overhead = client_overhead([repeat(stamped(request(12, 32), 10, 30), request(500, 900))])
    assert (overhead.requests, overhead.first_token_p50) == (1, pytest.approx(0.002))


def test_one_token_each_leaves_the_tpot_unknown():
    overhead = client_overhead([repeat(stamped(request(12), 10, 10))])
    assert (overhead.engine_tpot, overhead.tpot_ratio) == (None, None)
    assert overhead.first_token_p50 == pytest.approx(0.002)


def test_an_engine_whose_clock_stood_still_gives_no_ratio():
    overhead = client_overhead([repeat(stamped(request(12, 32), 10, 10))])
    assert (overhead.engine_tpot, overhead.tpot_ratio) == (0, None)
