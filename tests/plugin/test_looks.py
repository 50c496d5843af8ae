"""A gated test is launched until its verdict is drawn: how often, with which others, and what is said in the end."""

import json
import signal
from itertools import pairwise

import pytest

from pytest_llmperf.gate.rules import FAMILY_ALPHA, PASS_ALPHA, POWER
from pytest_llmperf.report.write import read_journals

from .servers import FakeServer

NOISY = "sim:h200,seed=%d,launch_noise=0.03"
#: Launches of this seed make the baselines, those of others are gated.
SAVED, AGAIN = NOISY % 1, NOISY % 2

HEAD = """
import os, signal
from pathlib import Path
import pytest
from pytest_llmperf import Workload
W = Workload(16, 8)
def note(word):
    with Path("calls").open("a") as file:
        file.write(f"{word} ")
def within(tolerance, **more):
    return pytest.mark.llmperf(tolerance=dict.fromkeys(("ttft", "tpot", "tpj", "mbu"), tolerance) | more)
"""
#: Beside launches that differ by 3 %, the first two are clear at once, and the third is not.
THREE = """
@within("100%")
def test_wide(llmperf):
    note("wide")
    llmperf.check(W)
@within("100%")
def test_wider(llmperf):
    note("wider")
    llmperf.check(W.replace(batch=2))
@within("8%")
def test_narrow(llmperf):
    note("narrow")
    llmperf.check(W.replace(batch=3))
"""


@pytest.fixture
def gated(suite):
    """A suite with stored baselines, and the results of gating it."""

    def run(text, *arguments, saved=SAVED, now=AGAIN, saving=(), ret=0):
        suite.write(HEAD + text)
        if saved is not None:
            suite.save(*saving, engine=saved)
            (suite.folder / "calls").unlink(missing_ok=True)
        result = suite.run(*arguments, engine=now)
        assert result.ret == ret
        return result

    return run


def calls(suite):
    return (suite.folder / "calls").read_text().split()


def verdicts(suite, test):
    """Those for which launches were compared."""
    return {(v["metric"], v["against"]): v for v in suite.records()[test]["verdicts"] if v["looks"] is not None}


def launched(suite, test):
    return len(suite.records()[test]["metrics"]["tpot"]["launches"])


def gate(suite):
    return json.loads(suite.results.read_text())["gate"]


def compared(suite):
    """How many comparisons of launches a run has made."""
    return sum(1 for record in suite.records().values() for v in record["verdicts"] if v["looks"] is not None)


