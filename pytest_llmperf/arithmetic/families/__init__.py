"""Which function computes the structure of which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.families import gpt, llama, mla, moe

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder

__all__ = ["FAMILIES"]

FAMILIES: Mapping[str, Callable[[Config], Decoder]] = MappingProxyType(
    {
        "cohere": llama.cohere,
        "cohere2": llama.cohere2,
        "deepseek_v2": mla.deepseek_v2,
        "deepseek_v3": mla.deepseek_v3,
        "gemma": llama.gemma,
        "gemma2": llama.gemma2,
        "gemma3": llama.gemma3,
        "gemma3_text": llama.gemma3,
        "glm": llama.glm,
        "glm4": llama.glm4,
        "gpt2": gpt.gpt2,
        "gpt_oss": moe.gpt_oss,
        "granite": llama.llama,
        "kimi_k2": mla.deepseek_v3,
        "llama": llama.llama,
        "mistral": llama.mistral,
        "mixtral": moe.mixtral,
        "olmo": llama.olmo,
        "olmo2": llama.olmo2,
        "olmo3": llama.olmo3,
        "phi3": llama.phi3,
        "qwen2": llama.qwen2,
        "qwen2_moe": moe.qwen2_moe,
        "qwen3": llama.qwen3,
        "qwen3_moe": moe.qwen3_moe,
        "smollm3": llama.smollm3,
        "starcoder2": llama.starcoder2,
    }
)
