"""How long a step takes: every term alone and all together, over clocks."""

from __future__ import annotations

from math import inf

import pytest

from pytest_llmperf.simulation.steps import StepModel
from tests.simulation.round_numbers import round_board
from tests.simulation.steps_of import (
    BANDWIDTH,
    FLOPS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MEMORY,
    ROOF,
    TOP,
    decodes,
    model,
    nothing,
    prompts,
    roof,
    seconds,
)


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
