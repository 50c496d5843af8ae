"""How many of an answer's tokens each of its chunks holds.

Chunks are not tokens: speculative decoding and busy servers put several in one, and a token may bring text to two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["apportion", "told"]


def told(ids: Sequence[int], totals: Sequence[int | None], reported: int | None) -> tuple[int, ...] | None:
    """Tokens of each chunk as the server tells them, or ``None`` when it does not, or contradicts itself.

    Args:
        ids: How many token ids each chunk lists; 0 when it lists none.
        totals: Output tokens so far, as each chunk reports them.
        reported: Output tokens of the answer, as its usage reports them.
    """
    if all(ids) and reported in (None, sum(ids)):
        return tuple(ids)
    known = [total for total in totals if total is not None]
    if reported is None or len(known) < len(totals) or known[-1] > reported:
        return None
    # Tokens that brought no text after the last chunk, such as an end of sequence, are counted with it.
    tokens = [later - earlier for earlier, later in pairwise((0, *known[:-1], reported))]
    # Two chunks with one total: these totals are not of the time of their chunk.
    return tuple(tokens) if all(later > earlier for earlier, later in pairwise((0, *known))) else None


def apportion(tokens: int, chunks: int) -> tuple[list[int], tuple[int, ...]]:
    """Spread an answer's tokens over its chunks where the server does not tell.

    The first chunk holds one token and the others share the rest as evenly as whole numbers allow, so the last one,
    which ends the latency, always holds some. With fewer tokens than chunks the first and the last are kept (of one
    token only the first), and as many evenly spaced ones between them as there are tokens.

    Args:
        tokens: At least 1.
        chunks: At least 1.

    Returns:
        The indices of the chunks that are kept, ascending, and the tokens in each of these.
    """
    if chunks == 1 or tokens == 1:
        return [0], (tokens,)
    if tokens < chunks:
        return [i * (chunks - 1) // (tokens - 1) for i in range(tokens)], (1,) * tokens
    shares = [i * (tokens - 1) // (chunks - 1) for i in range(chunks)]
    return list(range(chunks)), (1, *(later - earlier for earlier, later in pairwise(shares)))
