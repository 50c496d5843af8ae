"""The steps of a load: which requests decoded at once, what a step of them asks of the hardware, how long it took.

A static batch has two phases: prefill until every request has its first token, then decode. In any other load prefills
and decodes overlap, and only the decode's mean step can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.metrics.latency import ONE_TOKEN, request_tpot
from pytest_llmperf.metrics.types import Context, Missing, sampled
from pytest_llmperf.trace import RepeatTrace

__all__ = ["KEPT", "OVERLAP", "Step", "decode_step", "is_single_batch", "mean_running", "prefill_step", "prefilled_ns"]

#: Why nothing is said of prefills whose tokens are not all computed.
KEPT = "requests share a prefix that the engine keeps, and how much of each prompt it computes is not told"
#: Why nothing is said of prefills that cannot be told apart.
OVERLAP = "prefills of a load that is no single batch overlap in unknown ways"


def mean_running(repeat: RepeatTrace) -> float:
    """Sequences that decoded at once, as a mean over the time in which any did; 0 when none did.

    For a single batch that decoded together that is its size; otherwise, and for one of which a part had to wait until
    others had ended, it is counted from the spans between first and last tokens.
    """
    done = [r for r in repeat.completed if r.last_ns > r.first_ns]
    if not done:
        return 0.0
    if is_single_batch(repeat) and max(r.first_ns for r in done) < min(r.last_ns for r in done):
        return float(len(done))
    spans = sorted((r.first_ns, r.last_ns) for r in done)
    busy, end = 0, spans[0][0]
    for first, last in spans:
        busy += max(0, last - max(first, end))
        end = max(end, last)
    return sum(last - first for first, last in spans) / busy


def is_single_batch(repeat: RepeatTrace) -> bool:
    """Whether all its requests were due at once, and nothing was due before they had ended."""
    return repeat.loop == "batch" and len({r.due_ns for r in repeat.requests}) == 1


def prefilled_ns(repeat: RepeatTrace) -> int | None:
    """When every request of a single batch had its first token; ``None`` where some waited until others had ended."""
    done = repeat.completed
    if not done:
        return None
    first = max(r.first_ns for r in done)
    ended = min((r.last_ns for r in done if r.last_ns > r.first_ns), default=first)
    return first if first <= ended else None


@dataclass(frozen=True)
class Step:
    """What one phase asks of the hardware, and how long it took.

    Attributes:
        batch: Sequences in it.
        flops: Of the model.
        weight_bytes: Of the weights that it reads.
        kv_bytes: Of the KV cache that a decode reads, or a prefill writes; all sequences together.
        seconds: That it took.
    """

    batch: float
    flops: float
    weight_bytes: float
    kv_bytes: float
    seconds: float


def decode_step(repeat: RepeatTrace, context: Context) -> Step | Missing:
    """One token of every running sequence: a step of TPOT, with caches and FLOPs as a mean over the decode.

    Weights are those of MBU's definition: all that are kept, the input table included.
    """
    model, roof = context.roof.architecture, context.roof
    tpot = sampled((request_tpot(r) for r in repeat.completed), ONE_TOKEN)
    # One output token is the better reason: it holds on every machine.
    if isinstance(tpot, Missing):
        return tpot
    if model is None:
        return Missing(roof.why_no_model)

    @cache
    def mean_cache(prompt: int, output: int) -> float:
        return model.mean_kv_bytes(prompt, prompt + output, roof.kv_dtype, tensor_parallel=roof.gpus)

    @cache
    def mean_flops(prompt: int, output: int) -> float:
        return model.mean_flops_per_token(prompt, prompt + output)

    batch, done = mean_running(repeat), repeat.completed
    cached = sum(mean_cache(r.input_tokens, r.output_tokens) for r in done)
    flops = sum(mean_flops(r.input_tokens, r.output_tokens) for r in done)
    return Step(batch, batch * flops / len(done), model.mbu_weight_bytes(batch), batch * cached / len(done), tpot.value)


def prefill_step(repeat: RepeatTrace, context: Context) -> Step | Missing:
    """All prompts of a single batch, from when they were due until the last first token.

    Weights that their tokens touch count once, as if the engine took all prompts in one step.
    """
    model, roof, done = context.roof.architecture, context.roof, repeat.completed
    if not is_single_batch(repeat):
        return Missing(OVERLAP)
    if len(done) < len(repeat.requests):
        return Missing("not all requests of the batch completed")
    if (prefilled := prefilled_ns(repeat)) is None:
        return Missing("a part of the batch waited until others had ended")
    if context.keeps_prefixes:
        return Missing(KEPT)
    if model is None:
        return Missing(roof.why_no_model)
    tokens = sum(r.input_tokens for r in done)
    if any(r.input_tokens < 1 for r in done) or prefilled <= done[0].due_ns:
        return Missing("how many tokens a prompt has is not known")
    prefill_flops = cache(model.prefill_flops)
    cached = cache(lambda prompt: model.kv_bytes(prompt, roof.kv_dtype, tensor_parallel=roof.gpus))
    return Step(
        len(done),
        sum(prefill_flops(r.input_tokens) for r in done),
        model.decode_weight_bytes(tokens),
        sum(cached(r.input_tokens) for r in done),
        (prefilled - done[0].due_ns) / NS_PER_S,
    )
