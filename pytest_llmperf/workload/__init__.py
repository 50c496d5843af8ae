"""What to send and when: a frozen, validated description without any model or engine in it."""

from __future__ import annotations

from pytest_llmperf.workload.lengths import Distribution
from pytest_llmperf.workload.replay import TraceRequest
from pytest_llmperf.workload.workload import ARRIVALS, POLICIES, SLO_METRICS, Workload

__all__ = ["ARRIVALS", "POLICIES", "SLO_METRICS", "Distribution", "TraceRequest", "Workload"]
