"""What the boards did over time in one launch, thinned to what a chart can show."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pytest_llmperf.results.base import Model, Number

__all__ = ["Capped", "PhaseSpan", "Timeline"]


class PhaseSpan(Model):
    """What the engine was about in a stretch of time; seconds from the first due request.

    Between two of them nothing was under way. Where repeats are many, neighbours are joined with what lies between.
    """

    phase: Literal["prefill", "decode", "load"] = Field(
        description="of a static batch prefill until every request has its first token, then decode; load where both "
        "overlap, or were joined"
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

    Lists are as long as ``seconds``; a number that could not be read is null. Readings are as sensors gave them, and
    may show a change as late as its period.
    """

    launch: int = Field(description="from 0")
    seconds: list[Number] = Field(
        description="when each stretch begins, from the first due request; it ends where the next begins; negative "
        "before that request"
    )
    end: Number | None = Field(default=None, description="when the last stretch ends")
    power: list[Number | None] = Field(
        description="of all boards together, watts; the mean of the stretch, by the power readings or, of a board "
        "without any, by its energy counter"
    )
    sm_clock: list[Number | None] = Field(description="of the slowest board, Hz; the lowest of the stretch")
    sm_activity: list[Number | None] | None = Field(
        description="share of the SMs that had work, mean over the boards and the stretch; null where a board does not "
        "tell"
    )
    capped: list[Capped] | None = Field(
        description="the longest, in the order of time; those a stretch apart are joined; null where a board does not "
        "tell"
    )
    capped_left_out: int = Field(default=0, description="shorter ones that are not among them")
    phases: list[PhaseSpan] = Field(description="in the order of time")
    reason: str | None = Field(default=None, description="why something of it is null")

    @model_validator(mode="after")
    def _check_lengths(self) -> Timeline:
        for name in ("power", "sm_clock", "sm_activity"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.seconds):
                raise ValueError(f"{name} has {len(values)} values for {len(self.seconds)} seconds")
        return self
