"""The two figures of a comparison, as the registry of metrics says it of its own."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFINITIONS", "LOGPROB_DIFFERENCE", "TOKEN_AGREEMENT"]

TOKEN_AGREEMENT = "token_agreement"
LOGPROB_DIFFERENCE = "logprob_difference"
#: By name, for the record.
DEFINITIONS: Mapping[str, Mapping[str, str]] = {
    TOKEN_AGREEMENT: {
        "unit": "1",
        "better": "higher",
        "formula": "tokens before the first difference of each two greedy answers / tokens of all answers, those that "
        "part at a tie up to there",
        "source": "answers to fixed prompts, the run's and the baseline's",
    },
    LOGPROB_DIFFERENCE: {
        "unit": "nat",
        "better": "lower",
        "formula": "mean of |log-probability now - in the baseline| over the tokens up to and including the first "
        "difference",
        "source": "answers to fixed prompts, the run's and the baseline's",
    },
}
