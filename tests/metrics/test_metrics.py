from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_llmperf.metrics import (
    REGISTRY,
    Context,
    Missing,
    Sampled,
    measure,
    percentile,
    request_chunk_gaps,
    request_e2e_latency,
    request_itl,
    request_tpot,
    request_ttft,
    summarize,
    window,
)
from pytest_llmperf.metrics.throughput import tokens_within

from ..fakes import MS, repeat, request

NO_SLO = Context()
LOWER = {
    *("ttft", "tpot", "itl", "chunk_gap", "e2e_latency"),
    *("power", "energy", "jpt", "net_jpt", "prefill_jpt", "decode_jpt", "memory_used"),
    *("bare_power", "context_power", "loaded_power", "locked_power"),
}


def value(name, trace, context=NO_SLO):
    outcome = measure(REGISTRY[name], trace, context)
    if isinstance(outcome, Missing):
        return outcome.reason
    return outcome.value if isinstance(outcome, Sampled) else outcome


def test_latencies_are_better_lower_and_rates_are_better_higher():
    assert {name for name, metric in REGISTRY.items() if metric.better == "lower"} == LOWER
    assert {name for name, metric in REGISTRY.items() if metric.better == "higher"} == set(REGISTRY) - LOWER


@pytest.mark.parametrize("metric", REGISTRY.values(), ids=REGISTRY)
def test_every_metric_says_its_unit_formula_and_source(metric):
    assert REGISTRY[metric.name] is metric
    assert all([metric.unit, metric.formula, metric.source])


class TestOneRequest:
    def test_ttft_and_latency_count_from_when_the_request_was_due(self):
        late = request(150, 200, 260, due=100, sent=140)
        assert request_ttft(late) == pytest.approx(0.050)
        assert request_e2e_latency(late) == pytest.approx(0.160)

    def test_tpot_is_the_time_after_the_first_token_over_the_tokens_after_it(self):
        assert request_tpot(request(100, 110, 120, 150)) == pytest.approx(0.050 / 3)

    def test_tpot_counts_the_tokens_of_chunks_after_the_first(self):
        assert request_tpot(request(100, 130, tokens=[3, 2])) == pytest.approx(0.030 / 2)

    def test_tpot_believes_the_servers_count(self):
        # Two tokens of five were invisible (half a character each): the server counted them.
        assert request_tpot(request(100, 110, 140, counted=5)) == pytest.approx(0.040 / 4)

    @pytest.mark.parametrize(
        "trace", [request(100), request(100, tokens=[8]), request(100, 100), request(100, 120, counted=1)]
    )
    def test_tpot_is_nothing_when_nothing_came_after_the_first_chunk(self, trace):
        assert request_tpot(trace) is None

    def test_the_wait_for_the_first_token_is_no_inter_token_latency(self):
        assert request_itl(request(1000, 1010, 1030)) == pytest.approx((0.010, 0.020))

    def test_tokens_of_one_chunk_came_together(self):
        assert request_itl(request(100, 130, tokens=[2, 3])) == pytest.approx((0, 0.030, 0, 0))
        assert request_chunk_gaps(request(100, 130, tokens=[2, 3])) == pytest.approx((0.030,))

    @given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 9)), min_size=1, max_size=40))
    def test_n_tokens_have_n_minus_one_gaps_that_add_up(self, chunks):
        received = list(accumulate((gap for gap, _ in chunks), initial=100))[1:]
        trace = request(*received, tokens=[n for _, n in chunks])
        assert len(request_itl(trace)) == trace.output_tokens - 1
        assert sum(request_itl(trace)) == pytest.approx((received[-1] - received[0]) / 1000)
        assert len(request_chunk_gaps(trace)) == len(chunks) - 1

    @given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
    def test_latency_is_ttft_plus_tpot_for_every_further_token(self, gaps):
        trace = request(*accumulate(gaps))
        further = (request_tpot(trace) or 0) * (len(gaps) - 1)
        assert request_ttft(trace) + further == pytest.approx(request_e2e_latency(trace))


