"""How long a step takes: every term alone and all together, over clocks, GPUs, data types and kinds of models."""

from __future__ import annotations

import json
from functools import cache
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.board import BOARDS, BoardModel
from pytest_llmperf.simulation.steps import StepModel, Work
from tests.simulation.round_numbers import altered, round_board

CONFIGS = Path(__file__).parents[1] / "arithmetic" / "data" / "configs"
MISTRAL = resolve("mistral-7b").config
LAYERS, KV_HEADS, HIDDEN = 32, 8, 4096
#: Of the H200.
BANDWIDTH, FLOPS, FLOPS_8BIT, TOP, MEMORY = 4.8e12, 989.4e12, 1978.9e12, 1980, 3201

#: The roofline alone: peaks are reached at every clock, the longer of two times counts, and nothing is added.
ROOF = altered(
    round_board(),
    memory={"weights_share": 1.0, "cache_share": 1.0, "cache_share_8bit": 1.0, "knee_mhz": 1.0},
    compute={
        "matmul_share": 1.0, "attention_share": 1.0, "blend": inf,
        "token_s": 0.0, "head_s": 0.0, "sequence_s": 0.0, "layer_s": 0.0, "step_s": 0.0,
    },
    links={"latency_s": 0.0, "bandwidth": inf},
)  # fmt: skip


@cache
def model(changes="{}"):
    return Architecture.from_config({**MISTRAL, **json.loads(changes)})


def public(name):
    return Architecture.from_config(CONFIGS / f"{name}.json")


def roof(**changes):
    return altered(ROOF, **changes)


def decodes(steps, batch, context):
    """A step of as many sequences with so much context each, the new token included."""
    cache_bytes, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
    return steps.work((), sampled=batch, decodes=batch, cache_bytes=cache_bytes, attention_flops=flops)


def prompts(steps, *chunks, sampled=None):
    """A step of prompts alone: of each, the tokens computed before and now."""
    sampled = len(chunks) if sampled is None else sampled
    return steps.work(chunks, sampled=sampled, decodes=0, cache_bytes=0, attention_flops=0)


def nothing(**values):
    """A step that does nothing but what is said."""
    return Work(**{**dict.fromkeys(Work._fields, 0), "weight_bytes": 1e-9, **values})


def seconds(steps, work, sm_mhz=TOP, memory_mhz=MEMORY):
    return steps.pace(work, sm_mhz, memory_mhz).seconds


class TestWork:
    def test_counts_tokens_and_sequences(self):
        steps = StepModel(model(), ROOF)
        work = steps.work([(0, 100), (64, 36)], sampled=4, decodes=3, cache_bytes=5, attention_flops=7)
        assert (work.tokens, work.sequences, work.decodes) == (139, 5, 3)
        assert (work.cache_bytes, work.attention_flops) == (5, 7)
        assert work.weight_bytes == model().decode_weight_bytes(139)

    def test_only_those_that_get_a_token_are_multiplied_with_the_head(self):
        steps = StepModel(model(), ROOF)
        some, more = (prompts(steps, (0, 100), (0, 100), sampled=sampled).matmul_flops for sampled in (0, 2))
        assert more - some == 2 * 2 * 32000 * HIDDEN
        assert some == 200 * (model().weight_flops_per_token - 2 * 32000 * HIDDEN)

    @pytest.mark.parametrize("chunks", [[(0, 1000)], [(0, 400), (400, 600)], [(0, 1), (1, 998), (999, 1)]])
    def test_a_prompt_attends_as_often_in_however_many_chunks(self, chunks):
        steps = StepModel(model(), ROOF)
        works = [prompts(steps, chunk, sampled=0) for chunk in chunks]
        # QK^T and AV of every query head, each position with all up to itself.
        assert sum(work.prompt_flops for work in works) == LAYERS * 4 * 32 * 128 * 1000 * 1001 / 2
        # A chunk reads all that came before it.
        bytes_per_token = 2 * LAYERS * KV_HEADS * 128 * 2
        assert [work.prompt_bytes for work in works] == [bytes_per_token * sum(chunk) for chunk in chunks]

    def test_a_whole_prompt_is_the_arithmetic_of_a_prefill(self):
        work = prompts(StepModel(model(), ROOF), (0, 777))
        assert work.matmul_flops + work.prompt_flops == model().prefill_flops(777)


