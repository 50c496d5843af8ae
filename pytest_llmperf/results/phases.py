"""What the tokens of either phase cost."""

from __future__ import annotations

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["PhaseRegression", "PhaseWindow", "Phases"]


class PhaseWindow(Model):
    """One shape of request and what it took."""

    input_len: int
    output_len: int
    joules: Number = Field(description="a request")
    error: Number = Field(description="its standard uncertainty")


class PhaseRegression(Model):
    """E = fixed + prefill_jpt x prompt tokens + decode_jpt x (output tokens - 1); with standard uncertainties."""

    fixed: Number
    prefill_jpt: Number
    decode_jpt: Number
    fixed_error: Number
    prefill_error: Number
    decode_error: Number
    worst: Number = Field(description="largest relative distance of a window to the plane")


class Phases(Model):
    """The windows of one launch, and the regression over them."""

    windows: list[PhaseWindow]
    regression: PhaseRegression | None
    reason: str | None = Field(description="why there is no regression")
