"""How a quantised checkpoint stores its weight matrices: which of them, and in how many bytes.

Counted are the packed weights with their scales and zero points, as engines keep and read them. Left out are tensors
that only describe the others (``weight_shape``, a quantisation's code book, the JSON of a ``quant_state``): some bytes
a matrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pytest_llmperf.arithmetic.config import Config, brief

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.structure import Linear

Granularity = Literal["tensor", "channel", "group", "block"]


@dataclass(frozen=True, slots=True)
class Format:
    """How one weight matrix is stored.

    Args:
        weight_bits: Bits of one weight.
        granularity: What shares a scale: the whole matrix, all weights of an output, a group of consecutive inputs of
            an output, or a block of inputs and outputs.
        group: Inputs that share a scale (``group`` and ``block``).
        rows: Outputs that share a scale (``block``).
        scale_bits: Bits of a scale; ``None`` for the model's own dtype.
        zero_bits: Bits of a zero point, of which there are as many as scales.
        tensor_bytes: Bytes of every further scale or table of the whole matrix.
        input_bytes: Bytes for each input, such as GPTQ's permutation.
        matmul_dtype: What the matrix is multiplied in; ``None`` for the model's own dtype.
    """

    weight_bits: int
    granularity: Granularity
    group: int = 0
    rows: int = 1
    scale_bits: int | None = None
    zero_bits: int = 0
    tensor_bytes: int = 0
    input_bytes: int = 0
    matmul_dtype: str | None = None

    def bytes(self, linear: Linear, own_bits: int) -> int:
        """Bytes of one copy of a matrix, without its bias.

        Args:
            linear: The matrix.
            own_bits: Bits of the model's own dtype.
        """
        scales = self._scales(linear)
        scale_bits = own_bits if self.scale_bits is None else self.scale_bits
        return (
            _bytes(linear.weight_params * self.weight_bits)
            + _bytes(scales * scale_bits)
            + _bytes(scales * self.zero_bits)
            + self.tensor_bytes
            + self.input_bytes * linear.inputs
        )

    def _scales(self, linear: Linear) -> int:
        if self.granularity == "tensor":
            return 1
        if self.granularity == "channel":
            return linear.outputs
        return -(-linear.inputs // self.group) * -(-linear.outputs // self.rows)


def _bytes(bits: int) -> int:
    return -(-bits // 8)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantisation of a model: which matrices are stored in which format.

    Args:
        method: Its name, as in the config's ``quant_method``.
        choose: The format of a matrix by its full name, or ``None`` when it stays in the model's own dtype. Asked
            only about matrices that engines can quantise: not about routers, nor the input table.
    """

    method: str
    choose: Callable[[str], Format | None]


def read_quantization(config: Config, wrapped: bool) -> Quantization:
    """Read a config's ``quantization_config``.

    Args:
        config: That section.
        wrapped: Whether the language model is nested in a multimodal one, whose module names have a prefix more.

    Raises:
        ArchitectureError: The method is not known, or a setting makes no sense.
    """
    method = config.text("quant_method")
    if method is None:
        # bitsandbytes configs of old checkpoints say no more than this.
        if config.flag("load_in_4bit", False) or config.flag("load_in_8bit", False):
            method = "bitsandbytes"
        else:
            config.fail(
                "quant_method", "is missing", "Add it: the stored bytes cannot be computed without it."
            )
    reader = _READERS.get(method.lower())
    if reader is None:
        config.fail(
            "quant_method",
            f"is {brief(method)}, a quantisation that is not known",
            f"Known are {', '.join(sorted(_READERS))}.",
        )
    choose = reader(config)
    if wrapped:
        choose = _with_wrappers(choose)
    return Quantization(method.lower(), lru_cache(maxsize=None)(choose))


def _with_wrappers(choose: Callable[[str], Format | None]) -> Callable[[str], Format | None]:
    """Leave a matrix unquantised if it is so under any of the names it may have inside a multimodal model."""

    def under_any_name(name: str) -> Format | None:
        names = (name, f"language_model.{name}", name.replace("model.", "model.language_model.", 1))
        formats = [choose(candidate) for candidate in names]
        return None if None in formats else formats[0]

    return under_any_name


