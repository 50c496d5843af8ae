"""Steps over GPUs, data types and kinds of models, and what it takes to launch them."""

from __future__ import annotations

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.simulation.steps import StepModel
from tests.simulation.round_numbers import altered, round_board
from tests.simulation.steps_of import (
    BANDWIDTH,
    FLOPS,
    HIDDEN,
    LAYERS,
    MEMORY,
    MISTRAL,
    ROOF,
    TOP,
    decodes,
    model,
    nothing,
    prompts,
    public,
    roof,
    seconds,
)


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
