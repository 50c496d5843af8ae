from collections import deque
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.errors import EngineError
from pytest_llmperf.simulation.blocks import BlockPool
from pytest_llmperf.simulation.scheduler import Scheduler, Sequence


def scheduler(blocks=100, block_size=16, prefix_caching=False, **limits):
    limits = {"token_budget": 64, "max_sequences": 8, "max_model_len": 1000, "async_scheduling": False, **limits}
    return Scheduler(blocks=BlockPool(blocks, block_size, prefix_caching), **limits)


def sequence(input_len=10, output_len=4, first=0):
    return Sequence(tuple(range(first, first + input_len)), output_len)


def added(to, *sequences):
    for each in sequences:
        to.add(each)
    return sequences


def stepped(of, steps=1):
    for _ in range(steps):
        step = of.schedule()
        of.complete(step)
    return step


class TestRunning:
    def test_a_sequence_is_prefilled_then_decoded(self):
        engine = scheduler()
        (one,) = added(engine, sequence(10, 3))
        step = engine.schedule()
        assert (step.prefills, step.decodes, step.sampled) == ([(one, 0, 10)], [], [one])
        assert engine.schedule() is None, "nothing is known to be computed next before the step is complete"
        assert engine.complete(step) == []
        assert (one.computed, one.generated) == (10, 1)
        step = engine.schedule()
        assert (step.prefills, step.decodes, step.sampled) == ([], [one], [one])
        assert engine.complete(step) == []
        assert engine.complete(engine.schedule()) == [one]
        assert (one.computed, one.generated) == (12, 3)
        assert engine.schedule() is None
        assert (engine.running, list(engine.waiting), engine.blocks.used) == ([], [], 0)

    def test_a_prompt_is_computed_in_chunks_of_the_budget(self):
        engine = scheduler(token_budget=16)
        (one,) = added(engine, sequence(40))
        chunks = []
        for _ in range(3):
            step = engine.schedule()
            chunks.extend((before, tokens, bool(step.sampled)) for _, before, tokens in step.prefills)
            engine.complete(step)
        assert chunks == [(0, 16, False), (16, 16, False), (32, 8, True)]
        assert stepped(engine).decodes == [one]

    def test_decodes_come_before_the_chunk_of_a_prompt(self):
        engine = scheduler(token_budget=16)
        one, two = added(engine, sequence(10), sequence(30))
        step = stepped(engine)
        assert step.prefills == [(one, 0, 10), (two, 0, 6)]
        assert step.sampled == [one]
        step = stepped(engine)
        assert (step.decodes, step.prefills) == ([one], [(two, 6, 15)])

    def test_the_last_token_of_a_prompt_alone_is_a_prefill(self):
        engine = scheduler(token_budget=10)
        (one,) = added(engine, sequence(11))
        stepped(engine)
        step = stepped(engine)
        assert (step.prefills, step.decodes, step.sampled) == ([(one, 10, 1)], [], [one])

    def test_no_more_sequences_run_than_allowed(self):
        engine = scheduler(max_sequences=2)
        sequences = added(engine, *[sequence(5, 3) for _ in range(4)])
        assert [each for each, _, _ in stepped(engine).prefills] == list(sequences[:2])
        stepped(engine, 2)
        assert engine.running == []
        assert [each for each, _, _ in stepped(engine).prefills] == list(sequences[2:])

    def test_running_sequences_beyond_the_budget_wait_for_their_turn(self):
        engine = scheduler(token_budget=2, max_sequences=3)
        sequences = added(engine, *[sequence(1, 4) for _ in range(3)])
        assert [each for each, _, _ in stepped(engine).prefills] == list(sequences[:2])
        assert stepped(engine).decodes == list(sequences[:2])

    def test_without_chunks_a_prompt_waits_until_it_fits_whole(self):
        engine = scheduler(token_budget=30, max_model_len=30, chunked_prefill=False)
        one, two = added(engine, sequence(20, 2), sequence(15, 2))
        assert stepped(engine).prefills == [(one, 0, 20)]
        step = stepped(engine)
        assert (step.decodes, step.prefills) == ([one], [(two, 0, 15)])


