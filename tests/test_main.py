"""The commands as a shell runs them."""

import json
import os
import subprocess
import sys

import pytest

from pytest_llmperf.__main__ import main

from .explanation.records import document, metric, run, verdict

PIPE_CLOSED = 141


@pytest.fixture
def report(tmp_path):
    """A report whose launches no engine can have measured: edited, or of a broken clock."""
    one = document({"tpot": 1.07, "ttft": 1.08}, {"decode_time": 1e308})
    one["metrics"]["tpot"]["launches"] = [[1e308, 1e308], [1e308]]
    one["metrics"]["tpot"]["value"] = 1e308
    one["verdicts"][0] = {**verdict("tpot", 1.07), "baseline_launches": [[1e-308]], "baseline": 1e-308}
    one["metrics"]["e2e_latency"] = metric("e2e_latency", 1e-308, 1e308)
    one["requests"] = {
        "sent": 3, "completed": 3, "failed": 0, "first_error": None, "output_tokens": 12, "token_source": "server",
    }  # fmt: skip
    (tmp_path / "results.json").write_text(json.dumps(run(one)))
    return tmp_path


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_values_beyond_all_bounds_are_explained_and_compared(report, capsys, more):
    assert main(["explain", str(report), *more]) == 1
    assert "1e+308" in capsys.readouterr().out
    other = report / "other.json"
    recorded = json.loads((report / "results.json").read_text())
    recorded["tests"][0]["metrics"]["e2e_latency"] = metric("e2e_latency", 1e-308, 1e300)
    other.write_text(json.dumps(recorded))
    for a, b in ((report, other), (other, report)):
        assert main(["compare", str(a), str(b), *more]) == 0
        assert "e2e_latency" in capsys.readouterr().out


def test_values_beyond_all_bounds_are_reported(report, capsys):
    assert main(["report", str(report)]) == 0
    assert "one[16]" in capsys.readouterr().out
    entries = {entry["name"].split()[-1]: entry for entry in json.loads((report / "benchmark.json").read_text())}
    assert "range" not in entries["e2e_latency"]
    assert "over" in (report / "report.html").read_text()


def test_values_beyond_all_bounds_on_both_sides_have_no_change(report, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    (other / "results.json").write_text(
        json.dumps(run({**document({"tpot": 1.0}), "metrics": {"tpot": metric("tpot", 1e-308, 1e-308)}}))
    )
    assert main(["compare", str(other), str(report), "--json"]) == 0
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    (tpot,) = (one for one in test["metrics"] if one["name"] == "tpot")
    assert (tpot["change"], tpot["interval"]) == (None, None)


@pytest.mark.skipif(os.name == "nt", reason="there are no such pipes")
@pytest.mark.parametrize("command", ["explain", "report", "schema", "compare"])
def test_a_reader_that_has_enough_ends_a_command_quietly(report, command):
    folders = {"explain": [report], "report": [report], "schema": [], "compare": [report, report]}[command]
    reading, writing = os.pipe()
    os.close(reading)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest_llmperf", command, *map(str, folders)],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
            env=environment,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (PIPE_CLOSED, "")
