"""The stored baselines beside a run."""

from __future__ import annotations

from pydantic import Field

from pytest_llmperf.results.base import Model

__all__ = ["BaselinesRecord", "StaleBaseline"]


class StaleBaseline(Model):
    """A stored baseline with which no test compares any more."""

    test: str
    path: str = Field(description="relative to the rootdir where it lies in it")


class BaselinesRecord(Model):
    """The stored baselines of the hardware, models and clocks that a gating run has used."""

    stale: list[StaleBaseline]
    missing: list[str] = Field(description="tests that were to be gated and have none")
    not_run: int = Field(description="stored for tests that were deselected, skipped or not selected")