class TestAsynchronousScheduling:
    def test_a_step_is_scheduled_before_the_token_of_the_one_before_is_known(self):
        engine = scheduler(async_scheduling=True)
        (one,) = added(engine, sequence(10, 3))
        first = engine.schedule()
        second = engine.schedule()
        assert (second.decodes, second.sampled) == ([one], [one])
        engine.complete(first)
        third = engine.schedule()
        assert (one.computed, one.generated) == (12, 1)
        engine.complete(second)
        assert engine.schedule() is None, "all three tokens are under way"
        assert engine.complete(third) == [one]

    def test_a_single_token_is_not_scheduled_twice(self):
        engine = scheduler(async_scheduling=True)
        (one,) = added(engine, sequence(10, 1))
        step = engine.schedule()
        assert engine.schedule() is None
        assert engine.complete(step) == [one]

    def test_a_preempted_sequence_gets_the_token_under_way(self):
        engine = scheduler(blocks=2, block_size=4, async_scheduling=True)
        one, two = added(engine, sequence(4, 5), sequence(3, 5, first=50))
        first = engine.schedule()
        second = engine.schedule()
        assert (second.preempted, second.decodes) == ([two], [one])
        assert (two.computed, two.generated, list(engine.waiting)) == (0, 0, [two])
        engine.complete(first)
        assert (one.generated, two.generated) == (1, 1)

    def test_a_preempted_sequence_may_finish_while_it_waits(self):
        engine = scheduler(blocks=2, block_size=4, async_scheduling=True)
        one, two = added(engine, sequence(4, 5), sequence(4, 1, first=50))
        first = engine.schedule()
        second = engine.schedule()
        assert (second.preempted, second.decodes) == ([two], [one])
        assert engine.steady() == 0, "the queue is about to change"
        assert engine.complete(first) == [two]
        assert list(engine.waiting) == []
        assert engine.steady() > 0


class TestPreemption:
    def test_the_last_admitted_gives_up_its_blocks_and_is_first_in_the_queue(self):
        engine = scheduler(blocks=4, block_size=4)
        one, two, three = added(engine, sequence(8, 8), sequence(8, 8), sequence(4, 2))
        stepped(engine)
        assert engine.running == [one, two]
        step = stepped(engine)
        assert (step.decodes, step.preempted) == ([one], [two])
        assert list(engine.waiting) == [two, three]
        assert (two.preemptions, two.computed, two.generated) == (1, 0, 1)

    def test_nothing_is_admitted_in_a_step_that_preempted(self):
        engine = scheduler(blocks=5, block_size=4)
        one, two, _ = added(engine, sequence(8, 8), sequence(12, 4), sequence(4, 2))
        stepped(engine)
        step = engine.schedule()
        assert (step.preempted, step.prefills) == ([two], [])
        assert engine.blocks.free == 2, "room enough for the third"
        engine.complete(step)
        assert one.preemptions == 0

    def test_prompt_and_generated_tokens_are_computed_again(self):
        engine = scheduler(blocks=4, block_size=4)
        one, two = added(engine, sequence(7, 3), sequence(7, 4, first=50))
        stepped(engine, 2)
        step = stepped(engine)
        assert (step.preempted, two.generated, one.generated) == ([two], 2, 3)
        step = stepped(engine)
        assert (step.prefills, step.sampled, step.decodes) == ([(two, 0, 9)], [two], [])
        assert engine.complete(engine.schedule()) == [two]

    def test_the_last_may_preempt_itself(self):
        engine = scheduler(blocks=4, block_size=4)
        one, two = added(engine, sequence(6, 8), sequence(8, 4))
        stepped(engine)
        step = stepped(engine)
        assert (step.decodes, step.preempted, engine.running) == ([one], [two], [one])

    def test_computing_again_in_chunks_is_a_prefill_up_to_the_last_known_token(self):
        engine = scheduler(blocks=4, block_size=4, token_budget=7)
        one, two = added(engine, sequence(6, 4), sequence(7, 4, first=50))
        stepped(engine, 3)
        step = stepped(engine)
        assert (step.preempted, two.generated, one.generated) == ([two], 2, 4)
        step = stepped(engine)
        assert (step.prefills, step.sampled, step.preempted) == ([(two, 0, 7)], [], [])
        step = stepped(engine)
        assert (step.prefills, step.sampled, step.decodes) == ([(two, 7, 2)], [two], [])
        assert stepped(engine).decodes == [two]

    def test_a_prompt_is_admitted_only_if_all_of_it_has_room(self):
        engine = scheduler(blocks=4, block_size=4, token_budget=8)
        one, two = added(engine, sequence(7, 2), sequence(12, 2))
        assert stepped(engine).prefills == [(one, 0, 7)]
        assert engine.blocks.free == 2
        assert stepped(engine).prefills == [], "its first chunk has room, the whole has not"
        assert stepped(engine).prefills == [(two, 0, 8)]

    def test_what_an_empty_attempt_preempted_is_told_with_the_next_step(self):
        engine = scheduler(blocks=3, block_size=2, async_scheduling=True)
        one, two = added(engine, sequence(2, 1), sequence(4, 3))
        step = engine.schedule()
        assert step.sampled == [one, two]
        assert engine.schedule() is None, "one gets its only token, and two has no block for its second"
        assert (two.preemptions, list(engine.waiting)) == (1, [two])
        assert engine.complete(step) == [one]
        step = engine.schedule()
        assert (step.preempted, step.prefills) == ([two], [(two, 0, 5)])
        assert engine.schedule().preempted == []


