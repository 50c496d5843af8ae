"""What several processes have journaled comes together in one record."""

import json

import pytest

from pytest_llmperf.machine import environment
from pytest_llmperf.report.write import load_run, read_journals

RUN = dict.fromkeys(("id", "started_at", "command", "plugin_version"), "") | {"commit": None, "dirty": None}
HEAD = {"run": RUN, "environment": environment([], None), "definitions": {}}


def write(folder, name, *lines):
    (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def found(**environment):
    return {"environment": environment}


def idle(held, **rest):
    return {"boards": {"GPU-0": {"shortest_window_s": 1.0}}, "idle": {"held_w": held, **rest}}


def test_what_the_workers_found_is_laid_together(tmp_path):
    write(tmp_path, "journal-gw0", HEAD, found(peaks=[], sensor=idle({"900": 130.0}, loaded_w=125.0, reasons={})))
    write(tmp_path, "journal-gw1", HEAD, found(sensor=idle({"1200": 135.0}, loaded_w=None, bare_w=None)))
    assert read_journals(tmp_path).found == {
        "peaks": [],
        "sensor": idle({"900": 130.0, "1200": 135.0}, loaded_w=125.0, bare_w=None, reasons={}),
    }


def test_a_process_may_think_better_of_it(tmp_path):
    first = idle({}, loaded_w=None, reasons={"loaded": "it was not measured"})
    write(tmp_path, "journal", HEAD, found(sensor=first), found(sensor=idle({}, loaded_w=125.0, reasons={})))
    assert read_journals(tmp_path).found["sensor"]["idle"] == {"held_w": {}, "loaded_w": 125, "reasons": {}}


@pytest.mark.parametrize("cut", [1, 20])
def test_a_run_that_was_killed_keeps_what_was_found(tmp_path, cut):
    write(tmp_path, "journal", HEAD, found(sensor=idle({}, loaded_w=125.0)), found(sensor=idle({"900": 130.0})))
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    sensor = load_run(tmp_path).environment.sensor
    assert sensor["idle"]["held_w"] == ({"900": 130} if cut == 1 else {})
