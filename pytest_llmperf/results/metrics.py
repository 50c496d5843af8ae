"""The values of metrics, and what they mean."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["ConditionRecord", "Definition", "MetricValue", "Percentiles"]


class Percentiles(Model):
    """Over every request of every launch."""

    p50: Number
    p90: Number
    p99: Number


class MetricValue(Model):
    """One metric of one test."""

    unit: str
    better: Literal["lower", "higher"]
    value: Number | None = Field(description="median over launches of the median over repeats")
    percentiles: Percentiles | None
    launches: list[list[Number]] = Field(
        description="the repeats' values launch by launch; of the boards' own figures one"
    )
    reason: str | None = Field(description="why there is no value")


class Definition(Model):
    """What a metric means."""

    unit: str
    better: Literal["lower", "higher"]
    formula: str
    source: str = Field(description="what its inputs are read from")


class ConditionRecord(Model):
    """What was so while the test was measured, and while its baseline was; it gates nothing."""

    unit: str
    launches: list[Number] = Field(description="one number a launch")
    value: Number | None = Field(description="median over the launches")
    baseline: Number | None = Field(description="the baseline's, likewise; null where it holds none")
    baseline_launches: list[Number]
    reason: str | None = Field(description="why there is no value")