class TestEachTerm:
    """On a board that adds nothing else, at its highest clocks."""

    def test_weights_are_read_once(self):
        for batch in (1, 8):
            steps = StepModel(model(), roof(memory={"weights_share": 0.8}))
            assert seconds(steps, decodes(steps, batch, 0)) == pytest.approx(14.22e9 / (0.8 * BANDWIDTH), rel=1e-3)

    def test_large_products_take_their_flops(self):
        steps = StepModel(model(), roof(compute={"matmul_share": 0.75}))
        work = prompts(steps, (0, 2000))
        expected = work.matmul_flops / (0.75 * FLOPS) + work.prompt_flops / FLOPS
        assert seconds(steps, work) == pytest.approx(expected, rel=1e-3)
        assert work.matmul_flops == pytest.approx(2000 * 2 * 7.11e9 - 2 * 1999 * 32000 * HIDDEN, rel=1e-3)

    def test_a_prompt_attends_to_itself_in_time_of_its_own(self):
        plain, slower = (StepModel(model(), roof(compute={"attention_share": share})) for share in (1.0, 0.25))
        work = prompts(plain, (0, 4096))
        added = seconds(slower, work) - seconds(plain, work)
        assert added == pytest.approx(3 * work.prompt_flops / FLOPS, rel=1e-3)

    def test_one_turns_into_the_other_gradually(self):
        balanced = nothing(weight_bytes=BANDWIDTH, matmul_flops=FLOPS)
        for blend, expected in [(1.0, 2.0), (2.0, 2**0.5), (inf, 1.0)]:
            steps = StepModel(model(), roof(compute={"blend": blend}))
            assert seconds(steps, balanced) == pytest.approx(expected, rel=1e-3)
        steps = StepModel(model(), roof(compute={"blend": 4.0}))
        for weights, flops in [(100, 1), (1, 100)]:
            work = nothing(weight_bytes=weights * BANDWIDTH, matmul_flops=flops * FLOPS)
            assert seconds(steps, work) == pytest.approx(100, rel=1e-3)

    @pytest.mark.parametrize(("kv_dtype", "byte"), [(None, 2), ("auto", 2), ("half", 2), ("fp8", 1), ("fp8_e5m2", 1)])
    def test_the_caches_of_those_who_decode_are_read_at_a_share_of_their_own(self, kv_dtype, byte):
        shares = {"cache_share": 0.9, "cache_share_8bit": 0.6}
        steps = StepModel(model(), roof(memory=shares), kv_dtype=kv_dtype)
        added = seconds(steps, decodes(steps, 16, 3000)) - seconds(steps, decodes(steps, 16, 0))
        read = 16 * 3000 * 2 * LAYERS * KV_HEADS * 128 * byte
        assert added == pytest.approx(read / (BANDWIDTH * (0.9 if byte == 2 else 0.6)))

    def test_a_short_chunk_after_a_long_prompt_takes_as_long_as_its_cache_is_read(self):
        steps = StepModel(model(), roof(memory={"cache_share": 0.5}))
        first, chunk = prompts(steps, (0, 1)), prompts(steps, (30_000, 1))
        added = seconds(steps, chunk) - seconds(steps, first)
        assert added == pytest.approx(30_000 * 2 * LAYERS * KV_HEADS * 128 * 2 / (0.5 * BANDWIDTH))

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("token_s", 12 * LAYERS),
            ("head_s", 5 * KV_HEADS * LAYERS),  # of those that decode
            ("sequence_s", 6),
            ("layer_s", LAYERS),
            ("step_s", 1),
        ],
    )
    def test_what_is_added(self, name, expected):
        plain, slower = StepModel(model(), ROOF), StepModel(model(), roof(compute={name: 1e-6}))
        work = plain.work([(0, 7)], sampled=6, decodes=5, cache_bytes=0, attention_flops=0)
        assert seconds(slower, work) - seconds(plain, work) == pytest.approx(expected * 1e-6)

    def test_two_all_reduces_a_layer(self):
        steps = StepModel(model(), roof(links={"latency_s": 1e-5, "bandwidth": 2e11}), gpus=4)
        free = StepModel(model(), ROOF, gpus=4)
        for tokens in (1, 1000):
            work = prompts(steps, (0, tokens))
            # Around a ring each GPU sends 2 (n - 1) / n of the vectors.
            expected = 2 * LAYERS * (1e-5 + 2 * 3 / 4 * tokens * HIDDEN * 2 / 2e11)
            assert seconds(steps, work) - seconds(free, work) == pytest.approx(expected)

    def test_a_single_gpu_exchanges_nothing(self):
        slow = StepModel(model(), roof(links={"latency_s": 1.0, "bandwidth": 1.0}))
        work = prompts(slow, (0, 1000))
        assert seconds(slow, work) == seconds(StepModel(model(), ROOF), work)


