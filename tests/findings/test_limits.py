"""How much an engine takes at once, from records of this version and of earlier ones."""

import pytest
from pydantic import ValidationError

from pytest_llmperf.findings.limits import kv_capacity, limit
from pytest_llmperf.findings.points import points_of
from pytest_llmperf.results import KvLayers
from tests.findings.records import case, column, results, roof, said
from tests.findings.test_questions import asked

CACHE = {"num_gpu_blocks": 100, "block_size": 16}


def point(record=None, **engine):
    [found] = points_of(results(case("t", values={"tpot": 1.0}, engine=engine, record=record)))
    return found


def test_what_it_came_to_goes_before_what_it_was_given():
    assert limit(point(limits={"max_num_seqs": 8}, args={"max_num_seqs": 16}), "max_num_seqs") == 8
    assert limit(point(args={"max_num_seqs": 16}), "max_num_seqs") == 16
    assert limit(point(), "max_num_seqs") is None


@pytest.mark.parametrize("odd", [True, 0, -1, 16.0, "16", None, [16]])
def test_what_is_no_number_of_things_is_no_limit(odd):
    assert limit(point(args={"max_num_seqs": odd}), "max_num_seqs") is None


def test_the_cache_of_a_record_without_limits_is_in_its_arguments():
    assert kv_capacity(point(args=CACHE)) == kv_capacity(point(limits=CACHE)) == 1600
    assert kv_capacity(point(limits={"num_gpu_blocks": 100}, args={"block_size": 32})) == 3200
    assert kv_capacity(point(args={"num_gpu_blocks": 100})) is None


def test_blocks_of_layers_with_windows_are_no_number_of_tokens():
    every, windowed = KvLayers(bytes_per_token=1.0, window=None), KvLayers(bytes_per_token=1.0, window=8)
    assert kv_capacity(point({"roof": roof(kv_layers=[every])}, limits=CACHE)) == 1600
    assert kv_capacity(point({"roof": roof(kv_layers=[every, windowed])}, limits=CACHE)) is None


@pytest.mark.parametrize("value", [0, -5])
def test_a_record_holds_no_limit_below_1(value):
    with pytest.raises(ValidationError, match=r"limits\.num_gpu_blocks"):
        point(limits={"num_gpu_blocks": value})


def test_batches_beyond_a_limit_in_the_arguments_wait():
    tests = [
        case(f"l[{n}]", batch=n, input_len=1, engine={"args": {"max_num_seqs": 128}}, record={"roof": roof()},
             values={"tpot": max(0.02, n * 2e-4), "ttft": 0.01, "e2e_latency": n * 0.1, "throughput": 1.0 + n})
        for n in (1, 4, 16, 64, 128, 256)
    ]  # fmt: skip
    [finding] = asked("latency_throughput", *tests)
    assert "Batch 256 is more than the engine runs at once, and waits in part." in finding.sentences


def test_a_small_cache_in_the_arguments_starves():
    tests = [case(f"s[{n}]", batch=16, engine={"tensor_parallel_size": n, "args": {**CACHE, "num_gpu_blocks": blocks}},
                  values={"tpot": 0.04 / n}) for n, blocks in ((1, 100), (2, 1000))]  # fmt: skip
    [finding] = asked("scaling", *tests)
    assert "On 1 GPU batch 16 does not fit into the KV cache of 1,600 tokens" in said(finding)
    assert column(finding, "efficiency") == [None, 1.0]


def test_the_capacity_in_the_arguments_is_told():
    [finding] = asked("kv_cache", case("t", values={"tpot": 1.0}, engine={"args": CACHE}, record={"roof": roof()}))
    assert "The engine holds 1,600 tokens." in finding.sentences
