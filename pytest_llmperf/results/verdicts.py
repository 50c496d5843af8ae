"""How the values were judged."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number, Verdict

__all__ = ["AdvisoryRecord", "GateRecord", "NoiseRecord", "VerdictRecord"]


class NoiseRecord(Model):
    """Relative standard deviations between launches of one thing, and what they are known from."""

    sd: Number = Field(description="the one that was used")
    df: Number = Field(description="its degrees of freedom")
    own_sd: Number | None = Field(description="of this test's launches; null when there are too few")
    own_df: Number
    pooled_sd: Number | None = Field(description="over the other tests of the group; null when there is no pool")
    pooled_df: Number
    tests: int = Field(description="how many tests the pool is made of")
    source: Literal["pooled", "own", "unknown"] = Field(description="unknown when the launches are too few for either")


class VerdictRecord(Model):
    """The gate's verdict on one metric. The fields of the statistics are null where nothing could be decided."""

    metric: str
    verdict: Verdict
    baseline: Number | None
    current: Number | None = Field(
        description="geometric mean of the launches on which the verdict stands, of each the median over its repeats; "
        "tables show it, and not the metric's value, beside the change"
    )
    change: Number | None = Field(description="current / baseline - 1")
    interval: tuple[Number, Number] | None = Field(description="the changes that the launches leave possible")
    tolerance: Number
    minimum_detectable: Number | None = Field(
        description="the smallest relative worsening that would have been called regressed with 80 % probability"
    )
    baseline_launches: list[list[Number]]
    alpha: Number | None = Field(
        description="chance of calling this comparison regressed when nothing changed, at most"
    )
    looks: int | None = Field(description="how many times the launches were looked at")
    reason: str | None
    against: Literal["baseline", "anchor"] = "baseline"
    launches: int = Field(default=0, description="of this run; 0 in files of versions that did not keep it")
    advice: str | None = Field(
        default=None, description="what would decide it, or that the tolerance is below the noise"
    )
    noise: NoiseRecord | None = None
    prediction: bool = Field(
        default=False, description="whether the interval is a prediction interval: one launch against several"
    )
    saved_at: str | None = Field(default=None, description="when what it was compared with was saved, if known")


class AdvisoryRecord(Model):
    """How a metric that gates nothing changed since the baseline."""

    metric: str
    baseline: Number
    current: Number
    change: Number = Field(description="current / baseline - 1; of medians, and noise is not told from it")


class GateRecord(Model):
    """How a run was judged."""

    gated: int = Field(description="comparisons that were to be made, counted at collection")
    family_alpha: Number = Field(description="chance of any regressed in a run in which nothing changed, at most")
    limit_alpha: Number = Field(
        default=0.2,
        description="chance of any regressed in a run all of whose metrics are just at their tolerances, at most",
    )
    pass_alpha: Number = Field(description="chance that a comparison beyond its tolerance passes")
    power: Number = Field(description="with which the minimum detectable changes are detected")
    looks: list[int] = Field(description="after how many launches a verdict can be drawn")
    launches: int = Field(description="the most launches that a test may take")
