"""Records that fit the schema and are odd otherwise: a report, its explanation and its comparison, or one sentence."""

import json
import random

import pytest
from pydantic import ValidationError

from pytest_llmperf.__main__ import main
from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report import charts
from pytest_llmperf.report.exporters import pictures
from pytest_llmperf.results import MetricValue, Results, UnknownFieldsWarning, read_results
from pytest_llmperf.results import TestRecord as Record

from .charts.examples import gated, measured, run, timeline
from .records import ENGINE, HOSTILE, record, verdict

BOARD = {"joules": 40.0, "error": 0.1, "source": "counter", "power": 180.0, "integral_power": 181.0, "reason": None}
ENERGY = {
    **BOARD, "seconds": 1.4, "busy": 1.0, "repeats": 3, "idle_power": 70.0, "idle_reason": None,
    "boards": [{**BOARD, "uuid": "GPU-0"}, {**BOARD, "uuid": "GPU-1"}],
}  # fmt: skip
OVERHEAD = {
    "requests": 3, "first_token_p50": 0.001, "first_token_p99": 0.002, "engine_ttft": 0.02, "engine_tpot": 0.004,
    "tpot_ratio": 1.001,
}  # fmt: skip
SEARCH = {
    "low": 1.0, "high": 9.0, "attainment": 0.9, "precision": 0.1, "seconds": 30.0,
    "trials": [{"launch": 0, "rate": 2.0, "attained": 0.95, "kept_up": 1.0, "failed": 0, "met": True}],
}  # fmt: skip
PHASES = {
    "windows": [{"input_len": 512, "output_len": 1, "joules": 9.0, "error": 0.1}], "regression": None, "reason": "few",
}  # fmt: skip
ROOF = {
    "peak_flops": 1e15, "peak_bandwidth": 4e12, "source": "s", "memory_bytes": 10**11, "total_params": 7 * 10**9,
    "weight_bytes": 1.4e10, "kv_bytes_per_token": 1.3e5, "reason": None,
    "points": [
        {"phase": "decode", "batch": 16, "flops": 2e11, "weight_bytes": 1.4e10, "kv_bytes": 1e9, "seconds": 0.004},
    ],
}  # fmt: skip
EXTREME = (0, -1, 1, 1e-300, 1e300, -1e300, 5e-324, 2**53)


def whole():
    """A run whose records hold something in every part that a page shows."""
    rich = {"energy": [ENERGY, ENERGY], "phases": [PHASES], "roof": ROOF, "client_overhead": OVERHEAD}
    rate = {"input_len": {"uniform": [16, 64]}, "output_len": 8, "rate": 2.0, "slo": {"ttft": 0.2}}
    tests = [gated(**rich), measured(**rich)]
    tests.append(measured(nodeid="suites/test_serving.py::test_rate", search=SEARCH, workload=rate))
    return run(*tests).model_dump(mode="json")


def changed(node, chance, often):
    """Fields null or gone, lists shuffled or shorter, numbers at the ends of what there is, texts that are hostile."""
    if isinstance(node, dict):
        kept = {name: value for name, value in node.items() if chance.random() > often / 4}
        return {n: None if chance.random() < often / 4 else changed(v, chance, often) for n, v in kept.items()}
    if isinstance(node, list):
        items = [changed(item, chance, often) for item in node]
        if chance.random() < often:
            chance.shuffle(items)
        return items[: chance.randrange(len(items) + 1)] if chance.random() < often / 2 else items
    if chance.random() > often / 2 or isinstance(node, bool):
        return node
    return chance.choice(EXTREME) if isinstance(node, int | float) else chance.choice(HOSTILE) if node else node


def odd(test, chance):
    """The record with every field changed that still fits the schema then."""
    often = chance.choice((0.02, 0.1, 0.3))
    for name in list(test):
        for value in (changed(test[name], chance, often), None if chance.random() < often else test[name]):
            try:
                Record.model_validate({**test, name: value})
            except ValidationError:
                continue
            test = {**test, name: value}
            break
    return test


def save(folder, document):
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(document), "utf-8")
    return str(folder)


@pytest.fixture
def no_pictures(monkeypatch):
    """To draw one takes longer than all else."""
    monkeypatch.setattr(pictures, "png", lambda chart: b"")