class TestLaunches:
    def test_a_clear_pass_costs_one_engine_start_for_all_tests(self, gated, suite):
        result = gated(THREE, "-k", "wide")
        result.stdout.fnmatch_lines(
            ["llmperf: launches: up to 8 where gated, 1 where only measured, 3 repeats each", "engine starts: 1"]
        )
        assert calls(suite) == ["wide", "wider"]
        for verdict in verdicts(suite, "test_wide").values():
            assert (verdict["verdict"], verdict["looks"], verdict["launches"]) == ("pass", 1, 1)
            assert verdict["prediction"]

    def test_a_test_that_is_not_clear_is_launched_again_without_the_others(self, gated, suite):
        result = gated(THREE)
        count = launched(suite, "test_narrow")
        assert 1 < count <= 8
        assert calls(suite) == ["wide", "wider", *["narrow"] * count]
        result.stdout.fnmatch_lines(["*launch 2, for 1 undecided test", f"engine starts: {count}"])
        assert [launched(suite, name) for name in ("test_wide", "test_wider")] == [1, 1]
        assert suite.records()["test_narrow"]["verdict"] == "pass"

    def test_a_regression_is_not_called_on_the_first_of_several_launches(self, gated, suite):
        result = gated(THREE, now=AGAIN + ",slowdown=3", ret=1)
        result.assert_outcomes(failed=3)
        assert min(launched(suite, name) for name in suite.records()) == 2
        assert {record["verdict"] for record in suite.records().values()} == {"regressed"}
        result.stdout.fnmatch_lines(["engine starts: *"])

    def test_an_improvement_passes_at_once(self, gated, suite):
        result = gated(THREE, "-k", "narrow", now=AGAIN + ",slowdown=0.5")
        result.assert_outcomes(passed=1, deselected=2)
        result.stdout.fnmatch_lines(["engine starts: 1"])
        assert suite.records()["test_narrow"]["verdict"] == "improved"

    def test_what_is_decided_stays_decided_while_the_test_goes_on_for_another_metric(self, gated, suite):
        gated("@within('100%', tpot='8%')\ndef test_one(llmperf): llmperf.check(W)")
        record = suite.records()["test_one"]
        early, late = (verdicts(suite, "test_one")[name, "baseline"] for name in ("ttft", "tpot"))
        assert (early["verdict"], early["looks"], early["launches"]) == ("pass", 1, 1)
        assert late["launches"] == launched(suite, "test_one") > 1
        first, *others = record["metrics"]["ttft"]["launches"]
        assert early["current"] == pytest.approx(sorted(first)[1])
        assert others
        assert not late["prediction"]

    def test_beside_a_regression_nothing_else_is_followed_up(self, gated, suite):
        # Three times as slow: TTFT is as much worse as is tolerated.
        text = "@within('1000%', ttft='200%', tpot='5%')\ndef test_one(llmperf): llmperf.check(W)"
        gated(text, now=AGAIN + ",slowdown=3", ret=1)
        assert launched(suite, "test_one") == 2
        found = verdicts(suite, "test_one")
        assert found["tpot", "baseline"]["verdict"] == "regressed"
        assert found["ttft", "baseline"]["verdict"] == "inconclusive"
        assert "not followed up" in found["ttft", "baseline"]["reason"]
        assert found["ttft", "baseline"]["advice"] is None

    def test_measuring_takes_one_launch_unless_told_otherwise(self, gated, suite):
        text = "def test_one(llmperf):\n    note('one')\n    llmperf.measure(W)"
        gated(text, saved=None).stdout.fnmatch_lines(["engine starts: 1"])
        assert launched(suite, "test_one") == 1
        gated(text, "--llmperf-launches=2", saved=None)
        assert launched(suite, "test_one") == 2

    def test_saving_takes_five(self, gated, suite):
        gated(THREE, "--llmperf-save", saved=None).stdout.fnmatch_lines(["engine starts: 5"])
        assert [launched(suite, name) for name in suite.records()] == [5, 5, 5]

    def test_tests_of_two_models_are_launched_again_on_their_own_engines_only(self, gated, suite):
        text = """
@pytest.mark.llmperf(model="mistral-7b", tolerance="100%")
def test_large(llmperf): llmperf.check(W)
@pytest.mark.llmperf(model="tiny-llama", tolerance="5%")
def test_small(llmperf): llmperf.check(W)
"""
        result = gated(text, "--llmperf-launches=4", ret=1)
        assert (launched(suite, "test_large"), launched(suite, "test_small")) == (1, 4)
        result.stdout.fnmatch_lines(["engine starts: 5"])


#: As much slower as is tolerated: no number of launches decides that.
ON_THE_EDGE = "@within('10%')\ndef test_edge(llmperf):\n    note('edge')\n    llmperf.check(W)"
EDGE = AGAIN + ",slowdown=1.1"


class TestInconclusive:
    def test_it_fails_with_what_would_decide(self, gated, suite):
        result = gated(ON_THE_EDGE, now=EDGE, ret=1)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["inconclusive ttft *: test_suite.py::test_edge", "*tpot: inconclusive*", "engine starts: 8"]
        )
        record = suite.records()["test_edge"]
        assert (record["verdict"], record["outcome"]) == ("inconclusive", "failed")
        verdict = verdicts(suite, "test_edge")["tpot", "baseline"]
        low, high = verdict["interval"]
        assert low < verdict["tolerance"] < high
        assert (verdict["looks"], verdict["launches"]) == (7, 8)
        assert "tolerance" in verdict["advice"]
        assert verdict["advice"] in " ".join(result.stdout.str().split())

    def test_with_warn_it_passes_and_stays_inconclusive(self, gated, suite):
        result = gated(ON_THE_EDGE, "--llmperf-inconclusive=warn", now=EDGE)
        result.assert_outcomes(passed=1)
        record = suite.records()["test_edge"]
        assert (record["verdict"], record["outcome"]) == ("inconclusive", "passed")
        result.stdout.fnmatch_lines(["*inconclusive*"])

    def test_warn_does_not_let_a_regression_pass(self, gated, suite):
        gated(ON_THE_EDGE, "--llmperf-inconclusive=warn", now=AGAIN + ",slowdown=2", ret=1)
        assert suite.records()["test_edge"]["verdict"] == "regressed"

    @pytest.mark.parametrize("launches", [1, 3, 9])
    def test_the_option_says_how_many_launches_it_may_take(self, gated, suite, launches):
        result = gated(ON_THE_EDGE, f"--llmperf-launches={launches}", now=EDGE, ret=1)
        result.stdout.fnmatch_lines(
            [f"llmperf: launches: up to {launches} where gated, *", f"engine starts: {launches}"]
        )
        assert calls(suite) == ["edge"] * launches
        assert gate(suite)["launches"] == gate(suite)["looks"][-1] == launches
        assert verdicts(suite, "test_edge")["tpot", "baseline"]["launches"] == launches

    def test_one_launch_against_one_says_nothing_and_what_to_do(self, gated, suite):
        quiet = {"saved": "sim:h200", "now": "sim:h200", "saving": ["--llmperf-launches=1"]}
        gated(THREE, "-k", "wide", "--llmperf-launches=1", ret=1, **quiet)
        for verdict in verdicts(suite, "test_wide").values():
            assert (verdict["verdict"], verdict["interval"], verdict["noise"]) == ("inconclusive", None, None)
            assert "--llmperf-save" in verdict["advice"]

    def test_against_a_baseline_of_one_launch_a_second_now_decides(self, gated, suite):
        quiet = {"saved": "sim:h200", "now": "sim:h200", "saving": ["--llmperf-launches=1"]}
        gated(THREE, **quiet).stdout.fnmatch_lines(["engine starts: 2"])
        assert verdicts(suite, "test_wide")["tpot", "baseline"]["noise"]["own_df"] == 1


