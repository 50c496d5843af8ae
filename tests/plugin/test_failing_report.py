"""A report of which a part fails: the terminal's verdict, the other parts and the exit status stay."""

import sys

import pytest

from pytest_llmperf import findings
from pytest_llmperf.plugin import recorder
from pytest_llmperf.report import html, terminal, upkeep, write
from pytest_llmperf.report.exporters import benchmark, summary

ONE = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.measure(Workload(4, 4))"
FILES = {"results.json", "summary.md", "benchmark.json", "report.html"}


def fail(*_, **__):
    raise IndexError("an odd record")


def written(suite):
    return {path.name for path in (suite.folder / "report").iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("module", "name", "said", "lost"),
    [
        (html, "render", "error: *report.html could not be written: IndexError: an odd record*", "report.html"),
        (summary, "summary", "error: *summary.md could not be written: IndexError: an odd record*", "summary.md"),
        (benchmark, "benchmark", "error: *benchmark.json could not be written: IndexError*", "benchmark.json"),
        (findings, "with_findings", "error: What the tests say together could not be found: IndexError*", None),
        (terminal, "rows", "error: The table of tests could not be printed: IndexError*", None),
        (upkeep, "wrapped", "error: What became of the baselines could not be printed: IndexError*", None),
        (terminal, "verdict_line", "error: How the tests were judged could not be printed: IndexError*", None),
        (recorder, "shorten", "error: What failures have in common could not be told once: IndexError*", None),
    ],
)  # fmt: skip
def test_a_part_that_fails_costs_nothing_else(suite, monkeypatch, module, name, said, lost):
    suite.write(ONE)
    monkeypatch.setattr(module, name, fail)
    result = suite.run()
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*= llmperf =*"])
    result.stdout.fnmatch_lines(["*one* *simulated*" if name != "rows" else "measured: test_suite.py::test_one"])
    result.stdout.fnmatch_lines([said])
    first = next(file for file in ("report.html", "summary.md") if file != lost)
    result.stdout.fnmatch_lines([f"report: *{first}", "*1 passed*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert written(suite) == FILES - {lost}


def test_a_test_that_failed_decides_the_exit_status(suite, monkeypatch):
    suite.write(ONE + "; assert False")
    monkeypatch.setattr(html, "render", fail)
    assert suite.run().ret == pytest.ExitCode.TESTS_FAILED


def test_what_cannot_be_put_together_stays_in_the_journal(suite, monkeypatch):
    suite.write(ONE)
    monkeypatch.setattr(write, "assemble", fail)
    result = suite.run()
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["error: The report could not be made: IndexError: an odd record*", "*1 passed*"])
    assert written(suite) == {"journal.jsonl"}


def test_a_report_without_its_charts_libraries_is_a_report(suite, monkeypatch):
    suite.write(ONE)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(suite.folder / "empty"))
    html.embedded._library.cache_clear()
    result = suite.run()
    assert result.ret == 0
    assert "error" not in result.stdout.str()
    assert written(suite) == FILES