def by_hand(board, work, clock=1.0, reached=1.0):
    """The sum in the module's docstring, of a model of 32 layers with 8 KV heads on one H200."""
    memory, compute = board.memory, board.compute
    weights = work.weight_bytes / (BANDWIDTH * reached * memory.weights_share)
    matmul = work.matmul_flops / (FLOPS * clock * compute.matmul_share)
    cache_rate = BANDWIDTH * reached * memory.cache_share
    attention = work.prompt_flops / (FLOPS * clock * compute.attention_share)
    return (
        (weights**compute.blend + matmul**compute.blend) ** (1 / compute.blend)
        + work.cache_bytes / cache_rate
        + max(attention, work.prompt_bytes / cache_rate)
        + LAYERS * (work.tokens * compute.token_s + work.decodes * KV_HEADS * compute.head_s + compute.layer_s) / clock
        + work.sequences * compute.sequence_s
        + compute.step_s
    )


MIXED = [
    ((), 1, 100),
    ((), 64, 4000),
    (((0, 2000),), 0, 0),
    (((0, 300), (4096, 200)), 40, 900),
    (((20_000, 3),), 2, 9),
]


class TestTogether:
    @pytest.mark.parametrize(("chunks", "batch", "context"), MIXED)
    @pytest.mark.parametrize(
        ("sm_mhz", "memory_mhz", "clock", "reached"),
        [
            (1980, 3201, 1.0, 1.0),
            (990, 3201, 0.5, 1.0),  # at the knee
            (495, 3201, 0.25, 0.5),  # below it
            (1980, 1593, 1.0, 1593 / 3201),
            (495, 1593, 0.25, 0.5 * 1593 / 3201),
        ],
    )
    def test_it_is_the_sum(self, chunks, batch, context, sm_mhz, memory_mhz, clock, reached):
        board = round_board()
        steps = StepModel(model(), board)
        caches, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
        sampled = batch + len(chunks)
        work = steps.work(chunks, sampled=sampled, decodes=batch, cache_bytes=caches, attention_flops=flops)
        expected = by_hand(board, work, clock, reached)
        assert seconds(steps, work, sm_mhz, memory_mhz) == pytest.approx(expected, rel=1e-3)

    @pytest.mark.parametrize(("chunks", "batch", "context"), MIXED)
    @pytest.mark.parametrize("gpus", [1, 2])
    def test_shares_are_bytes_and_flops_over_the_peaks_of_all_gpus(self, chunks, batch, context, gpus):
        steps = StepModel(model(), round_board(), gpus=gpus)
        caches, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
        work = steps.work(chunks, sampled=batch, decodes=batch, cache_bytes=caches, attention_flops=flops)
        took, memory, compute = steps.pace(work, 990, MEMORY)
        moved = work.weight_bytes + work.cache_bytes + work.prompt_bytes
        assert memory * took * gpus * BANDWIDTH == pytest.approx(moved)
        computed = work.matmul_flops + work.attention_flops + work.prompt_flops
        assert compute * took * gpus * FLOPS / 2 == pytest.approx(computed, rel=1e-3)