class TestOneRepeat:
    def test_a_repeats_latency_is_the_median_of_its_requests(self):
        trace = repeat(request(10, 20), request(30, 50), request(100, 130))
        assert value("ttft", trace) == pytest.approx(0.030)
        assert value("e2e_latency", trace) == pytest.approx(0.050)
        assert value("tpot", trace) == pytest.approx(0.020)

    @pytest.mark.parametrize("name", ["tpot", "itl", "chunk_gap"])
    def test_one_token_each_leaves_no_time_between_tokens_and_says_why(self, name):
        assert value(name, repeat(request(10), request(20))) == "no output token came after the first chunk"

    def test_requests_of_one_token_do_not_hide_the_others(self):
        assert value("tpot", repeat(request(10), request(10, 40))) == pytest.approx(0.030)

    @pytest.mark.parametrize("name", REGISTRY)
    def test_without_a_completed_request_nothing_was_measured(self, name):
        trace = repeat(request(error="refused"), request(10, 20, error="broke off"))
        assert value(name, trace, Context({"ttft": 1})) == "no request completed"

    @pytest.mark.parametrize("loop", ["batch", "closed", "open"])
    @pytest.mark.parametrize("name", REGISTRY)
    def test_ten_good_and_five_failed_requests_measure_as_the_ten(self, name, loop):
        good = [request(*range(i * 40 + 100, i * 40 + 180, 20), due=i * 40) for i in range(1, 11)]
        failed = [
            request(due=0, error="refused"),
            request(due=140, error="read timeout"),
            request(9000, due=150, error="broke off", tokens=[50]),
            request(151, 152, due=150, error="broke off"),
            request(due=800, error="the stream ended without any output token"),
        ]
        context = Context({"ttft": 1})
        mixed = repeat(*sorted([*good, *failed], key=lambda r: r.due_ns), loop=loop)
        assert value(name, mixed, context) == pytest.approx(value(name, repeat(*good, loop=loop), context))


class TestWindow:
    BATCH = (request(50, 100, sent=1), request(60, 140, 200))

    def test_a_batch_is_counted_whole(self):
        assert window(repeat(*self.BATCH)) == (0, 200 * MS)
        assert value("throughput", repeat(*self.BATCH)) == pytest.approx(5 / 0.2)
        assert value("request_throughput", repeat(*self.BATCH)) == pytest.approx(2 / 0.2)

    def test_total_throughput_counts_the_prompts_too(self):
        trace = repeat(*(replace(r, input_tokens=10) for r in self.BATCH))
        assert value("total_throughput", trace) == pytest.approx(25 / 0.2)

    def test_throughput_believes_the_servers_count(self):
        assert value("throughput", repeat(request(100, 200, counted=7))) == pytest.approx(7 / 0.2)

    # Two lanes, each taking the next request as soon as the last has ended; 100 ms per request, 2 tokens each.
    CLOSED = (
        request(50, 100),
        request(60, 110),
        request(150, 200, due=100),
        request(160, 210, due=110),
        request(250, 300, due=200),
        request(260, 310, due=210),
    )

    def test_a_closed_loop_is_counted_from_the_first_completion_to_the_last_submission(self):
        trace = repeat(*self.CLOSED, loop="closed")
        assert window(trace) == (100 * MS, 210 * MS)
        # Two at a time that take 0.1 s each; within the 0.11 s lie five tokens and three completions: too many.
        assert value("throughput", trace) == pytest.approx(2 / 0.1 * 2, rel=0.01)
        assert value("request_throughput", trace) == pytest.approx(2 / 0.1, rel=0.01)
        # Prompts of one token each.
        assert value("total_throughput", trace) == pytest.approx(2 / 0.1 * 3, rel=0.01)

    @pytest.mark.parametrize("waves", [3, 4, 10])
    @pytest.mark.parametrize(("prefill", "stagger"), [(10, 0), (60, 2), (60, 8)])
    def test_a_closed_loop_of_waves_comes_to_what_is_in_flight_over_its_latency(self, waves, prefill, stagger):
        # Four in flight, equally long, the first tokens of a wave one after the other: as an engine serves them.
        lasts = prefill + 24
        wave = [
            request(*(lasts * n + prefill + stagger * lane + step for step in (0, 12, 24)),
                    due=lasts * n + stagger * lane if n else 0)
            for n in range(waves)
            for lane in range(4)
        ]  # fmt: skip
        trace = repeat(*wave, loop="closed")
        assert value("request_throughput", trace) == pytest.approx(4 / lasts * 1000, rel=0.05)
        assert value("throughput", trace) == pytest.approx(3 * value("request_throughput", trace))
        assert value("goodput", trace, Context(slo={"ttft": 1.0})) == value("request_throughput", trace)

    def test_a_late_client_does_not_end_the_closed_loop_early(self):
        trace = repeat(request(100), request(140), request(300, due=100, sent=150), loop="closed")
        assert window(trace) == (100 * MS, 150 * MS)

    def test_an_open_loop_is_counted_from_the_first_completion_to_the_last_arrival(self):
        trace = repeat(request(80, due=0), request(150, due=100), request(400, due=300, sent=390), loop="open")
        assert window(trace) == (80 * MS, 300 * MS)
        assert value("request_throughput", trace) == pytest.approx(1 / 0.22)

    def test_an_open_loop_that_mostly_drains_is_counted_whole(self):
        # 10 arrive within 0.1 s and take 1 s: between 80 and 100 ms almost nothing had come out yet.
        piled = [request(*range(80 + 90 * k, 101 + 90 * k, 20), due=10 * k) for k in range(11)]
        assert window(repeat(*piled, loop="open")) == (0, 1000 * MS)
        assert window(repeat(*piled[:1], request(60, 90, due=0), *piled[1:2], loop="open")) != (0, 1000 * MS)

    def test_what_was_gathered_into_batches_is_counted_whole(self):
        # Two batches of two: the first half of the time passes before the first token.
        waves = [request(500, 600, due=d) for d in (0, 100)] + [request(900, 1000, due=d) for d in (300, 800)]
        assert window(repeat(*waves, loop="gathered")) == (0, 1000 * MS)
        assert window(repeat(*waves, loop="open")) == (0, 1000 * MS)
        assert value("throughput", repeat(*waves, loop="gathered")) == pytest.approx(8)

    @pytest.mark.parametrize("loop", ["closed", "open"])
    def test_a_loop_without_a_plateau_is_counted_whole(self, loop):
        trace = repeat(request(50, 100), request(60, 110, due=10), loop=loop)
        assert window(trace) == (0, 110 * MS)
        assert value("throughput", trace) == pytest.approx(4 / 0.11)

    def test_a_window_of_no_time_has_no_rate(self):
        assert value("throughput", repeat(request(0))) == "no time passed between the first request and the last token"

    def test_the_plateau_does_not_depend_on_how_the_load_begins_and_ends(self):
        # A server of 10 tokens/s per lane on four lanes: 40 tokens/s, whatever the ramps look like.
        lanes = [
            request(*(start + 100 * k for k in range(1, 11)), due=start)
            for lane in range(4)
            for start in range(lane * 250, 20_000, 1000)
        ]
        trace = repeat(*sorted(lanes, key=lambda r: r.due_ns), loop="closed")
        assert value("throughput", trace) == pytest.approx(40, rel=0.02)


