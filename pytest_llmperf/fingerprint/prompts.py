"""The prompts whose answers are compared: fixed token ids, the same for every run of one vocabulary."""

from __future__ import annotations

import random
from collections.abc import Set

__all__ = ["OUTPUT_LEN", "PROMPT_LENS", "fixed_prompts"]

#: Tokens of each prompt. Short ones are one step of an engine, long ones are cut into chunks by a small token budget.
PROMPT_LENS = (4, 8, 12, 16, 32, 64, 96, 128)
#: Tokens of each answer.
OUTPUT_LEN = 24
#: Another seed makes other prompts, and every stored fingerprint worthless.
_SEED = 20240229


def fixed_prompts(
    vocab_size: int, special: Set[int] = frozenset(), *, longest: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """The prompts for one vocabulary.

    They do not depend on the test, the run or the machine. Each is random ordinary tokens: no text is at hand without a
    tokenizer, and what a model makes of noise depends on its weights as much as what it makes of text.

    Args:
        vocab_size: Token ids run from 0 to below this.
        special: Ids that no text holds.
        longest: The longest sequence that the model serves, in tokens; prompts that do not fit with their answer are
            left out.

    Returns:
        The token ids prompt by prompt, shortest first; none where no prompt fits or the vocabulary has no ordinary id.
    """
    ordinary = [token for token in range(vocab_size) if token not in special]
    if not ordinary:
        return ()
    return tuple(
        # A source of its own for each prompt: leaving one out changes no other.
        tuple(random.Random(f"{_SEED}/{length}").choices(ordinary, k=length))
        for length in PROMPT_LENS
        if longest is None or length + OUTPUT_LEN <= longest
    )
