"""``python -m pytest_llmperf calibrate``, through a whole session."""

import json
import sys

from pytest_llmperf.__main__ import main

TWO = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.llmperf(tolerance={"tpot": "4%"})
@pytest.mark.parametrize("batch", [1, 2])
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=4, output_len=4, batch=batch))

def test_measured_only(llmperf):
    llmperf.measure(Workload(input_len=4, output_len=4))
"""


def test_a_suite_is_measured_once_and_its_report_can_be_judged_again(suite, capsys):
    suite.write(TWO)
    measured = suite.pytester.run(
        sys.executable, "-m", "pytest_llmperf", "calibrate", "test_suite.py", "--launches", "6", "--report", "kept",
        "-p", "tests.plugin.quick", "-p", "no:cacheprovider", "--llmperf-engine", "sim:h200,launch_noise=0.002",
        "-k", "decode or measured",
    )  # fmt: skip
    assert measured.ret == 0
    measured.stdout.fnmatch_lines(["2 tests, 8 gated comparisons, 6 launches: all 6 ways*", "  tpot (tolerance 4.0%)"])
    measured.stdout.no_fnmatch_line("*passed in*")  # pytest's own words go to stderr
    measured.stderr.fnmatch_lines(["*3 passed in*"])
    assert list(suite.folder.rglob("baselines")) == []

    capsys.readouterr()
    assert main(["calibrate", str(suite.folder / "kept"), "--json", "--baseline-launches", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["splits"]["judged"] == 20
    assert found["false_alarms"]["hits"] == 0
    assert found["gated"] == 8
    assert len(found["left_out"]) == 1
    assert main(["calibrate", str(suite.folder / "kept"), "--launches", "7"]) == 1
    assert "is a report" in capsys.readouterr().err


def test_what_calibrate_sets_itself_is_refused_before_anything_is_measured(capsys):
    for word in ("--llmperf-save", "--llmperf-launches=3", "--llmperf-baselines=x", "--llmperf-report"):
        assert main(["calibrate", "suites", word]) == 1
        assert "Leave it out" in capsys.readouterr().err


def test_too_few_launches_and_no_tests_are_refused(capsys):
    assert main(["calibrate", "suites", "--launches", "5"]) == 1
    assert "at least 6" in capsys.readouterr().err
    assert main(["calibrate"]) == 1
    assert "needs tests to measure" in capsys.readouterr().err


def test_a_session_without_a_report_is_an_error(suite):
    ended = suite.pytester.run(sys.executable, "-m", "pytest_llmperf", "calibrate", "nowhere.py")
    assert ended.ret == 1
    ended.stderr.fnmatch_lines(["error: pytest ended with exit status 4 and left nothing to calibrate with.*"])
