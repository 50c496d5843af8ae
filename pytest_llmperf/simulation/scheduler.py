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

Source: ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py`` of vLLM 0.23 and 0.32, which decide alike on what
is modelled here: no speculative decoding, no priorities, no watermark, no transfer of KV blocks.
"""

from __future__ import annotations

from collections import deque

from ..errors import EngineError
from .blocks import BlockPool, BlockTable
from .sequences import Sequence, State, Step
from .steady import advance, steps_alike, steps_with_room

__all__ = ["Scheduler", "Sequence", "Step"]


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
                f"A sequence of {prompt_len} prompt and {sequence.output_len} output tokens cannot be scheduled.",
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
        sequence.table = BlockTable(sequence.prompt, self._added)
        sequence.end = end
        sequence.goal = prompt_len
        sequence.state = State.WAITING
        self._added += 1
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free its blocks; do nothing if it is unknown or has finished.

        A step under way may still compute it; it gets no token from it.
        """
        if sequence.state is State.RUNNING:
            self.running.remove(sequence)
        elif sequence.state is State.WAITING:
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
        gone = State.GONE
        for sequence in step.sampled:
            if sequence.state is gone:
                aborted = True
                continue
            sequence.generated = generated = sequence.generated + 1
            if not asynchronous:
                sequence.goal += 1
            elif filing and sequence.computed >= sequence.table.due:
                self.blocks.file(sequence.table, sequence.computed - sequence.under_way)
            if generated == sequence.output_len:
                finished.append(sequence)
        if aborted:
            step.sampled = [sequence for sequence in step.sampled if sequence.state is not State.GONE]
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
        if not running or len(running) > self.token_budget or (self._steps_under_way and not self.async_scheduling):
            return 0
        # The cheaper look first: without preempted ones it is one at the first in the queue.
        if not self.blocks.prefix_caching and self._queue_may_move():
            return 0
        steps = steps_alike(running, self._steps_under_way)
        if steps <= 0 or (self.blocks.prefix_caching and self._queue_may_move()):
            return 0
        return steps_with_room(running, self.blocks, steps)

    def skip(self, steps: int) -> None:
        """Regard so many steps as scheduled and completed, in the time of one.

        Args:
            steps: At most what `steady` returned, with nothing done in between. A step under way stays so: its tokens
                are those of the last step skipped.
        """
        if steps > 0:
            advance(self.running, self.blocks, steps)

    def _schedule_running(self, step: Step) -> int:
        """Schedule what the running sequences need, and return what is left of the budget."""
        running = self.running
        blocks = self.blocks
        filing = blocks.prefix_caching
        asynchronous = self.async_scheduling
        decodes, sampled = step.decodes, step.sampled
        budget = self.token_budget
        # What preemption takes out of the list is behind the place that has been reached.
        for sequence in running:
            goal = sequence.goal
            before = sequence.computed
            tokens = goal - before
            if not tokens or goal == sequence.end:
                continue
            if tokens > budget:
                if not budget:
                    break
                tokens = budget
            after = before + tokens
            table = sequence.table
            if after > table.room and not self._make_room(sequence, after, step.preempted):
                break
            if filing and after >= table.due:
                blocks.file(table, min(after, sequence.known))
            if before >= sequence.prefilled_at:
                decodes.append(sequence)
            else:
                step.prefills.append((sequence, before, tokens))
            sequence.computed = after
            if after == goal:
                sampled.append(sequence)
                if asynchronous:
                    sequence.goal = goal + 1
            budget -= tokens
        return budget

    def _make_room(self, sequence: Sequence, tokens: int, preempted: list[Sequence]) -> bool:
        """Preempt the last running sequences until this one has its blocks; False if it was itself the last."""
        while not self.blocks.extend(sequence.table, tokens):
            last = self.running.pop()
            self.blocks.release(last.table)
            last.state = State.WAITING
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
            blocks.adopt(sequence.table, found)
            blocks.extend(sequence.table, before + tokens)
            blocks.file(sequence.table, before + tokens)
            sequence.state = State.RUNNING
            sequence.prefilled_at = sequence.known
            sequence.computed = before + tokens
            step.prefills.append((sequence, before, tokens))
            if sequence.computed == sequence.goal:
                step.sampled.append(sequence)
                if self.async_scheduling:
                    sequence.goal += 1
            self.running.append(sequence)
            budget -= tokens

    def _fitting(self, sequence: Sequence, budget: int) -> tuple[int, list[int]] | None:
        """The tokens of a waiting sequence that a step has room for, and its blocks in the prefix cache, or None."""
        known = sequence.known
        found = self.blocks.match(sequence.table, known)
        tokens = known - len(found) * self.blocks.block_size
        if tokens > budget:
            if not self.chunked_prefill:
                return None
            tokens = budget
        if self.blocks.needed(known) - len(found) + self.blocks.unheld(found) > self.blocks.free:
            return None
        return tokens, found

    def _finish(self, finished: list[Sequence]) -> None:
        for sequence in finished:
            if sequence.state is State.WAITING:
                self.waiting.remove(sequence)
            self._free(sequence)
        self.running[:] = [sequence for sequence in self.running if sequence.state is not State.GONE]

    def _free(self, sequence: Sequence) -> None:
        sequence.state = State.GONE
        self.blocks.release(sequence.table)

    def _queue_may_move(self) -> bool:
        """Whether a waiting sequence may be admitted, or receive a token, while the running ones all decode.

        What cannot be admitted now cannot be later: decoding frees no block and files none that another could share,
        and a block that leaves the prefix cache is also one that is no longer free.
        """
        for sequence in self.waiting:
            if not sequence.preemptions:
                break
            if sequence.under_way:
                return True
        budget = self.token_budget - len(self.running)
        if not self.waiting or not budget or len(self.running) >= self.max_sequences:
            return False
        return self._fitting(self.waiting[0], budget) is not None
