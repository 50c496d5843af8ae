"""How a quantised checkpoint stores its weight matrices: which of them, and in how many bytes.

Counted are the packed weights with their scales and zero points, as engines keep and read them. Left out are
tensors that only describe the others (``weight_shape``, a code book, the JSON of a ``quant_state``): some
bytes a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from pytest_llmperf.arithmetic.config import Config, brief
from pytest_llmperf.arithmetic.quantization import compressed, methods
from pytest_llmperf.arithmetic.quantization.format import Choose, Format, Quantization
from pytest_llmperf.errors import ArchitectureError

__all__ = ["Format", "Quantization", "named_quantization", "read_quantization"]

_READERS: Mapping[str, Callable[[Config], Choose]] = MappingProxyType(
    {
        "awq": methods.awq,
        "bitsandbytes": methods.bitsandbytes,
        "compressed-tensors": compressed.compressed_tensors,
        "fbgemm_fp8": methods.fbgemm_fp8,
        "fp8": methods.fp8,
        "gptq": methods.gptq,
        "modelopt": compressed.modelopt,
        "modelopt_fp4": compressed.modelopt,
        "mxfp4": methods.mxfp4,
    }
)

# What vLLM does with an unquantised checkpoint when told --quantization.
_ONLINE: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    }
)


def read_quantization(config: Config, wrapped: bool) -> Quantization:
    """Read a config's ``quantization_config``.

    Args:
        config: That section.
        wrapped: Whether the language model is nested in a multimodal one, where module names have a prefix.

    Raises:
        ArchitectureError: The method is not known, or a setting makes no sense.
    """
    method = config.text("quant_method")
    if method is None and (config.flag("load_in_4bit", False) or config.flag("load_in_8bit", False)):
        method = "bitsandbytes"  # old checkpoints say no more than this
    if method is None:
        config.fail("quant_method", "is missing", "Add it: the stored bytes cannot be computed without it.")
    reader = _READERS.get(method.lower())
    if reader is None:
        config.fail(
            "quant_method",
            f"is {brief(method)}, a quantisation that is not known",
            f"Known are {', '.join(sorted(_READERS))}.",
        )
    choose = reader(config)
    if wrapped:
        choose = _under_any_name(choose)
    return Quantization(method.lower(), lru_cache(maxsize=None)(choose))


def named_quantization(name: str) -> Quantization:
    """What an engine does with an unquantised checkpoint when told to quantise it while loading.

    Args:
        name: vLLM's ``quantization`` argument.

    Raises:
        ArchitectureError: The name is not known, or needs a checkpoint that is quantised already.
    """
    settings = _ONLINE.get(name.lower())
    if settings is None:
        raise ArchitectureError(
            f"How {brief(name)} quantises a checkpoint while loading it is not known.",
            remedy=f"Use {' or '.join(sorted(_ONLINE))}, or a checkpoint with a quantization_config.",
        )
    return read_quantization(Config(settings, "the engine's arguments"), wrapped=False)


def _under_any_name(choose: Choose) -> Choose:
    """Leave a matrix as it is if it is left so under any of its names inside a multimodal model."""

    def choose_any(name: str) -> Format | None:
        names = (name, f"language_model.{name}", name.replace("model.", "model.language_model.", 1))
        formats = [choose(candidate) for candidate in names]
        return None if None in formats else formats[0]

    return choose_any
