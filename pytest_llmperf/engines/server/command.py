"""The command line and the environment of vLLM's API server.

It takes the engine arguments of the in-process engine, each as the flag of the same name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.vllm_arguments import (
    argument_names,
    check_names,
    complete_arguments,
    default_environment,
)
from pytest_llmperf.errors import OptionError

__all__ = ["command", "environment"]

#: Flags that have no ``--no-`` form in vLLM 0.32: false is said by leaving them out.
_SWITCHES = frozenset(
    {"aggregate_engine_logging", "data_parallel_multi_port_external_lb", "disable_log_stats", "hf_token"}
)

#: Seconds that the server keeps an idle connection open. By default it closes it after 5, which a client can learn
#: only by losing a request: between two bursts of a workload, or between two tests, more time passes than that.
_KEEP_ALIVE_S = 3600


def command(spec: EngineSpec, port: int) -> list[str]:
    """The command that serves ``spec`` on a port of the loopback address.

    Per-request logging is off: it costs time in the process that sends the tokens. (vLLM's own, which is another,
    is off by default.)

    Raises:
        OptionError: an engine argument does not exist, or its value cannot be said on a command line.
    """
    arguments = complete_arguments(spec)
    check_names(arguments, argument_names())
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--model", str(arguments.pop("model")), "--disable-uvicorn-access-log"]
    for name, value in arguments.items():
        words += _flag(name, value)
    return words


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or (value is False and name in _SWITCHES):
        return []
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, list | tuple | set | frozenset):
        if not value:
            raise OptionError(
                f"The engine argument {name} is empty, which no flag of vLLM's server can say.", remedy="Leave it out."
            )
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [flag, *(_word(name, item) for item in ordered)]
    # In one word: a value may begin with a dash.
    return [f"{flag}={_word(name, value)}"]


def _word(name: str, value: Any) -> str:
    if isinstance(value, Mapping | list):
        return json.dumps(value, default=str)
    # A torch.dtype is written torch.bfloat16, and vLLM calls it bfloat16.
    if isinstance(value, str | int | float | Path) or type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    raise OptionError(
        f"The engine argument {name} is of the type {type(value).__name__}, which no flag of vLLM's server can say.",
        remedy="Write it as a string, a number, a list or a mapping.",
    )


def environment(spec: EngineSpec) -> dict[str, str]:
    """The server's environment: this process's own, completed where it says nothing."""
    ours = default_environment(spec)
    ours["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = str(_KEEP_ALIVE_S)
    ours["PYTHONUNBUFFERED"] = "1"  # its last words must not die with it
    if spec.model.config is not None and not any(_from_a_hub(text) for text in _strings(spec.arguments)):
        # Nothing is to be downloaded, and looking for it would take long where there is no network.
        ours["HF_HUB_OFFLINE"] = "1"
    return {**ours, **os.environ}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def _from_a_hub(text: str) -> bool:
    return "/" in text and not Path(text).expanduser().exists()
