"""What a run's tests say together: a table, what it comes to in sentences, and what a chart of it marks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["Column", "Finding", "FindingKind", "Mark"]

#: Each is one question of the suite, and has one chart or a small set of them.
FindingKind = Literal[
    "phases",
    "batch_and_clock",
    "sweet_spot",
    "idle",
    "latency_throughput",
    "lengths",
    "scaling",
    "model_size",
    "batching_policies",
    "formats",
    "hardware",
    "roofline",
    "kv_cache",
    "energy_split",
]


class Column(Model):
    """What one column of a finding's table holds."""

    name: str = Field(description="by which charts refer to it: a metric's name, or an axis such as batch")
    title: str
    unit: str | None = Field(description="as metrics have it; null for text and counts")


class Mark(Model):
    """A place that a chart points out, such as the clock of most tokens per joule."""

    name: str = Field(description="what it is, such as optimum, knee, predicted, limit")
    label: str = Field(description="beside it in a chart, in a few words")
    x: Number | None = Field(description="its place on the axis of the table's first number; null for none")
    y: Number | None
    low: Number | None = Field(description="the lower end of the interval of x; null for none")
    high: Number | None


class Finding(Model):
    """One question that several tests of the run answer together."""

    kind: FindingKind
    name: str = Field(description="tells findings of one kind apart, and is the anchor of a link: decode-batch-16")
    title: str = Field(description="of the section: what, on which load")
    sentences: list[str] = Field(description="the answer first; then what it rests on and what limits it")
    columns: list[Column]
    rows: list[list[Number | str | None]] = Field(description="each as long as the columns")
    marks: list[Mark]
    tests: list[str] = Field(description="from which it was made, by id")
