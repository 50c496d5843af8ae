"""What all parts of the record share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Model", "Number", "Verdict"]

Number = Annotated[float, Field(allow_inf_nan=False)]
Verdict = Literal[
    "pass",
    "regressed",
    "improved",
    "inconclusive",
    "no-baseline",
    "incomparable",
    "not-applicable",
    "invalid",
]


class Model(BaseModel):
    """What is in the file is fixed, and holds nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)