class TestRecord:
    def test_it_holds_what_the_verdict_stands_on(self, gated, suite):
        gated(THREE)
        found = gate(suite)
        assert found["gated"] == compared(suite) == 12
        assert (found["looks"], found["launches"]) == ([1, 2, 3, 4, 5, 6, 8], 8)
        assert (found["family_alpha"], found["pass_alpha"], found["power"]) == (FAMILY_ALPHA, PASS_ALPHA, POWER)
        verdict = verdicts(suite, "test_narrow")["tpot", "baseline"]
        low, high = verdict["interval"]
        assert low < verdict["change"] < high < 0.08 < verdict["minimum_detectable"]
        assert verdict["alpha"] == pytest.approx(FAMILY_ALPHA / 12)
        assert 0.01 < verdict["noise"]["sd"] < 0.06
        assert len(verdict["baseline_launches"]) == 5

    def test_a_gate_of_nothing_records_no_rules(self, gated, suite):
        gated("def test_one(llmperf): llmperf.measure(W)", saved=None)
        assert gate(suite) is None

    def test_tests_that_share_their_launches_and_their_noise_are_no_proof_for_each_other(self, gated, suite):
        """The simulated noise moves all tests of a launch alike."""
        many = "".join(
            f"@within('100%')\ndef test_{i}(llmperf): llmperf.check(W.replace(batch={i + 1}))\n" for i in range(5)
        )
        gated(many)
        for i in range(5):
            noise = verdicts(suite, f"test_{i}")["tpot", "baseline"]["noise"]
            assert (noise["source"], noise["own_df"], noise["tests"]) == ("own", 4, 4)
            assert noise["pooled_df"] < 1


COUNTED = {
    "plain": ("def test_a(llmperf): llmperf.check(W)\ndef test_b(llmperf): llmperf.check(W)", (), 8),
    "named": (
        "def test_a(llmperf):\n    llmperf.check(W)\n"
        "    llmperf.check(W, name='again')\n    llmperf.check(W, name='x#y')",
        (),
        12,
    ),
    "parametrized ids": (
        "@pytest.mark.parametrize('n', ['a#b', 'a/b', 'x'])\ndef test_a(llmperf, n): llmperf.check(W)",
        (),
        12,
    ),
    "phases": ("def test_a(llmperf): llmperf.check_phases(Workload(256, 64))", (), 6),
    "a rate": (
        "def test_a(llmperf):\n    w = Workload(256, 32, slo={'ttft': 0.2, 'tpot': 0.012})\n"
        "    llmperf.check_max_rate(w, low=64, high=128, seconds=1, precision=0.5)",
        (),
        1,
    ),
    "its marker": (
        "@pytest.mark.llmperf(tolerance={'e2e_latency': '5%'})\ndef test_a(llmperf): llmperf.check(W)",
        (),
        5,
    ),
    "one token": ("def test_a(llmperf): llmperf.check(Workload(64, 1))", (), 2),
    "deselected": ("def test_a(llmperf): llmperf.check(W)\ndef test_b(llmperf): llmperf.check(W)", ("-k", "test_a"), 4),
    "an id": (
        "def test_a(llmperf): llmperf.check(W)\ndef test_b(llmperf): llmperf.check(W)",
        ("test_suite.py::test_b",),
        4,
    ),
    "models": (
        "".join(
            f"@pytest.mark.llmperf(model='{model}')\ndef test_{name}(llmperf): llmperf.check(W)\n"
            for name, model in (("a", "mistral-7b"), ("b", "tiny-llama"))
        ),
        (),
        8,
    ),
    "measured": ("def test_a(llmperf): llmperf.check(W)\ndef test_b(llmperf): llmperf.measure(W)", (), 4),
}


