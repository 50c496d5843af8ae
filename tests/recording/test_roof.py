"""The roof over a test: peaks of all devices, sizes of the model, and points that agree with the metrics."""

from dataclasses import replace

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.measurement import Measurement
from pytest_llmperf.models import resolve
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.recording.roof import roof_record
from pytest_llmperf.results import RoofRecord
from pytest_llmperf.runner import Launch
from pytest_llmperf.workload import Workload

from ..fakes import INFO, repeat, request

CONFIG = resolve("mistral-7b").config
MODEL = Architecture.from_config(CONFIG)
H200 = replace(INFO, device="NVIDIA H200", model_config=CONFIG)


def batch(size=4, first=20.0, tpot=5.0, tokens=257, prompt=512, number=0, launch=0, loop="batch"):
    received = [first + n * tpot for n in range(tokens)]
    return repeat(*[request(*received, prompt=prompt) for _ in range(size)], number=number, launch=launch, loop=loop)


REACHED = DevicePeaks("NVIDIA H200", 4.27e12, matmul_flops={"float16": 7e14, "bfloat16": 7.9e14})


def measurement(*launches, info=H200, reached=(REACHED, REACHED), workload=None):
    found = Measurement("t", workload or Workload(512, 257, batch=4))
    found.launches = [Launch(n, info, tuple(repeats)) for n, repeats in enumerate(launches)]
    found.reached = reached
    return found


def record(*launches, **changes):
    measured = measurement(*launches, **changes)
    found = roof_record(measured)
    RoofRecord.model_validate(found)
    return found, {name: summary.value for name, summary in measured.summaries().items()}


def point(found, phase):
    (one,) = (p for p in found["points"] if p["phase"] == phase)
    return one


def bandwidth(found):
    decode = point(found, "decode")
    return (decode["weight_bytes"] + decode["kv_bytes"]) / decode["seconds"] / found["peak_bandwidth"]


def test_peaks_and_sizes():
    found, _ = record([batch()])
    assert found["peak_flops"] == 989.4e12
    assert found["peak_bandwidth"] == 4.8e12
    assert found["memory_bytes"] == 141e9
    assert found["total_params"] == 7_241_732_096
    assert found["weight_bytes"] == 2 * 7_241_732_096
    assert found["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    assert "data sheet" in found["source"]
    assert found["reason"] is None


def test_all_devices_count_together():
    one, _ = record([batch()])
    two, _ = record([batch()], info=replace(H200, device_count=2, tensor_parallel_size=2))
    for name in ("peak_flops", "peak_bandwidth", "memory_bytes"):
        assert two[name] == 2 * one[name]
    assert two["weight_bytes"] == one["weight_bytes"]


@pytest.mark.parametrize("info", [H200, replace(H200, device_count=2), replace(H200, kv_cache_dtype="fp8")])
@pytest.mark.parametrize("loop", ["batch", "closed"])
@pytest.mark.parametrize("size", [1, 64])
def test_a_decode_s_bytes_over_its_time_are_the_mbu(info, loop, size):
    found, metrics = record([batch(size, loop=loop)], info=info)
    assert bandwidth(found) == pytest.approx(metrics["mbu"], rel=1e-9)


def test_of_several_launches_the_medians_are_taken_as_metrics_take_them():
    launches = [[batch(tpot=t) for t in times] for times in ((5, 7, 6), (4, 4, 4), (9, 8, 10))]
    found, metrics = record(*launches)
    assert point(found, "decode")["seconds"] == pytest.approx(metrics["tpot"]) == pytest.approx(6e-3)
    assert bandwidth(found) == pytest.approx(metrics["mbu"], rel=1e-9)


def test_a_prefill_is_all_prompts_until_the_last_first_token():
    late = repeat(*[request(first, first + 50, prompt=512) for first in (20, 30, 40, 45)])
    prefill = point(record([late])[0], "prefill")
    assert prefill["batch"] == 4
    assert prefill["flops"] == 4 * MODEL.prefill_flops(512)
    assert prefill["weight_bytes"] == MODEL.decode_weight_bytes(2048)
    assert prefill["kv_bytes"] == 4 * 512 * MODEL.kv_bytes_per_token()
    assert prefill["seconds"] == pytest.approx(0.045)


def test_a_prefill_alone_agrees_with_the_roofline_efficiency():
    found, metrics = record([batch(tokens=1)])
    prefill = point(found, "prefill")
    allowed = prefill["flops"] / found["peak_flops"]
    assert allowed / prefill["seconds"] == pytest.approx(metrics["roofline_efficiency"])
    assert [p["phase"] for p in found["points"]] == ["prefill"]
    assert found["reason"] == "decode: no output token came after the first chunk"


def test_a_decode_step_is_a_token_of_every_sequence_at_the_mean_context():
    decode = point(record([batch(size=8)])[0], "decode")
    assert decode["batch"] == 8
    assert decode["flops"] == pytest.approx(8 * MODEL.flops_per_token(512 + 128), rel=1e-3)
    assert decode["kv_bytes"] == pytest.approx(8 * MODEL.kv_bytes(512 + 128), rel=1e-2)


def test_of_a_loop_the_decode_alone_is_told():
    found, _ = record([batch(loop="open")])
    assert [p["phase"] for p in found["points"]] == ["decode"]
    assert found["reason"].startswith("prefill: prefills of a load that is no single batch overlap")


def test_prompts_that_were_not_computed_are_no_prefill():
    info = replace(H200, args={"enable_prefix_caching": True})
    found, _ = record([batch()], info=info, workload=Workload(512, 257, batch=4, shared_prefix=256))
    assert [p["phase"] for p in found["points"]] == ["decode"]
    assert "how much of each prompt" in found["reason"]


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        (repeat(request(20, 25, prompt=512), request(error="reset")), "not all requests of the batch completed"),
        (repeat(request(20, 25, prompt=512), request(30, 35, prompt=512)), "waited until others had ended"),
    ],
)
def test_what_is_no_whole_batch_is_no_prefill(failed, why):
    found, _ = record([failed])
    assert why in found["reason"]
    assert [p["phase"] for p in found["points"]] == ["decode"]


