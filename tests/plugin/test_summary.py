"""What a session prints in the end: the run in one line, and what all failures have in common once."""

import xml.etree.ElementTree as ET

import pytest

TWO = """
from pytest_llmperf import Workload

def test_short(llmperf):
    llmperf.check(Workload(16, 8))

def test_long(llmperf):
    llmperf.check(Workload(16, 64))
"""
CAUSE = "slowdown=1.2 (not given in the baseline)"


def said(result, *, start="", end="= llmperf ="):
    """What is printed between two lines, on one line."""
    text = result.stdout.str()
    return " ".join(text[text.index(start) : text.index(end)].split())


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_what_failures_have_in_common_stands_once_in_the_terminal_and_in_each_of_junits(suite, workers):
    suite.write(TWO)
    suite.save()
    result = suite.run("--junitxml=junit.xml", *workers, engine="sim:h200,slowdown=1.2")
    assert result.ret == 1
    failures, summary = said(result), said(result, start="= llmperf =", end="report: ")
    assert failures.count("tpot: regressed:") == 2
    assert CAUSE not in failures
    assert summary.count(f"under test in all 2 that moved: {CAUSE}") == 1
    told = [failure.text for failure in ET.parse(suite.folder / "junit.xml").getroot().iter("failure")]
    assert [" ".join(text.split()).count(CAUSE) for text in told] == [1, 1]
    result.stdout.fnmatch_lines(["FAILED *test_short - Failed: regressed*"])


def test_the_one_that_failed_is_told_whole(suite):
    suite.write(TWO.partition("def test_long")[0])
    suite.save()
    result = suite.run(engine="sim:h200,slowdown=1.2")
    assert CAUSE in said(result)
    assert "under test in all" not in result.stdout.str()


def test_the_last_line_before_the_reports_is_the_run_in_one(suite):
    suite.write(TWO)
    suite.save()
    suite.run().stdout.fnmatch_lines(["2 tests: 2 passed", "report: *"], consecutive=True)
    result = suite.run("--maxfail=1", engine="sim:h200,slowdown=1.2")
    result.stdout.fnmatch_lines(
        ["2 tests: 1 regressed, 1 not finished; worst: * of short +*", "report: *"], consecutive=True
    )


def test_the_header_fits_the_terminal_however_many_models_there_are(suite, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    models = ("mistral-7b", "llama-2-7b", "llama-2-13b", "mpt-7b", "mpt-30b")
    marks = "\n".join(
        f"@pytest.mark.llmperf(model={model!r})\ndef test_{place}(llmperf): llmperf.measure(Workload(16, 8))"
        for place, model in enumerate(models)
    )
    suite.write(f"import pytest\nfrom pytest_llmperf import Workload\n{marks}\n")
    result = suite.run("--collect-only")
    lines = result.stdout.lines
    first = next(place for place, line in enumerate(lines) if line.startswith("llmperf: sim:h200 on "))
    assert max(map(len, lines[first : first + 2])) <= 80
    assert all(model in " ".join(lines[first : first + 2]) for model in models)
