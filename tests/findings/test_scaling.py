"""When the KV cache was too small for a load, and what is then told of scaling and of size."""

import pytest

from pytest_llmperf.findings.points import points_of
from pytest_llmperf.findings.scaling import is_starved
from tests.findings.records import case, column, results, roof, said
from tests.findings.test_questions import asked

CACHE = {"num_gpu_blocks": 640, "block_size": 16}  # 10,240 tokens


def counted(preemptions):
    return {"conditions": {"preemptions": {"unit": "1", "launches": [preemptions], "value": preemptions,
                                           "baseline": None, "baseline_launches": [], "reason": None}}}  # fmt: skip


def starved(*, limits=(), args=(), preemptions=None, **work):
    record = None if preemptions is None else counted(preemptions)
    engine = {"limits": {**CACHE, **dict(limits)}, "args": dict(args)}
    [point] = points_of(results(case("t", values={"tpot": 1.0}, engine=engine, record=record, **work)))
    return is_starved(point)


def test_only_sequences_that_run_at_once_need_room():
    # Of 768 tokens 13 fit.
    assert not starved(batch=13)
    assert starved(batch=14)
    assert not starved(batch=64, limits={"max_num_seqs": 13})
    assert not starved(concurrency=64, args={"max_num_seqs": 13})
    assert starved(batch=64, limits={"max_num_seqs": 14})
    assert not starved(batch=13, limits={"max_num_seqs": 256})


def test_a_prefix_that_is_cached_is_kept_once():
    work = {"batch": 31, "shared_prefix": 448}  # 448 + 31 x 320 = 10,368; of 30 it is 10,048
    cached = {"enable_prefix_caching": True}
    assert starved(args=cached, **work)
    assert not starved(args=cached, **{**work, "batch": 30})
    assert starved(args={"enable_prefix_caching": False}, **{**work, "batch": 30})
    assert starved(**{**work, "batch": 30})
    # Of 463 tokens 28 blocks are whole: 448 tokens.
    assert not starved(args=cached, **{**work, "batch": 30, "shared_prefix": 463})
    assert starved(args=cached, **{**work, "batch": 31, "shared_prefix": 463})


def test_counted_preemptions_tell_more_than_lengths():
    assert starved(batch=1, preemptions=1.0)
    assert not starved(batch=20, preemptions=0.0)  # prompts of 10,240 tokens
    assert starved(batch=14, preemptions=None)


def test_prompts_that_do_not_fit_wait_without_any_being_preempted():
    assert starved(batch=21, preemptions=0.0)
    assert starved(batch=21, output_len=1, preemptions=0.0)


@pytest.mark.parametrize("work", [{"rate": 100.0}, {"batch": 100, "input_len": {"uniform": [1, 9]}}])
def test_of_other_loads_it_is_not_known(work):
    assert not starved(**work)


def model(name, params, latency, *, batch=16, blocks=None, record=None, **engine):
    if blocks is not None:
        engine["limits"] = {"num_gpu_blocks": blocks, "block_size": 16}
    return case(f"m[{name}-{batch}]", batch=batch, engine={"model": name, **engine}, values={"e2e_latency": latency},
                record={"roof": roof(total_params=params), **(record or {})})  # fmt: skip


def test_a_starved_model_is_left_out_by_name():
    small, middle = model("a", 1e9, 1.0), model("b", 2e9, 1.5)
    [finding] = asked("model_size", small, middle, model("c", 4e9, 9.0, blocks=100))
    assert finding.sentences == [
        "On 1 GPU b has 2.0 times the parameters of a and 1.5 times its latency at batch 16 (512 + 256 tokens): "
        "sub-linear in size.",
        "On 1 GPU batch 16 of c does not fit into the KV cache of 1,600 tokens: its latency is that of waiting, and is "
        "not compared.",
    ]
    assert column(finding, "latency_ratio") == [1.0, 1.5, None]
    assert column(finding, "size_ratio") == [1.0, 2.0, 4.0]
    [finding] = asked("model_size", small, middle, model("c", 4e9, 9.0, record=counted(3.0)))
    assert "batch 16 of c does not fit into the KV cache (3 preemptions a launch): its" in said(finding)


def test_ratios_are_against_the_smallest_that_was_not_starved():
    [finding] = asked("model_size", model("a", 1e9, 1.0, blocks=100), model("b", 2e9, 1.5), model("c", 4e9, 3.0))
    assert column(finding, "latency_ratio") == [None, 1.0, 2.0]
    assert column(finding, "size_ratio") == [0.5, 1.0, 2.0]


def test_models_that_are_all_starved_but_one_tell_nothing_and_say_why():
    [finding] = asked("model_size", model("a", 1e9, 1.0), model("c", 4e9, 9.0, blocks=100))
    assert finding.sentences[0] == "How latency grows with size is not told by these models."
    assert "On 1 GPU batch 16 of c does not fit" in finding.sentences[1]
