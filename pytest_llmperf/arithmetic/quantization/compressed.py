"""Methods whose config has groups of modules, each with its own format: compressed-tensors and ModelOpt."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from pytest_llmperf.arithmetic.config import Config, brief
from pytest_llmperf.arithmetic.quantization.format import Choose, Format, is_head, names_module
from pytest_llmperf.arithmetic.quantization.methods import compile_pattern, grouped

Match = Callable[[str], bool]

# Formats that store more than packed weights, scales and zero points, and in ways of their own.
_SPARSE_FORMATS = ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")


def compressed_tensors(config: Config) -> Choose:
    """compressed-tensors (llm-compressor): weights of each group in its own format."""
    if config.text("format") in _SPARSE_FORMATS:
        config.fail("format", f"is {brief(config.text('format'))}, a sparse format that is not known")
    sparsity = config.section("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        sparsity.fail("format", f"is {brief(sparsity.text('format'))}, a sparse format that is not known")
    return _groups(config, scale_bits=None)


def modelopt(config: Config) -> Choose:
    """NVIDIA ModelOpt: FP8 with one scale a matrix, or NVFP4 with an 8-bit scale for every 16 inputs."""
    inner = config.section("quantization") or config
    skipped = [
        _matcher(inner, key, pattern, wildcard=True)
        for key in ("ignore", "exclude_modules")
        for pattern in inner.strings(key)
    ]
    algorithm = inner.text("quant_algo")
    if algorithm is None and inner.get("config_groups") is not None:
        return _groups(inner, scale_bits=32)
    formats = {
        # A matrix has a scale of its weights and one of its inputs, 32 bits each.
        "FP8": Format(8, "tensor", scale_bits=32, tensor_bytes=4, matmul_dtype="float8"),
        "NVFP4": Format(4, "group", 16, scale_bits=8, tensor_bytes=8, matmul_dtype="float4"),
    }
    fmt = formats.get((algorithm or "").upper())
    if fmt is None:
        inner.fail("quant_algo", f"is {brief(algorithm)}, a quantisation that is not known", "Known: FP8, NVFP4.")

    def choose(name: str) -> Format | None:
        return None if is_head(name) or any(match(name) for match in skipped) else fmt

    return choose


def _groups(config: Config, *, scale_bits: int | None) -> Choose:
    """The format of the first group that means a module, unless the module is on the ``ignore`` list."""
    ignored = [_matcher(config, "ignore", entry) for entry in config.strings("ignore")]
    groups = config.section("config_groups")
    if groups is None or not groups.values:
        config.fail("config_groups", "is missing", "Add it: it says what is quantised, and how.")
    rules: list[tuple[list[Match], Format | None]] = []
    for key in groups.values:
        group = groups.section(key)
        if group is None:
            continue
        targets = group.strings("targets") or group.fail("targets", "is missing")
        rules.append(([_target(group, target) for target in targets], _weights(group, scale_bits)))

    def choose(name: str) -> Format | None:
        if any(match(name) for match in ignored):
            return None
        return next((fmt for matches, fmt in rules if any(match(name) for match in matches)), None)

    return choose


def _target(config: Config, target: str) -> Match:
    """A target is a class of modules, a pattern, or a name."""
    if target == "Linear":
        return lambda _: True
    return _matcher(config, "targets", target)


def _matcher(config: Config, key: str, entry: str, *, wildcard: bool = False) -> Match:
    if entry.startswith("re:"):
        pattern = compile_pattern(config, key, entry.removeprefix("re:"))
        return lambda name: pattern.match(name) is not None
    if wildcard and "*" in entry:
        return lambda name: fnmatch.fnmatchcase(name, entry)
    return lambda name: names_module(entry, name)


def _weights(group: Config, scale_bits: int | None) -> Format | None:
    """The format of a group's weights, or ``None`` when only its activations are quantised."""
    weights = group.section("weights")
    if weights is None:
        return None
    bits = weights.count("num_bits", 8, most=8)
    kind = weights.text("type") or "int"
    strategy = weights.text("strategy") or ("group" if weights.get("group_size") is not None else "tensor")
    matmul = _matmul_dtype(group, bits, kind)
    # Zero points are packed like weights, those of 8-bit weights take a byte.
    zero_bits = 0 if weights.flag("symmetric", True) else bits
    if strategy == "tensor_group":
        # NVFP4: an 8-bit scale a group, a 32-bit one of the matrix, and one of its inputs where those are
        # quantised.
        extra = 4 + (4 if group.get("input_activations") is not None else 0)
        size = weights.count("group_size", 16)
        return Format(bits, "group", size, scale_bits=8, tensor_bytes=extra, matmul_dtype=matmul)
    if strategy == "group" and kind == "float" and weights.count("group_size") == 32:
        # MXFP4 and MXFP8: scales are powers of two in 8 bits.
        return Format(bits, "group", 32, scale_bits=8, matmul_dtype=matmul)
    if strategy == "group":
        index = 4 if weights.get("actorder") in ("group", True) else 0
        packed = grouped(bits, weights.count("group_size"), zero_bits=zero_bits, input_bytes=index)
        return replace(packed, matmul_dtype=matmul)
    if strategy == "channel":
        return Format(bits, "channel", scale_bits=scale_bits, zero_bits=zero_bits, matmul_dtype=matmul)
    if strategy == "tensor":
        return Format(bits, "tensor", scale_bits=scale_bits, zero_bits=zero_bits, matmul_dtype=matmul)
    if strategy == "block":
        block = weights.counts("block_structure") or ()
        if len(block) != 2 or 0 in block:
            weights.fail("block_structure", "must be two whole numbers from 1")
        return Format(bits, "block", group=block[1], rows=block[0], scale_bits=scale_bits, matmul_dtype=matmul)
    return _unknown_strategy(weights, strategy)


def _unknown_strategy(weights: Config, strategy: str) -> NoReturn:
    weights.fail(
        "strategy",
        f"is {brief(strategy)}, which is not known",
        "Known are block, channel, group, tensor and tensor_group.",
    )


def _matmul_dtype(group: Config, bits: int, kind: str) -> str | None:
    """What matrices are multiplied in: the model's own dtype unless inputs are quantised as well."""
    inputs = group.section("input_activations")
    if inputs is None:
        return None
    input_bits = inputs.count("num_bits", 8, most=16)
    if input_bits == 4 and bits == 4:
        return "float4" if kind == "float" else "int4"
    if input_bits == 8:
        return "float8" if (inputs.text("type") or "int") == "float" else "int8"
    return None
