"""Prompts that stay the same, answers that survive storage, and how far two sets of them agree."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_llmperf.fingerprint import OUTPUT_LEN, TIE, Answer, Divergence, Outputs, compare, fixed_prompts
from pytest_llmperf.fingerprint.prompts import PROMPT_LENS
from pytest_llmperf.fingerprint.record import OutputsRecord


def answer(*tokens, p=-1.0, margin=5.0):
    return Answer(tokens, (p,) * len(tokens), (margin,) * len(tokens))


def outputs(*answers, prompts="p"):
    return Outputs(prompts, answers)


answers = st.lists(
    st.tuples(st.integers(0, 9), st.floats(-20, 0), st.none() | st.floats(0, 20)), min_size=0, max_size=8
).map(lambda rows: Answer(*(tuple(column) for column in zip(*rows, strict=True)) if rows else ((), (), ())))


# Prompts


def test_the_prompts_of_a_vocabulary_never_change():
    prompts = fixed_prompts(49152, frozenset({0, 1, 2}))
    assert Outputs.digest(prompts, OUTPUT_LEN, "tokens") == "d339efbdd04f"
    assert tuple(map(len, prompts)) == PROMPT_LENS


@given(st.integers(1, 500), st.frozensets(st.integers(0, 20)), st.none() | st.integers(0, 300))
def test_prompts_hold_ordinary_tokens_and_fit(vocabulary, special, longest):
    prompts = fixed_prompts(vocabulary, special, longest=longest)
    assert all(0 <= token < vocabulary and token not in special for prompt in prompts for token in prompt)
    assert all(longest is None or len(prompt) + OUTPUT_LEN <= longest for prompt in prompts)
    everything = fixed_prompts(vocabulary, special)
    assert prompts == everything[: len(prompts)], "a short sequence takes prompts away and changes none"


def test_a_vocabulary_without_ordinary_tokens_has_no_prompts():
    assert fixed_prompts(3, frozenset({0, 1, 2})) == ()


def test_the_digest_tells_what_was_asked():
    asked = [((1, 2), (3,)), 4, "tokens"]
    others = [[((1,), (2, 3)), 4, "tokens"], [((1, 2), (3,)), 5, "tokens"], [((1, 2), (3,)), 4, "chat"]]
    assert len({Outputs.digest(*one) for one in (asked, *others)}) == 4


# Answers


@given(answers)
def test_a_stored_answer_comes_back_to_four_decimals(one):
    back = Answer.unpacked(one.packed())
    assert back.tokens == one.tokens
    assert back.logprobs == pytest.approx(one.logprobs, abs=5.01e-5)
    for stored, margin in zip(back.margins, one.margins, strict=True):
        assert stored == (None if margin is None else pytest.approx(margin, abs=5.01e-5))


@pytest.mark.parametrize("text", ["1", "1:nan", "x:-1.0000", "-1:-1.0000", "1:-1.0000:", "1:-1.0000:-2.0000", "1:1e-3"])
def test_what_no_answer_is_stored_as(text):
    with pytest.raises(ValueError, match="no answer"):
        Answer.unpacked(text)
    with pytest.raises(ValidationError):
        OutputsRecord.model_validate_json(f'{{"prompts": "p", "answers": ["{text}"]}}')


def test_a_record_without_answers_is_none():
    with pytest.raises(ValidationError):
        OutputsRecord.model_validate_json('{"prompts": "p", "answers": []}')


def test_a_record_holds_one_line_a_prompt():
    taken = outputs(answer(1, 2), answer(3, 4, margin=None))
    record = OutputsRecord.of(taken)
    assert record.answers == ("1:-1.0000:5.0000 2:-1.0000:5.0000", "3:-1.0000 4:-1.0000")
    assert OutputsRecord.model_validate_json(record.model_dump_json()).outputs() == taken


def test_probabilities_that_are_no_number_can_still_be_stored_and_differ():
    broken = Answer.of([1, 2], [math.nan, -math.inf], [(math.nan, -1.0), (-1.0,)])
    assert broken.logprobs == (-9999.0, -9999.0)
    assert broken.margins == (None, None)
    assert Answer.unpacked(broken.packed()) == broken
    assert compare(outputs(answer(1, 2)), outputs(broken)).logprob_difference == pytest.approx(9998)


def test_the_margin_is_that_of_the_two_likeliest():
    assert Answer.of([1], [-0.5], [(-3.0, -0.5, -1.75)]).margins == (1.25,)


@pytest.mark.parametrize(("logprobs", "best"), [([-1.0], [(), ()]), ([-1.0, -1.0], [()])])
def test_counts_that_do_not_match(logprobs, best):
    with pytest.raises(ValueError, match="2 tokens"):
        Answer.of([1, 2], logprobs, best)


# Agreement


@given(st.lists(answers, min_size=1, max_size=5))
def test_equal_answers_agree(given_answers):
    found = compare(outputs(*given_answers), outputs(*given_answers))
    assert found.token_agreement in (1.0, None)
    assert (found.token_agreement is None) == (not any(a.tokens for a in given_answers))
    assert found.first_difference is None
    assert found.logprob_difference in (0.0, None)
    assert found.ties == 0


@given(st.lists(st.tuples(answers, answers), min_size=1, max_size=5))
def test_a_comparison_does_not_depend_on_its_direction(pairs):
    one, other = (outputs(*side) for side in zip(*pairs, strict=True))
    there, back = compare(one, other), compare(other, one)
    assert there == back
    assert there.token_agreement is None or 0 <= there.token_agreement <= 1
    assert (there.first_difference is None) == (there.token_agreement in (1.0, None))


def test_what_follows_a_difference_disagrees_also_where_tokens_are_the_same():
    found = compare(outputs(answer(1, 2, 3, 4)), outputs(answer(1, 9, 3, 4)))
    assert found.token_agreement == 0.25
    assert found.tokens == 4


def test_the_earliest_difference_of_all_prompts_is_told_and_the_worst_prompt():
    same, late, early = answer(1, 2, 3), answer(1, 2, 9), answer(9, 2, 3)
    found = compare(outputs(same, same, same), outputs(same, late, early))
    assert found.first_difference == Divergence(prompt=3, token=1)
    assert found.worst_prompt == 3
    assert found.token_agreement == pytest.approx(5 / 9)
    assert found.prompts == 3


def test_among_equal_answers_the_worst_prompt_is_that_with_other_probabilities():
    found = compare(outputs(answer(1), answer(2)), outputs(answer(1), answer(2, p=-1.5)))
    assert found.worst_prompt == 2
    assert found.logprob_difference == 0.25


def test_probabilities_are_compared_up_to_where_the_answers_part():
    one = Answer((1, 2, 3), (-1.0, -1.0, -1.0), (5.0,) * 3)
    other = Answer((1, 7, 3), (-1.1, -1.4, -9.0), (5.0,) * 3)
    assert compare(outputs(one), outputs(other)).logprob_difference == pytest.approx((0.1 + 0.4) / 2)


@pytest.mark.parametrize(
    ("ours", "theirs", "tie"),
    [(TIE, TIE, True), (TIE, TIE + 0.01, False), (TIE + 0.01, TIE, False), (None, 0.0, False), (0.0, None, False)],
)
def test_an_answer_that_parts_at_a_tie_is_compared_up_to_there(ours, theirs, tie):
    one = Answer((1, 2, 3), (-1.0,) * 3, (5.0, ours, 5.0))
    other = Answer((1, 7, 8), (-1.0,) * 3, (5.0, theirs, 5.0))
    found = compare(outputs(one, answer(1)), outputs(other, answer(1)))
    assert (found.ties, found.tokens) == ((1, 2) if tie else (0, 4))
    assert found.token_agreement == (1.0 if tie else 0.5)
    assert (found.first_difference is None) == tie


def test_nothing_but_ties_compares_nothing():
    found = compare(outputs(answer(1, margin=0.0)), outputs(answer(2, margin=0.0)))
    assert (found.token_agreement, found.tokens, found.ties) == (None, 0, 1)


def test_an_answer_that_ends_earlier_differs_from_there():
    found = compare(outputs(answer(1, 2, 3, 4, margin=0.0)), outputs(answer(1, 2, margin=0.0)))
    assert found.token_agreement == 0.5
    assert found.first_difference == Divergence(prompt=1, token=3)


@pytest.mark.parametrize("other", [outputs(answer(1), prompts="q"), outputs(answer(1), answer(1))])
def test_answers_to_other_prompts_are_not_compared(other):
    with pytest.raises(ValueError, match="other prompts"):
        compare(outputs(answer(1)), other)
