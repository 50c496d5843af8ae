"""What the engine answered, beside the baseline."""

from __future__ import annotations

from pydantic import Field

from pytest_llmperf.results.base import Model, Number

__all__ = ["Divergence", "Outputs"]


class Divergence(Model):
    """Where two answers to one prompt part; both counted from 1."""

    prompt: int
    token: int


class Outputs(Model):
    """Greedy answers to fixed prompts beside the baseline's."""

    prompts: int | None = Field(description="that were answered; null when none was")
    tokens: int | None = Field(description="of all answers")
    compared_tokens: int | None = Field(description="of each answer all, or those before it parts at a tie")
    ties: int | None = Field(description="answers that part where neither engine prefers a token")
    token_agreement: Number | None = Field(description="share of the compared tokens before a first difference")
    logprob_difference: Number | None = Field(description="mean absolute difference where the context is the same, nat")
    first_difference: Divergence | None = Field(description="the earliest token at which answers part")
    worst_prompt: int | None = Field(description="whose answers agree least, from 1")
    reason: str | None = Field(description="why nothing was compared")
