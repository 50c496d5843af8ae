"""Stale and missing baselines are named after a gating run, and a run that compares nothing is no success."""

import json

import pytest

from pytest_llmperf.baselines import load, store

BOTH = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("batch", [1, 2])
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=4, output_len=4, batch=batch))

def test_prefill(llmperf):
    llmperf.check(Workload(input_len=8, output_len=2))
"""
NAMED = """
from pytest_llmperf import Workload

def test_two(llmperf):
    llmperf.check(Workload(input_len=4, output_len=4), name="a#b")
    llmperf.check(Workload(input_len=4, output_len=5), name="{name}")
"""
MEASURING = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.measure(Workload(4, 4))"


def found(suite):
    return json.loads(suite.results.read_text())["baselines"]


def stale(suite):
    return [entry["test"] for entry in found(suite)["stale"]]


@pytest.fixture
def saved(suite):
    """A suite with a baseline for each of its three tests."""
    suite.write(BOTH)
    suite.save("--llmperf-launches=1")
    return suite


class TestStale:
    def test_when_all_is_in_order_nothing_is_named(self, saved):
        result = saved.run()
        result.assert_outcomes(passed=3)
        assert found(saved) == {"stale": [], "missing": [], "not_run": 0}
        result.stdout.no_fnmatch_line("*stale*")
        result.stdout.no_fnmatch_line("*no baseline*")

    def test_a_renamed_test_leaves_one_stale_and_misses_another(self, saved):
        saved.write(BOTH.replace("test_prefill", "test_prompt"))
        result = saved.run()
        assert stale(saved) == ["test_suite.py::test_prefill"]
        assert found(saved)["missing"] == ["test_suite.py::test_prompt"]
        path = found(saved)["stale"][0]["path"]
        assert (saved.folder / path).is_file()
        text = " ".join(result.stdout.str().split())
        told = "1 test has no baseline: test_suite.py::test_prompt; store it with: pytest --llmperf-engine=sim:h200 -p"
        assert told in text
        told = "--llmperf-save 1 stale baseline, with which no test compares any more: test_suite.py::test_prefill"
        assert f" {told} in {path};" in text
        assert "test_suite.py::test_prefill" in (saved.folder / "report" / "report.html").read_text()

    def test_a_file_that_was_renamed_with_its_test_goes_on(self, saved):
        (path,) = (saved.folder / "baselines").rglob("test_prefill.json")
        path.rename(path.with_name("test_prompt.json"))
        saved.write(BOTH.replace("test_prefill", "test_prompt"))
        saved.run().assert_outcomes(passed=3)
        assert found(saved) == {"stale": [], "missing": [], "not_run": 0}
        told = [text for record in saved.records().values() for text in record["warnings"] if "is that of" in text]
        assert ["test_prompt.json is that of test_suite.py::test_prefill, by what" in text for text in told] == [True]

    def test_a_removed_parameter_is_named(self, saved):
        saved.write(BOTH.replace("[1, 2]", "[1]"))
        saved.run().assert_outcomes(passed=2)
        assert stale(saved) == ["test_suite.py::test_decode[2]"]

    def test_the_tests_of_a_removed_file_are_named_whatever_was_selected(self, saved):
        saved.write(MEASURING.replace("measure", "check"), name="test_other")
        saved.run("test_other.py", "--llmperf-save", "--llmperf-launches=1")
        (saved.folder / "test_suite.py").unlink()
        saved.run("test_other.py").assert_outcomes(passed=1)
        assert len(stale(saved)) == 3

    def test_a_test_that_only_measures_now_has_one_too_many(self, saved):
        saved.write(BOTH.replace("llmperf.check(Workload(input_len=8", "llmperf.measure(Workload(input_len=8"))
        saved.run().assert_outcomes(passed=3)
        assert stale(saved) == ["test_suite.py::test_prefill"]

    def test_tests_that_all_only_measure_now_have(self, saved):
        saved.write(BOTH.replace("check", "measure"))
        result = saved.run()
        result.assert_outcomes(passed=3)
        assert result.ret == 0
        assert len(stale(saved)) == 3
        result.stdout.fnmatch_lines(["3 stale baselines, *"])

    def test_those_of_other_hardware_are_left_alone(self, saved):
        saved.run("--llmperf-save", "--llmperf-launches=1", engine="sim:a100")
        saved.write(BOTH.replace("test_prefill", "test_prompt"))
        saved.run()
        assert [entry["path"].split("/")[1] for entry in found(saved)["stale"]] == ["simulated-nvidia-h200"]

    @pytest.mark.parametrize(("before", "after", "names"), [("x", "x", []), ("x", "y", ["x"])])
    def test_a_named_measurement_belongs_to_its_test(self, suite, before, after, names):
        suite.write(NAMED.format(name=before))
        suite.run("--llmperf-save", "--llmperf-launches=1").assert_outcomes(passed=1)
        suite.write(NAMED.format(name=after))
        suite.run("-o", "llmperf_tolerance=90%")
        # A test that failed may have ended before it got there.
        assert stale(suite) == []
        assert found(suite)["missing"] == [f"test_suite.py::test_two#{after}" for _ in names]

    def test_a_measurement_that_a_passing_test_takes_no_more_is_named(self, suite):
        suite.write(NAMED.format(name="x"))
        suite.run("--llmperf-save", "--llmperf-launches=1").assert_outcomes(passed=1)
        suite.write(NAMED.format(name="x").replace('llmperf.check(Workload(input_len=4, output_len=5), name="x")', ""))
        suite.run().assert_outcomes(passed=1)
        assert stale(suite) == ["test_suite.py::test_two#x"]

    @pytest.mark.parametrize("failing", [True, False])
    def test_a_part_of_a_test_that_passed_is_not_the_test(self, suite, failing):
        pytest.importorskip("_pytest.subtests")
        text = NAMED.replace("(llmperf)", "(llmperf, subtests)").format(name="x")
        suite.write(text)
        suite.run("--llmperf-save", "--llmperf-launches=1")
        parts = f"with subtests.test(): pass\n    with subtests.test(): assert {not failing}\n"
        suite.write(text.replace('llmperf.check(Workload(input_len=4, output_len=5), name="x")', parts))
        suite.run("--llmperf-launches=2")
        assert stale(suite) == ([] if failing else ["test_suite.py::test_two#x"])

    def test_many_are_counted_and_the_first_are_named(self, saved):
        path = next((saved.folder / "baselines").rglob("test_prefill.json"))
        for number in range(9):
            gone = load(path).model_copy(update={"test": f"test_gone.py::test_{number}"})
            store(path.parent.parent / "test_gone" / f"test_{number}.json", gone)
        text = " ".join(saved.run().stdout.str().split())
        assert "9 stale baselines" in text
        assert "and 4 more; delete the files" in text


class TestNotRun:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("-k", "test_prefill"),
            ("--deselect", "test_suite.py::test_decode"),
            ("test_suite.py::test_prefill",),
            ("-k", "test_prefill", "test_suite.py"),
        ],
    )
    def test_a_deselected_test_is_counted_and_not_stale(self, saved, arguments):
        result = saved.run(*arguments)
        result.assert_outcomes(passed=1, deselected=None if arguments[0].startswith("test") else 2)
        assert found(saved) == {"stale": [], "missing": [], "not_run": 2}
        result.stdout.fnmatch_lines(["baselines: 2 stored for tests that did not run"])

    def test_what_was_named_in_part_may_have_lost_a_test_that_nobody_looked_for(self, saved):
        saved.write(BOTH.replace("[1, 2]", "[1]"))
        saved.run("test_suite.py::test_decode", "test_suite.py::test_prefill").assert_outcomes(passed=2)
        assert found(saved) == {"stale": [], "missing": [], "not_run": 1}
        saved.run("test_suite.py::test_decode", "test_suite.py").assert_outcomes(passed=2)
        assert stale(saved) == ["test_suite.py::test_decode[2]"]

    def test_a_skipped_test_is_not_stale(self, saved):
        saved.write(BOTH.replace("def test_prefill", "@pytest.mark.skip\ndef test_prefill"))
        saved.run().assert_outcomes(passed=2, skipped=1)
        assert found(saved) == {"stale": [], "missing": [], "not_run": 1}

    def test_another_file_is_not_stale(self, saved):
        saved.write(MEASURING.replace("measure", "check"), name="test_other")
        saved.run("test_other.py", "--llmperf-save", "--llmperf-launches=1")
        saved.run("test_other.py").assert_outcomes(passed=1)
        assert found(saved)["not_run"] == 3

    def test_what_failed_last_is_not_all_there_is(self, saved):
        saved.write(BOTH.replace("output_len=2", "output_len=3"))
        results = "-p", "cacheprovider"
        saved.pytester.runpytest("--llmperf-engine=sim:h200", "--llmperf-report=report", *results)
        saved.pytester.runpytest("--llmperf-engine=sim:h200", "--llmperf-report=report", *results, "--lf")
        assert found(saved) == {"stale": [], "missing": [], "not_run": 2}

    def test_saving_says_nothing_of_baselines(self, saved):
        assert saved.run("--llmperf-save", "--llmperf-launches=1", "-k", "prefill").ret == 0
        assert found(saved) is None

    def test_what_is_only_measured_misses_none(self, suite):
        suite.write(MEASURING)
        suite.run().assert_outcomes(passed=1)
        assert found(suite) == {"stale": [], "missing": [], "not_run": 0}


class TestNothingCompared:
    def test_skipped_tests_are_no_success(self, saved):
        saved.write(BOTH.replace("import pytest", "import pytest\npytestmark = pytest.mark.skip"))
        result = saved.run()
        result.assert_outcomes(skipped=3)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert "None of the 3 performance tests was compared" in " ".join(result.stdout.str().split())

    def test_expected_failures_without_a_baseline_are_none_either(self, suite):
        suite.write(BOTH.replace("import pytest", "import pytest\npytestmark = pytest.mark.xfail"))
        result = suite.run()
        result.assert_outcomes(xfailed=3)
        assert found(suite)["missing"] == []  # nothing would ever store one
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["error: None of the 3 performance tests*"])

    def test_one_comparison_is_enough(self, saved):
        saved.write(BOTH.replace("def test_decode", "@pytest.mark.skip\ndef test_decode"))
        assert saved.run().ret == 0

    @pytest.mark.parametrize("skipped", ["", "\nimport pytest\n@pytest.mark.skip\ndef test_two(llmperf): pass"])
    def test_a_run_that_only_measures_is_left_alone(self, suite, skipped):
        suite.write(MEASURING + skipped)
        assert suite.run().ret == 0

    def test_a_test_that_skips_itself_in_its_second_launch_is_compared_with_nothing(self, saved):
        saved.write(
            BOTH.replace(
                "    llmperf.check", "    if len(llmperf._state.measurements): pytest.skip()\n    llmperf.check"
            )
        )
        result = saved.run(engine="sim:h200,slowdown=1.06")
        result.assert_outcomes(skipped=3)
        assert result.ret == pytest.ExitCode.TESTS_FAILED

    def test_an_expected_failure_of_a_test_that_only_measures_is_left_alone(self, suite):
        suite.write("import pytest\n" + MEASURING.replace("def", "@pytest.mark.xfail\ndef") + "; assert False")
        assert suite.run().ret == 0

    @pytest.mark.parametrize("argument", ["--collect-only", "--setup-plan", "--llmperf-save"])
    def test_a_run_that_does_not_gate_is_left_alone(self, saved, argument):
        saved.write(BOTH.replace("import pytest", "import pytest\npytestmark = pytest.mark.skip"))
        assert saved.run(argument).ret == 0

    def test_tests_of_other_kinds_are_left_alone(self, saved):
        saved.write("def test_plain(): pass", name="test_plain")
        assert saved.run("-k", "test_plain").ret == 0
        saved.write("def test_engine(llm_model): pass", name="test_plain")
        assert saved.run("test_plain.py").ret == 0

    def test_a_failure_keeps_its_exit_status(self, saved):
        saved.write(BOTH.replace("llmperf.check(", "assert False, ("))
        result = saved.run()
        result.assert_outcomes(failed=3)
        result.stdout.no_fnmatch_line("*None of the 3*")


class TestWorkers:
    @pytest.fixture(autouse=True)
    def _xdist(self):
        pytest.importorskip("xdist")

    def test_their_controller_reports_once_for_all(self, saved):
        saved.write(BOTH.replace("test_prefill", "test_prompt").replace("[1, 2]", "[1, 2, 3]"))
        result = saved.run("-n", "2", "-k", "not 1")
        assert found(saved)["missing"] == ["test_suite.py::test_decode[3]", "test_suite.py::test_prompt"]
        assert stale(saved) == ["test_suite.py::test_prefill"]
        assert found(saved)["not_run"] == 1
        assert result.stdout.str().count("no baseline:") == 1
        assert not list((saved.folder / "report").glob("journal*"))

    def test_skipped_tests_are_no_success_there_either(self, saved):
        saved.write(BOTH.replace("import pytest", "import pytest\npytestmark = pytest.mark.skip"))
        result = saved.run("-n", "2")
        result.assert_outcomes(skipped=3)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert result.stdout.str().count("None of the 3") == 1


def test_what_killed_workers_have_left_is_no_run_of_this_one(saved):
    saved.write("def test_plain(): pass", name="test_plain")
    left = saved.folder / "report" / "journal-gw0.jsonl"
    left.write_text("{}\n")
    before = saved.results.read_text()
    saved.pytester.runpytest("test_plain.py", "--llmperf-report=report").assert_outcomes(passed=1)
    assert left.exists()
    assert saved.results.read_text() == before
