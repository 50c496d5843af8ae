"""What holds of the steps of every board as its file has it, whatever is in them."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.simulation.board import BOARDS, BoardModel
from pytest_llmperf.simulation.steps import StepModel, Work
from tests.simulation.steps_of import (
    model,
    prompts,
    public,
)

SERVED = {
    "mistral": lambda: model(),
    "window": lambda: model('{"sliding_window": 1000}'),
    "experts": lambda: public("mixtral-8x7b-v0.1"),
    "latent": lambda: public("deepseek-v2-lite"),
}


@cache
def served(key, kind, gpus=1, kv_dtype=None):
    return StepModel(SERVED[kind](), BoardModel.named(key), gpus=gpus, kv_dtype=kv_dtype)


@st.composite
def paces(draw):
    """Steps of a model on a board as its file has it, one of its works, and clocks that it has."""
    key = draw(st.sampled_from(BOARDS))
    options = draw(st.sampled_from([(1, None), (2, None), (8, "fp8"), (16, None)]))
    steps = served(key, draw(st.sampled_from(sorted(SERVED))), *options)
    product = BoardModel.named(key).product
    clocks = draw(st.sampled_from(product.supported_sm_clocks_mhz)), draw(st.sampled_from(product.memory_clocks_mhz))
    return steps, draw(works(steps)), clocks


@st.composite
def works(draw, steps):
    chunks = draw(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 2000)), max_size=4))
    batch, context = draw(st.integers(0 if chunks else 1, 200)), draw(st.integers(1, 20_000))
    caches, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
    sampled = batch + draw(st.integers(0, len(chunks)))
    return steps.work(chunks, sampled=sampled, decodes=batch, cache_bytes=caches, attention_flops=flops)


@given(paces())
def test_shares_are_shares(case):
    steps, work, clocks = case
    took, memory, compute = steps.pace(work, *clocks)
    assert took > 0
    assert 0 < memory < 1
    assert 0 < compute < 1


@given(paces(), st.sampled_from(Work._fields), st.floats(1.01, 100))
def test_more_of_anything_takes_no_less_time(case, field, more):
    steps, work, clocks = case
    other = work._replace(**{field: getattr(work, field) * more})
    assert steps.pace(other, *clocks).seconds >= steps.pace(work, *clocks).seconds
    # What decodes attend to is read while it is computed; everything else takes its time.
    if field in ("tokens", "decodes", "sequences", "cache_bytes") and getattr(work, field):
        assert steps.pace(other, *clocks).seconds > steps.pace(work, *clocks).seconds


@given(paces(), st.integers(1, 500))
def test_a_higher_clock_is_faster(case, more):
    steps, work, (sm_mhz, memory_mhz) = case
    before = steps.pace(work, sm_mhz, memory_mhz).seconds
    assert steps.pace(work, sm_mhz + more, memory_mhz).seconds < before
    assert steps.pace(work, sm_mhz, memory_mhz + more).seconds < before
    # But no more than by what the clock was raised.
    assert steps.pace(work, 2 * sm_mhz, 2 * memory_mhz).seconds > before / 4 * (1 - 1e-9)


@given(paces(), st.data())
def test_two_steps_in_one_take_as_long_as_the_longer_and_no_longer_than_both(case, data):
    steps, first, clocks = case
    second = data.draw(works(steps))
    together = Work(*map(sum, zip(first, second, strict=True)))._replace(
        weight_bytes=steps.weight_bytes(first.tokens + second.tokens)
    )
    one, other, both = (steps.pace(work, *clocks).seconds for work in (first, second, together))
    assert max(one, other) <= both <= (one + other) * (1 + 1e-9)


@given(paces(), st.integers(1, 4000), st.integers(1, 4000))
def test_a_prompt_in_two_chunks_takes_no_less_time(case, first, second):
    steps, _, clocks = case
    whole = prompts(steps, (0, first + second))
    parts = [prompts(steps, (0, first), sampled=0), prompts(steps, (first, second))]
    assert sum(steps.pace(part, *clocks).seconds for part in parts) >= steps.pace(whole, *clocks).seconds * (1 - 1e-9)
