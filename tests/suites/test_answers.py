"""The shipped suites run on simulated boards, and answer as measurements on real ones and publications did.

Sweeps are thinned to the points that an assertion needs. All of a board run in one session.
"""

from itertools import pairwise

import pytest

BATCHES = [1, 4, 16, 64]
CLOCKS = [750, 850, 900, 1000, 1300]
SHAPES = ["prefill", "decode", "end-to-end"]

V100 = [
    *(f"test_sweet_spot.py::test_clock[{clock}-{shape}]" for clock in CLOCKS for shape in SHAPES),
    *(f"test_sweet_spot.py::test_free[{shape}]" for shape in SHAPES),
    *(f"test_batch_and_clock.py::test_at_clock[900-{batch}]" for batch in BATCHES),
    *(f"test_batch_and_clock.py::test_at_clock[1300-{batch}]" for batch in (1, 64)),
    "test_phases.py::test_token[1]",
    "test_phases.py::test_prefill[1]",
    *(f"test_phases.py::test_decode[{batch}]" for batch in (1, 4, 16)),
    *(f"test_latency_throughput.py::test_static_batch[{batch}]" for batch in (1, 16, 64, 128, 256)),
    *(f"test_latency_throughput.py::test_concurrency[{load}]" for load in (1, 8, 64, 256)),
    *(f"test_lengths.py::test_request[{lengths}]" for lengths in ("512-8", "1024-8", "512-16", "4096-8", "128-256")),
    *(f"test_lengths.py::test_prompt[{length}]" for length in (128, 512, 4096)),
    *(f"test_scaling.py::test_tensor_parallel[{size}-{batch}]" for size in (1, 2, 4) for batch in (1, 16)),
    *(f"test_scaling.py::test_model_size[8-{name}-1]" for name in ("llama-2-7b", "llama-2-13b", "llama-2-70b")),
    "test_scaling.py::test_model_size[2-llama-2-70b-1]",
    *(f"test_batching_policies.py::test_policy[{rate}-{policy}]" for rate in ("0.25", "4")
      for policy in ("static", "dynamic", "continuous")),
    "test_quantization.py::test_format[fp8-1]",
    "test_quantization.py::test_format[kv-fp8-1]",
    "test_serving.py::test_open_loop_sweep[1]",
]  # fmt: skip
H200 = [
    *(f"test_quantization.py::test_format[{form}-16]"
      for form in ("as-stored", "fp8", "awq", "bitsandbytes", "kv-fp8", "eager")),
    "test_scaling.py::test_model_size[1-llama-2-70b-1]",
]  # fmt: skip


@pytest.fixture(scope="module")
def v100(run_suites):
    return run_suites(*(f"suites/{test}" for test in V100))


@pytest.fixture(scope="module")
def h200(run_suites):
    return run_suites("--llmperf-engine=sim:h200", *(f"suites/{test}" for test in H200))


def rises(values):
    return all(before < after for before, after in pairwise(values))


def test_what_is_asked_for_by_default_is_measured(run_suites):
    run = run_suites("suites/")
    assert run.status == 0, run.text
    assert len(run.tests) == 12
    assert {record["verdict"] for record in run.tests.values()} == {"measured"}
    assert run.tests["test_idle.py::test_floor"]["workload"] is None


def test_sweeps_run_and_what_a_board_cannot_do_is_skipped_with_its_reason(v100):
    assert v100.status == 0, v100.text
    assert len(v100.tests) == len(V100) - 3
    assert "quantization=fp8 needs compute capability 7.5, and Tesla V100-SXM2-32GB has 7.0" in v100.text
    assert "kv_cache_dtype=fp8 needs compute capability 8.0, and Tesla V100-SXM2-32GB has 7.0" in v100.text
    assert "llama-2-70b needs 64.2 GiB of each GPU for its weights" in v100.text


