"""Which function computes the structure of which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.config import brief
from pytest_llmperf.arithmetic.families import dense, gemma, gpt, llama, mla, moe, moe_shared, remote
from pytest_llmperf.arithmetic.families.defaults import NESTED_DEFAULTS

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.config import Config
    from pytest_llmperf.arithmetic.structure import Decoder

__all__ = ["FAMILIES", "read_decoder"]

FAMILIES: Mapping[str, Callable[[Config], Decoder]] = MappingProxyType(
    {
        "apertus": dense.apertus,
        "arcee": dense.arcee,
        "bloom": gpt.bloom,
        "chatglm": remote.chatglm,
        "cohere": dense.cohere,
        "cohere2": dense.cohere2,
        "deepseek": moe_shared.deepseek,
        "deepseek_v2": mla.deepseek_v2,
        "deepseek_v3": mla.deepseek_v3,
        "ernie4_5": dense.ernie4_5,
        "ernie4_5_moe": moe_shared.ernie4_5_moe,
        "exaone4": dense.exaone4,
        "falcon": gpt.falcon,
        "gemma": gemma.gemma,
        "gemma2": gemma.gemma2,
        "gemma3": gemma.gemma3,
        "gemma3_text": gemma.gemma3,
        "glm": dense.glm,
        "glm4": dense.glm4,
        "glm4_moe": moe_shared.glm4_moe,
        "gpt2": gpt.gpt2,
        "gpt_bigcode": gpt.gpt_bigcode,
        "gpt_neox": gpt.gpt_neox,
        "gpt_oss": moe.gpt_oss,
        "gptj": gpt.gptj,
        "granite": llama.llama,
        "granitemoe": moe.granitemoe,
        "granitemoeshared": moe.granitemoe,
        "hunyuan_v1_dense": dense.hunyuan,
        "internlm2": remote.internlm2,
        "internlm3": remote.internlm3,
        "kimi_k2": mla.deepseek_v3,
        "llama": llama.llama,
        "minicpm": remote.minicpm,
        "minimax_m2": moe.minimax_m2,
        "ministral": llama.mistral,
        "ministral3": llama.ministral3,
        "mistral": llama.mistral,
        "mixtral": moe.mixtral,
        "mpt": gpt.mpt,
        "nemotron": dense.nemotron,
        "olmo": dense.olmo,
        "olmo2": dense.olmo2,
        "olmo3": dense.olmo3,
        "olmoe": moe.olmoe,
        "opt": gpt.opt,
        "phi": gpt.phi,
        "phi3": llama.phi3,
        "phimoe": moe.phimoe,
        "qwen2": llama.qwen2,
        "qwen2_5_vl": llama.qwen2_vl,
        "qwen2_5_vl_text": llama.qwen2_vl,
        "qwen2_moe": moe_shared.qwen2_moe,
        "qwen2_vl": llama.qwen2_vl,
        "qwen2_vl_text": llama.qwen2_vl,
        "qwen3": llama.qwen3,
        "qwen3_moe": moe.qwen3_moe,
        "qwen3_vl_moe_text": moe.qwen3_vl_moe,
        "qwen3_vl_text": llama.qwen3,
        "seed_oss": dense.seed_oss,
        "smollm3": llama.smollm3,
        "stablelm": dense.stablelm,
        "starcoder2": dense.starcoder2,
    }
)


def read_decoder(config: Config, top: Config) -> tuple[str, Decoder]:
    """The ``model_type`` of a language model's config, and its structure.

    Args:
        config: The language model's config.
        top: The whole config, of which that is a part or all.

    Raises:
        ArchitectureError: The ``model_type`` is missing or not known, or a key of the family makes no sense.
    """
    model_type = config.text("model_type")
    if model_type is None:
        config.fail("model_type", "is missing", "Add it: it says how to read all the other keys.")
    family = FAMILIES.get(model_type)
    if family is None:
        config.fail(
            "model_type",
            f"is {brief(model_type)}, an architecture that is not known",
            f"Known are {', '.join(sorted(FAMILIES))}.",
        )
    if config.nested:
        values = dict(config.values)
        if values.get("tie_word_embeddings") is None:
            values["tie_word_embeddings"] = top.get("tie_word_embeddings")
        config = replace(config, values=values, defaults=NESTED_DEFAULTS.get(model_type, {}))
    return model_type, family(config)
