import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.errors import EngineError
from pytest_llmperf.simulation.blocks import BlockPool, BlockTable


def held(pool, prompt, owner=0, tokens=None):
    """The blocks of a sequence that has computed its prompt, taken over from the cache where it can."""
    table = BlockTable(tuple(prompt), owner)
    pool.adopt(table, pool.match(table, len(prompt)))
    assert pool.extend(table, tokens or len(prompt))
    pool.file(table, tokens or len(prompt))
    return table


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_blocks_are_counted(prefix_caching):
    pool = BlockPool(5, 4, prefix_caching)
    first = held(pool, range(9))
    assert (pool.count, pool.used, pool.free, first.room) == (5, 3, 2, 12)
    second = BlockTable(tuple(range(50, 62)), 1)
    assert not pool.extend(second, 9)
    assert (pool.free, second.room, second.ids) == (2, 0, [])
    assert pool.extend(second, 8)
    assert pool.extend(first, 12), "it has room for that already"
    assert not pool.extend(first, 13)
    pool.release(first)
    assert pool.free == 3
    pool.release(second)
    assert (pool.free, pool.used) == (5, 0)


def test_needed_rounds_up():
    assert [BlockPool(9, 16).needed(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


@pytest.mark.parametrize(("count", "size"), [(0, 16), (-1, 16), (4, 0)])
def test_a_cache_without_room_is_refused(count, size):
    with pytest.raises(EngineError, match=r"cannot hold a sequence\. Use a GPU with more memory"):
        BlockPool(count, size)


def test_a_beginning_is_shared_while_it_is_held():
    pool = BlockPool(6, 4, prefix_caching=True)
    first = held(pool, range(10))
    second = held(pool, [*range(8), 99, 98])
    assert second.ids[:2] == first.ids[:2]
    assert second.ids[2] != first.ids[2], "a block that is not full is nobody else's"
    assert pool.used == 4
    pool.release(first)
    assert pool.used == 3
    pool.release(second)
    assert pool.free == 6


def test_a_beginning_is_found_after_it_was_given_back():
    pool = BlockPool(6, 4, prefix_caching=True)
    ids = held(pool, range(12)).ids
    table = BlockTable(tuple(range(12)), 1)
    assert pool.match(table, 12) == ids[:2], "the last token is always computed, so its block is not taken over"
    longer = BlockTable(tuple(range(13)), 2)
    assert pool.match(longer, 13) == ids


def test_a_block_matches_with_all_tokens_before_it_only():
    pool = BlockPool(9, 4, prefix_caching=True)
    held(pool, range(12))
    assert pool.match(BlockTable((9, 9, 9, 9, 4, 5, 6, 7, 0), 1), 9) == []


def test_generated_tokens_match_those_of_the_same_sequence_only():
    pool = BlockPool(9, 4, prefix_caching=True)
    first = held(pool, range(6), owner=1, tokens=12)
    assert pool.match(BlockTable(tuple(range(6)), 2), 13) == first.ids[:1]
    again = BlockTable(tuple(range(6)), 1)
    assert pool.match(again, 13) == first.ids


def test_blocks_never_filed_are_handed_out_first():
    pool = BlockPool(5, 4, prefix_caching=True)
    first = held(pool, range(9))
    filed, open_one = first.ids[:2], first.ids[2]
    pool.release(first)
    assert held(pool, range(50, 54)).ids == [open_one]
    assert pool.match(BlockTable(tuple(range(9)), 1), 9) == filed


def test_the_end_of_a_sequence_is_reused_before_its_beginning():
    pool = BlockPool(3, 4, prefix_caching=True)
    table = held(pool, range(12))
    ids = list(table.ids)
    pool.release(table)
    assert held(pool, range(50, 54)).ids == [ids[2]]
    assert pool.match(BlockTable(tuple(range(13)), 1), 13) == ids[:2]


def test_what_was_free_longest_is_reused_first():
    pool = BlockPool(2, 4, prefix_caching=True)
    old, new = held(pool, range(4)), held(pool, range(10, 14))
    pool.release(old)
    pool.release(new)
    assert pool.match(BlockTable(tuple(range(5)), 1), 5)
    held(pool, range(50, 54))
    assert not pool.match(BlockTable(tuple(range(5)), 1), 5)
    assert pool.match(BlockTable((10, 11, 12, 13, 0), 1), 5)


def test_one_of_two_equal_blocks_stays_when_the_other_is_reused():
    pool = BlockPool(3, 4, prefix_caching=True)
    tables = [BlockTable(tuple(range(5)), owner) for owner in range(2)]
    for table in tables:  # both computed it before either was filed
        pool.extend(table, 4)
    for table in tables:
        pool.file(table, 4)
    assert pool.match(BlockTable(tuple(range(5)), 5), 5) == tables[0].ids, "the one filed first"
    kept = tables[1].ids[0]
    pool.release(tables[0])
    assert held(pool, range(50, 58))
    assert pool.match(BlockTable(tuple(range(5)), 5), 5) == [kept]


def test_unheld_counts_what_adopting_would_take_from_the_free_ones():
    pool = BlockPool(6, 4, prefix_caching=True)
    first = held(pool, range(9))
    found = pool.match(BlockTable(tuple(range(9)), 1), 9)
    assert (len(found), pool.unheld(found)) == (2, 0)
    pool.release(first)
    assert pool.unheld(found) == 2
    free = pool.free
    pool.adopt(BlockTable(tuple(range(9)), 1), found)
    assert pool.free == free - 2


def test_without_prefix_caching_tokens_are_never_looked_at():
    class Unreadable(tuple):
        def __getitem__(self, index):
            raise AssertionError("a token was read")

        __iter__ = __hash__ = __getitem__

    pool = BlockPool(6, 4)
    table = BlockTable(Unreadable(range(9)), 0)
    assert pool.match(table, 9) == []
    pool.extend(table, 9)
    pool.file(table, 9)
    pool.release(table)


def test_keys_are_the_same_in_every_process():
    code = (
        "from pytest_llmperf.simulation.blocks import *; p = BlockPool(9, 4, True); t = BlockTable(tuple(range(6)), 3);"
        "p.extend(t, 12); p.file(t, 12); print(t.keys)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 1), min_size=1, max_size=14)), max_size=40),
    st.booleans(),
)
def test_no_block_is_lost_or_held_twice(turns, prefix_caching):
    pool = BlockPool(8, 2, prefix_caching)
    tables = []
    for owner, (release, prompt) in enumerate(turns):
        if release and tables:
            pool.release(tables.pop(len(prompt) % len(tables)))
            continue
        table = BlockTable(tuple(prompt), owner)
        found = pool.match(table, len(prompt))
        if pool.needed(len(prompt)) - len(found) + pool.unheld(found) > pool.free:
            continue
        pool.adopt(table, found)
        assert pool.extend(table, len(prompt))
        pool.file(table, len(prompt))
        tables.append(table)
        assert table.room >= len(prompt)
        if prefix_caching:
            assert len(set(table.ids)) == len(table.ids) == table.room // 2
            assert pool.used == len({block for each in tables for block in each.ids})
            for other in tables:
                same = 0
                while same < min(len(other.prompt), len(prompt)) and other.prompt[same] == prompt[same]:
                    same += 1
                shared = set(other.ids) & set(table.ids) if other is not table else set()
                assert len(shared) <= same // 2
        else:
            assert pool.used == sum(each.room for each in tables) // 2
    for table in tables:
        pool.release(table)
    assert pool.free == 8