def _unless_skipped(
    skipped: tuple[str, ...], fmt: Format, *, head: bool = False
) -> Callable[[str], Format | None]:
    """One format for all but the modules that a list names, by their whole name or a part of it."""

    def choose(name: str) -> Format | None:
        if not head and _is_head(name):
            return None
        return None if any(_names_module(entry, name) for entry in skipped) else fmt

    return choose


def _is_head(name: str) -> bool:
    return name in ("lm_head", "language_model.lm_head", "embed_out", "output", "transformer.output_layer")


def _names_module(entry: str, name: str) -> bool:
    """Whether an entry of a skip list means a module: dotted parts of its name, or the module above it."""
    return f".{entry.strip('.')}." in f".{name}."


def _positive_group(config: Config, key: str, default: int) -> int:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and value != -1):
        config.fail(key, f"must be a whole number from 1, or -1 for a whole column, not {brief(value)}")
    return value


def _grouped(
    bits: int, group: int, *, zero_bits: int, input_bytes: int = 0, matmul_dtype: str | None = None
) -> Format:
    if group == -1:
        return Format(
            bits, "channel", zero_bits=zero_bits, input_bytes=input_bytes, matmul_dtype=matmul_dtype
        )
    return Format(
        bits, "group", group, zero_bits=zero_bits, input_bytes=input_bytes, matmul_dtype=matmul_dtype
    )


def _awq(config: Config) -> Callable[[str], Format | None]:
    """AutoAWQ: packed weights, a 16-bit scale and a packed zero point a group."""
    bits = config.count("bits", config.count("w_bit", 4), most=8)
    group = _positive_group(config, "group_size", _positive_group(config, "q_group_size", 128))
    zero = bits if config.flag("zero_point", True) else 0
    return _unless_skipped(config.strings("modules_to_not_convert"), _grouped(bits, group, zero_bits=zero))


def _gptq(config: Config) -> Callable[[str], Format | None]:
    """AutoGPTQ and GPTQModel: packed weights, a 16-bit scale and a packed zero point a group.

    The zero points are stored for symmetric quantisation too. ``g_idx``, four bytes an input, is counted with
    ``desc_act`` only: without it the engines don't keep it.
    """
    bits = config.count("bits", most=8)
    group = _positive_group(config, "group_size", 128)
    index = 4 if config.flag("desc_act", False) else 0
    base = _grouped(bits, group, zero_bits=bits, input_bytes=index)
    head = config.flag("lm_head", False)
    skipped = config.strings("modules_to_not_convert")
    only = _block_modules(config)
    rules = _gptq_rules(config, bits, group, index)

    def choose(name: str) -> Format | None:
        if _is_head(name) and not head:
            return None
        for pattern, fmt in rules:
            if pattern.match(name):
                return fmt
        if any(_names_module(entry, name) for entry in skipped):
            return None
        if only and not _is_head(name) and not any(_names_module(entry, name) for entry in only):
            return None
        return base

    return choose


def _block_modules(config: Config) -> tuple[str, ...]:
    """Names from ``modules_in_block_to_quantize``, a list of names or of lists of names."""
    value = config.get("modules_in_block_to_quantize")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        config.fail("modules_in_block_to_quantize", f"must be a list, not {brief(value)}")
    flat = [name for item in value for name in (item if isinstance(item, list | tuple) else [item])]
    if not all(isinstance(name, str) for name in flat):
        config.fail("modules_in_block_to_quantize", "must be a list of strings")
    return tuple(flat)


