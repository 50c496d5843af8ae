"""What is scheduled: sequences, and the steps that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .blocks import BlockTable

__all__ = ["Sequence", "State", "Step"]


class State(Enum):
    """Where a sequence is: not added yet, in the queue, admitted, or finished or aborted."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(eq=False, slots=True)
class Sequence:
    """One request, as the scheduler sees it.

    Attributes:
        prompt: Token ids. Prefix caching compares them; otherwise only their number matters.
        output_len: How many tokens it generates, at least 1.
        data: The owner's own; the scheduler never looks at it.
        computed: Tokens whose keys and values are in the cache, or will be once the steps under way are done.
        generated: Output tokens of completed steps.
        preemptions: How often it was preempted.
        cached: Prompt tokens found in the prefix cache at its first admission.
        state: Where it is.
        table: Its KV blocks.
        end: Tokens of prompt and output together.
        goal: Tokens that exist, counting those that steps under way will generate.
        prefilled_at: From so many computed tokens on it decodes.

    All but the prompt, the output length and the data are kept by the scheduler.
    """

    prompt: tuple[int, ...]
    output_len: int
    data: Any = None
    computed: int = field(default=0, init=False)
    generated: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    cached: int = field(default=0, init=False)
    state: State = field(default=State.NEW, init=False, repr=False)
    table: BlockTable = field(init=False, repr=False)
    end: int = field(default=0, init=False, repr=False)
    goal: int = field(default=0, init=False, repr=False)
    prefilled_at: int = field(default=0, init=False, repr=False)

    @property
    def known(self) -> int:
        """Tokens whose ids are known: the prompt and the output of completed steps."""
        return len(self.prompt) + self.generated

    @property
    def under_way(self) -> int:
        """Output tokens that scheduled steps will generate."""
        return self.goal - len(self.prompt) - self.generated


@dataclass(eq=False, slots=True)
class Step:
    """What one step computes.

    Attributes:
        prefills: Sequences of which prompt tokens are computed, or known tokens again after a preemption: the sequence,
            how many of its tokens were computed before (or found in the prefix cache), how many are in this step.
        decodes: Sequences of which one token, generated before, is computed.
        sampled: Sequences that get an output token at the end of the step, in the order of scheduling. Completing the
            step takes out those that were aborted meanwhile.
        preempted: Sequences that were preempted while the step was scheduled, first one first.
    """

    prefills: list[tuple[Sequence, int, int]] = field(default_factory=list)
    decodes: list[Sequence] = field(default_factory=list)
    sampled: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
