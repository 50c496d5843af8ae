"""A server's own metrics: a real vLLM's pages, made-up ones, and pages that are none.

The recorded pages are of vLLM 0.32 on a CPU: between them are four requests of 4 prompt tokens with 4, 4, 4 and 1
output tokens, and six at once of 64 prompt tokens with 16 each.
"""

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.histogram import Histogram
from pytest_llmperf.engines.openai.server_metrics import (
    ServerSide,
    Snapshot,
    between,
    disagreements,
    kv_cache,
    parse,
)

DATA = Path(__file__).parent / "data"
BEFORE = (DATA / "vllm-0.32-before.txt").read_text()
AFTER = (DATA / "vllm-0.32-after.txt").read_text()
NOTHING = ServerSide()


def page(**values):
    return "".join(f"vllm:{name} {value}\n" for name, value in values.items())


def histogram(name, buckets, total, labels=""):
    """A page with one histogram; buckets are the counts at each bound."""
    lines = [f'{name}_bucket{{le="{bound}"{labels}}} {count}' for bound, count in buckets.items()]
    count = list(buckets.values())[-1]
    plain = f"{{{labels[1:]}}}" if labels else ""
    return "\n".join(
        [f"# TYPE {name} histogram", *lines, f"{name}_count{plain} {count}", f"{name}_sum{plain} {total}\n"]
    )


TTFT = "vllm:time_to_first_token_seconds"


class TestRealPages:
    def test_a_load_is_seen_as_the_server_saw_it(self):
        side = between(parse(BEFORE), parse(AFTER))
        assert (side.requests, side.prompt_tokens, side.generation_tokens) == (10, 4 * 4 + 6 * 64, 13 + 6 * 16)
        assert (side.preemptions, side.running, side.waiting) == (0, 0, 0)
        assert side.reason is None
        # The sums that the page gives, over its counts.
        assert side.ttft_mean == pytest.approx(0.16131258010864258 / 10)
        assert side.itl_mean == pytest.approx(0.27582346499366395 / 99)
        assert side.queue_time_mean == pytest.approx(0.0003289650048827752 / 10)
        # The request of one token has no time per token.
        assert side.tpot_mean == pytest.approx(0.024123833665968656 / 9)
        # 3 below 5 ms, 7 below 20 ms, 10 below 40 ms: the fifth is between 10 and 20 ms.
        assert side.ttft_p50 == pytest.approx(0.015)
        assert 0.02 < side.ttft_p99 < 0.04
        assert side.queue_time_mean < side.queue_time_p99 < 0.004
        # Times of a request add up, and so do those of the mean request.
        assert side.prefill_time_mean + side.decode_time_mean + side.queue_time_mean < side.e2e_mean

    def test_a_prefix_cache_that_is_off_has_no_hit_rate(self):
        assert between(parse(BEFORE), parse(AFTER)).prefix_cache_hit_rate is None

    def test_between_a_page_and_itself_nothing_happened(self):
        side = between(parse(AFTER), parse(AFTER))
        assert (side.requests, side.generation_tokens, side.preemptions) == (0, 0, 0)
        assert side.ttft_mean is side.ttft_p99 is side.tpot_mean is side.prefix_cache_hit_rate is None

    def test_backwards_the_server_was_restarted(self):
        side = between(parse(AFTER), parse(BEFORE))
        assert "restarted" in side.reason
        assert replace(side, reason=None) == NOTHING


class TestNames:
    @pytest.mark.parametrize("suffix", ["", "_total"])
    @pytest.mark.parametrize("declared", ["", "counter", "gauge", "untyped"])
    def test_counters_with_and_without_total(self, suffix, declared):
        def text(value):
            name = f"vllm:generation_tokens{suffix}"
            return (f"# TYPE {name} {declared}\n" if declared else "") + f"{name} {value}\n"

        assert between(parse(text(3)), parse(text(10))).generation_tokens == 7

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("vllm:inter_token_latency_seconds", "itl_mean"),
            ("vllm:time_per_output_token_seconds", "itl_mean"),
            ("vllm:request_time_per_output_token_seconds", "tpot_mean"),
            ("vllm:e2e_request_latency_seconds", "e2e_mean"),
            ("vllm:request_prefill_time_seconds", "prefill_time_mean"),
            ("vllm:request_decode_time_seconds", "decode_time_mean"),
            ("vllm:request_queue_time_seconds", "queue_time_mean"),
            (TTFT, "ttft_mean"),
        ],
    )
    def test_histograms(self, name, field):
        before, after = (parse(histogram(name, {"0.1": n, "+Inf": n}, total)) for n, total in ((1, 0.05), (5, 0.25)))
        side = between(before, after)
        assert getattr(side, field) == pytest.approx(0.05)
        others = {k: v for k, v in asdict(side).items() if v is not None and not k.startswith(field.split("_mean")[0])}
        assert others == {}

    def test_where_both_names_are_there_the_newer_counts(self):
        both = histogram("vllm:time_per_output_token_seconds", {"+Inf": 1}, 9)
        both += histogram("vllm:inter_token_latency_seconds", {"+Inf": 1}, 3)
        assert parse(both).histograms["itl"].total == 3

    @pytest.mark.parametrize("prefix", ["", "gpu_"])
    def test_the_hit_rate_is_of_the_tokens_looked_up_meanwhile(self, prefix):
        def text(queries, hits):
            return page(**{f"{prefix}prefix_cache_queries_total": queries, f"{prefix}prefix_cache_hits_total": hits})

        assert between(parse(text(1000, 1000)), parse(text(1400, 1100))).prefix_cache_hit_rate == 0.25

    def test_names_that_only_begin_alike_are_others(self):
        text = page(prompt_tokens_cached_total=5, num_requests_waiting_by_reason=3, request_success_created=1.7e9)
        assert parse(text) == Snapshot()


