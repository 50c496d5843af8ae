"""What a simulated engine can be told: settings of its own, and vLLM's arguments under vLLM's names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from pytest_llmperf.errors import OptionError

__all__ = ["Arguments", "check_settings", "read_arguments"]

_SETTINGS: dict[str, float] = {"seed": 0, "launch_noise": 0.0, "repeat_noise": 0.0, "slowdown": 1.0, "power_scale": 1.0}
#: Those that are a factor, and on what.
_FACTORS = {"slowdown": "every time", "power_scale": "the board's power"}

#: No count is larger.
_MOST = 2**40
_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_DTYPES = {
    "auto": "auto", "half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32",
    "float32": "float32",
}  # fmt: skip
_KV_DTYPES = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")

#: Arguments of vLLM that change nothing that is simulated: a suite that names them still runs.
_WITHOUT_EFFECT = {
    "load_format", "disable_log_stats", "disable_log_requests", "enable_log_requests", "tokenizer", "tokenizer_mode",
    "tokenizer_revision", "skip_tokenizer_init", "trust_remote_code", "download_dir", "revision", "code_revision",
    "served_model_name", "generation_config", "max_logprobs", "logprobs_mode", "swap_space",
}  # fmt: skip
#: Arguments of vLLM whose effect is not simulated, with the values at which they have none.
_NOT_SIMULATED: Mapping[str, tuple[Any, ...]] = {
    "pipeline_parallel_size": (None, 1),
    "data_parallel_size": (None, 1),
    "decode_context_parallel_size": (None, 1),
    "prefill_context_parallel_size": (None, 1),
    "enable_expert_parallel": (None, False),
    "enable_dbo": (None, False),
    "speculative_config": (None,),
    "enable_lora": (None, False),
    "lora_modules": (None,),
    "kv_transfer_config": (None,),
    "kv_cache_memory_bytes": (None,),
    "kv_offloading_size": (None,),
    "calculate_kv_scales": (None, False),
    "cpu_offload_gb": (None, 0),
    "hf_overrides": (None, {}),
    "scheduling_policy": (None, "fcfs"),
    "scheduler_cls": (None,),
    "max_num_partial_prefills": (None, 1),
    "long_prefill_token_threshold": (None, 0),
    "disable_sliding_window": (None, False),
    "performance_mode": (None, "balanced"),
    "compilation_config": (None, {}),
    "optimization_level": (None, 2),
    "cuda_graph_sizes": (None, []),
    "cudagraph_capture_sizes": (None, []),
    "max_cudagraph_capture_size": (None,),
    "max_seq_len_to_capture": (None,),
    "attention_backend": (None,),
    "disable_custom_all_reduce": (None, False),
    "distributed_executor_backend": (None, "mp", "uni"),
}


@dataclass(frozen=True)
class Arguments:
    """vLLM's arguments that are simulated, with vLLM's names and, but for the prefix cache, vLLM's defaults.

    ``None`` is what vLLM decides when it knows the model. The defaults of tokens and sequences are those of vLLM in
    process. The prefix cache is off unless asked for, as with the real engine: it is not what is to be measured.
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    block_size: int = 16
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = False
    enable_chunked_prefill: bool = True
    async_scheduling: bool = True
    enforce_eager: bool = False
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number of at least 1")
    if value > _MOST:
        raise ValueError(f"a whole number of at most {_MOST}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # one kind of error for whatever is wrong with a value
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError("a share of the memory, above 0 and at most 1")
    return float(value)


def _block_size(value: Any) -> int:
    if isinstance(value, bool) or value not in _BLOCK_SIZES:
        raise ValueError(f"one of {', '.join(map(str, _BLOCK_SIZES))}")
    return int(value)


def _dtype(value: Any) -> str:
    known = _DTYPES.get(str(value).removeprefix("torch."))  # a marker can hold a torch.dtype
    if known is None:
        raise ValueError(f"one of {', '.join(_DTYPES)}")
    return known


def _kv_dtype(value: Any) -> str:
    if value not in _KV_DTYPES:
        raise ValueError(f"one of {', '.join(_KV_DTYPES)}")
    return str(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a method, such as fp8")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "max_num_batched_tokens": _count,
    "max_num_seqs": _count,
    "max_model_len": _count,
    "block_size": _block_size,
    "gpu_memory_utilization": _share,
    "num_gpu_blocks_override": _count,
    "enable_prefix_caching": _flag,
    "enable_chunked_prefill": _flag,
    "async_scheduling": _flag,
    "enforce_eager": _flag,
    "tensor_parallel_size": _count,
    "dtype": _dtype,
    "quantization": _name,
    "kv_cache_dtype": _kv_dtype,
}


def check_settings(engine: str, given: Mapping[str, Any]) -> dict[str, float]:
    """The settings of a simulated engine, complete; the arguments of vLLM among what is given are checked too.

    Raises:
        OptionError: a setting or an argument does not exist, is not simulated, or has a value that makes no sense.
    """
    read_arguments(engine, given)
    own = {name: value for name, value in given.items() if name in _SETTINGS}
    for name, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise OptionError(f"{engine}: {name} is a number of at least 0, not {value!r}.")
        if name == "seed" and value != int(value):
            raise OptionError(f"{engine}: seed is a whole number, not {value!r}.")
        if name.endswith("_noise") and value > 1:
            raise OptionError(f"{engine}: {name} is a relative standard deviation of at most 1, not {value!r}.")
        if name in _FACTORS and not 1e-3 <= value <= 1e3:
            raise OptionError(
                f"{engine}: {name} is a factor on {_FACTORS[name]} from 0.001 to 1000, and cannot be {value!r}."
            )
    return {**_SETTINGS, **own}


def read_arguments(engine: str, given: Mapping[str, Any]) -> Arguments:
    """The arguments of vLLM out of what is given, which may hold settings too.

    Raises:
        OptionError: an argument does not exist, is not simulated, or has a value that vLLM does not take.
    """
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name in _READERS:
            if value is None:  # as in vLLM: the default
                continue
            try:
                read[name] = _READERS[name](value)
            except ValueError as error:
                raise OptionError(f"{engine}: {name} is {error}, not {value!r}.") from None
        elif name in _NOT_SIMULATED:
            if value not in _NOT_SIMULATED[name]:
                raise OptionError(
                    f"{engine}: {name} is not simulated.", remedy="Leave it out, or measure it on a real engine."
                )
        elif name not in _SETTINGS and name not in _WITHOUT_EFFECT:
            raise _unknown(engine, name)
    return Arguments(**read)


def _unknown(engine: str, name: str) -> OptionError:
    known = sorted([*_SETTINGS, *_READERS])
    near = difflib.get_close_matches(name, [*known, *sorted(_WITHOUT_EFFECT), *_NOT_SIMULATED], n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return OptionError(f"{engine} has no setting {name!r}.", remedy=f"{meant}It takes: {', '.join(known)}.")
