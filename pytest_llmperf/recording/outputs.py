"""What the engine answered to fixed prompts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pytest_llmperf.fingerprint import Agreement, Outputs, Unavailable
from pytest_llmperf.measurement import BaseMeasurement

__all__ = ["outputs_record"]


def outputs_record(
    measurement: BaseMeasurement, agreement: Agreement | None = None, reason: str | None = None
) -> dict[str, Any] | None:
    """What the record says of the answers to fixed prompts; ``None`` when they were not asked for.

    Args:
        measurement: Holds them, or why there are none.
        agreement: With the baseline's; ``None`` when they were not compared.
        reason: Why they were not.
    """
    outputs = measurement.outputs
    if outputs is None:
        return None
    first = None if agreement is None else agreement.first_difference
    if agreement is None and reason is None:
        reason = outputs.reason if isinstance(outputs, Unavailable) else "nothing was gated"
    return {
        "prompts": len(outputs.answers) if isinstance(outputs, Outputs) else None,
        "tokens": outputs.tokens if isinstance(outputs, Outputs) else None,
        "compared_tokens": agreement and agreement.tokens,
        "ties": agreement and agreement.ties,
        "token_agreement": agreement and agreement.token_agreement,
        "logprob_difference": agreement and agreement.logprob_difference,
        "first_difference": None if first is None else asdict(first),
        "worst_prompt": agreement and agreement.worst_prompt,
        "reason": reason,
    }
