"""Answers as engines give them: token ids with their log-probabilities, or why there are none."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Answer", "Outputs", "Unavailable"]

#: Stands for a log-probability that is no finite number (of a token ruled out, or of a model that computes NaN); JSON
#: knows none, and vLLM's server writes this.
_NO_PROBABILITY = -9999.0


@dataclass(frozen=True)
class Answer:
    """The greedy answer to one prompt.

    Attributes:
        tokens: The generated token ids.
        logprobs: The natural logarithm of each one's probability, given everything before it.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, tokens: Iterable[int], logprobs: Iterable[float]) -> Answer:
        """An answer whose log-probabilities are finite: one that is not becomes -9999.

        Raises:
            ValueError: there are not as many log-probabilities as tokens.
        """
        finite = (float(p) if math.isfinite(p) else _NO_PROBABILITY for p in logprobs)
        return cls(*_of_one_length(tuple(tokens), tuple(finite)))

    def packed(self) -> str:
        """``"198:-0.1234 260:-1.2000"``: one line of a baseline, which is reviewed like code."""
        return " ".join(f"{token}:{p:.4f}" for token, p in zip(self.tokens, self.logprobs, strict=True))

    @classmethod
    def unpacked(cls, text: str) -> Answer:
        """The answer that :meth:`packed` wrote, its log-probabilities at 4 decimals.

        Raises:
            ValueError: it did not write this.
        """
        pairs = [part.partition(":") for part in text.split()]
        answer = cls(tuple(int(token) for token, _, _ in pairs), tuple(float(p) for _, _, p in pairs))
        if any(token < 0 for token in answer.tokens) or not all(map(math.isfinite, answer.logprobs)):
            raise ValueError(f"no answer: {text[:40]!r}")
        return answer


def _of_one_length(tokens: tuple[int, ...], logprobs: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if len(tokens) != len(logprobs):
        raise ValueError(f"{len(tokens)} tokens, and {len(logprobs)} log-probabilities")
    return tokens, logprobs


@dataclass(frozen=True)
class Outputs:
    """What an engine answered to the fixed prompts.

    Attributes:
        prompts: Digest of what was asked: the prompts, how long the answers were to be, and in which form they were
            asked for. Answers to other prompts tell nothing of each other.
        answers: Prompt by prompt.
    """

    prompts: str
    answers: tuple[Answer, ...]

    @property
    def tokens(self) -> int:
        """Of all answers together."""
        return sum(len(answer.tokens) for answer in self.answers)

    @staticmethod
    def digest(prompts: Sequence[Sequence[int]], length: int, form: str) -> str:
        """12 hex digits of what is asked.

        Args:
            prompts: Their token ids.
            length: Tokens of each answer.
            form: ``"tokens"`` where the model sees exactly these, else what becomes of them on the way.
        """
        asked = json.dumps([[list(prompt) for prompt in prompts], length, form])
        return hashlib.sha256(asked.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Unavailable:
    """Why there are no outputs.

    Attributes:
        reason: A clause, such as ``"dummy weights answer nothing"``.
        failed: Whether it was tried and went wrong; otherwise there is nothing to try.
    """

    reason: str
    failed: bool = False