class TestCount:
    """The comparisons among which the errors are shared are counted before the first: from tests and baselines."""

    @pytest.mark.parametrize(("text", "arguments", "expected"), COUNTED.values(), ids=COUNTED)
    def test_as_many_as_are_then_made(self, gated, suite, text, arguments, expected):
        quiet = {"saved": "sim:h200", "now": "sim:h200", "saving": ["--llmperf-launches=2"]}
        gated(text, *arguments, **quiet)
        assert gate(suite)["gated"] == compared(suite) == expected

    def test_an_anchor_is_one_more_each(self, gated, suite):
        quiet = {"saved": "sim:h200", "saving": ["--llmperf-launches=2"]}
        gated(COUNTED["plain"][0], "--llmperf-save", "--llmperf-launches=2", now="sim:h200,slowdown=1.01", **quiet)
        suite.run(engine="sim:h200,slowdown=1.01")
        assert {against for _, against in verdicts(suite, "test_a")} == {"baseline", "anchor"}
        assert gate(suite)["gated"] == compared(suite) == 16

    def test_a_test_with_baselines_for_two_models_is_counted_once(self, gated, suite):
        text = "def test_a(llmperf): llmperf.check(W)"
        quiet = {"saved": "sim:h200", "now": "sim:h200", "saving": ["--llmperf-launches=2"]}
        gated(text, "--llmperf-save", "--llmperf-launches=2", "--llmperf-model=tiny-llama", **quiet)
        suite.run("--llmperf-model=tiny-llama").assert_outcomes(passed=1)
        assert gate(suite)["gated"] == compared(suite) == 4

    def test_a_test_without_a_baseline_takes_nothing_from_the_others(self, gated, suite):
        quiet = {"saved": "sim:h200", "now": "sim:h200", "saving": ["--llmperf-launches=2", "-k", "test_a"]}
        gated(COUNTED["plain"][0], ret=1, **quiet)
        assert gate(suite)["gated"] == compared(suite) == 4


#: Says when each launch of a test was measured, in a file for all workers: the clock is one for the whole machine.
WATCHED = """
import os, time
from pytest_llmperf.plugin import session

measure = session.measure_launch

def measured(*arguments, **options):
    begun = time.monotonic()
    time.sleep(0.05)
    try:
        return measure(*arguments, **options)
    finally:
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{begun} {time.monotonic()} {os.getpid()}\\n")

session.measure_launch = measured
"""