def test_a_repeat_without_a_completed_request_leaves_no_point():
    found, _ = record([batch()], [repeat(request(error="reset"))])
    assert found["points"] == []
    assert found["reason"] == "prefill: no request completed; decode: no request completed"


def test_what_is_not_known_is_null_with_its_name():
    found, _ = record([batch()], info=replace(H200, device="NVIDIA H900"))
    assert [found[name] for name in ("peak_flops", "peak_bandwidth", "source", "memory_bytes")] == [None] * 4
    assert found["total_params"] == MODEL.total_params
    assert len(found["points"]) == 2
    assert "NVIDIA H900" in found["reason"]
    found, _ = record([batch()], info=replace(H200, model_config=None))
    assert [found[n] for n in ("total_params", "weight_bytes", "kv_bytes_per_token", "peak_flops")] == [None] * 4
    assert (found["points"], found["peak_bandwidth"]) == ([], 4.8e12)
    assert found["reason"] == "the engine does not tell the model's config.json"


class TestReached:
    def test_what_was_measured_stands_beside_the_data_sheet(self):
        found, _ = record([batch()], reached=[REACHED])
        assert (found["copy_bandwidth"], found["matmul_flops"]) == (4.27e12, 7.9e14)
        assert found["peak_bandwidth"] == 4.8e12

    def test_of_all_devices_together(self):
        info = replace(H200, device_count=2)
        found, _ = record([batch()], reached=[REACHED] * 3, info=info)
        assert (found["copy_bandwidth"], found["matmul_flops"]) == (2 * 4.27e12, 2 * 7.9e14)

    def test_if_one_of_them_was_not_measured_there_is_no_sum(self):
        found, _ = record([batch()], reached=[REACHED], info=replace(H200, device_count=2))
        assert (found["copy_bandwidth"], found["matmul_flops"]) == (None, None)
        assert found["reason"] == "what these devices reach at best was not measured"

    def test_a_dtype_that_was_not_multiplied_is_not_made_up(self):
        found, _ = record([batch()], reached=[REACHED], info=replace(H200, quantization="fp8"))
        assert (found["copy_bandwidth"], found["matmul_flops"]) == (4.27e12, None)
        assert found["reason"] == "products in float8 were not measured"

    def test_a_gpu_without_bfloat16_multiplies_in_float16(self):
        v100 = DevicePeaks("Tesla V100-SXM2-32GB", 722e9, matmul_flops={"float16": 9e13, "bfloat16": 1e12})
        found, _ = record([batch()], reached=[v100], info=replace(H200, device=v100.device))
        assert (found["peak_flops"], found["matmul_flops"]) == (125e12, 9e13)
        # The machine balance that the batch is predicted by at which decode turns compute-bound.
        assert found["peak_flops"] / found["copy_bandwidth"] == pytest.approx(173, abs=0.2)
