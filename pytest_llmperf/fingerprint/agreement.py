"""How far two sets of greedy answers agree.

Two greedy answers see the same context up to and including their first difference. After it each goes on from its own
token, and what they say there is no longer about the same thing, even where a token happens to be the same.

Whether a first difference means anything depends on how sure the engines were. Where the likeliest token leads the
runner-up by less than what rounding moves, the order of a sum decides, and two correct engines part: such a tie tells
nothing, and neither does what follows it, so an answer is compared up to there. Any other difference is one, and all
tokens after it count as disagreeing with it.

Log-probabilities are compared at each position whose context is the same: those of the common beginning, and the one
where the answers part. There the two tokens differ, but each is the likeliest of its own engine, and the difference of
the two greatest log-probabilities is no more than the largest change of any token's.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_llmperf.fingerprint.answers import Answer, Outputs

__all__ = ["TIE", "Agreement", "Divergence", "compare"]

#: Nat; a lead of the likeliest token that is no larger, in both engines, is a tie.
TIE = 0.25


@dataclass(frozen=True)
class Divergence:
    """Where two answers part.

    Attributes:
        prompt: Which prompt's, from 1.
        token: At which token of the answer, from 1.
    """

    prompt: int
    token: int


@dataclass(frozen=True)
class Agreement:
    """How far the answers to the same prompts agree.

    Attributes:
        prompts: How many were compared.
        tokens: How many were compared, over all prompts: those of an answer up to where it parts at a tie, or all.
        ties: Answers that part at a tie.
        token_agreement: The share of the compared tokens that lies before the first difference of their answer;
            ``None`` where none could be compared.
        logprob_difference: Mean absolute difference of the log-probabilities where the context is the same, nat;
            ``None`` where no answer has a token.
        first_difference: The earliest token at which the answers to any prompt part without a tie; ``None``: none do.
        worst_prompt: The prompt, from 1, whose answers have the smallest share in common; among equals the one whose
            log-probabilities differ most.
    """

    prompts: int
    tokens: int
    ties: int
    token_agreement: float | None
    logprob_difference: float | None
    first_difference: Divergence | None
    worst_prompt: int


def compare(baseline: Outputs, current: Outputs) -> Agreement:
    """Compare a run's answers with the baseline's.

    Raises:
        ValueError: they are no answers to the same prompts.
    """
    if baseline.prompts != current.prompts or len(baseline.answers) != len(current.answers) or not current.answers:
        raise ValueError("answers to other prompts cannot be compared")
    pairs = [_Pair(*both) for both in zip(baseline.answers, current.answers, strict=True)]
    differences = [difference for pair in pairs for difference in pair.differences()]
    tokens = sum(pair.compared for pair in pairs)
    parting = [(pair.common, number) for number, pair in enumerate(pairs, 1) if pair.common < pair.compared]
    worst = min(range(len(pairs)), key=lambda i: (pairs[i].share, -statistics.fmean([0, *pairs[i].differences()])))
    return Agreement(
        prompts=len(pairs),
        tokens=tokens,
        ties=sum(pair.tied for pair in pairs),
        token_agreement=sum(pair.common for pair in pairs) / tokens if tokens else None,
        logprob_difference=statistics.fmean(differences) if differences else None,
        first_difference=Divergence(prompt=min(parting)[1], token=min(parting)[0] + 1) if parting else None,
        worst_prompt=worst + 1,
    )


@dataclass(frozen=True)
class _Pair:
    """Two answers to one prompt."""

    one: Answer
    other: Answer

    @property
    def common(self) -> int:
        """Tokens before the first difference."""
        equal = (a == b for a, b in zip(self.one.tokens, self.other.tokens, strict=False))
        return sum(1 for _ in itertools.takewhile(bool, equal))

    @property
    def tied(self) -> bool:
        """Whether both engines could as well have taken another token where they part."""
        place = self.common
        if place >= min(len(self.one.tokens), len(self.other.tokens)):
            return False
        margins = (self.one.margins[place], self.other.margins[place])
        return all(margin is not None and margin <= TIE for margin in margins)

    @property
    def compared(self) -> int:
        return self.common if self.tied else max(len(self.one.tokens), len(self.other.tokens))

    @property
    def share(self) -> float:
        return self.common / self.compared if self.compared else 1.0

    def differences(self) -> Iterator[float]:
        """Of the log-probabilities in equal contexts: the common beginning, and where the answers part."""
        pairs = zip(self.one.logprobs, self.other.logprobs, strict=False)
        return (abs(a - b) for a, b in itertools.islice(pairs, self.common + 1))
