"""What the boards did: their clocks and their energy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["BoardEnergy", "ClockRecord", "EnergyRecord", "MemoryClock", "NamedBoardEnergy", "ObservedClock"]


class ObservedClock(Model):
    """A clock during the measurement, while the board was busy, MHz."""

    min: Number
    median: Number
    max: Number


class MemoryClock(Model):
    """The memory clock that was asked for and the one that was there, MHz."""

    requested: Number
    locked: Number
    observed: ObservedClock | None


class ClockRecord(Model):
    """The SM clock that was asked for and the one that was there."""

    requested_mhz: Number | None = None
    locked_mhz: Number | None = None
    observed_mhz: ObservedClock | None = None
    throttled_fraction: Number | None = None
    memory_mhz: MemoryClock | None = Field(default=None, description="null when the memory clock ran free")


class BoardEnergy(Model):
    """Joules of one or all boards from a launch's first due request to its last token."""

    joules: Number | None
    error: Number | None = Field(description="standard uncertainty, of the window's ends; not of the sensor's gain")
    source: Literal["counter", "integral", "mixed"] | None
    power: Number | None = Field(description="mean, watts")
    integral_power: Number | None = Field(description="mean of the power readings over the whole window, watts")
    reason: str | None = Field(description="why there are no joules")


class NamedBoardEnergy(BoardEnergy):
    """Those of one board."""

    uuid: str


class EnergyRecord(BoardEnergy):
    """The energy of one launch: one window over all its repeats."""

    seconds: Number = Field(description="from the first due request to the last token")
    busy: Number = Field(description="share of it that lies within the repeats")
    repeats: int
    idle_power: Number | None = Field(description="watts with the model loaded at the clock in force")
    idle_reason: str | None
    boards: list[NamedBoardEnergy]
