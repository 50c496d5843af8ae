"""Which tokens of which sequences an engine computes next: vLLM's scheduler (v1), with the same decisions.

A step computes at most a budget of tokens. The running sequences come first, in the order of their admission: each asks
for all its tokens that are not computed yet, one while it decodes, the rest of its prompt before. If there is no free
block for them, the sequence admitted last is preempted: it gives up its blocks, goes to the front of the queue, and is
later computed again from the start, generated tokens included. What the budget leaves goes to waiting sequences, first
come, first served, unless the step preempted one. A waiting sequence is admitted only if the free blocks would hold all
its known tokens (``scheduler_reserve_full_isl``, on by default), though the first chunk may be smaller.

With asynchronous scheduling a step is scheduled before the tokens of the one before are known. A sequence that gets a
token from a step under way is scheduled as if it had that token; once all its output is under way, it is no longer
scheduled. A preempted sequence still receives the token of a step under way.

Source: ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py`` of vLLM 0.23 and 0.32, whose schedules are equal for
what is modelled here: no speculative decoding, no priorities, no watermark, no transfer of KV blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import EngineError
from .blocks import BlockPool, BlockTable

__all__ = ["Scheduler", "Sequence", "Step"]


class _State(Enum):
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
    """

    prompt: tuple[int, ...]
    output_len: int
    data: Any = None
    computed: int = field(default=0, init=False)
    generated: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    cached: int = field(default=0, init=False)
    _state: _State = field(default=_State.NEW, init=False, repr=False)
    _table: BlockTable = field(init=False, repr=False)
    _end: int = field(default=0, init=False, repr=False)  # tokens of prompt and output
    _goal: int = field(default=0, init=False, repr=False)  # tokens that exist, those of steps under way included
    _prefilled_at: int = field(default=0, init=False, repr=False)  # computed tokens from which on it decodes

    @property
    def _known(self) -> int:
        return len(self.prompt) + self.generated

    @property
    def _under_way(self) -> int:
        return self._goal - len(self.prompt) - self.generated


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


