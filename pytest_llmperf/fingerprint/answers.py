"""Answers as engines give them: token ids with their log-probabilities, or why there are none."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Answer", "Outputs", "Unavailable"]

#: Stands for a log-probability that is no finite number (of a token ruled out, or of a model that computes NaN); JSON
#: knows none, and vLLM's server writes this.
_NO_PROBABILITY = -9999.0
_PACKED = re.compile(r"([0-9]{1,12}):(-?[0-9]{1,9}\.[0-9]{4})(?::([0-9]{1,9}\.[0-9]{4}))?")


@dataclass(frozen=True)
class Answer:
    """The greedy answer to one prompt.

    Attributes:
        tokens: The generated token ids.
        logprobs: The natural logarithm of each one's probability, given everything before it.
        margins: By how much that is above the runner-up's, nat; ``None`` where the engine did not tell.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.logprobs) == len(self.margins):
            counts = (len(self.tokens), len(self.logprobs), len(self.margins))
            raise ValueError("{} tokens, {} log-probabilities and {} of runners-up".format(*counts))

    @classmethod
    def of(cls, tokens: Iterable[int], logprobs: Iterable[float], best: Iterable[Sequence[float]]) -> Answer:
        """An answer as engines tell it.

        Args:
            tokens: The token ids.
            logprobs: Of each token; one that is no finite number becomes -9999.
            best: The log-probabilities of the likeliest tokens at each position, in any order; fewer than two tell no
                runner-up.

        Raises:
            ValueError: they are not equally many.
        """
        finite = (float(p) if math.isfinite(p) else _NO_PROBABILITY for p in logprobs)
        return cls(tuple(tokens), tuple(finite), tuple(map(_margin, best)))

    def packed(self) -> str:
        """``"198:-0.1234:2.5000 260:-1.2000"``: one line of a baseline, which is reviewed like code."""
        parts = zip(self.tokens, self.logprobs, self.margins, strict=True)
        return " ".join(f"{token}:{p:.4f}" + ("" if m is None else f":{m:.4f}") for token, p, m in parts)

    @classmethod
    def unpacked(cls, text: str) -> Answer:
        """The answer that :meth:`packed` wrote, its log-probabilities at 4 decimals.

        Raises:
            ValueError: it did not write this.
        """
        found = [_PACKED.fullmatch(part) for part in text.split()]
        if any(part is None for part in found):
            raise ValueError(f"no answer: {text[:40]!r}")
        parts = [part.groups() for part in found if part is not None]
        return cls(
            tuple(int(token) for token, _, _ in parts),
            tuple(float(p) for _, p, _ in parts),
            tuple(None if margin is None else float(margin) for _, _, margin in parts),
        )


def _margin(best: Sequence[float]) -> float | None:
    first, second = sorted(best, reverse=True)[:2] if len(best) > 1 else (math.nan, math.nan)
    return first - second if math.isfinite(first - second) else None


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
