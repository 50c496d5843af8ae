"""The KV cache as vLLM divides it: blocks of equally many tokens, shared by sequences that begin alike.

A sequence holds enough blocks for the tokens it has computed. With prefix caching a full block is filed under a key
that stands for its tokens and all those before it. It stays filed when its sequence gives it back, until the pool hands
it out again, so that a later sequence with the same beginning takes it over instead of computing it. Blocks are handed
out from the front of a queue: those never filed come first, then the ones that have been free longest. A sequence gives
its blocks back last one first, so that the beginnings, which others are likeliest to share, are kept longest.

The order is that of vLLM 0.32. In 0.23 blocks never filed queue up like the others, so that filed ones are handed out a
little earlier.

Every layer is treated as full attention. A sliding window or a hybrid cache lets vLLM give up blocks early or divide
the cache into groups; neither is modelled.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ..errors import EngineError

__all__ = ["BlockPool", "BlockTable"]


@dataclass(eq=False, slots=True)
class BlockTable:
    """The blocks that one sequence holds.

    Attributes:
        prompt: Token ids of the sequence's prompt.
        owner: A number that no other sequence has. It stands for the generated tokens, whose ids nobody knows: the
            blocks they are in match those of the same sequence only.
        room: How many tokens the blocks have room for.
        ids: The blocks in order of their tokens. Empty without prefix caching, where only their number matters.
        keys: What each full block is filed under, as far as it was needed.
        filed: How many of the blocks are filed already.
        due: With fewer tokens than these there is nothing to file.
    """

    prompt: tuple[int, ...]
    owner: int
    room: int = 0
    ids: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    filed: int = 0
    due: int = 0


class BlockPool:
    """All KV blocks of an engine.

    Args:
        count: Blocks that sequences can hold. vLLM sets one more aside, so this is its ``num_gpu_blocks`` less one.
        block_size: Tokens in a block.
        prefix_caching: Whether blocks with the same tokens are shared. Without it token ids are never looked at.

    Attributes:
        queries: Tokens of the sequences that were looked up in the prefix cache at their first admission.
        hits: Those of them that were found.

    Raises:
        EngineError: There is no block, or a block has no room.
    """

    def __init__(self, count: int, block_size: int = 16, prefix_caching: bool = False) -> None:
        if count < 1 or block_size < 1:
            raise EngineError(
                f"A KV cache of {count} blocks of {block_size} tokens cannot hold a sequence.",
                remedy="Use a GPU with more memory, more GPUs, a smaller model or a smaller data type.",
            )
        self.count = count
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.queries = 0
        self.hits = 0
        self._unheld = count
        if prefix_caching:
            self._queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
            self._holders = [0] * count
            self._key_of: list[int | None] = [None] * count
            self._filed: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        """How many blocks no sequence holds; some may still be filed in the prefix cache."""
        return self._unheld

    @property
    def used(self) -> int:
        """How many blocks are held by at least one sequence."""
        return self.count - self._unheld

    def needed(self, tokens: int) -> int:
        """How many blocks so many tokens take."""
        return -(-tokens // self.block_size)

    def extend(self, table: BlockTable, tokens: int) -> bool:
        """Give a sequence further blocks until it has room for so many tokens.

        Returns:
            Whether there were enough free blocks. If not, nothing has changed.
        """
        number = -(-(tokens - table.room) // self.block_size)
        if number <= 0:
            return True
        if number > self._unheld:
            return False
        table.room += number * self.block_size
        if self.prefix_caching:
            for _ in range(number):
                table.ids.append(self._hand_out())
        self._unheld -= number
        return True

    def release(self, table: BlockTable) -> None:
        """Take back all blocks of a sequence."""
        if self.prefix_caching:
            self._take_back(table.ids)
            table.ids = []
            table.filed = table.due = 0
        else:
            self._unheld += table.room // self.block_size
        table.room = 0

    def match(self, table: BlockTable, tokens: int) -> list[int]:
        """The longest run of filed blocks that hold the sequence's first tokens.

        Args:
            table: The sequence's blocks, of which it must hold none.
            tokens: How many tokens of the sequence are known. The last of them is always left to be computed: its
                output is what the next token is drawn from.
        """
        found: list[int] = []
        if not self.prefix_caching:
            return found
        for index in range((tokens - 1) // self.block_size):
            blocks = self._filed.get(self._key(table, index))
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def unheld(self, ids: list[int]) -> int:
        """How many of these blocks nobody holds, so that holding them takes them out of the free ones."""
        return sum(1 for block in ids if not self._holders[block]) if ids else 0

    def adopt(self, table: BlockTable, ids: list[int]) -> None:
        """Let a sequence that holds no blocks hold those that matched."""
        for block in ids:
            if not self._holders[block]:
                del self._queue[block]
                self._unheld -= 1
            self._holders[block] += 1
        table.ids.extend(ids)
        table.filed = len(ids)
        table.room = len(ids) * self.block_size

    def file(self, table: BlockTable, tokens: int) -> None:
        """File those of a sequence's blocks that are full with its first so many tokens."""
        if not self.prefix_caching:
            return
        for index in range(table.filed, tokens // self.block_size):
            key = self._key(table, index)
            block = table.ids[index]
            self._key_of[block] = key
            self._filed.setdefault(key, []).append(block)
            table.filed = index + 1
        table.due = (table.filed + 1) * self.block_size

    def _hand_out(self) -> int:
        block, _ = self._queue.popitem(last=False)
        key = self._key_of[block]
        if key is not None:
            self._key_of[block] = None
            same = self._filed[key]
            same.remove(block)
            if not same:
                del self._filed[key]
        self._holders[block] = 1
        return block

    def _take_back(self, ids: list[int]) -> None:
        queue = self._queue
        unfiled = []
        for block in reversed(ids):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            self._unheld += 1
            queue[block] = None
            if self._key_of[block] is None:
                unfiled.append(block)
        for block in reversed(unfiled):
            queue.move_to_end(block, last=False)

    def _key(self, table: BlockTable, index: int) -> int:
        """What a full block is filed under; hashes of integers, so the same in every process."""
        keys = table.keys
        prompt = table.prompt
        size = self.block_size
        while len(keys) <= index:
            start = len(keys) * size
            before = keys[-1] if keys else None
            tokens = prompt[start : start + size]
            of_prompt_alone = start + size <= len(prompt)
            # None has no fixed hash before Python 3.12; the first block's predecessor is a number like all others.
            keys.append(hash((before if before is not None else 0, tokens, -1 if of_prompt_alone else table.owner)))
        return keys[index]
