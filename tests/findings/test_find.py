"""All findings of a run together."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_llmperf.findings as findings
from pytest_llmperf.findings import find, with_findings
from pytest_llmperf.findings.points import points_of
from pytest_llmperf.results import Results
from tests.findings.records import UNITS, case, energy, results, roof, step
from tests.report.records import HOSTILE

_NUMBERS = st.one_of(st.none(), st.just(0.0), st.floats(1e-300, 1e300), st.floats(0.01, 100.0))


def everything():
    """A run that answers every question about a static batch."""
    tests = []
    for gpus in (1, 2):
        for clock in (None, 750.0, 900.0, 1050.0):
            for batch in (1, 4, 8, 16, 64):
                for prompt, output in ((512, 1), (1, 256), (512, 256), (1024, 1), (1024, 256)):
                    decode = step("decode", 14e9 * batch, 14e9, batch * 1e8, 0.02)
                    tests.append(
                        case(
                            f"a.py::test[{gpus}-{clock}-{batch}-{prompt}-{output}]",
                            clock=clock,
                            batch=batch,
                            input_len=prompt,
                            output_len=output,
                            engine={"tensor_parallel_size": gpus},
                            values=dict.fromkeys(UNITS, (1.0 + batch / 100, 1.01 + batch / 100)) | {"ttft": 0.01},
                            record={"roof": roof(decode), "energy": [energy(200.0, 50.0)]},
                        )
                    )
    tests += [case(f"p[{p}]", rate=4, policy=p, max_batch=m, values={"throughput": 1.0, "e2e_latency": 1.0})
              for p, m in (("continuous", None), ("static", 8))]  # fmt: skip
    return tests


def test_the_order_of_the_tests_does_not_matter():
    tests = everything()
    first = find(results(*tests))
    assert {one.kind for one in first} >= {
        "sweet_spot", "batch_and_clock", "phases", "latency_throughput", "lengths", "scaling", "batching_policies",
        "roofline", "kv_cache", "energy_split",
    }  # fmt: skip
    for seed in range(3):
        shuffled = list(tests)
        random.Random(seed).shuffle(shuffled)
        assert find(results(*shuffled)) == first


def test_names_are_unique_and_fit_for_a_link():
    found = find(results(*everything()))
    names = [(one.kind, one.name) for one in found]
    assert len(set(names)) == len(names)
    assert all(one.name == one.name.lower() and " " not in one.name for one in found)


def test_findings_are_part_of_a_record_that_can_be_read_again():
    run = with_findings(results(*everything()))
    assert run.findings
    assert Results.model_validate_json(run.to_json()) == run
    assert all(len(row) == len(one.columns) for one in run.findings for row in one.rows)
    assert all(one.sentences and all(text.endswith(".") for text in one.sentences) for one in run.findings)


def test_an_empty_run_finds_nothing():
    assert find(results()) == []


def test_a_question_that_throws_loses_neither_the_others_nor_the_report(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("division by zero")

    whole = find(results(*everything()))
    questions = tuple((kind, broken if kind == "lengths" else ask) for kind, ask in findings._QUESTIONS)
    monkeypatch.setattr(findings, "_QUESTIONS", questions)
    found = find(results(*everything()))
    [failed] = [one for one in found if one.kind == "lengths"]
    why = "ZeroDivisionError: division by zero"
    assert failed.sentences == [f"The record of this run could not be read for this question ({why})."]
    assert [one for one in found if one.kind != "lengths"] == [one for one in whole if one.kind != "lengths"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_on_one_line_and_no_part_of_an_anchor(name):
    tests = [
        case(f"{name}[{i}]", clock=clock, batch=batch,
             engine={"model": model, "device": name, "quantization": name or None},
             values=dict.fromkeys(UNITS, 1.0 + i), record={"roof": roof(step("decode", 1.0, 1.0, 1.0, 1.0))})
        for i, (clock, batch, model) in enumerate(
            (clock, batch, model) for clock in (750.0, 900.0, 1000.0) for batch in (1, 2) for model in (name, "other"))
    ]  # fmt: skip
    found = find(results(*tests))
    assert found
    for one in found:
        assert all(character.isalnum() or character in ".-" for character in one.name)
        assert len(one.name) <= 130
        assert all(text.isprintable() for text in (one.title, *one.sentences, *(mark.label for mark in one.marks)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from([None, 750.0, 900.0, 1000.0]), st.sampled_from([1, 2, 16, 64]), st.sampled_from([1, 64, 512]),
    st.sampled_from([1, 8, 256]), st.sampled_from([1, 2]), st.lists(_NUMBERS, min_size=10, max_size=10),
), max_size=30))  # fmt: skip
def test_whatever_the_values_every_question_is_answered_or_left(rows):
    tests = [
        case(f"t[{i}]", clock=clock, batch=batch, input_len=prompt, output_len=output,
             engine={"tensor_parallel_size": gpus}, values=dict(zip(UNITS, values, strict=False)),
             record={"roof": roof(step("decode", 1e9, 1e9, 1e6, 0.01))})
        for i, (clock, batch, prompt, output, gpus, values) in enumerate(rows)
    ]  # fmt: skip
    run = with_findings(results(*tests))
    assert not [one.sentences for one in run.findings if one.name == "unread"]
    assert Results.model_validate_json(run.to_json()) == run


def test_the_work_grows_with_the_number_of_tests_and_not_with_its_square(monkeypatch):
    counted = []
    original = findings.points_of.__globals__["Axes"].without

    def without(self, *names):
        counted.append(1)
        return original(self, *names)

    monkeypatch.setattr(findings.points_of.__globals__["Axes"], "without", without)
    costs = []
    for count in (150, 300, 600):
        tests = [
            case(f"t[{i}]", clock=750.0 + i % 50 * 15, batch=1 + i // 50, values=dict.fromkeys(UNITS, 1.0 + i))
            for i in range(count)
        ]
        run = results(*tests)
        assert len(points_of(run)) == count
        counted.clear()
        find(run)
        costs.append(len(counted))
    assert all(later < 3 * earlier for earlier, later in pairwise(costs))
