from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.arithmetic import (
    Architecture,
    Hardware,
    critical_batch,
    decode_time,
    energy_split,
    mbu,
    mfu,
    peak_matmul_flops,
    prefill_time,
    roofline_efficiency,
    roofline_time,
)

from .cases import CONFIGS, CONVENTIONS, EXPECTED, SMALL, config_of

LLAMA = Architecture.from_config(CONFIGS / "llama-2-7b.json")
MISTRAL = Architecture.from_config(CONFIGS / "mistral-7b-v0.1.json")
MIXTRAL = Architecture.from_config(CONFIGS / "mixtral-8x7b-v0.1.json")
H200 = Hardware.named("NVIDIA H200")
V100 = Hardware.named("Tesla V100-SXM2-32GB").with_measured(bandwidth=722e9)

POSITIVE = st.floats(1e-6, 1e15)


def test_seven_billion_parameters_at_14_ms():
    assert mbu(7e9 * 2, 0, 0.014, 2e12) == pytest.approx(0.5)


def test_worked_mbu():
    case = CONVENTIONS["worked_mbu"]
    assert LLAMA.mbu_weight_bytes(case["batch"]) == case["weight_bytes"]
    assert LLAMA.kv_bytes(case["context"]) == case["kv_bytes"]
    share = mbu(case["weight_bytes"], case["kv_bytes"], case["tpot_s"], case["peak_bytes_per_s"])
    assert round(share, 6) == case["mbu"] == 0.291952


def test_worked_mfu():
    case = CONVENTIONS["worked_mfu"]
    flops = LLAMA.flops_per_token(case["context"])
    assert flops == case["flops_per_token"]
    assert H200.peak_flops("bfloat16") == case["peak_flops_dense_bf16"]
    assert round(mfu(flops, case["output_tokens_per_s"], H200.peak_flops("bf16")), 6) == case["mfu"] == 0.041695


def test_mbu_of_experts_counts_those_that_the_batch_touches():
    active = 2 * EXPECTED["mixtral-8x7b-v0.1"]["active_params_per_token"]
    assert MIXTRAL.mbu_weight_bytes(1) == active
    assert MIXTRAL.mbu_weight_bytes(1000) == pytest.approx(MIXTRAL.weight_bytes(), rel=1e-9)


def test_above_one_is_handed_on():
    assert mbu(14e9, 0, 0.001, 2e12) == pytest.approx(7)
    assert roofline_efficiency(2.0, 1.0) == 2.0


def test_two_gpus_have_twice_the_peaks():
    assert mbu(1e9, 1e8, 0.01, 1e12, gpus=2) == pytest.approx(mbu(1e9, 1e8, 0.01, 1e12) / 2)
    assert mfu(1e9, 100, 1e12, gpus=2) == pytest.approx(mfu(1e9, 100, 1e12) / 2)
    assert roofline_time(1e12, 1e9, 1e12, 1e9, gpus=2).seconds == pytest.approx(0.5)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_time_or_a_peak_that_makes_no_sense_is_refused(value):
    with pytest.raises(ValueError, match="tpot"):
        mbu(1, 1, value, 1)
    with pytest.raises(ValueError, match="peak_flops"):
        mfu(1, 1, value)
    with pytest.raises(ValueError, match="measured"):
        roofline_efficiency(1.0, value)
    with pytest.raises(ValueError, match="peak_bandwidth"):
        roofline_time(1, 1, 1, value)


def test_decode_at_batch_one_takes_the_time_of_its_bytes():
    allowed = decode_time(MISTRAL, H200, batch=1, input_len=1024)
    assert allowed.bytes_moved == MISTRAL.decode_read_bytes(1, 1024)
    assert allowed.seconds == allowed.memory_s == allowed.bytes_moved / 4.8e12
    assert allowed.bound == "memory"
    assert allowed.flops == MISTRAL.flops_per_token(1024)


def test_decode_is_averaged_over_its_contexts():
    steps = [decode_time(MISTRAL, H200, batch=4, input_len=context).bytes_moved for context in range(512, 769)]
    mean = decode_time(MISTRAL, H200, batch=4, input_len=512, output_len=256)
    assert mean.bytes_moved == pytest.approx(sum(steps) / len(steps))


def test_prefill_takes_the_time_of_its_flops():
    allowed = prefill_time(MISTRAL, H200, prompt_len=1024)
    assert allowed.bound == "compute"
    assert allowed.seconds == MISTRAL.prefill_flops(1024) / 989.4e12
    assert prefill_time(MISTRAL, H200, prompt_len=1024, batch=3).flops == 3 * allowed.flops
    assert prefill_time(MISTRAL, H200, prompt_len=1).bound == "memory"


