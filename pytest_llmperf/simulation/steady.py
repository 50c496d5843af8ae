"""Many steps at once, where each only computes one token of every running sequence.

A long output is hundreds of such steps. How many there will be follows from the lengths and the blocks alone, and so
does the state after them: it costs a look at every running sequence, however many steps there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from .blocks import BlockPool
from .sequences import Sequence

__all__ = ["advance", "steps_alike", "steps_with_room"]


def steps_alike(running: Iterable[Sequence], under_way: int) -> int:
    """How many steps give each of these sequences a token that is not its last.

    Args:
        running: The running sequences.
        under_way: How many steps are under way. Each must be like those to come, with a token for every sequence:
            its tokens are given out in their stead.

    Returns:
        The number of steps; 0 or less where a sequence does not decode, or the steps under way differ.
    """
    steps: int | None = None
    for sequence in running:
        goal = sequence.goal
        if (
            goal - sequence.computed != 1
            or sequence.computed < sequence.prefilled_at
            or goal - len(sequence.prompt) - sequence.generated != under_way
        ):
            return 0
        left = sequence.end - 1 - goal
        if steps is None or left < steps:
            if left <= 0:
                return 0
            steps = left
    return steps or 0


def steps_with_room(running: list[Sequence], blocks: BlockPool, steps: int) -> int:
    """How many of these steps the free blocks suffice for."""

    def wanted(further: int) -> int:
        return sum(blocks.needed(over) for each in running if (over := each.computed + further - each.table.room) > 0)

    if wanted(steps) <= blocks.free:
        return steps
    return bisect_right(range(1, steps), blocks.free, key=wanted)


def advance(running: list[Sequence], blocks: BlockPool, steps: int) -> None:
    """Give each of these sequences a token for each of so many steps, and the blocks that it needs for them."""
    filing = blocks.prefix_caching
    if filing:
        _extend_in_turn(running, blocks, steps)
    for sequence in running:
        sequence.computed = computed = sequence.computed + steps
        sequence.generated += steps
        sequence.goal += steps
        table = sequence.table
        if computed > table.room:
            blocks.extend(table, computed)
        if filing:
            blocks.file(table, computed - sequence.under_way)


def _extend_in_turn(running: list[Sequence], blocks: BlockPool, steps: int) -> None:
    """Hand out the blocks in the order in which the steps would: which ones leave the prefix cache depends on it."""
    turns: list[tuple[int, int]] = []
    for place, sequence in enumerate(running):
        first = sequence.table.room - sequence.computed + 1
        turns.extend((turn, place) for turn in range(first, steps + 1, blocks.block_size))
    for _, place in sorted(turns):
        table = running[place].table
        blocks.extend(table, table.room + 1)
