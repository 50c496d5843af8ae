"""What one repeat sends and when: lengths, arrivals and prompts, all from the workload's seed.

Lengths and arrivals are the same in every repeat and launch, because they are the work. Prompts differ between
tests, launches and repeats, because an engine that remembers a prefix must not be what is measured. A fresh run
with the same seed sends the same prompts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.workload import Distribution, Workload

__all__ = ["Planned", "Vocabulary", "plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """One request to be: when it is due, counted from the start of the repeat, and what it holds."""

    offset_ns: int
    prompt: tuple[int, ...]
    output_len: int


#: From so many ids on they are drawn by arrays.
_MANY = 100_000
#: Draws from a truncated distribution before its bounds are taken for a mistake.
_DRAWS = 10_000


class Vocabulary:
    """The token ids that a prompt may hold: all of the model's but the special ones."""

    def __init__(self, size: int, special: frozenset[int]) -> None:
        self._ids = [i for i in range(size) if i not in special] or list(range(size))

    def draw(self, rng: random.Random, count: int) -> tuple[int, ...]:
        """``count`` ids, independently and evenly."""
        return next(self.draws(rng, [count]))

    def draws(self, rng: random.Random, counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """As many ids as each count says: those that ``rng.choices`` would draw, count by count.

        ``rng`` is spent: it does not go on from where they end.
        """
        if sum(counts) < _MANY:
            yield from (tuple(rng.choices(self._ids, k=count)) for count in counts)
            return
        import numpy as np

        # NumPy's legacy generator is the Mersenne Twister of the standard library and makes the same doubles of it.
        state = rng.getstate()[1]
        twin = np.random.RandomState()
        twin.set_state(("MT19937", np.array(state[:-1], np.uint32), state[-1], 0, 0.0))
        ids = np.array(self._ids, object)
        for count in counts:
            yield tuple(ids[(twin.random_sample(count) * len(ids)).astype(np.intp)].tolist())


def plan(workload: Workload, vocabulary: Vocabulary, *, test: str, launch: int, repeat: str) -> list[Planned]:
    """The requests of one repeat, in the order in which they are due.

    Args:
        workload: What to send.
        vocabulary: Of the model at hand.
        test: The test's id; two tests never share a prompt.
        launch: Which launch, from 0.
        repeat: Which repeat, or which warm-up.
    """
    test = test.encode("utf-8", "backslashreplace").decode()
    # random.Random hashes a string seed with SHA-512: the same on every Python version.
    shape = random.Random(f"{workload.seed}/shape")
    lengths = _lengths(workload, shape)
    offsets = _offsets(workload, shape)
    prefix = vocabulary.draw(random.Random(f"{workload.seed}/{test}/prefix"), workload.shared_prefix)
    words = random.Random(f"{workload.seed}/{test}/{launch}/{repeat}")
    rests = vocabulary.draws(words, [max(0, n_in - len(prefix)) for n_in, _ in lengths])
    return [
        Planned(offset, (prefix + rest)[:n_in], n_out)
        for offset, (n_in, n_out), rest in zip(offsets, lengths, rests, strict=True)
    ]


def _lengths(workload: Workload, rng: random.Random) -> list[tuple[int, int]]:
    if workload.replay:
        return [(r.input_len, r.output_len) for r in workload.replay]
    count = range(workload.request_count)
    return [(_draw(workload.input_len, rng), _draw(workload.output_len, rng)) for _ in count]


def _draw(length: int | Distribution, rng: random.Random) -> int:
    if isinstance(length, int):
        return length
    values = length.values
    if length.kind == "choice":
        return int(rng.choice(values))
    if length.kind == "uniform":
        return rng.randint(int(values[0]), int(values[1]))
    low, high = int(values[2]), int(values[3])
    for _ in range(_DRAWS):
        draw = rng.gauss(*values[:2]) if length.kind == "normal" else values[0] * rng.lognormvariate(0, values[1])
        if low <= draw <= high:
            return round(draw)
    raise WorkloadError(
        f"The length distribution {length.to_json()} hardly ever falls between its bounds.",
        remedy="Widen low and high, or lower the spread.",
    )


def _offsets(workload: Workload, rng: random.Random) -> list[int]:
    if workload.replay:
        first = workload.replay[0].arrival
        return [round((r.arrival - first) * NS_PER_S) for r in workload.replay]
    if workload.rate is None:
        return [0] * workload.request_count
    kind, _, shape = workload.arrival.partition(":")
    mean = 1 / workload.rate
    offsets, now = [], 0.0
    for _ in range(workload.request_count):
        offsets.append(round(now * NS_PER_S))
        if kind == "constant":
            now += mean
        elif kind == "poisson":
            now += rng.expovariate(1 / mean)
        else:
            now += rng.gammavariate(float(shape), mean / float(shape))
    return offsets
