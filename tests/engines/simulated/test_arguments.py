"""vLLM's arguments on a simulated engine: what they do, and which are refused."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.errors import EngineError, OptionError
from pytest_llmperf.models import resolve
from tests.engines.simulated.engines import ask_all, at_once, requests, simulated
from tests.simulation.round_numbers import round_board


def tpot(*lengths, **settings):
    (*_, trace) = at_once(simulated(**settings), *(lengths or [(1, 64)]))
    return statistics.median(later - earlier for earlier, later in pairwise(trace.received_ns)) / NS_PER_S


def ttft(*lengths, **settings):
    return max(trace.first_ns - trace.due_ns for trace in at_once(simulated(**settings), *lengths)) / NS_PER_S


def info(**settings):
    async def work(engine):
        return await engine.open()

    return ask_all(simulated(**settings), work)


def account(offers, **settings):
    async def work(engine):
        await engine.carry(Offer(requests((64, 2))))
        await engine.open_account()
        for offer in offers:
            await engine.carry(offer)
        return await engine.close_account()

    return ask_all(simulated(**settings), work)


class TestScheduling:
    def test_a_prompt_is_computed_in_chunks_beside_which_others_decode(self):
        decoding = Request("a", (1,) * 16, 200)
        prompt = Request("b", (2,) * 8000, 2)

        async def work(engine):
            return await engine.carry(Offer((decoding, prompt), (0, 300_000_000)))

        def gaps(**settings):
            trace, _ = ask_all(simulated(**settings), work)
            return [later - earlier for earlier, later in pairwise(trace.received_ns)]

        chunked, whole = gaps(), gaps(max_num_batched_tokens=8192)
        plain = statistics.median(chunked)
        assert sum(gap > 5 * plain for gap in chunked) == 4  # 8000 tokens in steps of at most 2048
        assert sum(gap > 5 * plain for gap in whole) == 1
        assert max(whole) > 3 * max(chunked)

    def test_without_chunks_a_prompt_waits_for_a_step_of_its_own(self):
        settings = {"max_model_len": 2048, "max_num_batched_tokens": 2048}
        lengths = [(1500, 2)] * 3
        chunked = at_once(simulated(**settings), *lengths)
        whole = at_once(simulated(**settings, enable_chunked_prefill=False), *lengths)
        assert chunked[2].engine.scheduled_ns == chunked[1].engine.scheduled_ns
        assert whole[2].engine.scheduled_ns >= whole[0].engine.first_token_ns

    def test_no_more_run_at_a_time_than_was_said(self):
        traces = at_once(simulated(max_num_seqs=2), *[(16, 50)] * 4)
        assert traces[2].engine.scheduled_ns >= min(trace.engine.last_token_ns for trace in traces[:2])

    def test_128_run_at_a_time_unless_told_otherwise(self):
        def last_waits(**settings):
            traces = at_once(simulated(**settings), *[(16, 100)] * 129)
            return traces[-1].engine.scheduled_ns >= min(trace.engine.last_token_ns for trace in traces)

        assert last_waits()
        assert not last_waits(max_num_seqs=129)

    def test_with_little_cache_requests_are_preempted_and_it_is_said(self):
        few = {"num_gpu_blocks_override": 130, "max_model_len": 2048}
        lengths = [(400, 300)] * 4
        plain, pressed = at_once(simulated(), *lengths), at_once(simulated(**few), *lengths)
        assert [len(trace.received_ns) for trace in pressed] == [300] * 4
        assert max(t.last_ns for t in pressed) > 1.2 * max(t.last_ns for t in plain)
        told = account([Offer(requests(*lengths))], **few)
        assert told.server.preemptions >= 1
        (warning,) = told.warnings
        assert f"preempted {told.server.preemptions} times" in warning
        assert "the KV cache holds only 2064 tokens" in warning

    def test_without_pressure_there_is_nothing_to_tell(self):
        told = account([Offer(requests((400, 300)))])
        assert (told.server, told.warnings) == (None, ())

    def test_a_prefix_in_the_cache_is_not_computed_again(self):
        lengths = [(3000, 4)]

        async def work(engine):
            return [(await engine.carry(Offer(requests(*lengths))))[0] for _ in range(2)]

        first, second = ask_all(simulated(enable_prefix_caching=True), work)
        assert second.first_ns - second.due_ns < 0.5 * (first.first_ns - first.due_ns)
        first, second = ask_all(simulated(), work)
        assert second.first_ns - second.due_ns == first.first_ns - first.due_ns

    def test_its_hit_rate_is_told(self):
        told = account([Offer(requests((160, 2))), Offer(requests((160, 2)))], enable_prefix_caching=True)
        # Of twice 160 tokens: four blocks that the warm-up had left, then all but the last block.
        assert told.server.prefix_cache_hit_rate == pytest.approx((64 + 144) / 320)
        assert told.server.preemptions == 0

    def test_without_asynchronous_scheduling_what_comes_before_the_gpu_begins_is_added(self):
        host = round_board().host
        assert tpot(async_scheduling=False) - tpot() == pytest.approx(host.prepare_s, abs=1e-8)
        # A step of so small a model has ended on the GPU before it is launched.
        launch_s = host.graph_launch_s + host.sequence_launch_s
        assert tpot(model="tiny-llama", async_scheduling=False) == pytest.approx(launch_s)

    def test_an_eager_engine_is_slower_to_launch(self):
        board = round_board()
        least = 32 * board.host.eager_layer_launch_s
        assert tpot(enforce_eager=True) > least > 2 * tpot()


class TestServing:
    def test_more_boards_are_faster_but_not_as_many_times(self):
        one, two, four = (tpot((512, 64), tensor_parallel_size=gpus) for gpus in (1, 2, 4))
        assert one > two > four
        assert two > one / 2
        assert info(tensor_parallel_size=2).device_count == 2
        assert info(tensor_parallel_size=2).tensor_parallel_size == 2

    def test_fp8_weights_are_read_faster(self):
        assert 0.4 * tpot() < tpot(quantization="fp8") < 0.8 * tpot()
        assert info(quantization="fp8").quantization == "fp8"

    def test_fp8_products_are_faster_where_the_board_has_them(self):
        def gain(name):
            return ttft((8000, 1), name=name) / ttft((8000, 1), name=name, quantization="fp8")

        assert gain("sim:h100") > 1.3
        assert gain("sim:a100") == pytest.approx(1, abs=0.1)
        assert tpot(name="sim:a100", quantization="fp8") < 0.8 * tpot(name="sim:a100")

    def test_an_fp8_cache_is_read_faster_and_holds_more(self):
        many = [(2000, 40)] * 32
        assert tpot(*many, kv_cache_dtype="fp8") < 0.95 * tpot(*many)
        whole, half = (simulated(kv_cache_dtype=dtype)._deployment.kv_blocks for dtype in ("auto", "fp8"))
        assert half == pytest.approx(2 * whole, rel=1e-3)
        assert info(kv_cache_dtype="fp8").kv_cache_dtype == "fp8"

    def test_32_bits_are_slower(self):
        assert tpot(dtype="float32") > 1.5 * tpot()
        assert info(dtype="float").dtype == "float32"

    def test_a_dtype_of_torch_is_understood(self):
        class Dtype:
            def __str__(self):
                return "torch.float16"

        assert info(args={"dtype": Dtype()}).dtype == "float16"

    def test_what_nobody_asked_for_is_as_ever(self):
        told = info()
        assert (told.dtype, told.quantization, told.kv_cache_dtype) == ("bfloat16", None, "auto")
        assert (told.device_count, told.tensor_parallel_size, told.pipeline_parallel_size) == (1, 1, 1)
        assert told.max_model_len == 32768
        assert told.args == {
            "seed": 0, "launch_noise": 0.0, "repeat_noise": 0.0, "slowdown": 1.0, "power_scale": 1.0,
            "max_num_batched_tokens": 2048, "max_num_seqs": 128, "max_model_len": 32768, "block_size": 16,
            "num_gpu_blocks": simulated()._deployment.kv_blocks,
        }  # fmt: skip
        assert told.treatment == {}

    def test_what_was_asked_for_is_told(self):
        told = info(args={"max_model_len": 512, "load_format": "dummy"}, max_num_seqs=7, seed=3)
        assert told.max_model_len == 512
        assert told.treatment == {"max_num_seqs": 7, "seed": 3}
        assert told.args == {
            "seed": 3, "launch_noise": 0.0, "repeat_noise": 0.0, "slowdown": 1.0, "power_scale": 1.0,
            "max_model_len": 512, "load_format": "dummy", "max_num_seqs": 7, "max_num_batched_tokens": 2048,
            "block_size": 16, "num_gpu_blocks": told.args["num_gpu_blocks"],
        }  # fmt: skip

    def test_the_command_line_wins_over_the_marker(self):
        assert info(args={"max_model_len": 512}, max_model_len=256).max_model_len == 256

    def test_what_vllm_takes_and_changes_nothing_here_changes_nothing(self):
        ignored = {"load_format": "dummy", "disable_log_stats": True, "compilation_config": {}}
        ignored |= {"pipeline_parallel_size": 1, "speculative_config": None, "enable_lora": False, "max_num_seqs": None}
        assert at_once(simulated(args=ignored), (64, 8)) == at_once(simulated(), (64, 8))


class TestMemory:
    def test_what_weights_and_a_step_leave_is_cache(self):
        engine = simulated()
        model = Architecture.from_config(resolve("mistral-7b").config)
        share = 0.9 * round_board().product.memory_bytes
        cache = (engine._deployment.kv_blocks + 1) * 16 * model.kv_bytes_per_token()
        assert 0.4e9 < share - model.weight_bytes() - cache < 1.5e9
        assert engine._deployment.footprint_bytes == pytest.approx(share, rel=1e-3)

    def test_a_smaller_share_leaves_less(self):
        less, more = (simulated(gpu_memory_utilization=share)._deployment.kv_blocks for share in (0.5, 0.9))
        assert less < 0.55 * more

    def test_as_many_blocks_as_were_said(self):
        deployment = simulated(num_gpu_blocks_override=5000, block_size=32)._deployment
        assert deployment.kv_blocks == 4999  # vLLM sets one aside
        assert deployment.scheduler().blocks.block_size == 32
        assert deployment.footprint_bytes < 40e9

    def test_each_of_two_boards_has_its_half(self):
        one, two = (simulated(tensor_parallel_size=gpus)._deployment.kv_blocks for gpus in (1, 2))
        assert 2.1 * one < two < 2.3 * one


REFUSED = [
    ("max_num_seqs", 0, "a whole number of at least 1"),
    ("max_num_seqs", 1.5, "a whole number of at least 1"),
    ("max_num_seqs", True, "a whole number of at least 1"),
    ("max_num_batched_tokens", "2k", "a whole number of at least 1"),
    ("max_model_len", -1, "a whole number of at least 1"),
    ("num_gpu_blocks_override", 0, "a whole number of at least 1"),
    ("tensor_parallel_size", 0, "a whole number of at least 1"),
    ("block_size", 7, "one of 1, 8, 16, 32, 64, 128, 256"),
    ("block_size", True, "one of 1, 8"),
    ("block_size", [16], "one of 1, 8"),
    ("gpu_memory_utilization", 0, "a share of the memory"),
    ("gpu_memory_utilization", 1.1, "a share of the memory"),
    ("gpu_memory_utilization", "all", "a share of the memory"),
    ("gpu_memory_utilization", float("nan"), "a share of the memory"),
    ("enable_prefix_caching", 1, "true or false"),
    ("enable_chunked_prefill", "yes", "true or false"),
    ("async_scheduling", 0, "true or false"),
    ("enforce_eager", "false", "true or false"),
    ("dtype", "int8", "one of auto, half"),
    ("quantization", 8, "the name of a method"),
    ("quantization", "", "the name of a method"),
    ("kv_cache_dtype", "int4", "one of auto, float16"),
    ("kv_cache_dtype", [], "one of auto, float16"),
]  # fmt: skip


class TestRefused:
    @pytest.mark.parametrize(("name", "value", "why"), REFUSED)
    @pytest.mark.parametrize("origin", ["treatment", "args"])
    def test_a_value_that_vllm_does_not_take(self, name, value, why, origin):
        given = {name: value} if origin == "treatment" else {"args": {name: value}}
        with pytest.raises(OptionError, match=f"sim:h200: {name} is {why}"):
            simulated(**given)

    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [("seed", 1.5, "a whole number"), ("max_num_batched_tokens", 10**400, "a whole number of at most")],
    )
    def test_a_number_beyond_what_makes_sense(self, name, value, why):
        with pytest.raises(OptionError, match=f"sim:h200: {name} is {why}"):
            simulated(**{name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("pipeline_parallel_size", 2),
            ("data_parallel_size", 2),
            ("speculative_config", {"model": "ngram"}),
            ("enable_lora", True),
            ("enable_expert_parallel", True),
            ("scheduling_policy", "priority"),
            ("cpu_offload_gb", 10),
            ("hf_overrides", {"num_hidden_layers": 2}),
            ("kv_transfer_config", {}),
            ("compilation_config", {"cudagraph_mode": "NONE"}),
            ("optimization_level", 0),
            ("cuda_graph_sizes", [1]),
            ("attention_backend", "FLASHINFER"),
        ],
    )
    def test_what_is_not_simulated(self, name, value):
        with pytest.raises(OptionError, match=f"{name} is not simulated"):
            simulated(**{name: value})

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("max_num_seq", "max_num_seqs"), ("power", "power_scale"), ("tensor_parallel", "tensor_parallel_size")],
    )
    def test_what_does_not_exist_with_what_was_meant(self, name, meant):
        message = rf"has no setting '{name}'.*Did you mean '{meant}'.*launch_noise.*max_model_len.*seed.*slowdown"
        with pytest.raises(OptionError, match=message):
            simulated(**{name: 1})

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"quantization": "magic"}, r"quantization=magic.*Use bitsandbytes or fp8"),
            ({"quantization": "awq"}, r"quantization=awq"),
            ({"quantization": "bitsandbytes"}, r"kernels of bitsandbytes take is not simulated"),
            ({"quantization": "fp8", "name": "sim:v100"}, r"fp8 needs a GPU of compute capability 7\.5.*has 7\.0"),
            ({"dtype": "bfloat16", "name": "sim:v100"}, r"bfloat16 needs.*8\.0.*has 7\.0.*dtype=half"),
            ({"tensor_parallel_size": 3}, r"32 attention heads cannot be divided by tensor_parallel_size \(3\)"),
            ({"max_model_len": 40000}, r"max_model_len \(40000\) is greater than the 32768"),
            (
                {"max_num_batched_tokens": 100, "max_num_seqs": 101},
                r"max_num_batched_tokens \(100\) is smaller than max_num_seqs \(101\)",
            ),
            (
                {"max_num_batched_tokens": 1000, "enable_chunked_prefill": False, "max_model_len": 1001},
                r"max_num_batched_tokens \(1000\) is smaller than max_model_len \(1001\)",
            ),
            ({"gpu_memory_utilization": 0.05}, r"weights need 13\.5 GiB.*no memory is left for the KV cache"),
            (
                {"name": "sim:v100", "gpu_memory_utilization": 0.5, "max_model_len": 32768},
                r"A sequence of max_model_len \(32768\) tokens needs 4\.00 GiB of KV cache on each GPU, and .* left\. "
                r"Lower max_model_len to \d+, or raise gpu_memory_utilization",
            ),
            ({"num_gpu_blocks_override": 100}, r"needs 4\.00 GiB.*max_model_len to 1584, or raise num_gpu_blocks_over"),
            ({"num_gpu_blocks_override": 10**6}, r"num_gpu_blocks_override \(1000000\) needs .* GiB of each GPU"),
        ],
    )
    def test_what_contradicts_the_model_or_the_board(self, settings, message):
        with pytest.raises(EngineError, match=message):
            simulated(**settings)

    def test_kv_heads_that_can_be_neither_divided_nor_repeated(self, tmp_path):
        config = {**resolve("mistral-7b").config, "num_attention_heads": 30, "num_key_value_heads": 10, "head_dim": 128}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(EngineError, match="10 KV heads"):
            simulated(model=str(tmp_path), tensor_parallel_size=6)
        assert tpot(model=str(tmp_path), tensor_parallel_size=30) < tpot(model=str(tmp_path))

    def test_the_longest_that_is_said_to_fit_fits(self):
        simulated(num_gpu_blocks_override=100, max_model_len=1584)
        trace = at_once(simulated(num_gpu_blocks_override=100, max_model_len=1584), (1484, 100))[0]
        assert trace.completed

    def test_a_larger_step_for_prompts_in_one_piece_unless_told_otherwise(self):
        assert simulated(enable_chunked_prefill=False)._deployment.token_budget == 32768
        assert simulated(max_num_batched_tokens=64)._deployment.max_sequences == 64