class TestClock:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_tokens_per_joule_are_most_at_900_mhz(self, v100, shape):
        efficiency = v100.curve(f"test_sweet_spot.py::test_clock[{{}}-{shape}]", "tpj", CLOCKS)
        assert CLOCKS[efficiency.index(max(efficiency))] == 900
        assert rises(efficiency[:3])
        assert rises(efficiency[:1:-1])

    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_lock_there_saves_energy_against_the_free_clock_and_costs_latency(self, v100, shape):
        locked, free = f"test_sweet_spot.py::test_clock[900-{shape}]", f"test_sweet_spot.py::test_free[{shape}]"
        assert v100.value(locked, "tpj") > 1.3 * v100.value(free, "tpj")
        assert v100.value(locked, "e2e_latency") > 1.04 * v100.value(free, "e2e_latency")
        assert v100.tests[locked]["clock"]["locked_mhz"] == 900
        assert v100.tests[free]["clock"]["locked_mhz"] is None

    def test_power_rises_more_than_the_clock_and_latency_falls(self, v100):
        for batch in (1, 64):
            low, high = (f"test_batch_and_clock.py::test_at_clock[{clock}-{batch}]" for clock in (900, 1300))
            assert v100.value(high, "power") > 1300 / 900 * v100.value(low, "power") * 0.94
            assert v100.value(high, "e2e_latency") < v100.value(low, "e2e_latency")


class TestBatch:
    def test_up_to_16_it_hardly_changes_the_power_of_decoding(self, v100):
        power = v100.curve("test_phases.py::test_decode[{}]", "power", [1, 4, 16])
        assert max(power) < 1.10 * min(power)

    def test_nor_at_the_optimum_that_of_whole_requests(self, v100):
        power = v100.curve("test_batch_and_clock.py::test_at_clock[900-{}]", "power", [1, 4, 16])
        assert max(power) < 1.10 * min(power)

    @pytest.mark.parametrize("metric", ["tpj", "throughput", "e2e_latency"])
    def test_a_larger_one_gives_more_tokens_per_joule_more_throughput_and_more_latency(self, v100, metric):
        assert rises(v100.curve("test_batch_and_clock.py::test_at_clock[900-{}]", metric, BATCHES))

    def test_decoding_turns_compute_bound_near_the_machine_balance_of_173(self, v100):
        step = dict(zip((1, 16, 64, 128, 256), v100.curve(
            "test_latency_throughput.py::test_static_batch[{}]", "tpot", (1, 16, 64, 128, 256)), strict=True
        ))  # fmt: skip
        # Bound by memory: twice the batch in hardly more time. Bound by compute: in nearly twice the time.
        assert step[16] < 1.15 * step[1]
        assert step[64] < 1.6 * step[1]
        assert step[256] > 1.6 * step[128] > 1.6 * 1.6 * step[1]

    def test_load_beyond_what_the_engine_holds_brings_latency_and_hardly_any_throughput(self, v100):
        throughput, latency = (
            v100.curve("test_latency_throughput.py::test_concurrency[{}]", metric, (1, 8, 64, 256))
            for metric in ("throughput", "e2e_latency")
        )
        assert throughput[1] > 6 * throughput[0]
        assert throughput[3] < 1.5 * throughput[2]
        assert latency[3] > 2.5 * latency[2]


