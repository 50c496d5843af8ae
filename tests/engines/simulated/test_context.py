"""What is read of a config.json as vLLM reads it: the longest sequence, the vocabulary."""

from __future__ import annotations

import pytest

from pytest_llmperf.engines.simulated.context import longest_sequence, vocabulary_size
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve, shapes

LLAMA = {"model_type": "llama", "vocab_size": 99}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"seq_length": 131072}, 131072),
        ({"max_position_embeddings": 8192, "max_seq_len": 4096}, 4096),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({}, 2048),
        ({"max_position_embeddings": None}, 2048),
        ({"text_config": {"max_position_embeddings": 32768}, "max_position_embeddings": 7}, 32768),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": None}}, 4096),
    ],
)
def test_the_longest_sequence(config, expected):
    assert longest_sequence({**LLAMA, **config}) == expected


@pytest.mark.parametrize("value", ["abc", [1], 1.5, 0, -5, True])
def test_what_is_no_number_of_tokens_is_named(value):
    with pytest.raises(EngineError, match="max_position_embeddings"):
        longest_sequence({**LLAMA, "max_position_embeddings": value})


def test_the_vocabulary_of_a_multimodal_model_is_its_language_models():
    assert vocabulary_size({**LLAMA, "text_config": {"vocab_size": 262208}}) == 262208
    assert vocabulary_size(LLAMA) == 99


def test_the_shipped_shapes():
    for shape in shapes():
        config = resolve(shape).config
        assert longest_sequence(config) == config.get("max_position_embeddings", config.get("max_seq_len"))