def test_a_lower_clock_slows_computing_only():
    slow = prefill_time(MISTRAL, H200, prompt_len=512, sm_clock_hz=H200.sm_clock_hz / 2)
    fast = prefill_time(MISTRAL, H200, prompt_len=512)
    assert slow.compute_s == pytest.approx(2 * fast.compute_s)
    assert slow.memory_s == fast.memory_s


def test_critical_batch_is_the_machine_balance_without_kv_traffic():
    assert round(critical_batch(MISTRAL, V100)) == 173
    assert critical_batch(MISTRAL, V100) == pytest.approx(V100.machine_balance("float16"), rel=1e-3)


def test_kv_traffic_moves_the_critical_batch_up_and_away():
    without, short = critical_batch(MISTRAL, V100), critical_batch(MISTRAL, V100, context_len=256)
    assert short > without
    assert critical_batch(MISTRAL, V100, context_len=4096) is None


def test_experts_move_the_critical_batch_up():
    assert critical_batch(MIXTRAL, H200) > 3 * critical_batch(MISTRAL, H200)


@given(
    st.sampled_from([LLAMA, MISTRAL, MIXTRAL]),
    st.sampled_from([H200, V100]),
    st.none() | st.integers(1, 300),
    st.sampled_from([1, 2, 4]),
)
def test_at_the_critical_batch_both_times_are_equal(model, gpu, context, gpus):
    batch = critical_batch(model, gpu, context_len=context, gpus=gpus)
    if batch is None:
        return
    flops = batch * model.flops_per_token(context or 0)
    moved = model.decode_weight_bytes(batch) + batch * model.kv_bytes(context or 0)
    allowed = roofline_time(flops, moved, peak_matmul_flops(model, gpu), gpu.peak_bandwidth, gpus=gpus)
    assert allowed.compute_s == pytest.approx(allowed.memory_s, rel=1e-6)


@given(st.integers(1, 512), st.integers(1, 8000), st.sampled_from([1, 2, 4, 8]))
def test_spreading_a_model_evenly_divides_its_time(batch, context, gpus):
    one = decode_time(MISTRAL, H200, batch=batch, input_len=context)
    many = decode_time(MISTRAL, H200, batch=batch, input_len=context, gpus=gpus)
    assert many.bytes_moved == pytest.approx(one.bytes_moved)
    assert many.seconds == pytest.approx(one.seconds / gpus)


def test_heads_kept_twice_are_read_twice():
    llama = Architecture.from_config(CONFIGS / "llama-2-70b.json")
    one = decode_time(llama, H200, batch=8, input_len=1000)
    many = decode_time(llama, H200, batch=8, input_len=1000, gpus=16)
    assert many.bytes_moved - one.bytes_moved == 8 * llama.kv_bytes(1000)


class TestPeakInUse:
    def test_a_gpu_without_bfloat16_serves_in_float16(self):
        assert peak_matmul_flops(MISTRAL, V100) == V100.peak_flops("float16")

    def test_fp8_where_the_gpu_has_it(self):
        model = Architecture.from_config(SMALL).served_as(quantization="fp8")
        assert peak_matmul_flops(model, H200) == H200.peak_flops("fp8")
        a100 = Hardware.named("NVIDIA A100-SXM4-80GB")
        assert peak_matmul_flops(model, a100) == a100.peak_flops("bfloat16")

    def test_weights_alone_in_four_bits_are_multiplied_in_sixteen(self):
        model = Architecture.from_config(config_of("qwen2.5-7b-instruct-awq"))
        assert peak_matmul_flops(model, H200) == H200.peak_flops("float16")
        assert peak_matmul_flops(model, H200, dtype="fp8") == H200.peak_flops("fp8")


@given(st.floats(0, 1e9), POSITIVE, POSITIVE, POSITIVE)
def test_the_energy_split_sums_to_the_energy(energy, weights, cache, activations):
    split = energy_split(energy, weight_bytes=weights, kv_bytes=cache, activation_bytes=activations)
    assert split.weight_j + split.kv_j + split.activation_j == pytest.approx(energy)
    assert split.weight_j * cache == pytest.approx(split.kv_j * weights)


def test_an_energy_needs_bytes():
    with pytest.raises(ValueError, match="bytes_moved"):
        energy_split(1, weight_bytes=0, kv_bytes=0, activation_bytes=0)