class TestClocks:
    """What goes with which clock: the times at the highest over those at another."""

    @pytest.mark.parametrize(
        ("only", "sm_mhz", "memory_mhz", "factor"),
        [
            ({"weight_bytes": 1e12}, 1500, MEMORY, 1),
            ({"weight_bytes": 1e12}, 500, MEMORY, 2),  # half of the knee
            ({"weight_bytes": 1e12}, TOP, 1600.5, 2),
            ({"cache_bytes": 1e12}, 1500, MEMORY, 1),
            ({"cache_bytes": 1e12}, 500, MEMORY, 2),
            ({"cache_bytes": 1e12}, TOP, 1600.5, 2),
            ({"prompt_bytes": 1e12}, 500, 1600.5, 4),
            ({"matmul_flops": 1e15}, 990, MEMORY, 2),
            ({"matmul_flops": 1e15}, TOP, 1600.5, 1),
            ({"prompt_flops": 1e15}, 990, MEMORY, 2),
            ({"prompt_flops": 1e15}, TOP, 1600.5, 1),
        ],
    )
    def test_of_the_roofline(self, only, sm_mhz, memory_mhz, factor):
        steps = StepModel(model(), roof(memory={"knee_mhz": 1000}))
        work = nothing(**only)
        assert seconds(steps, work, sm_mhz, memory_mhz) == pytest.approx(factor * seconds(steps, work))

    @pytest.mark.parametrize(
        ("name", "factor"), [("token_s", 2), ("head_s", 2), ("layer_s", 2), ("sequence_s", 1), ("step_s", 1)]
    )
    def test_of_what_is_added(self, name, factor):
        steps = StepModel(model(), roof(compute={name: 1e-3}))
        work = nothing(tokens=5, sequences=5, decodes=5)
        assert seconds(steps, work, 990, 1593) == pytest.approx(factor * seconds(steps, work), rel=1e-6)

    def test_the_links_have_their_own(self):
        steps = StepModel(model(), roof(links={"latency_s": 1e-3, "bandwidth": 2e11}), gpus=2)
        work = nothing(tokens=500)
        assert seconds(steps, work, 495, 1593) == pytest.approx(seconds(steps, work), rel=1e-6)


class TestSplit:
    def test_weights_products_and_caches_are_divided(self):
        one, four = (StepModel(model(), ROOF, gpus=gpus) for gpus in (1, 4))
        for steps in (one, four):
            assert steps.weight_bytes(1) == model().decode_weight_bytes(1)
            assert steps.cache_bytes(100) == model().kv_bytes(100)
        for work in (decodes(one, 32, 5000), prompts(one, (0, 3000)), prompts(one, (30_000, 2))):
            assert seconds(one, work) == pytest.approx(4 * seconds(four, work))
            assert four.pace(work, TOP, MEMORY)[1:] == pytest.approx(one.pace(work, TOP, MEMORY)[1:])

    def test_kv_heads_are_repeated_where_there_are_more_gpus(self):
        eight, sixteen = (StepModel(model(), roof(compute={"head_s": 1e-6}), gpus=gpus) for gpus in (8, 16))
        assert sixteen.cache_bytes(1000) == 2 * eight.cache_bytes(1000)
        work = nothing(decodes=10)
        assert seconds(eight, work) == pytest.approx(seconds(sixteen, work)) == pytest.approx(10 * LAYERS * 1e-6)

    @pytest.mark.parametrize(
        ("name", "divided"), [("token_s", 4), ("head_s", 4), ("layer_s", 1), ("sequence_s", 1), ("step_s", 1)]
    )
    def test_of_what_is_added(self, name, divided):
        one, four = (StepModel(model(), roof(compute={name: 1e-3}), gpus=gpus) for gpus in (1, 4))
        work = nothing(tokens=9, sequences=9, decodes=9)
        assert seconds(one, work) == pytest.approx(divided * seconds(four, work), rel=1e-6)

    def test_is_never_faster_than_the_gpus_are_many(self):
        for work in (decodes(StepModel(model(), ROOF), 32, 5000), prompts(StepModel(model(), ROOF), (0, 3000))):
            times = [gpus * seconds(StepModel(model(), round_board(), gpus=gpus), work) for gpus in (1, 2, 4, 8)]
            assert times == sorted(times)