@pytest.mark.parametrize("seed", range(24))
def test_whatever_fits_the_schema_ends_without_a_traceback(seed, tmp_path, capsys, no_pictures):
    chance = random.Random(seed)
    document = whole()
    sound = save(tmp_path / "sound", document)
    tests = [odd(test, chance) for test in document["tests"]]
    chance.shuffle(tests)
    strange = save(tmp_path / "strange", {**document, "tests": tests[: chance.randrange(1, 4)]})
    assert main(["report", strange]) == 0
    page = (tmp_path / "strange" / "report.html").read_text("utf-8")
    assert not any(f">{word}<" in page for word in ("None", "nan", "inf"))
    assert "could not be made" not in page
    for command in (["explain", strange], ["compare", sound, strange], ["compare", strange, sound, "--json"]):
        assert main(command) in (0, 1), command
    assert not [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]


@pytest.mark.parametrize("name", ["power", "sm_clock", "sm_activity"])
def test_columns_of_a_timeline_are_of_one_length(tmp_path, name):
    document = whole()
    document["tests"][0]["timeline"][name] = document["tests"][0]["timeline"][name][:-1]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    said = (
        rf"results\.json is no results\.json of schema 1: tests\.0\.timeline: {name} has 119 values for 120 seconds\."
    )
    with pytest.raises(ResultsError, match=said):
        read_results(path)


def page_of(tmp_path, **fields):
    made = run(Record.model_validate(record("f.py::t", verdict(), **fields)), found=[])
    assert main(["report", save(tmp_path / "r", made.model_dump(mode="json"))]) == 0
    return (tmp_path / "r" / "report.html").read_text("utf-8")


def test_values_without_an_engine_or_requests_are_shown(tmp_path, no_pictures):
    page = page_of(tmp_path, engine=None, requests=None, client_overhead=OVERHEAD, timeline=timeline())
    assert "Client overhead: the first token was received 1.000 ms" in page
    assert "requests completed" not in page


def test_energy_without_a_source_has_a_dash(tmp_path, no_pictures):
    page = page_of(tmp_path, energy=[{**ENERGY, "source": None, "boards": []}])
    assert "<td>\u2013" in page
    assert "None" not in page.partition('class="energy"')[2].partition("</table>")[0]


def test_arguments_are_json(tmp_path, no_pictures):
    page = page_of(tmp_path, engine={**ENGINE, "args": {"eager": True, "config": {"level": None, "x": "é<"}}})
    assert (
        "<code>{&#34;eager&#34;: true, &#34;config&#34;: {&#34;level&#34;: null, &#34;x&#34;: &#34;é&lt;&#34;}}" in page
    )


def test_fields_of_another_version_are_left_out_and_noted(tmp_path, capsys, no_pictures):
    document = whole()
    for one in document["tests"][0]["energy"]:
        one["counted_seconds"] = 1.0
        one["boards"][0]["counted_seconds"] = None
    document["run"]["host"] = {"name": "h"}
    folder = save(tmp_path / "old", document)
    with pytest.warns(UnknownFieldsWarning, match=r"tests\.energy\.counted_seconds \(2 times\)") as noted:
        read = read_results(tmp_path / "old" / "results.json")
    assert "run.host" in str(noted[0].message)
    assert read == Results.model_validate(whole())
    assert main(["report", folder]) == 0
    note = capsys.readouterr().err
    assert note.startswith("note: ")
    assert note.count("\n") == 1
    assert main(["report", folder]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_written_is_held_to_the_schema_and_what_is_wrong_besides_is_an_error(tmp_path):
    document = whole()
    document["run"]["host"] = "h"
    with pytest.raises(ValidationError):
        Results.model_validate(document)
    del document["run"]["id"]
    save(tmp_path, document)
    with pytest.raises(ResultsError, match=r"run\.id: Field required"):
        read_results(tmp_path / "results.json")


def test_a_search_without_trials_and_lengths_of_another_version_are_shown(tmp_path, no_pictures):
    page = page_of(tmp_path, search={**SEARCH, "trials": []}, workload={"input_len": {"new": 1}, "rate": 2.0})
    assert "{&#34;new&#34;: 1} prompt and unknown output tokens, 2.0 requests/s (poisson)" in page


def test_values_at_both_ends_of_all_numbers_have_a_strip():
    ends = {**record()["metrics"]["tpot"], "launches": [[-1.7e308], [1.7e308]]}
    assert charts.strip(MetricValue.model_validate(ends), None).endswith("</svg>")