class TestPrefixCaching:
    def test_a_shared_beginning_is_not_computed_again(self):
        engine = scheduler(prefix_caching=True, max_sequences=1)
        one, two = added(engine, sequence(40, 1), sequence(40, 1))
        stepped(engine)
        step = stepped(engine)
        assert step.prefills == [(two, 32, 8)]
        assert (one.cached, two.cached) == (0, 32)
        assert (engine.blocks.queries, engine.blocks.hits) == (80, 32)

    def test_a_prompt_that_is_all_cached_computes_its_last_block(self):
        engine = scheduler(prefix_caching=True)
        _, two = added(engine, sequence(32, 1), sequence(32, 1))
        assert stepped(engine).prefills[1] == (two, 16, 16), "filed as soon as it is scheduled"

    def test_found_again_after_a_preemption_but_counted_once(self):
        engine = scheduler(blocks=5, block_size=4, prefix_caching=True)
        one, two = added(engine, sequence(11, 3), sequence(7, 6, first=50))
        stepped(engine, 2)
        step = stepped(engine)
        assert (step.preempted, one.generated) == ([two], 3)
        step = stepped(engine)
        ((again, before, tokens),) = step.prefills
        assert (again, before + tokens) == (two, 9)
        assert before > 0
        assert two.cached == 0
        assert engine.blocks.queries == 18


class TestAbort:
    def test_waiting(self):
        engine = scheduler(max_sequences=1)
        one, two = added(engine, sequence(), sequence())
        stepped(engine)
        engine.abort(two)
        assert list(engine.waiting) == []
        assert engine.running == [one]

    def test_running_frees_its_blocks(self):
        engine = scheduler()
        (one,) = added(engine, sequence())
        stepped(engine)
        engine.abort(one)
        assert (engine.running, engine.blocks.used) == ([], 0)
        assert engine.schedule() is None

    def test_in_a_step_under_way_it_gets_no_token(self):
        engine = scheduler()
        one, two = added(engine, sequence(), sequence())
        step = engine.schedule()
        engine.abort(one)
        assert engine.complete(step) == []
        assert step.sampled == [two]
        assert (one.generated, two.generated) == (0, 1)

    def test_unknown_twice_or_finished_is_no_matter(self):
        engine = scheduler()
        (one,) = added(engine, sequence(10, 1))
        engine.abort(sequence())
        assert engine.complete(engine.schedule()) == [one]
        engine.abort(one)
        engine.abort(one)
        assert engine.blocks.used == 0


class TestRefusals:
    def test_more_blocks_than_there_are(self):
        engine = scheduler(blocks=4, block_size=4)
        engine.add(sequence(10, 7))  # the last token needs no room
        with pytest.raises(EngineError, match=r"need 5 KV blocks, and the engine has 4\. Shorten input_len"):
            engine.add(sequence(10, 8))

    def test_longer_than_the_model_allows(self):
        engine = scheduler(max_model_len=20)
        engine.add(sequence(10, 10))
        with pytest.raises(EngineError, match=r"exceed the 20 tokens"):
            engine.add(sequence(10, 11))

    @pytest.mark.parametrize(("input_len", "output_len"), [(0, 4), (4, 0)])
    def test_empty(self, input_len, output_len):
        with pytest.raises(EngineError, match="cannot be scheduled"):
            scheduler().add(sequence(input_len, output_len))

    def test_a_budget_that_no_prompt_fits(self):
        with pytest.raises(EngineError, match=r"at least 100, or enable_chunked_prefill=true"):
            scheduler(token_budget=99, max_model_len=100, chunked_prefill=False)

    @pytest.mark.parametrize("limit", ["token_budget", "max_sequences"])
    def test_limits_of_nothing(self, limit):
        with pytest.raises(EngineError, match="schedules nothing"):
            scheduler(**{limit: 0})


