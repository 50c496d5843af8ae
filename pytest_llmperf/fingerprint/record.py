"""Answers as a baseline keeps them. Apart from the others: importing it imports pydantic."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pytest_llmperf.fingerprint.answers import Answer, Outputs

__all__ = ["OutputsRecord"]


class OutputsRecord(BaseModel):
    """What an engine answered, one line a prompt.

    Attributes:
        prompts: Digest of what was asked.
        answers: ``"198:-0.1234:2.5000"`` for each token: its id, its log-probability, and by how much that is above the
            runner-up's, where it was told.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompts: str
    answers: tuple[str, ...] = Field(strict=False, min_length=1)

    @field_validator("answers")
    @classmethod
    def _readable(cls, answers: tuple[str, ...]) -> tuple[str, ...]:
        for answer in answers:
            Answer.unpacked(answer)
        return answers

    @classmethod
    def of(cls, outputs: Outputs) -> OutputsRecord:
        """The form that is stored."""
        return cls(prompts=outputs.prompts, answers=tuple(answer.packed() for answer in outputs.answers))

    def outputs(self) -> Outputs:
        """The form that is compared."""
        return Outputs(self.prompts, tuple(map(Answer.unpacked, self.answers)))
