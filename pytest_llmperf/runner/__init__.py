"""The runner: warm up, offer the load, repeat; what happened comes back as traces."""

from __future__ import annotations

from pytest_llmperf.runner.launch import Launch, measure_launch

__all__ = ["Launch", "measure_launch"]