class TestWorkers:
    """Under pytest-xdist every worker launches its own tests again, and only one measures at a time."""

    FOUR = "".join(
        f"@within('100%', tpot='{tpot}')\ndef test_{i}(llmperf): llmperf.check(W.replace(batch={i + 1}))\n"
        for i, tpot in enumerate(["5%", "100%", "5%", "100%"])
    )

    @pytest.fixture
    def on_two(self, suite, monkeypatch):
        pytest.importorskip("xdist")
        suite.pytester.makepyfile(watched=WATCHED)
        monkeypatch.setenv("WATCHED", str(suite.folder / "watched"))
        monkeypatch.syspath_prepend(suite.folder)
        monkeypatch.setenv("PYTHONPATH", str(suite.folder), prepend=":")
        suite.write(HEAD + self.FOUR)

        def run(*arguments, engine):
            (suite.folder / "watched").unlink(missing_ok=True)
            result = suite.pytester.runpytest_subprocess(
                "-n2",
                "-p",
                "watched",
                "-p",
                "no:cacheprovider",
                f"--llmperf-engine={engine}",
                "--llmperf-report=report",
                *arguments,
            )
            lines = (suite.folder / "watched").read_text().splitlines()
            return result, sorted(tuple(map(float, line.split())) for line in lines)

        return run

    def test_measurements_never_overlap_and_everything_is_there_once(self, on_two, suite):
        result, spans = on_two("--llmperf-save", "--llmperf-launches=3", engine=SAVED)
        result.assert_outcomes(passed=4)
        assert len(spans) == 12
        assert len({worker for *_, worker in spans}) == 2
        assert all(ended <= begun for (_, ended, _), (begun, _, _) in pairwise(spans))
        assert len(list((suite.folder / "baselines").rglob("*.json"))) == 4
        assert sum("report.html" in line for line in result.outlines) == 1

        result, spans = on_two(engine=AGAIN)
        assert sum(map(int, result.parseoutcomes().values())) == 4
        records = suite.records()
        assert len(spans) == sum(launched(suite, name) for name in records)
        assert [launched(suite, f"test_{i}") for i in (1, 3)] == [1, 1]
        assert min(launched(suite, f"test_{i}") for i in (0, 2)) > 1
        assert all(ended <= begun for (_, ended, _), (begun, _, _) in pairwise(spans))
        # Each worker has collected every test, and knows of every comparison.
        assert gate(suite)["gated"] == compared(suite) == 16
        alphas = {v["alpha"] for record in records.values() for v in record["verdicts"] if v["looks"]}
        assert alphas == {FAMILY_ALPHA / 16}
        assert not list((suite.folder / "report").glob("journal*"))

    def test_the_clock_is_locked_and_reset_once_for_all_launches(self, pytester, fake_nvml, monkeypatch, tmp_path):
        pytest.importorskip("xdist")
        fake_nvml.scenario("h200", "[boards]\nload = 0.5\n")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        pytester.makepyfile(
            test_suite=HEAD + "def test_a(llmperf): llmperf.check(W)\ndef test_b(llmperf): llmperf.check(W)"
        )
        with FakeServer() as server:
            result = pytester.runpytest_subprocess(
                "-n2", "-p", "tests.plugin.quick", "-p", "no:cacheprovider", "--gpu-clock=903", "--llmperf-save",
                "--llmperf-launches=3", "--llmperf-repeats=1",
                f"--llmperf-engine=http://{server.address},calibrate=false",
            )  # fmt: skip
        result.assert_outcomes(passed=2)
        told = [call.function for call in fake_nvml.calls(board=0) if "LockedClocks" in call.function]
        assert [("Reset" in function) for function in told] == [False, True]
        assert fake_nvml.locked(0) is None


class TestEnds:
    def test_exit_first_ends_the_session_with_the_first_test_that_is_decided_badly(self, gated, suite):
        gated(THREE, "-x", now=AGAIN + ",slowdown=3", ret=1).assert_outcomes(failed=1)
        assert calls(suite) == ["wide", "wider", "narrow", "wide"]

    def test_exit_first_lets_an_undecided_test_go_on(self, gated, suite):
        gated(THREE, "-x").assert_outcomes(passed=3)
        assert launched(suite, "test_narrow") > 1

    def test_killed_in_the_third_launch_the_journal_has_the_two_before(self, suite):
        suite.write(
            HEAD + "def test_one(llmperf):\n    note('one')\n"
            "    if Path('calls').read_text().count('one') == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    llmperf.check(W)\n"
        )
        result = suite.pytester.runpytest_subprocess(
            "--llmperf-engine=sim:h200", "--llmperf-report=report", "--llmperf-save", "-p", "no:cacheprovider"
        )
        assert result.ret == -signal.SIGKILL
        (record,) = read_journals(suite.folder / "report").tests.values()
        assert len(record["metrics"]["tpot"]["launches"]) == 2
        assert record["outcome"] == "unfinished"
        assert not list((suite.folder / "baselines").rglob("*.json"))

    def test_a_test_that_fails_by_itself_before_it_is_decided_is_not_launched_again(self, gated, suite):
        text = ON_THE_EDGE.replace(
            "llmperf.check", "assert len(Path('calls').read_text().split()) < 2\n    llmperf.check"
        )
        gated(text, now=EDGE, ret=1, saved=None)
        assert calls(suite) == ["edge"]


class TestRenamed:
    def test_a_baseline_that_was_renamed_with_its_test_counts_and_stands_for_itself(self, suite):
        """Its place makes it the test's, whatever id the file still holds."""
        suite.write("from pytest_llmperf import Workload\ndef test_old(llmperf): llmperf.check(Workload(4, 4))")
        suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=1)
        (path,) = (suite.folder / "baselines").rglob("*.json")
        path.rename(path.with_name("test_new.json"))
        suite.write("from pytest_llmperf import Workload\ndef test_new(llmperf): llmperf.check(Workload(4, 4))")
        suite.run().assert_outcomes(passed=1)
        assert gate(suite)["gated"] == compared(suite)