class TestDataTypes:
    def test_8_bit_weights_are_read_in_half_the_time(self):
        halves, eighths = (StepModel(model().served_as(quantization=method), ROOF) for method in (None, "fp8"))
        # The output projection stays in 16 bits.
        layers, head = 2 * (7.11e9 - 32000 * HIDDEN), 2 * 32000 * HIDDEN
        assert seconds(halves, decodes(halves, 1, 0)) == pytest.approx((layers + head) / BANDWIDTH, rel=2e-3)
        assert seconds(eighths, decodes(eighths, 1, 0)) == pytest.approx((layers / 2 + head) / BANDWIDTH, rel=2e-3)

    @pytest.mark.parametrize(("key", "gain"), [("h100", 2), ("h200", 2), ("a100", 1)])
    def test_8_bit_products_go_at_their_own_peak_where_the_board_has_one(self, key, gain):
        board = altered(ROOF, product={"name": round_board(key).product.name})
        plain, eighths = (StepModel(model().served_as(quantization=method), board) for method in (None, "fp8"))
        work = nothing(matmul_flops=1e15)
        assert seconds(plain, work) == pytest.approx(gain * seconds(eighths, work), rel=1e-3)
        attended = nothing(prompt_flops=1e15)  # attention goes on in 16 bits
        assert seconds(plain, attended) == pytest.approx(seconds(eighths, attended), rel=1e-9)

    def test_4_bit_weights_alone_are_multiplied_in_16_bits(self):
        quantization = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
        quantized = Architecture.from_config({**MISTRAL, "quantization_config": quantization, "torch_dtype": "float16"})
        steps = StepModel(quantized, ROOF)
        assert seconds(steps, decodes(steps, 1, 0)) == pytest.approx(quantized.decode_weight_bytes(1) / BANDWIDTH)
        assert quantized.decode_weight_bytes(1) < 0.35 * model().decode_weight_bytes(1)
        assert seconds(steps, nothing(matmul_flops=FLOPS)) == pytest.approx(1, rel=1e-3)

    def test_a_board_without_bfloat16_multiplies_in_float16(self):
        board = altered(ROOF, product={"name": round_board("v100").product.name})
        steps = StepModel(model(), board)
        for work in (nothing(matmul_flops=125e12), nothing(prompt_flops=125e12)):
            assert seconds(steps, work) == pytest.approx(1, rel=1e-2)


class TestKindsOfModels:
    def test_of_experts_those_are_read_that_the_tokens_are_expected_to_touch(self):
        steps = StepModel(public("mixtral-8x7b-v0.1"), ROOF)
        times = [seconds(steps, decodes(steps, batch, 0)) for batch in (1, 2, 1000)]
        expert = 3 * 4096 * 14336 * 2 * 32 / BANDWIDTH  # one of each of the 32 layers
        touched = [2, 8 * (1 - (6 / 8) ** 2), 8]
        assert times[1] - times[0] == pytest.approx((touched[1] - touched[0]) * expert, rel=1e-6)
        assert steps.weight_bytes(1000) - steps.weight_bytes(1) == pytest.approx(6 * expert * BANDWIDTH, rel=1e-6)

    def test_a_token_is_multiplied_with_the_experts_that_it_is_sent_to(self):
        mixtral = public("mixtral-8x7b-v0.1")
        steps = StepModel(mixtral, ROOF)
        assert prompts(steps, (0, 100)).matmul_flops == pytest.approx(100 * 2 * mixtral.active_params, rel=0.03)

    def test_a_cache_grows_no_more_where_the_window_is_full(self):
        steps = StepModel(model('{"sliding_window": 1000}'), ROOF)
        times = [seconds(steps, decodes(steps, 8, context)) for context in (500, 1000, 1001, 30_000)]
        assert times[0] < times[1] == times[2] == times[3]
        assert decodes(steps, 8, 5000).attention_flops == decodes(steps, 8, 1000).attention_flops
        whole = StepModel(model(), ROOF)
        assert prompts(steps, (0, 4000)).prompt_flops < prompts(whole, (0, 4000)).prompt_flops
        assert prompts(steps, (0, 900)) == prompts(whole, (0, 900))


