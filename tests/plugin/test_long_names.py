"""Ids of any length: whole in files, and cut where a sentence names a test."""

import json

import pytest

SUITE = """
import pytest
from pytest_llmperf import Workload
LONG = "y" * 10_000

@pytest.mark.parametrize("batch", [1, 2], ids=[LONG + "-1", LONG + "-2"])
def test_long(llmperf, batch): llmperf.check(Workload(16, 4, batch=batch))

@pytest.mark.parametrize("rate", [4], ids=[LONG])
def test_rate(llmperf, rate): llmperf.measure(Workload(16, 4, rate=rate, requests=6, slo={"ttft": .5}))
"""


def section(result):
    """What the plugin printed, without pytest's own lines."""
    text = result.stdout.str().partition("= llmperf =")[2]
    return text.partition("short test summary")[0]


@pytest.mark.parametrize("slowdown", [0.7, 1.5])
def test_sentences_cut_names_and_files_hold_them_whole(suite, slowdown):
    suite.write(SUITE)
    printed = section(suite.run())  # without baselines
    suite.save("--llmperf-launches=2")
    result = suite.run(engine=f"sim:h200,slowdown={slowdown}")
    printed += section(result)
    assert "test_rate[yyy" in printed
    assert max(map(len, printed.split())) < 300
    assert len(printed) < 12_000
    tests = json.loads(suite.results.read_text())["tests"]
    assert all("y" * 10_000 in test["nodeid"] for test in tests)
    assert len({test["nodeid"] for test in tests}) == 3
    failures = [line for line in result.stdout.lines if line.startswith("regressed") and "yyy" in line]
    assert all(len(line) < 300 for line in failures)
    assert bool(failures) == (slowdown > 1)
