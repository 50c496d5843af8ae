"""What a run leaves for others to read: JUnit properties, summary.md, benchmark.json."""

import json
import shlex
import xml.etree.ElementTree as ET

import pytest

from pytest_llmperf.__main__ import main

TWO = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("batch", [1, 2])
def test_decode(llmperf, batch, record_property):
    record_property("batch", batch)
    llmperf.check(Workload(input_len=4, output_len=8, batch=batch))

def test_plain(record_property):
    record_property("mine", 1)
"""


def cases(suite):
    """The properties of every test case, in their order, by its name."""
    root = ET.parse(suite.folder / "junit.xml").getroot()
    found = [
        (c.get("name"), [(p.get("name"), p.get("value")) for p in c.iter("property")]) for c in root.iter("testcase")
    ]
    assert len(dict(found)) == len(found), "a test has more than one entry"
    return dict(found)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["plain", "xdist"])
def test_a_junit_file_says_what_was_decided_and_on_what(suite, workers):
    suite.write(TWO)
    quiet = ["-o", "junit_family=xunit1", "--junitxml=junit.xml", "--llmperf-launches=2", *workers]
    suite.run("--llmperf-save", *quiet)
    assert dict(cases(suite)["test_decode[1]"]) == {
        "batch": "1",
        "llmperf.verdict": "measured",
        "llmperf.simulated": "true",
    }
    suite.run(*quiet, engine="sim:h200,slowdown=1.2")
    found = cases(suite)
    assert found.pop("test_plain") == [("mine", "1")]
    assert set(found) == {"test_decode[1]", "test_decode[2]"}
    for name, properties in found.items():
        names = [one for one, _ in properties]
        assert len(names) == len(set(names)), "one test case, each property once, however many launches it took"
        kept = dict(properties)
        assert kept["batch"] == name[-2]
        assert kept["llmperf.verdict"] == kept["llmperf.tpot.verdict"] == "regressed"
        record = next(v for v in suite.records()[name]["verdicts"] if v["metric"] == "tpot")
        assert float(kept["llmperf.tpot.value"]) == pytest.approx(record["current"], rel=1e-6)
        assert float(kept["llmperf.tpot.change"]) == pytest.approx(0.2, abs=1e-3)
        assert kept["llmperf.tpot.unit"] == "s"


def test_a_test_that_measured_nothing_says_that_it_is_invalid(suite):
    suite.write(TWO.replace("input_len=4", "input_len=900_000"))
    suite.run("-o", "junit_family=xunit1", "--junitxml=junit.xml")
    kept = dict(cases(suite)["test_decode[1]"])
    assert kept["llmperf.verdict"] == "invalid"
    assert "900008" in kept["llmperf.invalid"]


def test_an_error_in_teardown_has_the_properties_too(suite):
    suite.write(
        TWO.replace("def test_decode(", "def test_decode(broken, ")
        + """
@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")
"""
    )
    suite.run("-o", "junit_family=xunit1", "--junitxml=junit.xml", "--llmperf-save", "--llmperf-launches=1")
    assert dict(cases(suite)["test_decode[1]"])["llmperf.verdict"] == "measured"


def test_every_report_has_a_summary_and_a_benchmark_file(suite):
    suite.write(TWO)
    suite.run("--llmperf-save", "--llmperf-launches=1")
    folder = suite.results.parent
    written = {name: (folder / name).read_text("utf-8") for name in ("summary.md", "benchmark.json")}
    assert "| `test_suite.py::test_decode[1]` | simulated |" in written["summary.md"]
    assert {"name", "unit", "value"} <= json.loads(written["benchmark.json"])[0].keys()
    for name in written:
        (folder / name).unlink()
    assert main(["report", str(folder)]) == 0
    assert written == {name: (folder / name).read_text("utf-8") for name in written}


def test_the_command_that_it_proposes_stores_what_was_missing(suite):
    suite.write(TWO)
    result = suite.run("--llmperf-launches=1", "-k", "decode")
    lines = result.stdout.lines
    (command,) = {lines[at + 1].strip() for at, line in enumerate(lines) if line == "  Store one with:"}
    assert command.startswith("pytest --llmperf-engine=sim:h200 ")
    suite.pytester.runpytest(*shlex.split(command)[1:], "--llmperf-report=report").assert_outcomes(
        passed=2, deselected=1
    )
    suite.run("--llmperf-launches=1", "-k", "decode").assert_outcomes(passed=2, deselected=1)


def test_hostile_ids_are_text_in_every_file(suite):
    suite.write(
        """
import pytest
from pytest_llmperf import Workload
@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a|b`c", "@all [x](http://e)", "l\\nm", "\\x1b[2J"])
def test_it(llmperf, name):
    llmperf.check(Workload(4, 4))
"""
    )
    suite.run("-o", "junit_family=xunit1", "--junitxml=junit.xml")
    summary = (suite.results.parent / "summary.md").read_text("utf-8")
    assert "<img" not in summary
    assert "](http" not in summary
    assert "@all" not in summary
    assert "\x1b" not in summary + (suite.results.parent / "benchmark.json").read_text("utf-8")
    assert len(cases(suite)) == 5