class TestPhases:
    def test_a_decoded_token_costs_about_50_times_a_prefilled_one(self, v100):
        alone = "test_phases.py::test_token[1]"
        assert 40 < v100.value(alone, "decode_jpt") / v100.value(alone, "prefill_jpt") < 70

    def test_prefill_draws_more_than_decode(self, v100):
        prefill, decode = (v100.value(f"test_phases.py::test_{phase}[1]", "power") for phase in ("prefill", "decode"))
        assert prefill > 1.5 * decode

    def test_512_more_prompt_tokens_cost_less_time_than_8_more_output_tokens(self, v100):
        base, prompt, output = (
            v100.value(f"test_lengths.py::test_request[{lengths}]", "e2e_latency")
            for lengths in ("512-8", "1024-8", "512-16")
        )
        assert 0 < prompt - base < output - base

    def test_the_prompts_share_of_the_latency_grows_with_it(self, v100):
        def share(lengths):
            test = f"test_lengths.py::test_request[{lengths}]"
            return v100.value(test, "ttft") / v100.value(test, "e2e_latency")

        assert share("128-256") < 0.01 < 0.3 < share("512-8") < share("1024-8") < share("4096-8")

    def test_a_longer_prompt_comes_nearer_to_the_compute_roof(self, v100):
        assert rises(v100.curve("test_lengths.py::test_prompt[{}]", "mfu", (128, 512)))
        assert v100.value("test_lengths.py::test_prompt[512]", "mfu") > 0.4


class TestScaling:
    def test_twice_the_gpus_bring_less_than_twice_the_speed_and_cost_energy(self, v100):
        for batch in (1, 16):
            tpot = v100.curve(f"test_scaling.py::test_tensor_parallel[{{}}-{batch}]", "tpot", (1, 2, 4))
            assert all(0.5 < after / before < 0.6 for before, after in pairwise(tpot))
            assert rises(v100.curve(f"test_scaling.py::test_tensor_parallel[{{}}-{batch}]", "tpj", (4, 2, 1)))

    def test_latency_grows_with_the_models_size_and_less_than_it(self, v100):
        latency = v100.curve("test_scaling.py::test_model_size[8-{}-1]", "e2e_latency",
                             ("llama-2-7b", "llama-2-13b", "llama-2-70b"))  # fmt: skip
        sizes = (6.74, 13.0, 69.0)
        for (less, more), (small, large) in zip(pairwise(latency), pairwise(sizes), strict=True):
            assert 1 < more / less < large / small

    def test_what_one_board_does_not_hold_is_skipped(self, h200):
        assert "llama-2-70b needs 128.5 GiB of the GPU for its weights" in h200.text


class TestPolicies:
    def throughput(self, run, rate):
        return {
            policy: run.value(f"test_batching_policies.py::test_policy[{rate}-{policy}]", "throughput")
            for policy in ("static", "dynamic", "continuous")
        }

    def test_under_load_continuous_serves_several_times_as_much(self, v100):
        served = self.throughput(v100, 4)
        assert served["continuous"] > 2.5 * served["dynamic"]
        assert served["continuous"] > 2.5 * served["static"]

    def test_at_low_load_all_serve_what_comes_and_static_makes_it_wait(self, v100):
        served = self.throughput(v100, 0.25)
        assert max(served.values()) < 1.5 * min(served.values())
        waits = {
            policy: v100.value(f"test_batching_policies.py::test_policy[0.25-{policy}]", "ttft") for policy in served
        }
        assert waits["continuous"] < waits["dynamic"] < waits["static"]


class TestFormats:
    def test_fewer_bits_are_faster_and_cheaper(self, h200):
        assert h200.status == 0, h200.text
        for metric in ("tpj", "throughput"):
            assert rises(h200.curve("test_quantization.py::test_format[{}-16]", metric, ("as-stored", "fp8", "awq")))

    def test_a_small_kv_cache_holds_twice_the_sequences(self, h200):
        blocks = {
            form: h200.tests[f"test_quantization.py::test_format[{form}-16]"]["engine"]["limits"]["num_gpu_blocks"]
            for form in ("as-stored", "kv-fp8")
        }
        assert blocks["kv-fp8"] == pytest.approx(2 * blocks["as-stored"], rel=0.01)

    def test_eager_is_slower(self, h200):
        eager, compiled = (
            h200.value(f"test_quantization.py::test_format[{form}-16]", "tpot") for form in ("eager", "as-stored")
        )
        assert eager > 2 * compiled

    def test_what_is_not_simulated_is_skipped(self, h200):
        assert "how long the kernels of bitsandbytes take is not simulated" in h200.text
