"""What can be said after a server's URL.

A server that somebody else started takes no engine arguments from us. What it was started with can be *declared*, so
that the arithmetic and the baseline's identity know; the rest are settings of the client.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_llmperf.errors import OptionError

__all__ = ["CLIENT_SETTINGS", "HARMLESS", "Settings", "settings_of"]

#: Those of them that concern the client only, whatever the server is.
CLIENT_SETTINGS = frozenset({"calibrate", "realtime", "stamps", "workers"})

#: Arguments of engines of our own that change neither the work nor its identity: a suite that names them still runs.
HARMLESS = frozenset({"gpu_memory_utilization", "max_model_len", "load_format", "enforce_eager"})


@dataclass(frozen=True)
class Settings:
    """Declared properties of the server, and settings of the client.

    Attributes:
        hardware: Product name of its GPUs; known without it only on this machine.
        devices: How many GPUs it uses.
        dtype: Of the weights' computation.
        quantization: Of the weights.
        kv_cache_dtype: Of the KV cache.
        tensor_parallel_size: GPUs over which each layer is split.
        pipeline_parallel_size: GPUs over which the layers are spread.
        workers: Processes of the load client; ``None``: as many as the load turns out to need.
        stamps: ``"kernel"`` or ``"user"``: where receive times come from.
        realtime: Whether the client's workers ask for the real-time scheduling class.
        api_key_env: Name of the environment variable that holds the API key.
        ca_file: Certificates to trust instead of the system's.
        verify: Whether the server's certificate is checked.
        calibrate: Whether the client checks itself on a loopback server first.
    """

    hardware: str | None = None
    devices: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    workers: int | None = None
    stamps: str = "kernel"
    realtime: bool = True
    api_key_env: str = "LLMPERF_API_KEY"
    ca_file: str | None = None
    verify: bool = True
    calibrate: bool = True


_COUNTS = ("devices", "tensor_parallel_size", "pipeline_parallel_size", "workers")
_SWITCHES = ("verify", "calibrate", "realtime")


def settings_of(arguments: Mapping[str, Any]) -> Settings:
    """Check the arguments of a server engine.

    Raises:
        OptionError: a name does not exist, or a value is of the wrong kind; no value of a key is repeated.
    """
    known = [field.name for field in fields(Settings)]
    given = {name: value for name, value in arguments.items() if name not in HARMLESS}
    for name, value in given.items():
        if name in ("api_key", "key", "token", "authorization"):
            raise OptionError(
                f"--llmperf-engine: {name} would show the key to everyone who sees the command line.",
                remedy="Put it into the environment variable LLMPERF_API_KEY, or name another with api_key_env=NAME.",
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise OptionError(
                f"A server that is already running takes no engine argument {name!r}.",
                remedy=f"Did you mean {near[0]!r}?" if near else f"What can be said of it: {', '.join(known)}.",
            )
        _check(name, value)
    return Settings(**given)


def _check(name: str, value: Any) -> None:
    if name in _COUNTS:
        fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1024
        kind = "a whole number of at least 1"
    elif name in _SWITCHES:
        fits, kind = isinstance(value, bool), "true or false"
    elif name == "stamps":
        fits, kind = value in ("kernel", "user"), "kernel or user"
    else:
        # Names stand in records and paths; a file's name may be any.
        named = isinstance(value, str) and bool(value) and (value.isprintable() or name == "ca_file")
        fits, kind = named or (value is None and name != "api_key_env"), "a name"
    if not fits:
        raise OptionError(f"--llmperf-engine: {name} is {kind}, not {value!r}.")
