"""The properties of a test in a JUnit file."""

import pytest

from pytest_llmperf.report.exporters.junit import properties

from ..records import HOSTILE, REGRESSED, record, verdict

NODEID = REGRESSED["nodeid"]


def test_a_verdict_with_everything_it_stands_on():
    found = dict(properties(NODEID, [REGRESSED | {"explanation": ["decode is 7 % slower.", "More."]}]))
    ours = {name.removeprefix("llmperf.tpot."): value for name, value in found.items() if ".tpot." in name}
    assert ours == {
        "verdict": "regressed", "value": "0.004288", "unit": "s", "baseline": "0.004", "change": "0.072",
        "interval": "0.061 0.084", "tolerance": "0.05",
    }  # fmt: skip
    assert found["llmperf.verdict"] == "regressed"
    assert found["llmperf.ttft.verdict"] == "pass"
    assert found["llmperf.explanation"] == "decode is 7 % slower."
    assert "llmperf.simulated" not in found


def test_what_is_not_known_is_left_out():
    found = dict(properties("t", [record("t", verdict("tpot", "no-baseline", None, baseline=None))]))
    assert found == {
        "llmperf.verdict": "no-baseline",
        "llmperf.tpot.verdict": "no-baseline",
        "llmperf.tpot.tolerance": "0.05",
    }


def test_named_measurements_and_anchors_have_names_of_their_own():
    first = record("t[a#b]", verdict("tpot", "pass"), verdict("tpot", "inconclusive", against="anchor"))
    second = record("t[a#b]#tpot", verdict("tpot", "regressed", 0.2))
    found = properties("t[a#b]", [first, second])
    names = [name for name, _ in found]
    assert len(names) == len(set(names))
    kept = dict(found)
    assert kept["llmperf.verdict"] == "regressed"
    assert kept["llmperf.tpot.verdict"] == "pass"
    assert kept["llmperf.tpot.anchor.verdict"] == "inconclusive"
    assert kept["llmperf[tpot].tpot.verdict"] == "regressed"


def test_nothing_measured_has_no_properties():
    assert properties("t", []) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_every_name_and_value_is_printable(name):
    test = record(f"t#{name}", verdict("tpot", "inconclusive", advice=name), worst="invalid", invalid=name)
    found = properties("t", [test])
    assert found
    assert all(text.isprintable() for pair in found for text in pair)


def test_the_value_is_that_on_which_the_verdict_stands():
    told = verdict("tpot", "pass", 0.0025, current=0.00401, launches=1)
    found = dict(properties("t", [record("t", told)]))
    assert (found["llmperf.tpot.value"], found["llmperf.tpot.change"]) == ("0.00401", "0.0025")
