"""Whether an engine still answers what it did: its answers taken once, compared with the baseline's, and judged.

No statistics: the answers of one engine to one prompt do not scatter as times do, and two thresholds decide.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.errors import LlmperfError
from pytest_llmperf.fingerprint import (
    OUTPUT_LEN,
    TOKEN_AGREEMENT,
    Agreement,
    Outputs,
    Unavailable,
    compare,
    fixed_prompts,
)
from pytest_llmperf.gate import Comparison

__all__ = ["Judged", "judge", "take"]


def take(running: RunningEngine, *, timeout: float) -> Outputs | Unavailable:
    """The engine's answers to the fixed prompts of its vocabulary.

    Whatever goes wrong becomes a reason: the measurement goes on without them. Afterwards the engine may have to be
    started again, which :attr:`RunningEngine.interrupted` tells.

    Args:
        running: The engine, with nothing under way.
        timeout: Seconds after which it is not waited for any longer.
    """
    info = running.info
    prompts = fixed_prompts(info.vocab_size, info.special_tokens, longest=info.max_model_len)
    if not prompts:
        return Unavailable(f"no fixed prompt fits into a sequence of {info.max_model_len} tokens")

    async def ask() -> Outputs | Unavailable:
        try:
            async with asyncio.timeout(timeout):
                return await running.engine.outputs(prompts, OUTPUT_LEN)
        except TimeoutError:
            return Unavailable(f"they did not come within {timeout:g} s", failed=True)

    try:
        return running.run(ask())
    except LlmperfError as error:
        return Unavailable(str(error).rstrip("."), failed=True)
    except Exception as error:  # an engine's library may raise anything
        return Unavailable(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", failed=True)


@dataclass(frozen=True)
class Judged:
    """What the comparison of the answers came to.

    Attributes:
        comparisons: A verdict for each of the two figures.
        agreement: The figures; ``None`` when nothing was compared.
        reason: Why nothing was compared, or ``None``.
        warnings: What a reader should know, in sentences.
    """

    comparisons: tuple[Comparison, ...]
    agreement: Agreement | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def judge(
    tolerances: Mapping[str, float], baseline: Outputs | None, current: Outputs | Unavailable, *, absent: str
) -> Judged:
    """The verdicts on a run's answers.

    Args:
        tolerances: Of ``token_agreement`` (the share of tokens that may disagree) and of ``logprob_difference`` (nat).
        baseline: The stored answers, if there are any.
        current: The run's, or why it has none.
        absent: Why there is no ``baseline``.
    """
    if isinstance(current, Unavailable):
        return _not_compared(tolerances, current.reason, lost=baseline is not None)
    if baseline is None:
        return _not_compared(tolerances, absent, lost=False)
    if baseline.prompts != current.prompts:
        return _not_compared(tolerances, "the baseline holds answers to other prompts", lost=True)
    found = compare(baseline, current)
    return Judged(tuple(_verdict(name, tolerance, found) for name, tolerance in tolerances.items()), found)


def _not_compared(tolerances: Mapping[str, float], reason: str, *, lost: bool) -> Judged:
    """``lost``: the baseline holds answers, and a reader may believe that they were compared."""
    warnings = (f"The answers were not compared with the baseline's: {reason}.",) if lost else ()
    verdicts = (Comparison(name, "not-applicable", tolerance, reason=reason) for name, tolerance in tolerances.items())
    return Judged(tuple(verdicts), None, reason, warnings)


def _verdict(name: str, tolerance: float, found: Agreement) -> Comparison:
    if name == TOKEN_AGREEMENT:
        share = found.token_agreement
        if share is None:
            return Comparison(name, "not-applicable", tolerance, reason="every answer parts at a tie, or is empty")
        # A last bit of the division must not decide at the threshold.
        fine = share >= 1 - tolerance - 1e-9
        return Comparison(
            name, "pass" if fine else "regressed", tolerance, baseline=1.0, current=share,
            reason=None if fine else _tokens_differ(share, found, tolerance),
        )  # fmt: skip
    difference = found.logprob_difference
    if difference is None:
        return Comparison(name, "not-applicable", tolerance, reason="no answer holds a token")
    fine = difference <= tolerance
    return Comparison(
        name, "pass" if fine else "regressed", tolerance, baseline=0.0, current=difference,
        reason=None if fine else f"log-probabilities differ: by {difference:.3g} nat on average where the context is "
        f"the same (tolerance {tolerance:g} nat)",
    )  # fmt: skip


def _tokens_differ(share: float, found: Agreement, tolerance: float) -> str:
    where = found.first_difference
    first = f", first at token {where.token} of prompt {where.prompt}" if where is not None else ""
    return f"answers differ: {math.floor(share * 100)} % of the tokens agree (tolerance {tolerance * 100:g} %){first}"
