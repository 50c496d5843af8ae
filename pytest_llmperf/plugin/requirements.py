"""What the engine arguments of a test ask for and this machine has not, as a reason to skip it.

An engine that fails is a failure. But a suite that compares engine arguments is run on many machines, and most of them
lack something that one of its arguments needs: a second GPU, a newer one, more memory. That is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_llmperf.errors import LlmperfError

if TYPE_CHECKING:
    from pytest_llmperf.engines.spec import EngineSpec
    from pytest_llmperf.gpu import Board

__all__ = ["unmet"]

#: Arguments that are about GPUs: vLLM's CPU build refuses them, or they say nothing there.
_OF_GPUS = ("tensor_parallel_size", "quantization", "kv_cache_dtype")
#: Methods that vLLM applies to 16-bit weights while it loads them; any other has to be the checkpoint's own.
_ON_LOADING = ("fp8", "bitsandbytes")
#: The least compute capability for an 8-bit KV cache.
_KV_CAPABILITY = 80
#: What vLLM takes of each GPU's memory unless told otherwise.
_SHARE = 0.9
#: Bytes of each GPU that a step's activations, CUDA and its graphs take, roughly.
_STEP_BYTES = 1.5 * 2**30
_GIB = 2**30


def unmet(spec: EngineSpec, boards: Sequence[Board]) -> str | None:
    """Why a test's engine cannot be had here, or would not be the one it asks for; ``None`` where it can.

    Args:
        spec: What the test's engine is to be started with.
        boards: In use, in CUDA's order; none where there is no GPU.
    """
    checks = (_server, _overruled, _cpu, _format, _count, _capability, _memory)
    return next((reason for check in checks if (reason := check(spec, boards)) is not None), None)


def _server(spec: EngineSpec, _: Sequence[Board]) -> str | None:
    if spec.choice.platform != "url" or not spec.args:
        return None
    return f"{spec.choice.name} runs already: {', '.join(spec.args)} cannot be set from here"


def _overruled(spec: EngineSpec, _: Sequence[Board]) -> str | None:
    """The command line wins over the marker: the test would measure something else than its name says."""
    for name, value in spec.args.items():
        given = spec.choice.treatment.get(name, value)
        if given != value:
            return f"--llmperf-engine says {name}={given}, and this test is about {name}={value}"
    return None


def _cpu(spec: EngineSpec, _: Sequence[Board]) -> str | None:
    if spec.choice.platform != "cpu":
        return None
    about = next((name for name in _OF_GPUS if name in spec.args), None)
    return None if about is None else f"{about} is about GPUs, and this is vLLM's CPU build"


def _format(spec: EngineSpec, _: Sequence[Board]) -> str | None:
    method, config = spec.args.get("quantization"), spec.model.config
    if method is None:
        return None
    if method == "bitsandbytes" and spec.choice.platform == "sim":
        return "how long the kernels of bitsandbytes take is not simulated"
    if method == "bitsandbytes" and not spec.model.has_weights:
        return f"bitsandbytes quantises real weights while it loads them, and {spec.model.name} is a bare shape"
    if method not in _ON_LOADING and config is not None and "quantization_config" not in config:
        return f"{spec.model.name} is no checkpoint that {method} has quantised (name one with --llmperf-model)"
    return None


def _count(spec: EngineSpec, boards: Sequence[Board]) -> str | None:
    gpus = _gpus(spec)
    if spec.choice.platform not in ("cuda", "sim") or gpus <= len(boards):
        return None
    there = f"{len(boards)} {'is' if len(boards) == 1 else 'are'}" if boards else "none is"
    return f"tensor_parallel_size={gpus} needs {gpus} GPUs, and {there} visible"


def _capability(spec: EngineSpec, boards: Sequence[Board]) -> str | None:
    from pytest_llmperf.engines.simulated.deployment import CAPABILITIES

    method, kv = str(spec.args.get("quantization")), str(spec.args.get("kv_cache_dtype", "auto"))
    needs = {
        # The kernels of a method have names that begin with it: awq_marlin.
        f"quantization={method}": max(
            (least for name, least in CAPABILITIES.items() if method.startswith(name)), default=0
        ),
        f"kv_cache_dtype={kv}": _KV_CAPABILITY if kv.startswith(("fp8", "int8")) else 0,
    }
    for board in boards[: _gpus(spec)]:
        if board.compute_capability is None:
            continue
        major, minor = board.compute_capability
        for what, least in needs.items():
            if major * 10 + minor < least:
                return f"{what} needs compute capability {least / 10:.1f}, and {board.name} has {major}.{minor}"
    return None


def _memory(spec: EngineSpec, boards: Sequence[Board]) -> str | None:
    """Weights, the cache of one sequence of full length, and what a step takes have to fit into the GPU's share."""
    from pytest_llmperf.arithmetic import Architecture
    from pytest_llmperf.engines.simulated.context import longest_sequence

    config, gpus, arguments = spec.model.config, _gpus(spec), spec.arguments
    used = boards[:gpus]
    sizes = [board.memory_bytes for board in used if board.memory_bytes is not None]
    if config is None or not sizes or spec.choice.platform not in ("cuda", "sim"):
        return None
    try:
        model = Architecture.from_config(config).served_as("auto", arguments.get("quantization"))
        longest = arguments.get("max_model_len") or longest_sequence(config)
        kv_dtype = arguments.get("kv_cache_dtype", "auto")
        cache = model.kv_bytes(longest, kv_dtype if kv_dtype != "auto" else None, tensor_parallel=gpus) / gpus
    except LlmperfError:
        return None  # not to be told here; the engine will
    weights = model.weight_bytes() / gpus
    share = float(arguments.get("gpu_memory_utilization", _SHARE)) * min(sizes)
    if weights + cache + _STEP_BYTES <= share:
        return None
    return (
        f"{spec.model.name} needs {weights / _GIB:.1f} GiB of {'each' if gpus > 1 else 'the'} GPU for its weights and "
        f"{cache / _GIB:.1f} GiB for one sequence of {longest} tokens, and of {used[0].name} {share / _GIB:.1f} GiB "
        "may be used"
    )


def _gpus(spec: EngineSpec) -> int:
    given = spec.arguments.get("tensor_parallel_size", 1)
    return given if type(given) is int and given > 0 else 1