class TestLaunch:
    HOST = round_board().host

    def launch(self, work=None, *, decodes=0, prompts=(), **kwargs):
        steps = StepModel(model(), round_board(), **kwargs)
        work = steps.work(prompts, sampled=0, decodes=decodes, cache_bytes=0, attention_flops=0)
        return steps.launch_s(work)

    def base(self, sequences):
        return self.HOST.graph_launch_s + sequences * self.HOST.sequence_launch_s

    @pytest.mark.parametrize("batch", [1, 100, 512])
    def test_one_token_of_each_sequence_is_one_graph(self, batch):
        assert self.launch(decodes=batch) == pytest.approx(self.base(batch))

    def test_so_is_a_prompt_of_one_token(self):
        assert self.launch(prompts=[(0, 1)] * 3) == pytest.approx(self.base(3))
        assert self.launch(prompts=[(99, 1)] * 3) == pytest.approx(self.base(3))

    @pytest.mark.parametrize("prompts", [[(0, 2)], [(0, 512)], [(0, 200), (0, 312)]])
    def test_longer_prompts_are_a_graph_between_one_attention_and_the_next(self, prompts):
        expected = self.base(len(prompts)) + LAYERS * self.HOST.piecewise_launch_s
        assert self.launch(prompts=prompts) == pytest.approx(expected)

    @pytest.mark.parametrize(("captured", "prompt"), [(512, 513), (512, 2048), (64, 65)])
    def test_what_is_larger_than_any_graph_is_launched_layer_by_layer(self, captured, prompt):
        expected = self.base(1) + LAYERS * self.HOST.layer_launch_s
        assert self.launch(prompts=[(0, prompt)], captured_tokens=captured) == pytest.approx(expected)

    def test_so_are_more_sequences_than_any_graph_has(self):
        expected = self.base(65) + LAYERS * self.HOST.layer_launch_s
        assert self.launch(decodes=65, captured_tokens=64) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("prompt", "layer_s"), [(1, None), (100, HOST.piecewise_launch_s), (2000, HOST.layer_launch_s)]
    )
    def test_prompts_and_decodes_have_their_attention_launched_one_after_the_other(self, prompt, layer_s):
        more = LAYERS * (layer_s + self.HOST.mixed_launch_s) if layer_s else 0
        assert self.launch(decodes=8, prompts=[(0, prompt)]) == pytest.approx(self.base(9) + more)

    @pytest.mark.parametrize("work", [{"decodes": 1}, {"decodes": 9, "prompts": [(0, 100)]}, {"prompts": [(0, 2000)]}])
    def test_without_graphs_everything_is(self, work):
        sequences = work.get("decodes", 0) + len(work.get("prompts", ()))
        expected = self.base(sequences) + LAYERS * self.HOST.eager_layer_launch_s
        assert self.launch(**work, eager=True) == pytest.approx(expected)

    def test_the_gpu_takes_as_long_however_it_was_launched(self):
        work = prompts(StepModel(model(), ROOF), (0, 100))
        others = ({"eager": True}, {"captured_tokens": 1})
        assert {seconds(StepModel(model(), ROOF, **other), work) for other in others} == {
            seconds(StepModel(model(), ROOF), work)
        }


