"""Templates and what they become: specs that Vega-Lite accepts, and in which no name of a user's is."""

import json
import re

import altair
import jsonschema
import pytest

from pytest_llmperf import results
from pytest_llmperf.report.charts import charts_of_finding, charts_of_test, complete, templates
from pytest_llmperf.report.charts.chart import fill

from ..records import HOSTILE
from .examples import FINDINGS, POLICIES, gated, measured, run, timeline


def everything():
    """A chart of every kind that there is."""
    tests = [
        gated(), measured(),
        measured(timeline=timeline() | {"sm_clock": [None] * 120, "sm_activity": None, "capped": []}),
    ]  # fmt: skip
    one_load = POLICIES.model_copy(update={"rows": [row for row in POLICIES.rows if row[1] == 8]})
    energy_alone = FINDINGS[2].model_copy(
        update={"columns": FINDINGS[2].columns[:3], "rows": [row[:3] for row in FINDINGS[2].rows]}
    )
    charts = [chart for test in tests for chart in charts_of_test(test)]
    charts += [chart for one in (*FINDINGS, one_load, energy_alone) for chart in charts_of_finding(one, run())]
    return charts


ALL = everything()
IDS = [f"{at}-{chart.template}" for at, chart in enumerate(ALL)]


def texts(node):
    """Every text in a spec, keys included, but for its datasets."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from texts(value) if key != "datasets" else ()
    elif isinstance(node, list):
        for item in node:
            yield from texts(item)
    elif isinstance(node, str):
        yield node


def datasets(node):
    """The names of the datasets that a spec asks for."""
    if isinstance(node, dict):
        if isinstance(node.get("data"), dict):
            yield node["data"]["name"]
        for value in node.values():
            yield from datasets(value)
    elif isinstance(node, list):
        for item in node:
            yield from datasets(item)


def fields(node):
    """The fields that a spec encodes."""
    if isinstance(node, dict):
        if isinstance(node.get("field"), str):
            yield node["field"]
        for value in node.values():
            yield from fields(value)
    elif isinstance(node, list):
        for item in node:
            yield from fields(item)


def test_every_template_is_drawn_by_an_example():
    assert {chart.template for chart in ALL} == set(templates())


@pytest.mark.parametrize("chart", ALL, ids=IDS)
def test_a_spec_is_valid_filled_and_has_its_data(chart):
    spec = complete(chart)
    altair.LayerChart.from_dict(spec)
    assert not [text for text in texts(spec) if text.startswith("$") and text != "$schema"]
    assert set(datasets(templates()[chart.template])) == {"rows", *chart.extra}
    known = {name for rows in spec["datasets"].values() for row in rows for name in row}
    assert set(fields(spec)) <= known
    json.dumps(spec, allow_nan=False)
    assert chart.title
    assert chart.description.endswith(".")


def test_a_spec_that_is_not_valid_is_found():
    spec = complete(ALL[0])
    spec["layer"][0]["mark"]["type"] = "splinter"
    with pytest.raises(jsonschema.ValidationError):
        altair.LayerChart.from_dict(spec)


def test_layers_without_data_are_left_out():
    bare = measured(timeline=timeline(capped=False) | {"phases": []})
    trace = next(chart for chart in charts_of_test(bare) if chart.template.startswith("trace"))
    assert {"phases", "capped"} <= set(datasets(templates()[trace.template]))
    assert set(datasets(complete(trace))) == {"rows"}


def test_placeholders_are_filled_at_any_depth_and_lists_spliced():
    node = {"a": ["$list", "x", {"b": "$text"}], "c": "$number", "d": "cost: $5", "e": "$unknown"}
    filled = fill(node, {"list": ["p", "q"], "text": "t", "number": 7})
    assert filled == {"a": ["p", "q", "x", {"b": "t"}], "c": 7, "d": "cost: $5", "e": "$unknown"}
    assert node["c"] == "$number"


def hostile(name):
    """A run in which everything that is a name is this one."""
    test = json.loads(gated(f"f.py::{name}").model_dump_json())
    test["timeline"]["capped"][0]["reason"] = name
    test["conditions"]["queue_time"] |= {"value": None, "reason": name}
    yield from charts_of_test(results.TestRecord.model_validate(test))
    for finding in FINDINGS:
        raw = json.loads(finding.model_dump_json())
        raw["rows"] = [[name if isinstance(value, str) else value for value in row] for row in raw["rows"]]
        raw |= {"name": name, "title": name, "sentences": [name], "tests": [name]}
        raw["columns"] = [column | {"title": name} for column in raw["columns"]]
        raw["marks"] = [mark | {"label": name} for mark in raw["marks"]]
        raw["columns"].append({"name": name, "title": name, "unit": name})
        raw["rows"] = [[*row, 1.0] for row in raw["rows"]]
        yield from charts_of_finding(results.Finding.model_validate(raw), run())


@pytest.mark.parametrize("name", [*HOSTILE, "datum.x", "$x", "{expr: 1}", "__proto__", "rows"])
def test_a_name_is_data_and_never_part_of_a_spec(name):
    allowed = {text for chart in ALL for text in texts(complete(chart))}
    charts = list(hostile(name))
    assert len(charts) > 20
    for chart in charts:
        assert {text for text in texts(complete(chart)) if text not in allowed} == set()
        assert re.fullmatch(r"[a-z0-9-]+", chart.id)


def test_no_template_links_or_loads_anything():
    for spec in templates().values():
        assert not {"href", "url", "image", "lookup"} & set(texts(spec))


def test_ids_are_unique_and_the_same_in_every_run():
    ids = [chart.id for one in (*FINDINGS, FINDINGS[0].model_copy(update={"name": "two"}))
           for chart in charts_of_finding(one, run())]  # fmt: skip
    ids += [
        chart.id for nodeid in ("a.py::t[1]", "a.py::t[1.]", "a.py::t(1)") for chart in charts_of_test(gated(nodeid))
    ]
    assert len(set(ids)) == len(ids)
    assert [chart.id for chart in everything()] == [chart.id for chart in ALL]
    assert everything() == ALL
