"""What the boards did over time in one launch, thinned to what a chart can show."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["Capped", "PhaseSpan", "Timeline"]


class PhaseSpan(Model):
    """What the engine was about in a stretch of time; seconds from the first due request."""

    phase: Literal["prefill", "decode", "load"] = Field(
        description="of a static batch prefill until every request has its first token, then decode; load where both "
        "overlap"
    )
    start: Number
    end: Number


class Capped(Model):
    """A stretch of time in which something held the clock of a board down; seconds from the first due request."""

    start: Number
    end: Number
    reason: str = Field(description="as NVML names it, such as sw_power_cap")


class Timeline(Model):
    """The boards of one launch together, reading by reading or, where there are many, stretch by stretch.

    Lists are as long as ``seconds``; a number that could not be read is null.
    """

    launch: int = Field(description="from 0")
    seconds: list[Number] = Field(description="from the first due request; negative before it")
    power: list[Number | None] = Field(description="of all boards together, watts; the mean of the stretch")
    sm_clock: list[Number | None] = Field(description="of the slowest board, Hz; the lowest of the stretch")
    sm_activity: list[Number | None] | None = Field(
        description="share of the SMs that had work, mean over the boards; null where no board tells"
    )
    capped: list[Capped]
    phases: list[PhaseSpan]