class Scheduler:
    """Decides what the engine computes next.

    Args:
        token_budget: Most tokens in a step (``max_num_batched_tokens``).
        max_sequences: Most sequences that run at a time (``max_num_seqs``).
        blocks: The KV cache. No other scheduler may use it.
        max_model_len: Most tokens of a prompt and its output together.
        chunked_prefill: Whether a prompt may be computed in several steps. If not, it waits until a step has room for
            all of it.
        async_scheduling: Whether a step is scheduled before the tokens of the one under way are known. One step may be
            under way while the next is scheduled; without it, none.

    Attributes:
        waiting: Sequences not admitted, next one first.
        running: Admitted sequences in the order in which they are scheduled.

    Raises:
        EngineError: The limits contradict each other.
    """

    def __init__(
        self,
        *,
        token_budget: int,
        max_sequences: int,
        blocks: BlockPool,
        max_model_len: int,
        chunked_prefill: bool = True,
        async_scheduling: bool = True,
    ) -> None:
        if token_budget < 1 or max_sequences < 1:
            raise EngineError(
                f"A scheduler with {token_budget} tokens a step and {max_sequences} sequences schedules nothing.",
                remedy="Set max_num_batched_tokens and max_num_seqs to at least 1.",
            )
        if not chunked_prefill and token_budget < max_model_len:
            raise EngineError(
                f"Without chunked prefill, a prompt of {max_model_len} tokens never fits {token_budget} tokens a step.",
                remedy=f"Set max_num_batched_tokens to at least {max_model_len}, or enable_chunked_prefill=true.",
            )
        self.token_budget = token_budget
        self.max_sequences = max_sequences
        self.blocks = blocks
        self.max_model_len = max_model_len
        self.chunked_prefill = chunked_prefill
        self.async_scheduling = async_scheduling
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._added = 0
        self._steps_under_way = 0
        self._preempted: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue.

        Raises:
            EngineError: It could never be computed: it is empty, generates nothing, is longer than the model allows, or
                needs more blocks than there are.
        """
        prompt_len = len(sequence.prompt)
        end = prompt_len + sequence.output_len
        if prompt_len < 1 or sequence.output_len < 1:
            raise EngineError(
                f"A sequence of {prompt_len} prompt tokens and {sequence.output_len} output tokens cannot be scheduled.",
                remedy="Give input_len and output_len of at least 1.",
            )
        if end > self.max_model_len:
            raise EngineError(
                f"{prompt_len} prompt tokens and {sequence.output_len} output tokens exceed the {self.max_model_len} "
                "tokens that the engine allows a sequence.",
                remedy="Shorten input_len or output_len, or raise max_model_len.",
            )
        # The last output token is never computed.
        if self.blocks.needed(end - 1) > self.blocks.count:
            raise EngineError(
                f"{prompt_len} prompt tokens and {sequence.output_len} output tokens need "
                f"{self.blocks.needed(end - 1)} KV blocks, and the engine has {self.blocks.count}.",
                remedy="Shorten input_len or output_len, raise gpu_memory_utilization, or use more GPUs.",
            )
        sequence._table = BlockTable(sequence.prompt, self._added)
        sequence._end = end
        sequence._goal = prompt_len
        sequence._state = _State.WAITING
        self._added += 1
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free its blocks; do nothing if it is unknown or has finished.

        A step under way may still compute it; it gets no token from it.
        """
        if sequence._state is _State.RUNNING:
            self.running.remove(sequence)
        elif sequence._state is _State.WAITING:
            self.waiting.remove(sequence)
        else:
            return
        self._free(sequence)

    def schedule(self) -> Step | None:
        """Decide on the next step and regard it as under way.

        Returns:
            The step, or None if nothing can be computed before a step under way is completed or a sequence is added.
            Sequences that such an attempt preempted are told with the step after.
        """
        step = Step(preempted=self._preempted)
        told_before = len(step.preempted)
        budget = self._schedule_running(step)
        if len(step.preempted) == told_before:
            self._admit(step, budget)
        if not step.prefills and not step.decodes:
            return None
        self._preempted = []
        self._steps_under_way += 1
        return step

    def complete(self, step: Step) -> list[Sequence]:
        """Give out the tokens of a step; steps are completed in the order in which they were scheduled.

        Returns:
            The sequences that finished with it. Their blocks are free.
        """
        self._steps_under_way -= 1
        asynchronous = self.async_scheduling
        filing = asynchronous and self.blocks.prefix_caching
        finished: list[Sequence] = []
        aborted = False
        for sequence in step.sampled:
            if sequence._state is _State.GONE:
                aborted = True
                continue
            sequence.generated += 1
            if not asynchronous:
                sequence._goal += 1
            elif filing and sequence._state is _State.RUNNING:
                self.blocks.file(sequence._table, sequence.computed - sequence._under_way)
            if sequence.generated == sequence.output_len:
                finished.append(sequence)
        if aborted:
            step.sampled = [sequence for sequence in step.sampled if sequence._state is not _State.GONE]
        if finished:
            self._finish(finished)
        return finished

    def steady(self) -> int:
        """How many further steps are sure to be alike.

        Returns:
            The number of next steps that compute exactly one token of each running sequence, while none is admitted,
            preempted or given its last token, if nothing arrives or is aborted; 0 when that is not sure.
        """
        running = self.running
        if not running or len(running) > self.token_budget:
            return 0
        # Each step under way must be such a step's like: it gives one token to every running sequence.
        under_way = self._steps_under_way
        if under_way and not self.async_scheduling:
            return 0
        steps = self.max_model_len
        for sequence in running:
            goal = sequence._goal
            if (
                goal - sequence.computed != 1
                or sequence.computed < sequence._prefilled_at
                or goal - len(sequence.prompt) - sequence.generated != under_way
            ):
                return 0
            steps = min(steps, sequence._end - 1 - goal)
        if steps <= 0 or self._queue_may_move():
            return 0
        return self._steps_with_room(steps)

    def skip(self, steps: int) -> None:
        """Regard so many steps as scheduled and completed, in the time of one.

        Args:
            steps: At most what `steady` returned, with nothing done in between. A step under way stays so: its tokens
                are those of the last step skipped.
        """
        if steps <= 0:
            return
        blocks = self.blocks
        if blocks.prefix_caching:
            self._extend_in_turn(steps)
        for sequence in self.running:
            sequence.computed += steps
            sequence.generated += steps
            sequence._goal += steps
            table = sequence._table
            if sequence.computed > table.room:
                blocks.extend(table, sequence.computed)
            blocks.file(table, sequence.computed - sequence._under_way)

    def _schedule_running(self, step: Step) -> int:
        """Schedule what the running sequences need, and return what is left of the budget."""
        running = self.running
        blocks = self.blocks
        filing = blocks.prefix_caching
        asynchronous = self.async_scheduling
        decodes, sampled = step.decodes, step.sampled
        budget = self.token_budget
        index = 0
        while budget and index < len(running):
            sequence = running[index]
            index += 1
            goal = sequence._goal
            before = sequence.computed
            tokens = goal - before
            if not tokens or goal == sequence._end:
                continue
            if tokens > budget:
                tokens = budget
            after = before + tokens
            if after > sequence._table.room and not self._make_room(sequence, after, step.preempted):
                break
            if filing:
                blocks.file(sequence._table, min(after, sequence._known))
            if before >= sequence._prefilled_at:
                decodes.append(sequence)
            else:
                step.prefills.append((sequence, before, tokens))
            sequence.computed = after
            if after == goal:
                sampled.append(sequence)
                if asynchronous:
                    sequence._goal = goal + 1
            budget -= tokens
        return budget

    def _make_room(self, sequence: Sequence, tokens: int, preempted: list[Sequence]) -> bool:
        """Preempt the last running sequences until this one has its blocks; False if it was itself the last."""
        while not self.blocks.extend(sequence._table, tokens):
            last = self.running.pop()
            self.blocks.release(last._table)
            last._state = _State.WAITING
            last.computed = 0
            last.preemptions += 1
            self.waiting.appendleft(last)
            preempted.append(last)
            if last is sequence:
                return False
        return True

    def _admit(self, step: Step, budget: int) -> None:
        """Admit waiting sequences while there is budget, a place and room."""
        blocks = self.blocks
        while self.waiting and budget and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            fitting = self._fitting(sequence, budget)
            if fitting is None:
                return
            tokens, found = fitting
            self.waiting.popleft()
            before = len(found) * blocks.block_size
            if blocks.prefix_caching and not sequence.preemptions:
                sequence.cached = before
                blocks.queries += len(sequence.prompt)
                blocks.hits += before
            blocks.adopt(sequence._table, found)
            blocks.extend(sequence._table, before + tokens)
            blocks.file(sequence._table, before + tokens)
            sequence._state = _State.RUNNING
            sequence._prefilled_at = sequence._known
            sequence.computed = before + tokens
            step.prefills.append((sequence, before, tokens))
            if sequence.computed == sequence._goal:
                step.sampled.append(sequence)
                if self.async_scheduling:
                    sequence._goal += 1
            self.running.append(sequence)
            budget -= tokens

    def _fitting(self, sequence: Sequence, budget: int) -> tuple[int, list[int]] | None:
        """The tokens of a waiting sequence that a step has room for, and its blocks in the prefix cache, or None."""
        known = sequence._known
        found = self.blocks.match(sequence._table, known)
        tokens = known - len(found) * self.blocks.block_size
        if tokens > budget:
            if not self.chunked_prefill:
                return None
            tokens = budget
        if self.blocks.needed(known) - len(found) + self.blocks.unheld(found) > self.blocks.free:
            return None
        return tokens, found

    def _finish(self, finished: list[Sequence]) -> None:
        preempted = False
        for sequence in finished:
            preempted |= sequence._state is _State.WAITING
            self._free(sequence)
        self.running[:] = [sequence for sequence in self.running if sequence._state is not _State.GONE]
        if preempted:
            self.waiting = deque(sequence for sequence in self.waiting if sequence._state is not _State.GONE)

    def _free(self, sequence: Sequence) -> None:
        sequence._state = _State.GONE
        self.blocks.release(sequence._table)

    def _queue_may_move(self) -> bool:
        """Whether a waiting sequence may be admitted, or receive a token, while the running ones all decode.

        What cannot be admitted now cannot be later: decoding frees no block and files none that another could share,
        and a block that leaves the prefix cache is also one that is no longer free.
        """
        for sequence in self.waiting:
            if not sequence.preemptions:
                break
            if sequence._under_way:
                return True
        budget = self.token_budget - len(self.running)
        if not self.waiting or not budget or len(self.running) >= self.max_sequences:
            return False
        return self._fitting(self.waiting[0], budget) is not None

    def _steps_with_room(self, steps: int) -> int:
        """How many of these steps the free blocks suffice for."""
        blocks = self.blocks

        def wanting(further: int) -> int:
            return sum(
                blocks.needed(sequence.computed + further - sequence._table.room)
                for sequence in self.running
                if sequence.computed + further > sequence._table.room
            )

        if wanting(steps) <= blocks.free:
            return steps
        return bisect_right(range(1, steps), blocks.free, key=wanting)

    def _extend_in_turn(self, steps: int) -> None:
        """Hand out the blocks of so many steps in the order in which the steps would."""
        turns: list[tuple[int, int]] = []
        for place, sequence in enumerate(self.running):
            first = sequence._table.room - sequence.computed + 1
            turns.extend((turn, place) for turn in range(first, steps + 1, self.blocks.block_size))
        for _, place in sorted(turns):
            table = self.running[place]._table
            self.blocks.extend(table, table.room + 1)
