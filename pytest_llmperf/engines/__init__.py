"""The engine contract: open, prepare, carry, close; and what it answers to fixed prompts.

The runner decides what is sent and when; an engine carries such an offer out and stamps what comes back. An engine
lives on one event loop (the one of its clock), is opened once, and is closed by whoever opened it, always, also after
a failure.

An engine that hands its answers to this process one by one need only ``generate`` a single request: see
:class:`~pytest_llmperf.engines.streams.StreamingEngine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_llmperf.clock import Clock
from pytest_llmperf.engines.account import Account
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.trace import EngineStamps, RequestTrace

__all__ = ["Chunk", "Engine", "EngineInfo", "Offer", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for an engine.

    Attributes:
        request_id: Unique within the engine's life.
        prompt: Token ids.
        output_len: Exactly this many tokens are to be generated; an end-of-sequence token does not stop earlier.
        repeat_id: Which repeat of which test and launch it belongs to; equal for all requests of a repeat.
        sampling: Further sampling parameters by name; greedy without any.
    """

    request_id: str
    prompt: tuple[int, ...]
    output_len: int
    repeat_id: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """Requests, and the pace at which they are offered.

    Attributes:
        requests: In the order in which they are due.
        due_ns: When each is due, on the engine's clock, ascending; a time that is past means at once. ``None``: each
            is due at the moment of its submission.
        lanes: How many may be in flight; the next is submitted when one has ended. ``None``: any number. Only
            without ``due_ns``.
        read_timeout_ns: Nanoseconds without anything new on a submitted request after which it has failed.
    """

    requests: tuple[Request, ...]
    due_ns: tuple[int, ...] | None = None
    lanes: int | None = None
    read_timeout_ns: int = 120_000_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read from the engine brought.

    Attributes:
        received_ns: When, on the engine's clock.
        tokens: New output tokens in it; 0 for a chunk that only carries news.
        input_tokens: Prompt tokens as the engine counted them, once it says so.
        output_tokens: All output tokens so far as the server counted them, once it says so.
        stamps: The engine's own stamps, with the last chunk of an engine that tells them.
    """

    received_ns: int
    tokens: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    stamps: EngineStamps | None = None


@dataclass(frozen=True)
class EngineInfo:
    """What is running, as far as it matters for judging a measurement.

    Attributes:
        kind: ``"vllm"`` or ``"sim"``.
        version: The engine's version.
        device: What it runs on: a GPU's product name, or a CPU's.
        device_count: How many of them.
        simulated: Whether the times are made up.
        model: The model's name.
        model_digest: Of its config; ``None`` when the engine does not tell it.
        model_config: The model's config.json, for the arithmetic of bytes and FLOPs.
        dtype: Of the weights' computation, such as ``"bfloat16"``.
        quantization: Of the weights, or ``None``.
        kv_cache_dtype: Of the KV cache; ``"auto"`` follows ``dtype``.
        tensor_parallel_size: GPUs over which each layer is split.
        pipeline_parallel_size: GPUs over which the layers are spread.
        max_model_len: The longest sequence it serves, in tokens.
        vocab_size: Token ids run from 0 to below this.
        special_tokens: Ids that a prompt of ordinary text would not hold.
        args: All engine arguments in force.
        treatment: The ones of them that came from the command line: what is being tested.
        limits: What it came to by itself, as far as it tells, under vLLM's names: ``max_num_seqs`` and
            ``max_num_batched_tokens`` a step, and the KV cache's ``num_gpu_blocks`` of ``block_size`` tokens.
    """

    kind: str
    version: str
    device: str
    device_count: int
    simulated: bool
    model: str
    model_digest: str | None
    model_config: Mapping[str, Any] | None
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_model_len: int
    vocab_size: int
    special_tokens: frozenset[int]
    args: Mapping[str, Any]
    treatment: Mapping[str, Any]
    limits: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """Something that generates tokens."""

    @property
    def clock(self) -> Clock:
        """The clock of its time stamps, and of the event loop it lives on."""
        ...

    async def open(self) -> EngineInfo:
        """Start, and return what is running.

        Raises:
            EngineError: it did not start; the message holds the engine's own root cause.
        """
        ...

    async def prepare(self, requests: Sequence[Request], at_once: int | None) -> None:
        """Make ready for requests that are about to be offered: whatever would delay them once they are due.

        Args:
            requests: All of a repeat.
            at_once: How many will be in flight together; ``None`` when only the load can tell.
        """
        ...

    async def carry(self, offer: Offer) -> list[RequestTrace]:
        """Carry an offer out, and return what happened to each request, in the order of the offer.

        A request that failed is a trace with an error. Cancelling this leaves no request under way.

        Raises:
            EngineError: the engine died; at once, not when the next request is due.
        """
        ...

    def disturbances(self) -> list[str]:
        """What the engine did since the last call that no measurement should contain (compiling, capturing)."""
        ...

    async def open_account(self) -> None:
        """Begin the time that :meth:`close_account` tells of; what came before was warm-up."""
        ...

    async def close_account(self) -> Account:
        """What the engine's own books say about the time since :meth:`open_account`, where it keeps any."""
        ...

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Answer prompts greedily, one after the other, and tell each token with its log-probability.

        One at a time, because which requests share a step may change an answer. Never while an offer is carried.

        Args:
            prompts: Token ids.
            length: Exactly so many tokens of each answer, past an end-of-sequence token.

        Returns:
            The answers, or why there are none: the weights are dummies, or the engine does not tell.

        Raises:
            EngineError: the engine died.
        """
        ...

    async def close(self) -> None:
        """Stop, and leave no process and no memory behind; safe to call twice and after a failed open."""
        ...
