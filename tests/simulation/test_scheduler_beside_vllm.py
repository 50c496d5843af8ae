"""Our scheduler beside vLLM's own, step by step, under the same random loads."""

import random
from collections import deque
from dataclasses import dataclass

import pytest

from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.blocks import BlockPool
from pytest_llmperf.simulation.scheduler import Scheduler, Sequence

# PyTorch deprecates what it uses itself.
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]

MAX_MODEL_LEN = 256


@dataclass(frozen=True)
class Limits:
    blocks: int
    block_size: int
    budget: int
    sequences: int
    prefix_caching: bool
    asynchronous: bool
    chunked: bool = True


@dataclass(frozen=True)
class Arrival:
    turn: int
    prompt: tuple[int, ...]
    output_len: int
    aborted_at: int | None = None


class VllmScheduler:
    """vLLM's scheduler with made-up outputs, told in the words of ours."""

    def __init__(self, limits):
        import torch
        from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler as PlainScheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        config = VllmConfig(
            model_config=ModelConfig(
                model=resolve("tiny-llama").location,
                skip_tokenizer_init=True,
                max_model_len=MAX_MODEL_LEN,
                dtype="bfloat16",
            ),
            cache_config=CacheConfig(block_size=limits.block_size, enable_prefix_caching=limits.prefix_caching),
            scheduler_config=SchedulerConfig(
                max_num_seqs=limits.sequences,
                max_num_batched_tokens=limits.budget,
                max_model_len=MAX_MODEL_LEN,
                is_encoder_decoder=False,
                enable_chunked_prefill=limits.chunked,
            ),
        )
        config.cache_config.num_gpu_blocks = limits.blocks + 1
        spec = FullAttentionSpec(block_size=limits.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        self.scheduler = (AsyncScheduler if limits.asynchronous else PlainScheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=limits.blocks + 1,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=limits.block_size,
        )
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(limits.block_size, sha256)
        self.token = 1_000_000  # what is generated is like no prompt and like no other output

    def add(self, name, arrival):
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(arrival.prompt),
                sampling_params=SamplingParams(max_tokens=arrival.output_len, ignore_eos=True),
                pooling_params=None,
                block_hasher=self.hasher,
            )
        )

    def abort(self, name):
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def schedule(self):
        """The step, None if it is empty, and what was preempted by the attempt."""
        output = self.scheduler.schedule()
        return (output if output.num_scheduled_tokens else None), set(output.preempted_req_ids or ())

    def computed_before(self, output):
        before = {request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        return before | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))

    def complete(self, output):
        """Names that got a token, and those that finished with it."""
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        before = self.computed_before(output)
        tokens = []
        for name in names:
            request = self.scheduler.requests.get(name)
            last = request is not None and before[name] + output.num_scheduled_tokens[name] >= request.num_tokens
            self.token += last
            tokens.append([self.token] if last else [])
        result = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=tokens,
            ),
        )
        told = result[0].outputs if 0 in result else []
        return (
            [each.request_id for each in told if each.new_token_ids],
            [each.request_id for each in told if each.finish_reason is not None],
        )

    @property
    def free(self):
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def ours_as_vllm_tells(step, names):
    """Tokens computed before and in the step, by name."""
    told = {names[sequence]: (before, tokens) for sequence, before, tokens in step.prefills}
    return told | {names[sequence]: (sequence.computed - 1, 1) for sequence in step.decodes}


