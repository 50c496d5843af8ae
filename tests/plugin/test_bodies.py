"""Whatever the body of a test does with our exceptions, its verdict stands and its baseline follows it."""

import json

import pytest

from .stored import rewrite

HEAD = "import pytest\nfrom pytest_llmperf import Workload\nW = Workload(16, 8)\n"

SWALLOWING = {
    "bare except": "def test_one(llmperf):\n    try: llmperf.check(W)\n    except: pass",
    "raises": "def test_one(llmperf):\n    with pytest.raises(BaseException): llmperf.check(W)",
    "subtest": "def test_one(llmperf, subtests):\n    with subtests.test(): llmperf.check(W)",
    "thread": (
        "import threading\ndef test_one(llmperf):\n"
        "    t = threading.Thread(target=lambda: swallow(llmperf)); t.start(); t.join()\n"
        "def swallow(llmperf):\n    try: llmperf.check(W)\n    except BaseException: pass"
    ),
}


def stored(suite):
    return list((suite.folder / "baselines").rglob("*.json"))


@pytest.mark.parametrize("body", SWALLOWING.values(), ids=SWALLOWING)
def test_a_swallowed_verdict_still_fails_the_test(suite, body):
    suite.write(HEAD + "def test_one(llmperf):\n    llmperf.check(W)")
    suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=1)
    suite.write(HEAD + body)
    result = suite.run("--llmperf-launches=2", engine="sim:h200,slowdown=3")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*regressed*test_one*"])
    assert suite.records()["test_one"]["outcome"] == "failed"


@pytest.mark.parametrize("kind", sorted(set(SWALLOWING) - {"raises"}))
def test_a_swallowed_wish_for_another_launch_is_granted(suite, kind):
    suite.write(HEAD + SWALLOWING[kind])
    suite.run("--llmperf-save", "--llmperf-launches=3")
    (path,) = stored(suite)
    assert len(json.loads(path.read_text())["metrics"]["ttft"]["launches"]) == 3


def test_a_body_that_measures_only_in_its_first_launch_fails(suite):
    suite.write(HEAD + "done = []\ndef test_one(llmperf):\n    if not done: done.append(1); llmperf.check(W)")
    result = suite.run("--llmperf-save", "--llmperf-launches=2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not in every launch*"])
    assert stored(suite) == []


LATER = (
    HEAD
    + """
launches = []
@pytest.fixture
def fixture(): pass
MARK
def test_one(llmperf, fixture):
    launches.append(1)
    if len(launches) == 2: LATER
    llmperf.check(W)
"""
)


@pytest.mark.parametrize(
    ("mark", "later", "outcome", "told"),
    [
        (
            "",
            "pytest.skip('not now')",
            "skipped",
            "The test was skipped after 1 launch, before it was decided: not now",
        ),
        (
            "",
            "raise ValueError('odd')",
            "failed",
            "The test failed after 1 launch, before it was decided: ValueError: odd",
        ),
        (
            "",
            "return",
            "failed",
            "before it was decided: test_suite.py::test_one was measured, but not in every launch",
        ),
        (
            "@pytest.mark.xfail",
            "assert 0",
            "skipped",
            "The test failed as expected after 1 launch, before it was decided",
        ),
    ],
)
@pytest.mark.parametrize("save", ["--llmperf-save", "--llmperf-repeats=3"])
def test_what_was_measured_before_a_later_launch_went_wrong_is_kept(suite, mark, later, outcome, told, save):
    suite.write(LATER.replace("MARK", "").replace("LATER", "pass"))
    suite.run("--llmperf-save", "--llmperf-launches=3")
    suite.write(LATER.replace("MARK", mark).replace("LATER", later))
    suite.run("--llmperf-launches=3", save, engine="sim:h200,slowdown=1.06").assert_outcomes(
        **{"xfailed" if mark else outcome: 1}
    )
    record = suite.records()["test_one"]
    assert (record["outcome"], record["verdict"], record["invalid"]) == (outcome, "measured", None)
    assert len(record["metrics"]["tpot"]["launches"]) == 1
    assert told in record["warnings"][-1]
    assert not any("The run ended" in warning for warning in record["warnings"])


def test_an_error_of_ours_in_a_later_launch_leaves_what_was_measured_and_does_not_trust_it(suite):
    suite.write(LATER.replace("MARK", "").replace("LATER", "llmperf.check(W.replace(batch=2))"))
    suite.run("--llmperf-launches=3", "--llmperf-save").assert_outcomes(failed=1)
    record = suite.records()["test_one"]
    assert (record["outcome"], record["verdict"]) == ("failed", "invalid")
    assert "after 1 launch, before it was decided: test_suite.py::test_one asked for another work" in record["invalid"]
    assert len(record["metrics"]["tpot"]["launches"]) == 1


def test_asking_for_the_fixture_and_measuring_nothing_fails(suite):
    suite.write("def test_one(llmperf): pass")
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*measures nothing*"])


