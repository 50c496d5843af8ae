"""Names of number formats, as configs, engines and GPUs spell them, and their size."""

from __future__ import annotations

from pytest_llmperf.arithmetic.config import Config, brief
from pytest_llmperf.errors import ArchitectureError

_BITS = {
    "float64": 64,
    "float32": 32,
    "tf32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8": 8,
    "int8": 8,
    "float4": 4,
    "int4": 4,
}

_ALIASES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "fp8_e4m3": "float8",
    "fp8_e5m2": "float8",
    "fp8_inc": "float8",
    "float8_e4m3fn": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e4m3": "float8",
    "float8_e5m2": "float8",
    "fp4": "float4",
    "mxfp4": "float4",
    "nvfp4": "float4",
    "uint8": "int8",
    "uint4": "int4",
}


def canonical_dtype(name: str) -> str | None:
    """The one name that this package uses for a number format.

    Args:
        name: As spelt by a config (``bfloat16``), PyTorch (``torch.float16``), vLLM (``fp8_e4m3``) or a data
            sheet (``BF16``).

    Returns:
        One of ``float64``, ``float32``, ``tf32``, ``float16``, ``bfloat16``, ``float8``, ``int8``,
        ``float4`` and ``int4``, or ``None`` when the name is not known.
    """
    plain = name.strip().lower().removeprefix("torch.")
    plain = _ALIASES.get(plain, plain)
    return plain if plain in _BITS else None


def dtype_bits(canonical: str) -> int:
    """Bits that one element of a canonical dtype takes in memory."""
    return _BITS[canonical]


def known_dtype(name: str) -> str:
    """The canonical name of a dtype.

    Raises:
        ArchitectureError: It is not known.
    """
    canonical = canonical_dtype(name)
    if canonical is None:
        raise ArchitectureError(
            f"The dtype {brief(name)} is not known.", remedy="Use float32, float16, bfloat16, fp8 or int8."
        )
    return canonical


def read_dtype(config: Config) -> str | None:
    """The dtype that a config gives its checkpoint, under its new or its old key."""
    for key in ("dtype", "torch_dtype"):
        name = config.text(key)
        if name is not None and name != "auto":
            canonical = canonical_dtype(name)
            if canonical is None:
                config.fail(key, f"is {brief(name)}, a dtype that is not known")
            return canonical
    return None


def served_dtype(stored: str | None) -> str:
    """The dtype that vLLM serves a checkpoint in unless told otherwise: 32-bit and unnamed in 16 bits."""
    return stored if stored in ("float16", "bfloat16") else "bfloat16"
