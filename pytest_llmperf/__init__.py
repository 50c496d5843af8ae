"""A pytest plugin that gates LLM inference on latency, throughput, energy and bandwidth utilisation.

The names below are handed on lazily: every pytest session of every user imports this package, few use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmperf.workload import Distribution, Workload

__all__ = ["Distribution", "Workload", "__version__"]

_HOMES = {"Distribution": "pytest_llmperf.workload", "Workload": "pytest_llmperf.workload"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("pytest-llmperf")
        except PackageNotFoundError:  # run from a checkout that was never installed
            return "unknown"
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