class TestSteady:
    def test_ends_before_the_last_token_of_any(self):
        engine = scheduler()
        one, _ = added(engine, sequence(10, 6), sequence(10, 9))
        assert engine.steady() == 0, "nothing runs yet"
        stepped(engine)
        assert engine.steady() == 4
        engine.skip(4)
        assert (one.computed, one.generated, engine.steady()) == (14, 5, 0)
        assert engine.complete(engine.schedule()) == [one]

    def test_a_step_under_way_stays_so(self):
        engine = scheduler(async_scheduling=True)
        (one,) = added(engine, sequence(10, 6))
        step = engine.schedule()
        assert engine.steady() == 4
        engine.skip(4)
        assert (one.computed, one.generated) == (14, 4)
        engine.complete(step)
        assert (one.generated, engine.steady()) == (5, 0)
        assert engine.complete(engine.schedule()) == [one]

    def test_not_while_a_prompt_is_computed(self):
        engine = scheduler(token_budget=16)
        added(engine, sequence(40))
        stepped(engine)
        assert engine.steady() == 0
        one_left = scheduler(token_budget=10)
        added(one_left, sequence(11))
        stepped(one_left)
        assert one_left.steady() == 0

    def test_not_while_steps_under_way_differ(self):
        engine = scheduler(async_scheduling=True, token_budget=16)
        added(engine, sequence(10, 9), sequence(6, 9))
        first = engine.schedule()
        engine.add(sequence(4, 9))
        second = engine.schedule()
        assert engine.steady() == 0
        engine.complete(first)
        assert engine.steady() > 0, "the step under way is of all three"
        engine.complete(second)

    def test_not_while_a_waiting_sequence_could_be_admitted(self):
        engine = scheduler()
        added(engine, sequence(10, 9))
        stepped(engine)
        engine.add(sequence())
        assert engine.steady() == 0

    @pytest.mark.parametrize(
        "limits", [{"max_sequences": 1}, {"token_budget": 1, "max_sequences": 2}, {"blocks": 2, "block_size": 16}]
    )
    def test_while_none_that_waits_can_be_admitted(self, limits):
        engine = scheduler(**limits)
        added(engine, sequence(10, 9))
        while not engine.steady():
            stepped(engine)
        engine.add(sequence(20, 4))
        assert engine.steady() == 7

    def test_no_step_is_none(self):
        engine = scheduler()
        (one,) = added(engine, sequence(10, 9))
        stepped(engine)
        engine.skip(0)
        engine.skip(-1)
        assert (one.computed, one.generated) == (10, 1)

    def test_ends_before_a_preemption(self):
        engine = scheduler(blocks=5, block_size=4)
        one, two = added(engine, sequence(4, 12), sequence(4, 12))
        stepped(engine)
        # Two blocks each until both have computed eight tokens; the fifth block is for one of them only.
        assert engine.steady() == 4
        engine.skip(4)
        assert engine.steady() == 0
        assert stepped(engine).preempted == [two]
        assert one.computed == 9


Load = st.lists(
    st.tuples(
        st.integers(0, 6),  # turns since the arrival before
        st.integers(1, 30),  # prompt
        st.integers(1, 24),  # output
        st.integers(0, 30),  # tokens shared with all others
        st.one_of(st.none(), st.integers(0, 30)),  # turns until it is aborted
    ),
    max_size=12,
)
Limits = st.fixed_dictionaries(
    {
        "blocks": st.integers(14, 24),
        "block_size": st.just(4),
        "prefix_caching": st.booleans(),
        "token_budget": st.integers(1, 40),
        "max_sequences": st.integers(1, 6),
        "async_scheduling": st.booleans(),
    }
)


