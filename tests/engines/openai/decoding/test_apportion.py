from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.decoding.apportion import apportion, told


@pytest.mark.parametrize(
    ("tokens", "chunks", "kept", "shares"),
    [
        (1, 1, [0], (1,)),
        (9, 1, [0], (9,)),
        (1, 3, [0], (1,)),
        (2, 3, [0, 2], (1, 1)),
        (3, 5, [0, 2, 4], (1, 1, 1)),
        (3, 3, [0, 1, 2], (1, 1, 1)),
        (5, 3, [0, 1, 2], (1, 2, 2)),
        (6, 4, [0, 1, 2, 3], (1, 1, 2, 2)),
        (9, 2, [0, 1], (1, 8)),
    ],
)
def test_known_shares(tokens, chunks, kept, shares):
    assert apportion(tokens, chunks) == (kept, shares)


@given(st.integers(1, 300), st.integers(1, 300))
def test_shares_sum_up_and_are_even(tokens, chunks):
    kept, shares = apportion(tokens, chunks)
    assert sum(shares) == tokens
    assert len(kept) == len(shares) == min(tokens, chunks)
    assert kept[0] == 0
    assert kept == sorted(set(kept))
    assert min(shares) >= 1
    if tokens > 1:
        assert kept[-1] == chunks - 1
    if len(shares) > 1:
        assert shares[0] == 1
        assert max(shares[1:]) - min(shares[1:]) <= 1


@pytest.mark.parametrize(
    ("ids", "totals", "reported", "tokens"),
    [
        ([1, 2], [None, None], None, (1, 2)),
        ([1, 2], [None, None], 3, (1, 2)),
        ([1, 2], [None, None], 4, None),
        ([1, 2], [1, 2], 4, (1, 3)),
        ([1, 0], [None, None], None, None),
        ([0, 0], [1, 3], 3, (1, 2)),
        ([0, 0], [1, 3], 4, (1, 3)),
        ([0, 0], [1, 3], 2, None),
        ([0, 0], [None, 3], 3, None),
        ([0, 0], [1, 1], 3, None),
        ([0, 0], [0, 1], 1, None),
        ([0, 0], [1, 3], None, None),
        ([0], [4], 4, (4,)),
    ],
)
def test_what_the_server_tells_of_each_chunk(ids, totals, reported, tokens):
    assert told(ids, totals, reported) == tokens
