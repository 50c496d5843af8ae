"""What a session stores as a baseline, and says of the one that it finds."""

import json
import sys

import pytest

from pytest_llmperf.__main__ import main
from pytest_llmperf.baselines import BoardRecord, digest_of, load, store
from pytest_llmperf.plugin.recorder import Recorder

SUITE = """
from pytest_llmperf import Workload
def test_one(llmperf):
    llmperf.check(Workload(input_len=64, output_len=16{more}))
"""
LOOSE = "-o", "llmperf_tolerance=99%"


@pytest.fixture
def one(suite):
    """A suite of one test, with ways to save it and to look at what was stored."""

    class One:
        folder = suite.folder

        def save(self, *arguments, more="", launches=1, **engine):
            suite.write(SUITE.format(more=more))
            result = suite.run("--llmperf-save", f"--llmperf-launches={launches}", *arguments, **engine)
            result.assert_outcomes(passed=1)
            return self.warnings

        def gate(self, *arguments, **engine):
            result = suite.run(*LOOSE, *arguments, **engine)
            return result, self.warnings

        @property
        def warnings(self):
            return [text for text in suite.records()["test_one"]["warnings"] if "throttled" not in text]

        @property
        def path(self):
            (path,) = (suite.folder / "baselines").rglob("*.json")
            return path

        @property
        def baseline(self):
            return load(self.path)

        def store(self, **changes):
            store(self.path, self.baseline.model_copy(update=changes))

    return One()


def tpot(summaries):
    return summaries["tpot"].value


class TestProvenance:
    def test_it_says_what_measured_it_and_in_which_run(self, one):
        one.save(launches=2)
        told = one.baseline.provenance
        run = json.loads((one.folder / "report" / "results.json").read_text())["run"]
        assert told["run"] == run["id"]
        assert (told["launches"], told["repeats"]) == (2, 3)
        assert (told["engine"], told["engine_version"]) == ("sim", "sim:h200")
        assert told["python"] == sys.version.split()[0]
        (board,) = told["boards"]
        assert board["name"] == "NVIDIA H200"
        assert board["uuid"] in one.baseline.boards
        assert board["power_limit_w"] == 700
        assert {"commit", "dirty", "plugin_version", "cpu", "cuda", "driver"} <= set(told)

    def test_a_stored_file_holds_its_digest(self, one):
        one.save()
        content = json.loads(one.path.read_text())
        assert content.pop("digest") == digest_of(content)


class TestLaunches:
    def test_fewer_than_five_are_said_in_the_record_and_in_the_terminal(self, suite, one, capsys):
        assert ["of 3 launches: noise is hardly known" in text for text in one.save(launches=3)] == [True]
        assert "of 3 launches: noise is hardly known" in " ".join(capsys.readouterr().out.split())

    def test_five_are_enough(self, one):
        assert one.save(launches=5) == []


class TestAge:
    def test_an_old_one_is_said_when_gating(self, one):
        one.save()
        assert one.gate()[1] == []
        one.store(saved_at="2020-01-01T00:00:00+00:00")
        result, warnings = one.gate()
        assert result.ret == 0
        assert [text.partition(" days")[0].rpartition(" ")[0] for text in warnings] == ["The baseline was saved"]
        assert one.gate("-o", "llmperf_baseline_max_age=0")[1] == []
        assert one.gate("-o", "llmperf_baseline_max_age=100000")[1] == []

    def test_one_from_the_future_is_said(self, one):
        one.save()
        one.store(saved_at="2999-01-01T00:00:00+00:00")
        result, (warning,) = one.gate("-o", "llmperf_baseline_max_age=0")
        assert "in the future" in warning
        assert result.ret == 0


class TestAnchor:
    def test_small_steps_add_up_to_more_than_their_budget(self, one):
        for number, slowdown in enumerate((1, 1.04, 1.08, 1.12)):
            warnings = [text for text in one.save(engine=f"sim:h200,slowdown={slowdown}") if "anchor" in text]
            crept = [text.partition(" ")[0] for text in warnings if "has changed by" in text]
            assert crept == (["tpot", "mbu"] if number == 3 else [])
        assert "+12.0% since the anchor of " in warnings[0]
        baseline = one.baseline
        assert tpot(baseline.summaries(None)) == pytest.approx(1.12 * tpot(baseline.anchor_summaries(None)), rel=1e-3)

    def test_the_ini_file_sets_the_budget(self, one):
        one.save()
        warnings = one.save("-o", "llmperf_budget=tpot: 1%", engine="sim:h200,slowdown=1.04")
        assert [text.partition(" ")[0] for text in warnings if "has changed" in text] == ["tpot"]

    def test_a_budget_of_a_metric_that_there_is_not_is_refused(self, suite):
        result = suite.pytester.runpytest("--llmperf-engine=sim:h200", "-o", "llmperf_budget=speed: 1%")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*llmperf_budget in the ini file names the metric 'speed'*"])

    def test_another_workload_drops_it_and_says_so(self, one):
        one.save()
        one.save()
        assert one.baseline.anchor is not None
        warnings = one.save(more=", batch=2")
        assert ["is dropped" in text and "workload: " in text for text in warnings if "anchor" in text] == [True]
        assert one.baseline.anchor is None

    def test_one_of_an_unusable_file_is_lost_and_that_is_said(self, one):
        one.save()
        one.path.write_text("{")
        warnings = one.save()
        assert ["test_one.json is unusable" in text for text in warnings if "anchor" in text] == [True]
        assert one.baseline.anchor is None

    def test_a_test_that_fails_leaves_baseline_and_anchor(self, suite, one):
        one.save()
        before = one.path.read_text()
        suite.write(SUITE.format(more="") + "    assert False")
        suite.run("--llmperf-save", "--llmperf-launches=1").assert_outcomes(failed=1)
        assert one.path.read_text() == before


def test_an_edited_number_fails_the_test_with_the_file_and_what_mends_it(one):
    one.save()
    one.path.write_text(one.path.read_text().replace('"value": 0.', '"value": 9.', 1))
    result, _ = one.gate()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_one.json is unusable: digest: *edited*version control*--llmperf-save*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_one_of_version_1_still_gates_and_says_that_it_carries_no_digest(one):
    one.save()
    content = json.loads(one.path.read_text())
    del content["digest"], content["anchor"]
    one.path.write_text(json.dumps(content | {"schema_version": 1}))
    result, (warning,) = one.gate()
    assert result.ret == 0
    told = "is of schema version 1 and carries no digest: nothing shows whether it was edited"
    assert warning.startswith(f"The baseline {one.path} {told}")
    assert main(["baselines", str(one.folder / "baselines"), "--migrate"]) == 1
    assert one.gate()[1] == []
    one.save()
    assert json.loads(one.path.read_text())["schema_version"] == 2
    assert one.baseline.anchor is not None


def test_energy_of_other_boards_stays_beside_that_of_this_one(one):
    one.save()
    other = BoardRecord(saved_at="2020-01-01", metrics={})
    one.store(boards={**one.baseline.boards, "GPU-other": other})
    one.save()
    assert one.baseline.boards["GPU-other"] == other
    assert len(one.baseline.boards) == 2
    assert one.baseline.anchor.boards["GPU-other"] == other


def test_provenance_is_that_of_the_boards_that_were_measured(pytester):
    config = pytester.parseconfigure()
    assert Recorder(config).provenance(["GPU-not-here"])["boards"] == []
