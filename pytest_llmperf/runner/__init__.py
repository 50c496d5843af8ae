"""The runner: warm up, offer the load, repeat; what happened comes back as traces."""

from __future__ import annotations

from pytest_llmperf.runner.clock import LaunchClock, judged
from pytest_llmperf.runner.energy import with_readings
from pytest_llmperf.runner.launch import Launch, joined, measure_launch
from pytest_llmperf.runner.search import RatePlan, RateSearch, Trial, search_rate

__all__ = [
    "Launch",
    "LaunchClock",
    "RatePlan",
    "RateSearch",
    "Trial",
    "joined",
    "judged",
    "measure_launch",
    "search_rate",
    "with_readings",
]