@pytest.mark.parametrize(
    "body",
    [
        "import unittest\nclass TestU(unittest.TestCase):\n"
        "    @pytest.fixture(autouse=True)\n    def give(self, llmperf): self.llmperf = llmperf\n"
        "    def test_u(self):\n        self.llmperf.check(W)\n        self.assertTrue(False)",
        "@pytest.mark.xfail(strict=True)\ndef test_x(llmperf): llmperf.check(W)",
        "@pytest.fixture\ndef bad():\n    yield\n    raise ValueError\ndef test_t(bad, llmperf): llmperf.check(W)",
        "def test_s(llmperf, subtests):\n    llmperf.check(W)\n    with subtests.test(): assert False",
        "def test_k(llmperf):\n    llmperf.check(W)\n    pytest.skip('not today')",
    ],
    ids=["unittest", "xpass strict", "teardown", "failing subtest", "skip"],
)
def test_only_a_test_that_passes_in_every_part_stores_its_baseline(suite, body):
    suite.write(HEAD + body)
    suite.run("--llmperf-save", "--llmperf-launches=2")
    assert stored(suite) == []
    (record,) = suite.records().values()
    assert record["outcome"] in ("failed", "skipped")


def test_a_test_that_was_timed_out_does_not_disturb_the_next(suite):
    pytest.importorskip("pytest_timeout")
    suite.write(
        HEAD
        + "import time\nfrom pytest_llmperf.engines.simulated import SimulatedEngine\n"
        + "async def stalled(self, offer): time.sleep(60)\n"
        + "def test_a(llmperf): llmperf.measure(W)\n"
        + "@pytest.mark.timeout(0.5)\n"
        + "def test_b(llmperf, monkeypatch):\n"
        + "    monkeypatch.setattr(SimulatedEngine, 'carry', stalled)\n"
        + "    llmperf.measure(W)\n"
        + "def test_c(llmperf): llmperf.measure(W)"
    )
    suite.run().assert_outcomes(passed=2, failed=1)
    records = suite.records()
    assert records["test_c"]["metrics"]["tpot"]["value"] == records["test_a"]["metrics"]["tpot"]["value"]
    assert records["test_b"]["verdict"] == "invalid"


def test_a_report_folder_used_again_holds_nothing_of_the_run_before(suite):
    suite.write(HEAD + "def test_a(llmperf): llmperf.measure(W)\ndef test_b(llmperf): llmperf.measure(W)")
    suite.run()
    suite.pytester.runpytest("--llmperf-engine=sim:h200", "--llmperf-report=report", "-k", "test_a")
    assert set(suite.records()) == {"test_a"}
    (trace,) = (suite.folder / "report/traces").glob("*.jsonl")
    repeats = [json.loads(line)["repeat"] for line in trace.read_text().splitlines()]
    assert repeats == list(range(len(repeats)))  # of one run


def test_text_that_utf8_cannot_hold_does_not_lose_the_run(suite):
    suite.write(
        HEAD + "def test_a(llmperf): llmperf.measure(W)\ndef test_b(llmperf): raise RuntimeError('caf\\udce9')\n"
    )
    suite.run().assert_outcomes(passed=1, failed=1)
    assert r"caf\udce9" in suite.records()["test_b"]["invalid"]


def test_numbers_too_far_apart_are_unusable_and_do_not_lose_the_run(suite):
    suite.write(HEAD + "def test_a(llmperf): llmperf.check(W)")
    suite.run("--llmperf-save", "--llmperf-launches=1")
    rewrite(stored(suite)[0], lambda baseline: baseline["metrics"]["mbu"].update(launches=[[5e-324]]))
    suite.run().assert_outcomes(failed=1)
    assert suite.records()["test_a"]["verdict"] == "invalid"


def test_wrong_options_end_with_exit_status_4_under_xdist_too(suite):
    pytest.importorskip("xdist")
    for wrong in ("--llmperf-engine=nope", "--llmperf-engine=sim:h200,foo=1", "--llmperf-repeats=0"):
        result = suite.pytester.runpytest("-n", "2", "--llmperf-engine=sim:h200", wrong)
        assert result.ret == 4, wrong


def test_other_sessions_of_xdist_are_left_alone(suite):
    pytest.importorskip("xdist")
    suite.write("def test_nothing(): pass")
    suite.pytester.runpytest("-n", "2").assert_outcomes(passed=1)
    assert not (suite.folder / "reports").exists()


def test_strict_suites_without_pytest_benchmark(suite):
    suite.write(HEAD + "def test_a(llmperf): llmperf.measure(W)")
    suite.run("-p", "no:benchmark", "--strict-markers", "-W", "error").assert_outcomes(passed=1)


def test_a_debugger_does_not_stop_at_another_launch(suite):
    suite.write(HEAD + "def test_a(llmperf): llmperf.measure(W)")
    suite.run("--pdb", "--llmperf-launches=2").assert_outcomes(passed=1)


def test_an_async_test_is_refused_in_words(suite):
    suite.write(
        HEAD + "import asyncio\ndef test_a(llmperf):\n    async def body(): llmperf.measure(W)\n    asyncio.run(body())"
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*plain function*"])


def test_goodput_against_other_limits_is_incomparable(suite):
    marker = "@pytest.mark.llmperf(tolerance={'goodput': '5%'})\n"
    text = HEAD + marker + "def test_a(llmperf): llmperf.check(Workload(16, 8, batch=4, slo={'ttft': LIMIT}))"
    suite.write(text.replace("LIMIT", "10"))
    suite.run("--llmperf-save", "--llmperf-launches=1").assert_outcomes(passed=1)
    suite.run().assert_outcomes(passed=1)
    suite.write(text.replace("LIMIT", "20"))
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*goodput: incomparable*other limits*"])
