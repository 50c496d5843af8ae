"""How long a sequence a model allows, and how many tokens it knows: what vLLM reads of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmperf.arithmetic.config import Config, language_model, read_config
from pytest_llmperf.errors import ArchitectureError, EngineError

__all__ = ["longest_sequence", "vocabulary_size"]

#: The smallest of these counts; but for the last, which wins.
_LENGTHS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_WINS = "model_max_length"
#: Where none is given.
_DEFAULT_LENGTH = 2048
_DEFAULT_VOCABULARY = 32000
#: Kinds of rotary scaling whose factor is in the length already.
_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default")


def longest_sequence(config: Mapping[str, Any]) -> int:
    """Tokens that a sequence may have at most.

    Args:
        config: Of the model; of a multimodal one its language model counts.

    Raises:
        EngineError: What stands there is no number of tokens.
    """
    inner = _language_model(config)
    try:
        given = [count for key in _LENGTHS if (count := inner.optional_count(key)) is not None]
        length = inner.optional_count(_WINS) or min(given, default=_DEFAULT_LENGTH)
    except ArchitectureError as error:
        raise EngineError(str(error)) from None
    return int(length * _rope_factor(inner))


def vocabulary_size(config: Mapping[str, Any]) -> int:
    """Token ids that the model knows.

    Raises:
        EngineError: What stands there is no number.
    """
    try:
        return _language_model(config).optional_count("vocab_size") or _DEFAULT_VOCABULARY
    except ArchitectureError as error:
        raise EngineError(str(error)) from None


def _language_model(config: Mapping[str, Any]) -> Config:
    return language_model(read_config(config))


def _rope_factor(config: Config) -> float:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or "gemma3" in str(config.get("model_type")):
        return 1.0
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or kind in _SCALED:
        return 1.0
    return float(factor) if factor > 0 else 1.0
