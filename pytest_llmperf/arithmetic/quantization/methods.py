"""Quantisation methods whose config is one format and a list of exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.config import Config, brief
from pytest_llmperf.arithmetic.quantization.format import (
    Choose,
    Format,
    is_head,
    names_module,
    unless_skipped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def group_size(config: Config, key: str, default: int) -> int:
    """A group size: inputs that share a scale, or -1 for all of an output."""
    return -1 if config.get(key) == -1 else config.count(key, default)


def grouped(bits: int, group: int, *, zero_bits: int = 0, input_bytes: int = 0) -> Format:
    """Packed integers with scales, and zero points if any, in the model's own dtype's products."""
    if group == -1:
        return Format(bits, "channel", zero_bits=zero_bits, input_bytes=input_bytes)
    return Format(bits, "group", group, zero_bits=zero_bits, input_bytes=input_bytes)


def compile_pattern(config: Config, key: str, text: str) -> re.Pattern[str]:
    """A regular expression out of a config."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        config.fail(key, f"has the pattern {brief(text)}, which is no regular expression ({error})")


def awq(config: Config) -> Choose:
    """AutoAWQ: packed weights, with a 16-bit scale and a packed zero point a group."""
    bits = config.count("bits", config.count("w_bit", 4, most=8), most=8)
    group = group_size(config, "group_size", group_size(config, "q_group_size", 128))
    zero_bits = bits if config.flag("zero_point", True) else 0
    return unless_skipped(config.strings("modules_to_not_convert"), grouped(bits, group, zero_bits=zero_bits))


def gptq(config: Config) -> Choose:
    """AutoGPTQ and GPTQModel: packed weights, with a 16-bit scale and a packed zero point a group.

    The zero points are stored for symmetric quantisation too. ``g_idx``, four bytes an input, counts with
    ``desc_act`` only: without it engines drop it when they load.
    """
    bits = config.count("bits", most=8)
    group = group_size(config, "group_size", 128)
    index = 4 if config.flag("desc_act", False) else 0
    base = grouped(bits, group, zero_bits=bits, input_bytes=index)
    head = config.flag("lm_head", False)
    skipped = config.strings("modules_to_not_convert")
    only = _block_modules(config)
    rules = _gptq_rules(config, bits, group, index)

    def choose(name: str) -> Format | None:
        for pattern, fmt in rules:
            if pattern.match(name):
                return fmt
        if is_head(name):
            return base if head else None
        if any(names_module(entry, name) for entry in skipped):
            return None
        return base if not only or any(names_module(entry, name) for entry in only) else None

    return choose


def _block_modules(config: Config) -> tuple[str, ...]:
    """Names from ``modules_in_block_to_quantize``: a list of names, or of lists of names."""
    key = "modules_in_block_to_quantize"
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        config.fail(key, f"must be a list, not {brief(value)}")
    flat = [name for item in value for name in (item if isinstance(item, list | tuple) else [item])]
    if not all(isinstance(name, str) for name in flat):
        config.fail(key, "must be a list of strings")
    return tuple(flat)


def _gptq_rules(config: Config, bits: int, group: int, index: int) -> Sequence[tuple[re.Pattern[str], Format | None]]:
    """GPTQModel's ``dynamic``: patterns that leave modules out (``-:``) or change their settings (``+:``)."""
    section = config.section("dynamic")
    if section is None:
        return ()
    rules: list[tuple[re.Pattern[str], Format | None]] = []
    for key in section.values:
        pattern = compile_pattern(section, key, key.removeprefix("-:").removeprefix("+:"))
        changed = None if key.startswith("-:") else section.section(key)
        if changed is None:
            rules.append((pattern, None))
        else:
            own_bits = changed.count("bits", bits, most=8)
            own_group = group_size(changed, "group_size", group)
            rules.append((pattern, grouped(own_bits, own_group, zero_bits=own_bits, input_bytes=index)))
    return rules


def fp8(config: Config) -> Choose:
    """FP8 with one 32-bit scale a matrix, or one a block as in DeepSeek V3."""
    skipped = config.strings("modules_to_not_convert") + config.strings("ignored_layers")
    block = config.counts("weight_block_size")
    if block is None:
        static = config.text("activation_scheme") == "static"
        return unless_skipped(
            skipped,
            Format(8, "tensor", scale_bits=32, tensor_bytes=4 if static else 0, matmul_dtype="float8"),
        )
    if len(block) != 2 or 0 in block:
        config.fail("weight_block_size", f"must be two whole numbers from 1, not {list(block[:4])}")
    fmt = Format(8, "block", group=block[1], rows=block[0], scale_bits=32, matmul_dtype="float8")
    return unless_skipped(skipped, fmt)


def fbgemm_fp8(config: Config) -> Choose:
    """FP8 with one 32-bit scale an output."""
    fmt = Format(8, "channel", scale_bits=32, matmul_dtype="float8")
    return unless_skipped(config.strings("modules_to_not_convert"), fmt)


def bitsandbytes(config: Config) -> Choose:
    """bitsandbytes: int8 with a 32-bit scale an output, or 4 bits in blocks of 64.

    A block's scale (absmax) takes 32 bits, or with double quantisation 8 bits, another 32 for every 256 of
    them, and an offset of 32.
    """
    skipped = config.strings("llm_int8_skip_modules")
    if config.flag("load_in_8bit", config.flag("_load_in_8bit", False)):
        return unless_skipped(skipped, Format(8, "channel", scale_bits=32, matmul_dtype="int8"))
    if not config.flag("load_in_4bit", config.flag("_load_in_4bit", False)):
        config.fail("load_in_4bit", "and `load_in_8bit` are both absent or false", "Set the one that was used.")
    if config.flag("bnb_4bit_use_double_quant", False):
        return unless_skipped(skipped, Format(4, "flat", 64, scale_bits=8, scale_group=256, tensor_bytes=4))
    return unless_skipped(skipped, Format(4, "flat", 64, scale_bits=32))


def mxfp4(config: Config) -> Choose:
    """MXFP4 as in gpt-oss: the experts alone, with an 8-bit scale for every 32 inputs."""
    skipped = config.strings("modules_to_not_convert")
    fmt = Format(4, "group", 32, scale_bits=8)

    def choose(name: str) -> Format | None:
        if ".experts." not in name or any(names_module(entry, name) for entry in skipped):
            return None
        return fmt

    return choose
