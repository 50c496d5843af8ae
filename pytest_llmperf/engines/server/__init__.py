"""vLLM's API server, started by the plugin: its command line, and its life from a free port to the last process."""

from __future__ import annotations

from pytest_llmperf.engines.server.command import command, environment
from pytest_llmperf.engines.server.process import ServerProcess
from pytest_llmperf.engines.server.server import VllmServer

__all__ = ["ServerProcess", "VllmServer", "command", "environment"]