# Properties.

SERVED = {
    "mistral": lambda: model(),
    "window": lambda: model('{"sliding_window": 1000}'),
    "experts": lambda: public("mixtral-8x7b-v0.1"),
    "latent": lambda: public("deepseek-v2-lite"),
}


@cache
def served(key, kind, gpus=1, kv_dtype=None):
    return StepModel(SERVED[kind](), BoardModel.named(key), gpus=gpus, kv_dtype=kv_dtype)


@st.composite
def paces(draw):
    """Steps of a model on a board as its file has it, one of its works, and clocks that it has."""
    key = draw(st.sampled_from(BOARDS))
    options = draw(st.sampled_from([(1, None), (2, None), (8, "fp8"), (16, None)]))
    steps = served(key, draw(st.sampled_from(sorted(SERVED))), *options)
    product = BoardModel.named(key).product
    clocks = draw(st.sampled_from(product.supported_sm_clocks_mhz)), draw(st.sampled_from(product.memory_clocks_mhz))
    return steps, draw(works(steps)), clocks


@st.composite
def works(draw, steps):
    chunks = draw(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 2000)), max_size=4))
    batch, context = draw(st.integers(0 if chunks else 1, 200)), draw(st.integers(1, 20_000))
    caches, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
    sampled = batch + draw(st.integers(0, len(chunks)))
    return steps.work(chunks, sampled=sampled, decodes=batch, cache_bytes=caches, attention_flops=flops)


@given(paces())
def test_shares_are_shares(case):
    steps, work, clocks = case
    took, memory, compute = steps.pace(work, *clocks)
    assert took > 0
    assert 0 < memory < 1
    assert 0 < compute < 1


@given(paces(), st.sampled_from(Work._fields), st.floats(1.01, 100))
def test_more_of_anything_takes_no_less_time(case, field, more):
    steps, work, clocks = case
    other = work._replace(**{field: getattr(work, field) * more})
    assert steps.pace(other, *clocks).seconds >= steps.pace(work, *clocks).seconds
    # What decodes attend to is read while it is computed; everything else takes its time.
    if field in ("tokens", "decodes", "sequences", "cache_bytes") and getattr(work, field):
        assert steps.pace(other, *clocks).seconds > steps.pace(work, *clocks).seconds


@given(paces(), st.integers(1, 500))
def test_a_higher_clock_is_faster(case, more):
    steps, work, (sm_mhz, memory_mhz) = case
    before = steps.pace(work, sm_mhz, memory_mhz).seconds
    assert steps.pace(work, sm_mhz + more, memory_mhz).seconds < before
    assert steps.pace(work, sm_mhz, memory_mhz + more).seconds < before
    # But no more than by what the clock was raised.
    assert steps.pace(work, 2 * sm_mhz, 2 * memory_mhz).seconds > before / 4 * (1 - 1e-9)


@given(paces(), st.data())
def test_two_steps_in_one_take_as_long_as_the_longer_and_no_longer_than_both(case, data):
    steps, first, clocks = case
    second = data.draw(works(steps))
    together = Work(*map(sum, zip(first, second, strict=True)))._replace(
        weight_bytes=steps.weight_bytes(first.tokens + second.tokens)
    )
    one, other, both = (steps.pace(work, *clocks).seconds for work in (first, second, together))
    assert max(one, other) <= both <= (one + other) * (1 + 1e-9)


@given(paces(), st.integers(1, 4000), st.integers(1, 4000))
def test_a_prompt_in_two_chunks_takes_no_less_time(case, first, second):
    steps, _, clocks = case
    whole = prompts(steps, (0, first + second))
    parts = [prompts(steps, (0, first), sampled=0), prompts(steps, (first, second))]
    assert sum(steps.pace(part, *clocks).seconds for part in parts) >= steps.pace(whole, *clocks).seconds * (1 - 1e-9)