class TestSums:
    def test_engines_models_and_reasons_are_added_up(self):
        text = (
            'vllm:request_success_total{engine="0",finished_reason="length"} 3\n'
            'vllm:request_success_total{engine="1",finished_reason="length"} 4\n'
            'vllm:request_success_total{engine="1",finished_reason="stop",model_name="b"} 5\n'
            'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 2\n'
        )
        assert parse(text).values == {"requests": 12, "running": 3}

    def test_histograms_are_added_up_at_the_bounds_that_all_have(self):
        text = histogram(TTFT, {"1": 1, "2": 2, "+Inf": 3}, 6, ',engine="0"')
        text += histogram(TTFT, {"2": 4, "4": 5, "+Inf": 5}, 9, ',engine="1"').partition("\n")[2]
        assert parse(text).histograms["ttft"] == Histogram({2.0: 6, math.inf: 8}, 8, 15)


class TestMissing:
    @pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "process_start_time_seconds 5\n", "other_total 3\n"])
    def test_a_page_without_vllm_tells_nothing(self, text):
        assert not parse(text).is_vllm()
        assert between(parse(text), parse(AFTER)) is None
        assert between(parse(BEFORE), parse(text)) is None

    def test_a_family_that_is_missing_before_or_after_is_not_told(self):
        one, two = parse(page(prompt_tokens_total=1)), parse(page(prompt_tokens_total=2, generation_tokens_total=9))
        assert between(one, two) == replace(NOTHING, prompt_tokens=1)
        assert between(two, replace(two, values={"generation_tokens": 9})) == replace(NOTHING, generation_tokens=0)

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e999", "-1"])
    def test_a_value_that_is_no_number_is_not_told(self, value):
        assert parse(page(prompt_tokens_total=value)) == Snapshot()
        assert parse(histogram(TTFT, {"1": 1, "+Inf": 1}, value)) == Snapshot()
        assert parse(histogram(TTFT, {"1": value, "+Inf": 1}, 1)) == Snapshot()
        assert parse(histogram(TTFT, {"1": 1, "+Inf": value}, 1)) == Snapshot()

    def test_a_histogram_without_its_sum_is_not_told(self):
        assert parse(f'{TTFT}_bucket{{le="1"}} 1\n{TTFT}_count 1\n') == Snapshot()

    @pytest.mark.parametrize(
        "text",
        ["<html><body>Not Found</body></html>", '{"detail": "Not Found"}', "vllm:x{", "a b c", 'a{b=c} 1', "\x00",
         histogram(TTFT, {"wide": 1}, 1)],
    )  # fmt: skip
    def test_another_format_is_one_clear_error(self, text):
        with pytest.raises(ValueError, match="no page of Prometheus metrics"):
            parse(text)


class TestRestart:
    def test_a_count_that_fell_is_named(self):
        side = between(parse(page(prompt_tokens_total=500)), parse(page(prompt_tokens_total=20)))
        assert side == replace(
            NOTHING, reason="the server was restarted meanwhile: its count of prompt_tokens fell from 500 to 20"
        )

    def test_a_bucket_that_fell_too(self):
        before, after = (parse(histogram(TTFT, {"1": n, "+Inf": 9}, 9)) for n in (5, 4))
        assert "ttft fell from 5 to 4" in between(before, after).reason

    def test_a_later_start_gives_it_away_even_when_all_counts_have_grown(self):
        texts = (page(prompt_tokens_total=n) + f"process_start_time_seconds {at}\n" for n, at in ((1, 100.5), (9, 200)))
        assert "another time of its start" in between(*map(parse, texts)).reason

    def test_gauges_may_fall(self):
        side = between(parse(page(num_requests_running=9)), parse(page(num_requests_running=2)))
        assert side == replace(NOTHING, running=2)