class TestGoodput:
    def test_without_limits_there_is_none(self):
        assert value("goodput", repeat(request(10, 20))) == "the workload sets no SLO"

    @pytest.mark.parametrize(
        ("slo", "met"),
        [
            ({"ttft": 0.1}, 2),
            ({"ttft": 0.099}, 1),
            ({"tpot": 0.03}, 2),
            ({"tpot": 0.029}, 1),
            ({"itl": 0.04}, 2),
            ({"itl": 0.039}, 1),
            ({"e2e_latency": 0.16}, 2),
            ({"e2e_latency": 0.159}, 1),
            ({"ttft": 0.1, "e2e_latency": 0.05}, 0),
            ({"ttft": 0.001}, 0),
        ],
    )
    def test_a_request_counts_when_it_meets_every_limit(self, slo, met):
        trace = repeat(request(60, 70), request(100, 120, 160))
        assert value("goodput", trace, Context(slo)) == pytest.approx(met / 0.16)

    def test_one_token_meets_a_limit_on_tpot_vacuously(self):
        trace = repeat(request(50), request(60, 100))
        assert value("goodput", trace, Context({"tpot": 0.01, "itl": 0.01})) == pytest.approx(1 / 0.1)


class TestSummary:
    def test_the_value_is_the_median_over_launches_of_the_median_over_repeats(self):
        launches = [
            [repeat(request(at)) for at in (10, 20, 90)],
            [repeat(request(at)) for at in (30, 40, 50)],
            [repeat(request(at)) for at in (1000, 1000, 1000)],
        ]
        summary = summarize(REGISTRY["ttft"], launches, NO_SLO)
        assert summary.value == pytest.approx(0.040)
        assert summary.launches == ((0.01, 0.02, 0.09), (0.03, 0.04, 0.05), (1, 1, 1))
        assert summary.reason is None

    def test_more_requests_of_one_launch_do_not_outvote_the_others(self):
        crowd = repeat(*[request(500)] * 1000)
        launches = [[crowd], [repeat(request(10))], [repeat(request(20))]]
        assert summarize(REGISTRY["ttft"], launches, NO_SLO).value == pytest.approx(0.020)

    def test_percentiles_are_over_every_request_of_every_launch(self):
        launches = [[repeat(*[request(at) for at in range(1, 51)])], [repeat(*[request(at) for at in range(51, 102)])]]
        percentiles = summarize(REGISTRY["ttft"], launches, NO_SLO).percentiles
        assert percentiles == pytest.approx({"p50": 0.051, "p90": 0.091, "p99": 0.100})

    def test_a_metric_without_samples_takes_its_percentiles_over_repeats(self):
        launches = [[repeat(request(at)) for at in (10, 20)]]
        assert summarize(REGISTRY["throughput"], launches, NO_SLO).percentiles["p50"] == pytest.approx(75)

    def test_one_repeat_without_a_value_leaves_the_metric_without_one(self):
        launches = [[repeat(request(10, 20))], [repeat(request(10, 20)), repeat(request(10))]]
        summary = summarize(REGISTRY["tpot"], launches, NO_SLO)
        assert (summary.value, summary.launches, summary.percentiles) == (None, (), None)
        assert summary.reason == "no output token came after the first chunk"

    def test_no_launch_has_no_value(self):
        summary = summarize(REGISTRY["ttft"], [], NO_SLO)
        assert (summary.value, summary.reason) == (None, "nothing was measured")


numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50).map(sorted)


class TestPercentile:
    @given(numbers, st.floats(0, 1))
    def test_it_is_the_linear_definition_that_numpy_has(self, ascending, fraction):
        assert percentile(ascending, fraction) == pytest.approx(np.quantile(ascending, fraction), rel=1e-9, abs=1e-6)

    @given(numbers)
    def test_the_middle_one_is_the_median(self, ascending):
        assert percentile(ascending, 0.5) == pytest.approx(statistics.median(ascending), rel=1e-9, abs=1e-6)

    @given(numbers)
    def test_deciles_are_those_of_the_statistics_module(self, ascending):
        assume(len(ascending) > 1)
        deciles = statistics.quantiles(ascending, n=10, method="inclusive")
        ours = [percentile(ascending, k / 10) for k in range(1, 10)]
        assert ours == pytest.approx(deciles, rel=1e-9, abs=1e-6)

    @given(numbers)
    def test_the_ends_are_the_least_and_the_greatest(self, ascending):
        assert percentile(ascending, 0) == ascending[0]
        assert percentile(ascending, 1) == ascending[-1]


def test_a_replay_too_short_for_a_plateau_is_counted_whole():
    # The second request is due after the first has ended, and ends after everything was due.
    short = repeat(request(50, 100, due=0), request(550, 600, due=500), loop="open")
    assert window(short) == (0, 600 * MS)


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 3)), min_size=1, max_size=9), max_size=9))
def test_gaps_of_many_requests_are_those_of_each(chunks):
    requests = [request(*accumulate(gap for gap, _ in each), tokens=[tokens for _, tokens in each]) for each in chunks]
    for name, of_request in (("itl", request_itl), ("chunk_gap", request_chunk_gaps)):
        alone = sorted(gap for one in requests for gap in of_request(one))
        found = summarize(REGISTRY[name], [[repeat(*requests)]], Context())
        if not alone:
            assert found.value is None
            continue
        assert found.value == statistics.median(alone)
        assert found.percentiles == {f"p{p}": percentile(alone, p / 100) for p in (50, 90, 99)}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=9),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_tokens_are_counted_within_a_window_that_is_open_at_its_start(chunks, start, end):
    received = list(accumulate(gap for gap, _ in chunks))
    told = 1000 + sum(tokens for _, tokens in chunks)  # by the server, of the whole answer
    one = replace(request(*received, tokens=[tokens for _, tokens in chunks]), output_tokens=told)
    start, end = start * MS, end * MS
    inside = [n for at, (_, n) in zip(one.received_ns, chunks, strict=True) if start < at <= end]
    assert tokens_within(one, start, end) == (told if len(inside) == len(chunks) else sum(inside))
