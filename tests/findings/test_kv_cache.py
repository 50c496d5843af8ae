"""What sequences take of the memory, of models with windows as well, and how much memory there is."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.recording.roof import roof_record
from tests.findings.records import case, column, roof, said
from tests.findings.test_questions import asked
from tests.recording.test_roof import H200, batch, measurement

CONFIGS = Path(__file__).parents[1] / "arithmetic" / "data" / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))
BOARD = {"index": 0, "name": "Tesla V100-SXM2-32GB", "uuid": "GPU-0", "driver": "1", "power_limit_w": None,
         "memory_bytes": 34_000_000_000, "simulated": False}  # fmt: skip


def told(name, gpus=1, dtype="auto", **engine):
    """The finding of a test that ran a public model, from its config to the record and on."""
    model = Architecture.from_config(CONFIGS / f"{name}.json")
    info = replace(H200, model_config=CONFIGS / f"{name}.json", device_count=gpus, tensor_parallel_size=gpus,
                   kv_cache_dtype=dtype)  # fmt: skip
    record = roof_record(measurement([batch()], info=info))
    served = {"model": name, "tensor_parallel_size": gpus, "kv_cache_dtype": dtype, **engine}
    [finding] = asked("kv_cache", case("t", values={"tpot": 1.0}, engine=served, record={"roof": record}))
    return model, record, finding


@pytest.mark.parametrize(("gpus", "dtype"), [(1, "auto"), (2, "auto"), (1, "fp8")])
@pytest.mark.parametrize("name", NAMES)
def test_sequences_take_what_the_architecture_says(name, gpus, dtype):
    model, record, finding = told(name, gpus, dtype)
    sizes = dict(zip(column(finding, "context"), column(finding, "kv_bytes"), strict=True))
    expected = {c: model.kv_bytes(int(c), dtype, tensor_parallel=gpus) for c in sizes}
    assert sizes == pytest.approx(expected, rel=1e-12)
    assert sum(layers["bytes_per_token"] for layers in record["kv_layers"]) == record["kv_bytes_per_token"]
    left = record["memory_bytes"] - record["weight_bytes"]
    assert column(finding, "sequences") == [left // size for size in expected.values()]


def test_layers_with_a_window_are_told_and_no_tokens_are_claimed():
    _, _, finding = told("gemma-2-9b", limits={"num_gpu_blocks": 1000, "block_size": 16})
    assert finding.sentences[1] == (
        "Layers with a window keep 4,096 tokens at most: beyond them a further token takes 172.0 kB more, and a "
        "sequence of 8,192 tokens 2.114 GB."
    )
    assert "sequences of 32,768 tokens at most, if nothing else took memory" in said(finding)
    assert "The engine holds" not in said(finding)
    assert "How many tokens the engine holds is not told: layers with a window need fewer of its blocks" in said(
        finding
    )
    assert set(column(finding, "engine_sequences")) == {None}
    _, _, finding = told("mistral-7b-v0.1")
    assert "beyond them a further token takes none more, and a sequence of 8,192 tokens 536.9 MB." in said(finding)


def test_a_window_that_no_sequence_reaches_is_not_told():
    _, _, finding = told("mistral-7b-v0.1", args={"max_model_len": 4096})
    assert "window" not in said(finding)


def test_the_memory_is_that_of_the_board_where_it_was_read():
    served = case("t", values={"tpot": 1.0}, record={"roof": roof(memory_bytes=32_000_000_000)})
    for board in ({}, {"index": 1, "memory_bytes": 33_000_000_000}):
        [finding] = asked("kv_cache", served, gpus=[BOARD, {**BOARD, **board}])
        assert (
            "The weights (14.00 GB) leave 20.00 GB of 34.00 GB: 152,587 tokens at most, if nothing else took memory."
            in finding.sentences
        )
    served["engine"] |= {"tensor_parallel_size": 2, "args": {"pipeline_parallel_size": 2}}
    [finding] = asked("kv_cache", served, gpus=[BOARD])
    assert "leave 122.0 GB of 136.0 GB:" in said(finding)


@pytest.mark.parametrize("other", [{"name": "another"}, {"simulated": True}, {"memory_bytes": None}])
def test_and_else_that_of_the_data_sheet_which_is_said(other):
    served = case("t", values={"tpot": 1.0}, record={"roof": roof(memory_bytes=32_000_000_000)})
    [finding] = asked("kv_cache", served, gpus=[{**BOARD, **other}])
    assert "leave 18.00 GB of 32.00 GB (by the data sheet: what the board has was not read): 137," in said(finding)
