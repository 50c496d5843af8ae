"""Sizes that a family's configuration class in Hugging Face transformers assumes when a config has none.

A language model nested in a multimodal config is saved as the difference from these. At the top level they
are not
used: a config without its number of layers is broken there, not a model of the default size.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _sizes(
    vocab_size: int,
    hidden_size: int,
    intermediate_size: int,
    num_hidden_layers: int,
    num_attention_heads: int,
) -> Mapping[str, int]:
    return MappingProxyType(
        {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": num_hidden_layers,
            "num_attention_heads": num_attention_heads,
        }
    )


NESTED_DEFAULTS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "gemma": _sizes(256000, 3072, 24576, 28, 16),
        "gemma2": _sizes(256000, 2304, 9216, 26, 8),
        "gemma3_text": _sizes(262208, 2304, 9216, 26, 8),
        "llama": _sizes(32000, 4096, 11008, 32, 32),
        "ministral3": _sizes(131072, 4096, 14336, 34, 32),
        "mistral": _sizes(32000, 4096, 14336, 32, 32),
        "phi": _sizes(51200, 2048, 8192, 24, 32),
        "phi3": _sizes(32064, 3072, 8192, 32, 32),
        "qwen2": _sizes(151936, 4096, 22016, 32, 32),
        "qwen2_5_vl_text": _sizes(152064, 8192, 29568, 80, 64),
        "qwen2_vl_text": _sizes(152064, 8192, 29568, 80, 64),
        "qwen3": _sizes(151936, 4096, 22016, 32, 32),
        "qwen3_vl_text": _sizes(151936, 4096, 22016, 32, 32),
    }
)
