"""benchmark.json as github-action-benchmark reads it."""

import json

import jsonschema
import pytest

from pytest_llmperf.report.exporters.benchmark import benchmark

from ..records import ENGINE, HOSTILE, PASSED, REGRESSED, metric, record, results, verdict

#: What the action's tool customSmallerIsBetter takes an entry for.
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^[^`|\n]+$"},
            "unit": {"type": "string", "minLength": 1},
            "value": {"type": "number", "exclusiveMinimum": 0},
            "range": {"type": "string", "pattern": r"^(\+-|±)\s*\d.+$"},
            "extra": {"type": "string"},
        },
    },
}


def entries(*records):
    found = json.loads(benchmark(results(*records)), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, SCHEMA)
    return {entry["name"]: entry for entry in found}


def test_the_metrics_of_which_less_is_better_are_there():
    found = entries(REGRESSED)
    name = "suites/test_x.py::test_decode[16]"
    assert list(found) == [f"{name} ttft", f"{name} tpot", f"{name} e2e_latency", f"{name} jpt"]
    assert found[f"{name} tpot"] == {
        "name": f"{name} tpot",
        "unit": "s",
        "value": 0.00467,
        "range": "± 1.53e-05",
        "extra": "verdict of the test: regressed\n3 launches\nregressed against the baseline: +7.2 % (+6.1 to +8.4 %), "
        "tolerance 5.0 %\nvllm 0.32.0, mistral-7b, NVIDIA H200",
    }


def test_one_launch_has_no_range_and_equal_ones_have_one_that_can_be_read():
    metrics = {"ttft": metric("ttft", 0.02), "tpot": metric("tpot", 0.005, 0.005)}
    found = entries(record("t", metrics=metrics))
    assert "range" not in found["t ttft"]
    assert found["t tpot"]["range"] == "± 0.0"


def test_what_was_not_measured_or_cannot_be_trusted_is_left_out():
    assert entries(record("t", metrics={"ttft": metric("ttft"), "tpot": metric("tpot", 0.1)})).keys() == {"t tpot"}
    assert entries(record("t", worst="invalid", invalid="the clock was not held")) == {}


def test_a_simulation_is_no_sequel_to_a_measurement():
    assert "t tpot (simulated)" in entries(record("t", engine=ENGINE | {"simulated": True}))


def test_the_anchor_is_told_apart():
    test = record("t", verdict(), verdict("tpot", "regressed", 0.2, against="anchor"))
    extra = entries(test)["t tpot"]["extra"].splitlines()
    assert extra[2].startswith("pass against the baseline: +0.4 %")
    assert extra[3].startswith("regressed against the anchor: +20.0 %")


def test_hostile_names_stay_names_and_stay_different():
    found = entries(*(record(f"f.py::t[{i}{name}]") for i, name in enumerate(HOSTILE)))
    assert len(found) == 4 * len(HOSTILE)
    assert all(name.isprintable() for name in found)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_results(count):
    assert len(entries(*[PASSED, REGRESSED][:count])) == 4 * count