def sequences_of(load):
    turn = 0
    for number, (wait, input_len, output_len, shared, abort) in enumerate(load):
        turn += wait
        prompt = tuple(range(min(shared, input_len)))
        prompt += tuple(1000 * (number + 1) + place for place in range(input_len - len(prompt)))
        yield turn, Sequence(prompt, output_len, data=number), None if abort is None else turn + abort


def run(engine, load, skipping=False):
    """Drive the engine as its core does; yield the state after every turn, with the number of steps that are over."""
    depth = 2 if engine.async_scheduling else 1
    known = list(sequences_of(load))
    arrivals = [(turn, 0, each) for turn, each, _ in known]
    aborts = [(turn, 1, each) for _, each, turn in known if turn is not None]
    events = deque(sorted(arrivals + aborts, key=lambda event: (event[0], event[1], event[2].data)))
    under_way = deque()
    turn = 0
    over = 0
    while events or engine.waiting or engine.running or under_way:
        assert turn < 5000, "not done after so many turns"
        while events and events[0][0] <= turn:
            _, kind, each = events.popleft()
            engine.abort(each) if kind else engine.add(each)
        if skipping and len(under_way) == depth - 1 and (steps := engine.steady()):
            # With so many steps under way, every turn schedules one and completes one.
            steps = min(steps, events[0][0] - turn) if events else steps
            engine.skip(steps)
            turn += steps
            over += steps
            yield turn, over, None, engine
            continue
        turn += 1
        step = engine.schedule()
        if step is not None:
            under_way.append(step)
        if under_way and (step is None or len(under_way) == depth):
            engine.complete(under_way.popleft())
            over += 1
        yield turn, over, step, engine


def state(engine):
    running = engine.running
    blocks = engine.blocks
    return (
        [(each.data, each.computed, each.generated, each.preemptions, each.cached) for each in running],
        [(each.data, each.generated, each.preemptions) for each in engine.waiting],
        (blocks.free, blocks.queries, blocks.hits),
        [(each.table.room, tuple(each.table.ids), each.table.filed, each.goal) for each in running],
        blocks.prefix_caching and (tuple(blocks._queue), tuple(blocks._key_of), deepcopy(blocks._filed)),
    )


def described(step):
    if step is None:
        return None
    prefills = [(each.data, before, tokens) for each, before, tokens in step.prefills]
    return prefills, *([each.data for each in of] for of in (step.decodes, step.sampled, step.preempted))


@given(Limits, Load)
def test_limits_hold_and_everyone_finishes(limits, load):
    engine = scheduler(**limits)
    tokens_of = {}
    admitted = []
    everyone = {}
    for _, _, step, _ in run(engine, load):
        for each in (*engine.running, *engine.waiting):
            everyone[each.data] = each
        if step is not None:
            tokens = sum(count for _, _, count in step.prefills) + len(step.decodes)
            assert 0 < tokens <= engine.token_budget
            assert not (step.preempted and any(each not in engine.running for each, _, _ in step.prefills))
            admitted += [each.data for each, _, _ in step.prefills if each.data not in admitted]
            for each in step.sampled:
                tokens_of.setdefault(each.data, []).append(step)
        assert len(engine.running) <= engine.max_sequences
        pool = engine.blocks
        held = [each.table for each in engine.running]
        assert all(table.room >= each.computed for table, each in zip(held, engine.running, strict=True))
        if pool.prefix_caching:
            assert pool.used == len({block for table in held for block in table.ids})
        else:
            assert pool.used * pool.block_size == sum(table.room for table in held)
    assert admitted == sorted(admitted), "first come, first served"
    assert engine.blocks.used == 0
    for number, each in everyone.items():
        got = sum(each in step.sampled for step in tokens_of.get(number, []))
        assert got == each.generated
        assert load[number][4] is not None or got == each.output_len


@given(Limits, Load)
def test_skipping_is_stepping(limits, load):
    stepped_states = {}
    stepped_steps = {}
    for turn, over, step, engine in run(scheduler(**limits), load):
        stepped_states[turn, over] = state(engine)
        stepped_steps[turn] = described(step)
    for turn, over, step, engine in run(scheduler(**limits), load, skipping=True):
        lag = stepped_states.get((turn, over))
        assert lag is not None
        assert state(engine) == lag
        if step is not None:
            assert described(step) == stepped_steps[turn]
