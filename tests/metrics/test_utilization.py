"""MBU, MFU and roofline efficiency against figures worked by hand; null with a reason where something is unknown."""

import pytest

from pytest_llmperf.arithmetic import Architecture, Hardware
from pytest_llmperf.metrics import REGISTRY, Context, Missing, Summary, measure, roof_of
from pytest_llmperf.metrics.steps import mean_running
from pytest_llmperf.models import resolve
from pytest_llmperf.recording.record import beyond_peak
from pytest_llmperf.trace import RepeatTrace, RequestTrace

MS = 1_000_000
CONFIG = resolve("mistral-7b").config


def request(start_ms=0, first_ms=20, tpot_ms=5, tokens=257, prompt=512):
    received = tuple((first_ms + i * tpot_ms) * MS for i in range(tokens))
    return RequestTrace(
        due_ns=start_ms * MS, sent_ns=start_ms * MS, received_ns=received, tokens=(1,) * tokens,
        asked_input=prompt, asked_output=tokens, input_tokens=prompt, output_tokens=tokens,
    )  # fmt: skip


def roof(device="NVIDIA H200", config=CONFIG, **changes):
    served = {"dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto", "gpus": 1, **changes}
    return roof_of(config, device=device, **served)


def value(name, repeat, **changes):
    return measure(REGISTRY[name], repeat, Context(roof=roof(**changes)))


def test_mbu_is_weights_and_cache_over_tpot_and_peak():
    repeat = RepeatTrace(0, 0, "batch", tuple(request() for _ in range(4)))
    model = Architecture.from_config(CONFIG)
    cache = 4 * model.kv_bytes_per_token() * (512 + 257 / 2)
    expected = (model.weight_bytes("bfloat16") + cache) / 5e-3 / 4.8e12
    assert value("mbu", repeat) == pytest.approx(expected, rel=2e-3)


def test_the_worked_example_of_a_7b_model_at_14_ms():
    # 7 B parameters of 16 bits in 14 ms is 1 TB/s, half of a peak of 2 TB/s; the cache of one token is nothing.
    repeat = RepeatTrace(0, 0, "batch", (request(tpot_ms=14, prompt=1, tokens=2),))
    peaks = Hardware("two terabytes", {}, 2e12, None, None, None, "made up")
    assert value("mbu", repeat, measured=peaks) == pytest.approx(0.5, rel=0.04)


def test_two_gpus_share_the_bytes_and_double_the_peak():
    repeat = RepeatTrace(0, 0, "batch", (request(),))
    assert value("mbu", repeat, gpus=2) == pytest.approx(value("mbu", repeat) / 2, rel=1e-6)


def test_an_fp8_cache_moves_half_of_the_cache():
    repeat = RepeatTrace(0, 0, "batch", tuple(request() for _ in range(64)))
    model = Architecture.from_config(CONFIG)
    saved = 64 * model.kv_bytes_per_token() * (512 + 257 / 2) / 2 / 5e-3 / 4.8e12
    assert value("mbu", repeat) - value("mbu", repeat, kv_cache_dtype="fp8") == pytest.approx(saved, rel=1e-2)


def test_mfu_counts_prefill_and_decode_of_the_whole_batch():
    repeat = RepeatTrace(0, 0, "batch", (request(),))
    model = Architecture.from_config(CONFIG)
    flops = model.prefill_flops(512) + 256 * model.mean_flops_per_token(512, 512 + 257)
    seconds = 0.020 + 256 * 0.005
    assert value("mfu", repeat) == pytest.approx(flops / seconds / 989.4e12, rel=5e-3)


def test_prefill_alone_is_measured_against_the_compute_roof():
    repeat = RepeatTrace(0, 0, "batch", (request(tokens=1),))
    efficiency = value("roofline_efficiency", repeat)
    assert efficiency == pytest.approx(value("mfu", repeat), rel=1e-6)
    assert isinstance(value("mbu", repeat), Missing)


def test_decode_is_measured_against_the_memory_roof():
    # The step reads a little less than MBU counts: of the input embedding only one row is read.
    repeat = RepeatTrace(0, 0, "batch", (request(),))
    assert 0.95 < value("roofline_efficiency", repeat) / value("mbu", repeat) < 1


@pytest.mark.parametrize("name", ["mbu", "mfu", "roofline_efficiency"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "NVIDIA H900"}, "NVIDIA H900"),
        ({"config": {"model_type": "hyena-9"}}, "hyena-9"),
        ({"config": None}, "config.json"),
    ],
)
def test_what_is_not_known_is_null_with_its_name(name, changes, words):
    outcome = value(name, RepeatTrace(0, 0, "batch", (request(),)), **changes)
    assert isinstance(outcome, Missing)
    assert words in outcome.reason


def test_a_processor_has_a_bandwidth_but_no_flops():
    repeat = RepeatTrace(0, 0, "batch", (request(),))
    peaks = Hardware("some CPU", {}, 34e9, None, None, None, "measured")
    assert value("mbu", repeat, measured=peaks) > 1
    assert "some CPU" in value("mfu", repeat, measured=peaks).reason


def test_more_than_the_peak_is_kept_and_said():
    warnings = beyond_peak({"mbu": Summary(1.07, ((1.07,),), None, None), "mfu": Summary(0.5, ((0.5,),), None, None)})
    assert len(warnings) == 1
    assert warnings[0].startswith("mbu is 107%")


def test_the_running_sequences_of_a_loop_are_counted_from_their_spans():
    # Two halves of overlap: 0-100 and 50-150 decode together for 50 of 150 ms.
    a = request(first_ms=0, tpot_ms=100, tokens=2)
    b = request(first_ms=50, tpot_ms=100, tokens=2)
    assert mean_running(RepeatTrace(0, 0, "closed", (a, b))) == pytest.approx(200 / 150)
    assert mean_running(RepeatTrace(0, 0, "closed", (request(tokens=1),))) == 0


def test_a_batch_of_which_a_part_waited_for_the_others_end_is_counted_from_its_spans_too():
    together = request(first_ms=0, tpot_ms=100, tokens=3), request(first_ms=150, tpot_ms=100, tokens=3)
    assert mean_running(RepeatTrace(0, 0, "batch", together)) == 2
    one_after_the_other = request(first_ms=0, tpot_ms=100, tokens=3), request(first_ms=200, tpot_ms=100, tokens=3)
    assert mean_running(RepeatTrace(0, 0, "batch", one_after_the_other)) == 1


def test_prompts_of_which_a_part_is_kept_are_not_counted_as_computed():
    batch = RepeatTrace(0, 0, "batch", (request(),))
    context = Context(roof=roof(), keeps_prefixes=True)
    assert "how much of each prompt it computes" in measure(REGISTRY["mfu"], batch, context).reason
    assert measure(REGISTRY["roofline_efficiency"], batch, context) > 0  # of decode
    prefill = RepeatTrace(0, 0, "batch", (request(tokens=1),))
    assert "how much of each prompt" in measure(REGISTRY["roofline_efficiency"], prefill, context).reason
