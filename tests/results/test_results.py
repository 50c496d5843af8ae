"""results.json, the report page and the journal of a run."""

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

import pytest_llmperf.results
from pytest_llmperf.__main__ import main
from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report.html import render
from pytest_llmperf.results import Results, json_schema, read_results

SCHEMA = Path(pytest_llmperf.results.__file__).parent / "results.schema.json"
SUITE = """
import pytest
from pytest_llmperf import Workload
@pytest.mark.parametrize("batch", [1, 2])
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=4, output_len=4, batch=batch))
"""


def run(pytester, *arguments, engine="sim:h200"):
    return pytester.runpytest(f"--llmperf-engine={engine}", "--llmperf-report=report", *arguments)


def test_the_published_schema_is_the_models():
    assert SCHEMA.read_text() == json_schema(), f"run: python -m pytest_llmperf schema > {SCHEMA}"


def test_results_are_strict_json_of_the_published_schema(pytester):
    pytester.makepyfile(SUITE)
    run(pytester, "--llmperf-save", "--llmperf-launches=2")
    run(pytester)
    text = (pytester.path / "report/results.json").read_text()
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    test = document["tests"][0]
    assert set(test) >= {"nodeid", "verdict", "workload", "engine", "clock", "metrics", "verdicts", "requests", "warnings", "invalid"}  # fmt: skip  # noqa: E501
    assert test["requests"] == {
        "sent": 3, "completed": 3, "failed": 0, "first_error": None, "output_tokens": 12, "token_source": "server",
            "time_source": "client", "chunk_tokens": "told", "errors": {},
    }  # fmt: skip
    assert set(test["verdicts"][0]) == {
        "metric", "verdict", "baseline", "current", "change", "interval", "tolerance", "minimum_detectable",
        "baseline_launches", "alpha", "looks", "reason", "against", "launches", "advice", "noise", "prediction",
        "saved_at",
    }  # fmt: skip
    assert test["engine"]["simulated"] is True


def test_two_runs_of_one_seed_have_identical_tests(pytester):
    pytester.makepyfile(SUITE)
    seen = []
    for _ in range(2):
        run(pytester, "--llmperf-launches=2", engine="sim:h200,seed=3,launch_noise=0.01,repeat_noise=0.01")
        seen.append(json.loads((pytester.path / "report/results.json").read_text())["tests"])
    assert seen[0] == seen[1]


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_asks_for_nothing(pytester):
    pytester.makepyfile(SUITE)
    run(pytester)
    page = _Page()
    page.feed((pytester.path / "report/report.html").read_text())
    assert not [t for t, _ in page.tags if t in ("link", "img", "iframe", "base", "form")]
    assert not [a for _, a in page.tags if "src" in a]
    beside = {"results.json", "benchmark.json", "summary.md"}
    assert {a["href"] for _, a in page.tags if not a.get("href", "#").startswith("#")} == beside


def test_hostile_names_are_text(pytester):
    pytester.makepyfile(
        """
        import pytest
        from pytest_llmperf import Workload
        @pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>"])
        def test_hostile(llmperf, name):
            llmperf.measure(Workload(4, 4))
        """
    )
    run(pytester).assert_outcomes(passed=2)
    page = _Page()
    text = (pytester.path / "report/report.html").read_text()
    page.feed(text)
    assert not [t for t, _ in page.tags if t == "img"]
    assert [a.get("id") for t, a in page.tags if t == "script"] == [None, "charts", "library", "record", None]
    assert "&lt;img src=x" in text


def test_a_users_template_replaces_the_page(pytester, capsys):
    pytester.makepyfile(SUITE)
    run(pytester)
    template = pytester.path / "mine.j2"
    template.write_text("{{ tests | length }} tests, {{ tests[0].metrics.tpot.value | value('s') }}")
    assert main(["report", str(pytester.path / "report"), "--template", str(template)]) == 0
    page = (pytester.path / "report/report.html").read_text()
    tpot = json.loads((pytester.path / "report/results.json").read_text())["tests"][0]["metrics"]["tpot"]["value"]
    assert page == f"2 tests, {tpot * 1000:.4g} ms"


@pytest.mark.parametrize(("text", "words"), [("{{ nothing.here }}", "nothing"), ("{% if %}", "line 1")])
def test_a_wrong_template_is_named(pytester, text, words, capsys):
    pytester.makepyfile(SUITE)
    run(pytester)
    template = pytester.path / "mine.j2"
    template.write_text(text)
    assert main(["report", str(pytester.path / "report"), "--template", str(template)]) == 1
    error = capsys.readouterr().err
    assert "mine.j2" in error
    assert words in error


@pytest.mark.parametrize("tests", [0, 1])
def test_a_page_of_few_or_no_tests_still_says_something(tests):
    results = Results.model_validate(
        {
            "schema_version": 1,
            "run": {"id": "r", "started_at": "t", "command": "c", "commit": None, "dirty": None, "plugin_version": "0"},
            "environment": {"python": "3", "platform": "p", "cpu": "c", "cuda": None, "gpus": [], "sensor": None},
            "tests": [
                {
                    "nodeid": "a.py::b", "verdict": "invalid", "outcome": "failed", "workload": None, "engine": None,
                    "clock": {}, "metrics": {}, "verdicts": [], "requests": None, "client_overhead": None,
                    "warnings": [], "invalid": "the engine did not start",
                }
            ][:tests],
        }
    )  # fmt: skip
    page = render(results)
    assert ("the engine did not start" if tests else "No test measured anything") in page


def test_a_killed_run_keeps_what_was_measured(pytester):
    pytester.makepyfile(
        SUITE
        + """
def test_long(llmperf):
    import time
    from pathlib import Path
    Path("reached").touch()
    time.sleep(600)
"""
    )
    command = [sys.executable, "-m", "pytest", "--llmperf-engine=sim:h200", "--llmperf-report=report"]
    process = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (pytester.path / "reached").exists():
        assert process.poll() is None, "the suite ended before it was killed"
        assert time.monotonic() < deadline, "the suite never got to its last test"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    report = pytester.path / "report"
    assert not (report / "results.json").exists()
    assert main(["report", str(report)]) == 0
    tests = read_results(report / "results.json").tests
    assert [t.nodeid.partition("::")[2] for t in tests] == ["test_decode[1]", "test_decode[2]"]
    assert all(t.metrics["tpot"].value for t in tests)
    assert (report / "report.html").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 2}', "\xff"])
def test_a_file_that_is_no_results_is_refused_by_name(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultsError, match=r"results\.json"):
        read_results(path)


def test_the_report_command_says_what_is_missing(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "neither results.json nor a journal" in capsys.readouterr().err