class TestSingleTokens:
    LENGTHS = "vllm:request_generation_tokens"
    TPOT = "vllm:request_time_per_output_token_seconds"

    def side(self, single, requests, total):
        empty = histogram(self.LENGTHS, {"1": 0, "+Inf": 0}, 0) + histogram(self.TPOT, {"0.01": 0, "+Inf": 0}, 0)
        lengths = histogram(self.LENGTHS, {"1": single, "+Inf": requests}, 99)
        tpot = histogram(self.TPOT, {"0.01": requests, "+Inf": requests}, total)
        return between(parse(empty), parse(lengths + tpot))

    def test_requests_of_one_token_do_not_count(self):
        side = self.side(single=6, requests=10, total=0.016)
        assert side.tpot_mean == pytest.approx(0.004)
        assert 0 < side.tpot_p50 <= 0.008

    def test_where_all_are_such_there_is_no_tpot(self):
        side = self.side(single=10, requests=10, total=0)
        assert side.tpot_mean is side.tpot_p50 is side.tpot_p99 is None


def changed(text, changes):
    """The page with some of its numbers replaced."""
    lines = text.splitlines()
    for at, value in changes:
        line = lines[at % len(lines)]
        if not line.startswith("#"):
            lines[at % len(lines)] = f"{line.rpartition(' ')[0]} {value!r}"
    return "\n".join(lines)


CHANGES = st.lists(st.tuples(st.integers(0, 1000), st.floats()), max_size=12)


class TestAnything:
    @given(CHANGES, CHANGES)
    def test_no_figure_is_ever_infinite_no_number_or_negative(self, before, after):
        side = between(parse(changed(BEFORE, before)), parse(changed(AFTER, after)))
        for name, value in asdict(side).items():
            if name not in ("reason", "running", "waiting"):
                assert value is None or (math.isfinite(value) and value >= 0), name

    @given(st.integers(0, len(AFTER)))
    def test_a_page_cut_off_anywhere_is_read_or_refused(self, at):
        try:
            side = between(parse(BEFORE), parse(AFTER[:at]))
        except ValueError as error:
            assert "no page of Prometheus metrics" in str(error)  # noqa: PT017 - either outcome is right
        else:
            assert side is None or isinstance(side, ServerSide)

    @given(st.text(max_size=200))
    def test_any_text_is_read_or_refused(self, text):
        try:
            assert isinstance(parse(text), Snapshot)
        except ValueError as error:
            assert "no page of Prometheus metrics" in str(error)  # noqa: PT017 - either outcome is right


class TestDisagreements:
    SIDE = replace(NOTHING, requests=10, generation_tokens=100, prefix_cache_hit_rate=0.02)

    def test_agreement_says_nothing(self):
        assert disagreements(10, 100, replace(self.SIDE, prefix_cache_hit_rate=0.01)) == []
        assert disagreements(12, 120, replace(self.SIDE, prefix_cache_hit_rate=None)) == []
        assert disagreements(0, 0, NOTHING) == []

    def test_what_others_did_is_told(self):
        requests, tokens, rate = disagreements(9, 99, self.SIDE)
        assert "finished 10 requests while we sent 9" in requests
        assert "generated 100 tokens while we received 99" in tokens
        assert "answered 2.0% of the prompt tokens" in rate

    def test_a_prefix_that_the_workload_shares_is_no_disagreement(self):
        assert disagreements(10, 100, self.SIDE, shared_prefix=True) == []


INFO = (
    'vllm:cache_config_info{{block_size="{size}",cache_dtype="auto",engine="{engine}",num_gpu_blocks="{blocks}"}} 1.0\n'
)


class TestKvCache:
    def test_a_page_tells_its_blocks(self):
        assert kv_cache(INFO.format(size=16, engine=0, blocks=58672)) == {"block_size": 16, "num_gpu_blocks": 58672}

    def test_engines_of_one_server_tell_what_they_hold_together(self):
        text = INFO.format(size=32, engine=0, blocks=200) + INFO.format(size=32, engine=1, blocks=200)
        assert kv_cache(text) == {"block_size": 32, "num_gpu_blocks": 200}

    @pytest.mark.parametrize(
        "text",
        [
            "", BEFORE, "<html>", "vllm:cache_config_info 1.0\n", INFO.format(size=16, engine=0, blocks="None"),
            INFO.format(size="None", engine=0, blocks=1),
            INFO.format(size="1_6", engine=0, blocks=5), INFO.format(size="\u0661\u0666", engine=0, blocks=5),
            INFO.format(size=" 16", engine=0, blocks=5), INFO.format(size="+16", engine=0, blocks=5),
            INFO.format(size=16, engine=0, blocks="9" * 400), INFO.format(size=16, engine=0, blocks="9" * 5000),
            INFO.format(size=16, engine=0, blocks=0),
            INFO.format(size=16, engine=0, blocks=5) + INFO.format(size=32, engine=1, blocks=5),
        ],
    )  # fmt: skip
    def test_and_another_page_does_not(self, text):
        assert kv_cache(text) == {}