def compare(limits, arrivals):
    """Drive both as vLLM's engine core does; return how many were preempted, cached and computed in chunks."""
    vllm = VllmScheduler(limits)
    pool = BlockPool(limits.blocks, limits.block_size, limits.prefix_caching)
    ours = Scheduler(
        token_budget=limits.budget,
        max_sequences=limits.sequences,
        blocks=pool,
        max_model_len=MAX_MODEL_LEN,
        chunked_prefill=limits.chunked,
        async_scheduling=limits.asynchronous,
    )
    depth = 2 if limits.asynchronous else 1
    coming = deque(enumerate(arrivals))
    sequences, names = {}, {}
    under_way = deque()
    seen = {"preempted": 0, "cached": 0, "chunks": 0}
    untold = set()
    turn = 0
    while coming or ours.waiting or ours.running or under_way:
        assert turn < 20_000, "not done after so many turns"
        while coming and coming[0][1].turn <= turn:
            number, arrival = coming.popleft()
            name = str(number)
            sequences[name] = Sequence(arrival.prompt, arrival.output_len)
            names[sequences[name]] = name
            ours.add(sequences[name])
            vllm.add(name, arrival)
        for number, arrival in enumerate(arrivals):
            if arrival.aborted_at == turn and str(number) in sequences:
                ours.abort(sequences[str(number)])
                vllm.abort(str(number))
        turn += 1
        assert pool.free == vllm.free
        theirs, preempted = vllm.schedule()
        step = ours.schedule()
        untold |= preempted
        assert (step is None) == (theirs is None)
        assert [names[sequence] for sequence in ours.running] == [each.request_id for each in vllm.scheduler.running]
        assert [names[sequence] for sequence in ours.waiting] == [each.request_id for each in vllm.scheduler.waiting]
        if step is not None:
            before = vllm.computed_before(theirs)
            assert ours_as_vllm_tells(step, names) == {
                name: (before[name], tokens) for name, tokens in theirs.num_scheduled_tokens.items()
            }
            assert {names[sequence] for sequence in step.preempted} == untold
            untold = set()
            seen["preempted"] += len(step.preempted)
            seen["chunks"] += len([1 for sequence, _, _ in step.prefills if sequence not in step.sampled])
            under_way.append((step, theirs))
            if len(under_way) < depth:
                continue
        if under_way:
            step, theirs = under_way.popleft()
            got, finished = vllm.complete(theirs)
            assert [names[sequence] for sequence in ours.complete(step)] == finished
            assert [names[sequence] for sequence in step.sampled] == got
            for name in got:
                request = vllm.scheduler.requests.get(name)
                assert request is None or request.num_output_tokens == sequences[name].generated
    assert not vllm.scheduler.requests
    assert pool.free == vllm.free == limits.blocks
    seen["cached"] = sum(sequence.cached for sequence in names)
    return seen


def load(draw, limits, count):
    """Random arrivals, many of which begin alike, that each fit the cache and the model."""
    room = min(MAX_MODEL_LEN, limits.blocks * limits.block_size)
    beginnings = [tuple(draw.choices(range(50), k=room)) for _ in range(2)]
    arrivals = []
    turn = 0
    for number in range(count):
        turn += draw.choice([0, 0, 0, 1, 3, 12])
        prompt_len = draw.randint(1, max(1, draw.choice([room // 6, room // 3, room * 2 // 3])))
        output_len = draw.randint(1, max(1, draw.choice([3, (room - prompt_len) // 2, room - prompt_len])))
        shared = draw.choice([0, prompt_len // 2, prompt_len])
        prompt = draw.choice(beginnings)[:shared] + tuple(1000 * number + place for place in range(shared, prompt_len))
        aborted_at = turn + draw.randint(0, 40) if draw.random() < 0.1 else None
        arrivals.append(Arrival(turn, prompt, output_len, aborted_at))
    return arrivals


def test_a_preempted_sequence_still_gets_the_token_under_way():
    limits = Limits(blocks=4, block_size=4, budget=16, sequences=4, prefix_caching=False, asynchronous=True)
    seen = compare(limits, [Arrival(0, tuple(range(7)), 8), Arrival(0, tuple(range(20, 27)), 8)])
    assert seen["preempted"] >= 1


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("prefix_caching", [True, False], ids=["prefix caching", "no caching"])
def test_schedules_are_equal(asynchronous, prefix_caching):
    draw = random.Random(f"{asynchronous} {prefix_caching}")
    seen = {"preempted": 0, "cached": 0, "chunks": 0}
    for _ in range(25):
        block_size = draw.choice([4, 16])
        limits = Limits(
            blocks=draw.choice([6, 10, 20, 60]),
            block_size=block_size,
            budget=draw.choice([3, 8, 16, 40, 128]),
            sequences=draw.choice([1, 3, 8, 16]),
            prefix_caching=prefix_caching,
            asynchronous=asynchronous,
        )
        # vLLM refuses fewer tokens a step than sequences.
        limits = Limits(**{**vars(limits), "sequences": min(limits.sequences, limits.budget)})
        for key, number in compare(limits, load(draw, limits, 30)).items():
            seen[key] += number
    assert seen["preempted"] > 100
    assert seen["chunks"] > 100
    assert (seen["cached"] > 100) == prefix_caching


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "plain"])
def test_schedules_are_equal_without_chunked_prefill(asynchronous):
    draw = random.Random(7)
    for prefix_caching in (True, False):
        limits = Limits(
            blocks=20,
            block_size=16,
            budget=MAX_MODEL_LEN,
            sequences=8,
            prefix_caching=prefix_caching,
            asynchronous=asynchronous,
            chunked=False,
        )
        seen = compare(limits, load(draw, limits, 60))
        assert seen["chunks"] == 0
        assert seen["preempted"] > 0