def _gptq_rules(
    config: Config, bits: int, group: int, index: int
) -> list[tuple[re.Pattern[str], Format | None]]:
    """GPTQModel's ``dynamic``: patterns that leave modules out (``-:``) or give them other settings (``+:``)."""
    section = config.section("dynamic")
    if section is None:
        return []
    rules: list[tuple[re.Pattern[str], Format | None]] = []
    for key in section.values:
        pattern = _pattern(section, key, key.removeprefix("-:").removeprefix("+:"))
        if key.startswith("-:"):
            rules.append((pattern, None))
            continue
        changed = section.section(key)
        if changed is not None:
            own_bits = changed.count("bits", bits, most=8)
            own_group = _positive_group(changed, "group_size", group)
            rules.append((pattern, _grouped(own_bits, own_group, zero_bits=own_bits, input_bytes=index)))
    return rules


def _pattern(config: Config, key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        config.fail(key, f"has the pattern {brief(text)}, which is no regular expression ({error})")


def _fp8(config: Config) -> Callable[[str], Format | None]:
    """FP8 with one 32-bit scale a matrix, or one a block as in DeepSeek V3."""
    static = config.text("activation_scheme") == "static"
    block = config.counts("weight_block_size")
    if block is None:
        fmt = Format(8, "tensor", scale_bits=32, tensor_bytes=4 if static else 0, matmul_dtype="float8")
    else:
        if len(block) != 2 or 0 in block:
            config.fail("weight_block_size", f"must be two whole numbers from 1, not {list(block[:4])}")
        fmt = Format(8, "block", group=block[1], rows=block[0], scale_bits=32, matmul_dtype="float8")
    return _unless_skipped(config.strings("modules_to_not_convert") + config.strings("ignored_layers"), fmt)


def _fbgemm_fp8(config: Config) -> Callable[[str], Format | None]:
    """FP8 with one 32-bit scale an output."""
    fmt = Format(8, "channel", scale_bits=32, matmul_dtype="float8")
    return _unless_skipped(config.strings("modules_to_not_convert"), fmt)


def _bitsandbytes(config: Config) -> Callable[[str], Format | None]:
    """bitsandbytes: int8 with a 32-bit scale an output, or 4 bits in blocks of 64.

    A block's scale (absmax) takes 32 bits, or with double quantisation 8 bits and another 32 for every 256 of them.
    """
    skipped = config.strings("llm_int8_skip_modules")
    if config.flag("load_in_8bit", config.flag("_load_in_8bit", False)):
        return _unless_skipped(skipped, Format(8, "channel", scale_bits=32, matmul_dtype="int8"))
    if not config.flag("load_in_4bit", config.flag("_load_in_4bit", False)):
        config.fail("load_in_4bit", "and load_in_8bit are both absent or false", "Set the one that was used.")
    if not config.flag("bnb_4bit_use_double_quant", False):
        return _unless_skipped(skipped, _FlatBlocks(4, "group", 64, scale_bits=32))
    return _unless_skipped(skipped, _FlatBlocks(4, "group", 64, scale_bits=8, tensor_bytes=4))


@dataclass(frozen=True, slots=True)
class _FlatBlocks(Format):
    """bitsandbytes cuts the flattened matrix, not each row, into blocks."""

    def bytes(self, linear: Linear, own_bits: int) -> int:
        blocks = -(-linear.weight_params // self.group)
        scales = blocks * 4
        if self.scale_bits == 8:
            scales = blocks + 4 * -(-blocks // 256) + self.tensor_bytes
        return _bytes(linear.weight_params * self.weight_bits) + scales


def _mxfp4(config: Config) -> Callable[[str], Format | None]:
    """MXFP4 as in gpt-oss: the experts alone, 4 bits and an 8-bit scale for every 32 inputs."""
    skipped = config.strings("modules_to_not_convert")
    fmt = Format(4, "group", 32, scale_bits=8)

    def choose(name: str) -> Format | None:
        if ".experts." not in name or any(
            _names_module(entry, name) for entry in skipped if "experts" in entry
        ):
            return None
        return fmt

    return choose


_READERS: dict[str, Callable[[Config], Callable[[str], Format | None]]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm_fp8,
    "fp8": _fp8,
    "gptq": _gptq,
    "mxfp4": _mxfp4,
}
