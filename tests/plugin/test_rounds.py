"""Several launches in one pytest session: few engine starts, one report a test."""

import xml.etree.ElementTree as ET

import pytest

from pytest_llmperf.baselines import read_all
from pytest_llmperf.plugin.gating import _engine_starts


def test_four_tests_of_three_launches_start_the_engine_three_times(suite):
    result = suite.run("--llmperf-save", "--llmperf-launches=3", "--junitxml=junit.xml")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["engine starts: 3"])
    assert all(len(t["metrics"]["tpot"]["launches"]) == 3 for t in suite.records().values())
    cases = ET.parse(suite.folder / "junit.xml").getroot().iter("testcase")
    assert sorted(case.get("name") for case in cases) == [f"test_decode[{n}]" for n in (1, 2, 3, 4)]


def test_gating_costs_one_launch(suite):
    suite.run("--llmperf-save", "--llmperf-launches=2")
    result = suite.run()
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["engine starts: 1"])


def test_the_body_runs_once_a_launch_and_other_tests_once(suite):
    suite.write(
        """
        from pathlib import Path
        from pytest_llmperf import Workload
        def note(word):
            with Path("calls").open("a") as file:
                file.write(f"{word} ")
        def test_measured(llmperf):
            note("measured")
            llmperf.measure(Workload(4, 4))
        def test_ordinary():
            note("ordinary")
        """
    )
    suite.run("--llmperf-launches=3").assert_outcomes(passed=2)
    assert (suite.folder / "calls").read_text().split() == ["measured", "ordinary", "measured", "measured"]


def test_two_measurements_in_one_test_need_names_and_get_a_record_each(suite):
    suite.write(
        """
        from pytest_llmperf import Workload
        def test_pair(llmperf):
            first = llmperf.check(Workload(4, 4))
            second = llmperf.check(Workload(4, 8), name="longer")
            assert second.metrics.e2e_latency.value > first.metrics.e2e_latency.value
        """
    )
    suite.run("--llmperf-save", "--llmperf-launches=2").assert_outcomes(passed=1)
    suite.run("--llmperf-launches=2").assert_outcomes(passed=1)
    assert set(suite.records()) == {"test_pair", "test_pair#longer"}


def test_launches_of_a_second_measurement_exceed_no_total_and_are_on_engine_starts_of_their_own(suite):
    suite.write(
        """
        from pytest_llmperf import Workload
        def test_pair(llmperf):
            llmperf.check(Workload(4, 4))
            llmperf.check(Workload(4, 8), name="longer")
        def test_single(llmperf):
            llmperf.check(Workload(4, 6))
        """
    )
    result = suite.run("--llmperf-save", "--llmperf-launches=2")
    result.stdout.fnmatch_lines(["llmperf: launch 2 of 2", "llmperf: launch 3"])
    stored = [baseline for _, baseline in read_all(suite.folder / "baselines")]
    starts = {one.test.partition("::")[2]: one.provenance["first_launch"] for one in stored}
    assert starts == {"test_pair": 0, "test_pair#longer": 1, "test_single": 0}
    shared = {one.test.partition("::")[2]: _engine_starts(one) for one in stored}
    assert shared["test_pair"] == shared["test_single"] != shared["test_pair#longer"]


def test_a_second_measurement_without_a_name_is_refused(suite):
    suite.write(
        """
        from pytest_llmperf import Workload
        def test_pair(llmperf):
            llmperf.measure(Workload(4, 4))
            llmperf.measure(Workload(4, 8))
        """
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*measures twice under one name*name=*"])


def test_exit_first_stops_at_the_first_failure(suite):
    result = suite.run("-x")
    result.assert_outcomes(failed=1)
    assert result.ret == 1


def test_exit_first_stops_in_a_later_round_too(suite):
    suite.run("--llmperf-save", "--llmperf-launches=2")
    result = suite.run("-x", engine="sim:h200,slowdown=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["engine starts: 2"])


def test_tests_are_grouped_by_engine(suite):
    suite.write(
        """
        import pytest
        from pytest_llmperf import Workload
        @pytest.mark.parametrize("model", [
            pytest.param(m, marks=pytest.mark.llmperf(model=m), id=f"{m}-{n}")
            for n in range(2) for m in ("mistral-7b", "tiny-llama")
        ])
        def test_models(llmperf, llm_model, model):
            assert llm_model.name == model
            llmperf.measure(Workload(4, 4))
        """
    )
    result = suite.run("--llmperf-launches=2", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["engine starts: 4"])  # two models, two launches


def test_workers_of_xdist_measure_one_at_a_time_and_write_one_report(suite):
    pytest.importorskip("xdist")
    result = suite.run("--llmperf-save", "--llmperf-launches=2", "-n", "2")
    result.assert_outcomes(passed=4)
    assert len(suite.records()) == 4
    assert not list((suite.folder / "report").glob("journal*"))
    assert len(list((suite.folder / "baselines").rglob("*.json"))) == 4
    suite.run("-n", "2").assert_outcomes(passed=4)


def test_the_engine_fixture_is_usable_alone(suite):
    suite.write(
        """
        def test_info(llm_engine):
            assert llm_engine.info.simulated and llm_engine.info.vocab_size == 32000
        """
    )
    suite.run().assert_outcomes(passed=1)


def test_a_session_without_performance_tests_is_left_alone(suite):
    suite.write("def test_nothing(): pass")
    result = suite.run(engine="no-such-engine")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*llmperf:*")
    assert not (suite.folder / "report").exists()
