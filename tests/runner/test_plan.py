from __future__ import annotations

import json
import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.runner import plan as runner_plan
from pytest_llmperf.runner.plan import Vocabulary, plan
from pytest_llmperf.workload import Workload

WORDS = Vocabulary(32000, frozenset({0, 1, 2}))


def planned(workload, *, test="test_x.py::test_y", launch=0, repeat="0", words=WORDS):
    return plan(workload, words, test=test, launch=launch, repeat=repeat)


def prompts(workload, **kwargs):
    return [p.prompt for p in planned(workload, **kwargs)]


def common(one, other):
    """How many leading tokens two prompts share."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class TestPrompts:
    WORKLOAD = Workload(64, 8, batch=4)

    def test_a_fresh_run_sends_the_same_prompts(self):
        assert planned(self.WORKLOAD) == planned(self.WORKLOAD.replace())

    def test_they_never_change(self):
        # Every Python version and machine has to send the same work.
        assert planned(Workload(4, 1))[0].prompt == (15228, 144, 14544, 29341)

    def test_no_two_of_requests_repeats_launches_or_tests_begin_alike(self):
        everything = [
            prompt
            for test in ("a", "b", "a/0", "a#name")
            for launch in (0, 1, 10)
            for repeat in ("0", "1", "0-after-1", "warmup-0", "warmup-1")
            for prompt in prompts(self.WORKLOAD, test=test, launch=launch, repeat=repeat)
        ]
        # In sorted order, the prompt that shares most with another is its neighbour.
        assert max(common(one, other) for one, other in pairwise(sorted(everything))) <= 3

    def test_another_seed_sends_other_prompts(self):
        assert common(prompts(self.WORKLOAD)[0], prompts(self.WORKLOAD.replace(seed=1))[0]) <= 3

    @given(
        st.integers(1, 300),
        st.integers(1, 50),
        st.integers(1, 20),
        st.sets(st.integers(0, 99), max_size=99),
    )
    def test_lengths_are_exact_and_tokens_are_ordinary_ones(self, n_in, n_out, batch, special):
        requests = planned(Workload(n_in, n_out, batch=batch), words=Vocabulary(100, frozenset(special)))
        assert len(requests) == batch
        assert {(len(r.prompt), r.output_len) for r in requests} == {(n_in, n_out)}
        assert all(token not in special and 0 <= token < 100 for r in requests for token in r.prompt)

    def test_one_token_is_one_token(self):
        assert len(prompts(Workload(1, 8))[0]) == 1

    def test_a_vocabulary_of_special_tokens_only_still_speaks(self):
        assert planned(Workload(8, 1), words=Vocabulary(3, frozenset({0, 1, 2})))[0].prompt

    def test_the_whole_vocabulary_is_used(self):
        words = Vocabulary(50, frozenset({0}))
        assert set(prompts(Workload(5000, 1), words=words)[0]) == set(range(1, 50))


class TestSharedPrefix:
    WORKLOAD = Workload(64, 8, batch=3, shared_prefix=40)

    def test_all_requests_of_a_test_share_it_and_nothing_more(self):
        everything = [
            prompt
            for launch in (0, 1)
            for repeat in ("0", "1", "warmup-0")
            for prompt in prompts(self.WORKLOAD, launch=launch, repeat=repeat)
        ]
        assert {prompt[:40] for prompt in everything} == {everything[0][:40]}
        assert max(common(one, other) for one, other in pairwise(sorted(everything))) <= 43
        assert {len(prompt) for prompt in everything} == {64}

    def test_another_test_has_another_one(self):
        assert common(prompts(self.WORKLOAD, test="a")[0], prompts(self.WORKLOAD, test="b")[0]) <= 3

    def test_a_prompt_shorter_than_it_is_cut_and_not_stretched(self):
        workload = Workload({"choice": [4, 64]}, 8, batch=20, shared_prefix=10)
        sent = prompts(workload)
        prefix = next(prompt[:10] for prompt in sent if len(prompt) == 64)
        assert {len(prompt) for prompt in sent} == {4, 64}
        assert all(prompt[:10] == prefix[: len(prompt)] for prompt in sent)


class TestLengths:
    @pytest.mark.parametrize("name", ["input_len", "output_len"])
    @pytest.mark.parametrize(
        ("length", "centre"),
        [
            ({"uniform": [10, 20]}, 15),
            ({"normal": [50, 10, 1, 100]}, 50),
            ({"lognormal": [50, 0.4, 1, 400]}, 50),
            ({"choice": [10, 20, 60]}, 20),
        ],
    )
    def test_draws_lie_within_the_bounds_and_around_the_centre(self, name, length, centre):
        requests = planned(Workload(**{"input_len": 1, "output_len": 1, name: length}, batch=1000))
        drawn = [len(r.prompt) if name == "input_len" else r.output_len for r in requests]
        ((kind, values),) = length.items()
        if kind == "choice":
            assert set(drawn) == set(values)
        else:
            assert values[-2] <= min(drawn) < max(drawn) <= values[-1]
        assert statistics.median(drawn) == pytest.approx(centre, rel=0.1)

    def test_the_bounds_themselves_are_drawn(self):
        assert {len(p) for p in prompts(Workload({"uniform": [3, 5]}, 1, batch=100))} == {3, 4, 5}

    def test_they_are_the_work_and_equal_in_every_repeat_launch_and_test(self):
        workload = Workload({"uniform": [1, 99]}, {"uniform": [1, 99]}, rate=3)

        def shape(**kwargs):
            return [(p.offset_ns, len(p.prompt), p.output_len) for p in planned(workload, **kwargs)]

        assert shape() == shape(repeat="1") == shape(launch=2) == shape(test="other") == shape(repeat="warmup-0")
        assert shape() != [(p.offset_ns, len(p.prompt), p.output_len) for p in planned(workload.replace(seed=1))]


def gaps(workload):
    return [(later.offset_ns - earlier.offset_ns) / NS_PER_S for earlier, later in pairwise(planned(workload))]


class TestArrivals:
    @pytest.mark.parametrize("load", [{"batch": 4}, {"batch": 2, "requests": 6}, {"concurrency": 4}])
    def test_batches_and_closed_loops_have_none(self, load):
        assert {p.offset_ns for p in planned(Workload(1, 1, **load))} == {0}

    @given(st.floats(0.1, 1000), st.integers(2, 200))
    def test_constant_spacing_is_constant(self, rate, count):
        between = gaps(Workload(1, 1, rate=rate, arrival="constant", requests=count))
        assert between == pytest.approx([1 / rate] * (count - 1), abs=2e-9)

    # The relative deviation of a gamma-distributed gap is 1 / sqrt(shape).
    @pytest.mark.parametrize(
        ("arrival", "deviation"), [("poisson", 1), ("gamma:1", 1), ("gamma:4", 0.5), ("gamma:0.25", 2)]
    )
    @pytest.mark.parametrize("rate", [0.5, 20])
    def test_random_spacing_has_the_mean_rate_and_its_own_burstiness(self, arrival, deviation, rate):
        between = gaps(Workload(1, 1, rate=rate, arrival=arrival, requests=20_000))
        assert statistics.mean(between) == pytest.approx(1 / rate, rel=0.05)
        assert statistics.stdev(between) * rate == pytest.approx(deviation, rel=0.1)

    @pytest.mark.parametrize("arrival", ["poisson", "constant", "gamma:0.5"])
    def test_the_first_request_comes_at_once_and_none_before_another(self, arrival):
        offsets = [p.offset_ns for p in planned(Workload(1, 1, rate=5, arrival=arrival))]
        assert offsets[0] == 0
        assert offsets == sorted(offsets)
        assert len(offsets) == 150

    def test_a_replay_begins_with_its_first_request_and_keeps_its_lengths(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        lines = [(100.25, 4, 2), (100.5, 8, 3), (102, 2, 9)]
        path.write_text("\n".join(json.dumps({"arrival": at, "input_len": i, "output_len": o}) for at, i, o in lines))
        replay = planned(Workload(trace=path))
        assert [p.offset_ns for p in replay] == [0, 250_000_000, 1_750_000_000]
        assert [(len(p.prompt), p.output_len) for p in replay] == [(4, 2), (8, 3), (2, 9)]


@pytest.mark.parametrize("special", [frozenset(), frozenset({0, 1, 31999})])
@given(counts=st.lists(st.integers(0, 400), max_size=20), seed=st.integers(0, 9), used=st.integers(0, 700))
def test_many_ids_are_drawn_as_few_are(special, counts, seed, used):
    words = Vocabulary(32000, special)
    one, other = random.Random(seed), random.Random(seed)
    for rng in (one, other):  # the generator stands anywhere in its block of 624
        for _ in range(used):
            rng.random()
    few = [words.draw(one, count) for count in counts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_plan, "_MANY", 0)
        assert list(words.draws(other, counts)) == few
