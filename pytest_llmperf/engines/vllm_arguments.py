"""What vLLM is started with, in process or as a server: arguments, environment, and the words for a failed start.

Both engines take the same names, those of vLLM's ``AsyncEngineArgs``, and have the same defaults: what is measured
in process and over HTTP is then the same engine.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.errors import EngineError, OptionError

__all__ = [
    "argument_names",
    "check_names",
    "complete_arguments",
    "default_environment",
    "has_dummy_weights",
    "start_error",
]

#: A root cause that matches gets the remedy beside it.
_REMEDIES = (
    (r"memory|cache blocks", "Lower {memory} or max_model_len, use a smaller model, or free what else holds memory."),
    (r"max_model_len|max_position_embeddings", "Lower max_model_len to what the model's config.json allows."),
    (r"LocalEntryNotFound|RepositoryNotFound|offline|outgoing traffic|gated|Connection",
     "Download the model first, or give --llmperf-model a folder or a shipped shape."),
    (r"CUDA|driver|NCCL", "Check nvidia-smi and that no other process holds the GPU."),
)  # fmt: skip


def complete_arguments(spec: EngineSpec) -> dict[str, Any]:
    """All engine arguments: ours, with the marker's and the treatment over them.

    Two things that vLLM would do are turned around: its prefix cache is off unless asked for, because it is not what
    is to be measured, and its own statistics are on, because they carry its time stamps.
    """
    ours: dict[str, Any] = {
        "model": spec.model.location,
        "enable_prefix_caching": False,
        "disable_log_stats": False,
    }
    if not spec.model.has_weights:
        ours["load_format"] = "dummy"
    if not spec.model.has_tokenizer:
        ours["skip_tokenizer_init"] = True
    if spec.choice.platform == "cpu":
        ours["gpu_memory_utilization"] = 0.3
    return {**ours, **spec.arguments}


def has_dummy_weights(arguments: Mapping[str, Any]) -> bool:
    """Whether these engine arguments make vLLM invent the weights: what it answers then tells nothing."""
    named = arguments.get("load_format")
    return str(getattr(named, "value", named)).lower() == "dummy"  # a marker can hold vLLM's own enumeration


def default_environment(spec: EngineSpec) -> dict[str, str]:
    """Environment variables that vLLM is given where the user has not set them."""
    ours = {"VLLM_NO_USAGE_STATS": "1"}
    if spec.choice.platform == "cpu":
        ours["VLLM_CPU_KVCACHE_SPACE"] = "2"
    return ours


def argument_names() -> set[str]:
    """The engine arguments that the installed vLLM takes.

    They are read from its source: importing it takes seconds, loads PyTorch, and would leave both in a process that
    only sends requests to a server.
    """
    found = importlib.util.find_spec("vllm")
    for folder in (found and found.submodule_search_locations) or ():
        source = Path(folder) / "engine" / "arg_utils.py"
        if source.exists() and (names := _field_names(source.read_text(encoding="utf-8"))):
            return names
    from vllm.engine.arg_utils import AsyncEngineArgs

    return {field.name for field in fields(AsyncEngineArgs)}


def _field_names(source: str) -> set[str]:
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return {
        line.target.id
        for found in classes
        if found.name in ("EngineArgs", "AsyncEngineArgs")
        for line in found.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def check_names(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse an argument that vLLM does not know.

    Raises:
        OptionError: with the name that was probably meant.
    """
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise OptionError(
                f"vLLM has no engine argument {name!r}.",
                remedy=f"Did you mean {near[0]!r}?" if near else "See vllm serve --help for what it takes.",
            )


def start_error(spec: EngineSpec, cause: str, *, what: str, log: str | None) -> EngineError:
    """The error for a start that failed.

    Args:
        spec: What was started.
        cause: What vLLM said.
        what: What did not start: ``"vLLM"`` or ``"vLLM's server"``.
        log: The remedy when none fits the cause: where the engine's own output is.
    """
    cause = cause.rstrip(".")[:600]
    memory = "VLLM_CPU_KVCACHE_SPACE" if spec.choice.platform == "cpu" else "gpu_memory_utilization"
    remedy = next(
        (text.format(memory=memory) for pattern, text in _REMEDIES if re.search(pattern, cause, re.IGNORECASE)), log
    )
    return EngineError(f"{what} did not start with the model {spec.model.name}: {cause}.", remedy=remedy)
