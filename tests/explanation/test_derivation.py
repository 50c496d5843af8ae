"""Verdicts derived again from results.json alone, and the command that prints them."""

import json

import pytest

from pytest_llmperf.__main__ import main
from pytest_llmperf.explanation.derivation import chosen, derive
from pytest_llmperf.results import json_schema

from .records import GATE, RULES, document, record, results, run, verdict


@pytest.fixture
def report(tmp_path):
    """Writes a report of some tests."""

    def write(*tests, name="report", **more):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(run(*tests, **more)))
        return folder

    return write


def only(test):
    run_ = results(test)
    return derive(run_.tests[0], run_)


def test_a_verdict_follows_from_its_record():
    derived = only(document({"tpot": 1.07, "ttft": 1.08}))
    assert derived.verdict == "regressed"
    assert [one.again.verdict for one in derived.verdicts] == ["regressed", "regressed"]
    assert not derived.differs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "pass"}, "stored as pass, derived as regressed"),
        ({"tolerance": 0.5}, "stored as regressed, derived as pass"),
        ({"baseline_launches": [[0.00503]]}, "derived as"),
        ({"change": 0.01}, "its change is stored as 0.01"),
        ({"current": 0.0047}, "its current is stored as 0.0047"),
        ({"alpha": 0.5}, "its alpha is stored as 0.5"),
        ({"looks": 1}, "its looks is stored as 1"),
        ({"minimum_detectable": 0.001}, "its minimum_detectable is stored as 0.001"),
        ({"prediction": True}, "its prediction is stored as True"),
        ({"noise": {**verdict("tpot", 1.07)["noise"], "sd": 0.5}}, "its noise.sd is stored as 0.5"),
        ({"noise": {**verdict("tpot", 1.07)["noise"], "df": 50}}, "its noise.df is stored as 50"),
        ({"noise": None}, "knows the noise"),
        ({"launches": 0}, "after 0 launches, on which it stands, the gate did not look"),
        ({"launches": 3}, "it stands on 3 launches, and 2 are there"),
        ({"launches": 7}, "after 7 launches"),
        ({"baseline_launches": []}, "a launch without any value"),
        ({"baseline_launches": [[-1.0]]}, "not above 0"),
        ({"verdict": "not-applicable"}, "stored as not-applicable, derived as regressed"),
        ({"verdict": "no-baseline"}, "stored as no-baseline, derived as regressed"),
        ({"alpha": None, "looks": None, "noise": None}, "its alpha is stored as null"),
    ],
)
def test_a_record_that_was_changed_afterwards_is_found_out(change, words):
    derived = only(document({"tpot": 1.07}, verdicts=[{**verdict("tpot", 1.07), **change}]))
    assert derived.differs
    assert words in derived.verdicts[0].differs


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (None, "what the run's verdicts were drawn by"),
        ({"looks": []}, "the gate cannot look after []"),
        ({"looks": [2, 1, 8]}, "the gate cannot look after [2, 1, 8]"),
        ({"looks": [2, 10**9], "launches": 10**9}, "the gate cannot look after"),
        ({"gated": 0}, "the gate cannot have made 0 comparisons"),
        ({"gated": 10**400}, "the record contradicts itself"),
        ({"gated": 1}, "derived as"),
        ({"pass_alpha": 2}, "the gate's pass_alpha cannot be 2"),
        ({"family_alpha": 0}, "the gate's family_alpha cannot be 0"),
    ],
)
@pytest.mark.parametrize("kind", ["pass", "regressed", "improved", "inconclusive"])
def test_a_verdict_that_does_not_follow_from_the_gates_record_is_found_out(report, capsys, gate, words, kind):
    test = document({"tpot": 1.07}, verdicts=[{**verdict("tpot", 1.07), "verdict": kind}], kind=kind)
    folder = report(test, gate=None if gate is None else {**GATE, **gate})
    assert main(["explain", str(folder)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"DIFFERS: stored as {kind}" in out or kind == "regressed"
    assert words in out or kind != "regressed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tolerances": {"tpot": 0.5}}, "its tolerance is stored as 0.05, and that of the test as 0.5"),
        ({"tolerances": {"ttft": 0.05}}, "the test's tolerances do not hold the metric"),
        ({"tolerances": {}}, "the test's tolerances do not hold the metric"),
        ({"tolerances": {"tpot": 0.05, "ttft": 0.5}}, "no verdict against the baseline is stored for ttft"),
        ({"verdicts": [], "verdict": "measured"}, "no verdict against the baseline is stored for tpot"),
        ({"verdicts": [], "verdict": "no-baseline"}, "no verdict against the baseline is stored for tpot"),
        ({"verdicts": [], "verdict": "measured", "tolerances": {}}, "the test is stored as measured, and with what"),
        ({"verdict": "measured"}, "the test is stored as measured, derived as regressed"),
        ({"verdict": "no-baseline"}, "the test is stored as no-baseline, derived as regressed"),
        (
            {"metrics": {"tpot": {**document({"tpot": 1.07})["metrics"]["tpot"], "value": 0.004}}},
            "the value of tpot is",
        ),
    ],
)
def test_a_record_that_contradicts_itself_is_found_out(report, capsys, change, words):
    folder = report({**document({"tpot": 1.07}), **change})
    assert main(["explain", str(folder), "--json"]) == 1
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    assert test["differs"]
    assert main(["explain", str(folder)]) == 1
    assert words in " ".join(capsys.readouterr().out.split())


def test_what_was_only_measured_or_saved_contradicts_nothing():
    saved = {**document({"tpot": 1.0}, verdicts=[], verdict="measured"), "provenance": None}
    run_ = results(saved, gate=None)
    assert not derive(run_.tests[0], run_).differs
    assert not only({**saved, "tolerances": {}}).differs


def test_the_tolerance_of_an_anchor_is_another_one():
    anchor = {**verdict("tpot", 1.07, tolerance=0.1), "against": "anchor"}
    assert not only(document({"tpot": 1.07}, verdicts=[verdict("tpot", 1.07), anchor])).differs
    assert only(document({"tpot": 1.07}, verdicts=[anchor], kind=anchor["verdict"])).differs


def test_launches_that_were_changed_afterwards_are_found_out():
    test = document({"tpot": 1.07})
    test["metrics"]["tpot"]["launches"] = [[0.0047]]
    assert only(test).differs


def test_a_test_whose_verdict_is_not_the_worst_of_its_metrics_is_found_out():
    assert only({**document({"tpot": 1.07}), "verdict": "pass"}).differs


@pytest.mark.parametrize("kind", ["no-baseline", "incomparable", "not-applicable", "invalid"])
def test_where_nothing_was_compared_there_is_nothing_to_derive(kind):
    one = verdict("tpot", 1.07, kind, reason="the reason it gives")
    derived = only(document({"tpot": 1.07}, kind=kind, verdicts=[one]))
    assert derived.verdicts[0].again is None
    assert derived.verdicts[0].reason == "the reason it gives"
    assert not derived.differs


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_values_that_cannot_be_are_said_and_not_stumbled_over(value):
    test = document({"tpot": 1.07})
    test["metrics"]["tpot"]["launches"] = [[value]]
    derived = only(test)
    assert derived.verdicts[0].again is None
    assert "not above 0" in derived.verdicts[0].reason
    assert "not above 0" in derived.verdicts[0].differs


def test_a_metric_that_the_record_does_not_hold_differs():
    assert only({**document({"tpot": 1.07}), "metrics": {}}).differs


def test_tests_are_chosen_by_id_or_part_and_the_worst_comes_first():
    fine = document({"tpot": 1.0}, kind="pass", nodeid="s.py::test_a")
    run_ = results(fine, document({"tpot": 1.07}, nodeid="s.py::test_ab"))
    assert [t.nodeid for t in chosen(run_, None)] == ["s.py::test_ab", "s.py::test_a"]
    assert [t.nodeid for t in chosen(run_, "s.py::test_a")] == ["s.py::test_a"]
    assert [t.nodeid for t in chosen(run_, "test_a")] == ["s.py::test_ab", "s.py::test_a"]


def test_the_command_prints_the_numbers_and_the_explanation(report, capsys):
    folder = report(document({"tpot": 1.07}, {"decode_time": 1.284, "sm_clock": 1.8e9}))
    assert main(["explain", str(folder)]) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "tpot: regressed: 4.700 ms in the baseline, 5.029 ms now: +7.0 %" in out
    assert "baseline, 3 launches: 4.695 ms, 4.700 ms, 4.705 ms" in out
    assert "now, 2 launches: 5.024 ms, 5.034 ms" in out
    assert "noise between launches 0.12% with 3 degrees of freedom, of this test alone" in text
    assert f"error rate of this comparison {RULES.alpha:.2g}, 2 looks made" in text
    assert "with it the SM clock was 9.1 % lower" in " ".join(out.split())
    assert "DIFFERS" not in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_command_ends_with_1_when_a_stored_verdict_is_not_the_derived_one(report, capsys):
    folder = report(document({"tpot": 1.07}, verdicts=[{**verdict("tpot", 1.07), "verdict": "pass"}]))
    assert main(["explain", str(folder / "results.json")]) == 1
    assert "DIFFERS: stored as pass, derived as regressed" in capsys.readouterr().out


def test_the_command_for_scripts(report, capsys):
    folder = report(document({"tpot": 1.07}, {"decode_time": 1.284}))
    assert main(["explain", str(folder), "test_one", "--json"]) == 0
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    assert (test["stored"], test["derived"], test["differs"]) == ("regressed", "regressed", False)
    assert test["verdicts"][0]["derived"]["verdict"] == "regressed"
    assert test["verdicts"][0]["launches_now"] == [
        [pytest.approx(0.005024, rel=1e-3)],
        [pytest.approx(0.005034, rel=1e-3)],
    ]
    assert test["explanation"]["parts"][0]["name"] == "decode_time"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 9}', "\x00\x01"])
def test_a_foreign_file_ends_with_2_and_its_name(tmp_path, capsys, text):
    (tmp_path / "results.json").write_text(text)
    assert main(["explain", str(tmp_path)]) == 2
    assert "results.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["explain", "nowhere"], ["compare", "nowhere", "nowhere"]])
def test_a_folder_that_is_not_there_ends_with_2(arguments, capsys):
    assert main(arguments) == 2
    assert "nowhere holds neither results.json nor a journal" in capsys.readouterr().err


def test_a_test_that_is_not_there_ends_with_2(report, capsys):
    assert main(["explain", str(report(document({"tpot": 1.07}))), "other"]) == 2
    assert "'other'" in capsys.readouterr().err


def test_tests_that_were_only_measured_are_one_line_unless_one_is_named(report, capsys):
    waiting = {"verdicts": [], "verdict": "measured", "tolerances": {}, "provenance": None, "explanation": []}
    only = [{**document({"tpot": 1.07}, nodeid=f"s.py::t{n}"), **waiting} for n in range(3)]
    assert main(["explain", str(report(*only))]) == 0
    assert capsys.readouterr().out == "Nothing was gated in all 3 tests.\n"
    assert main(["explain", str(report(*only, document({"tpot": 1.07}), name="b"))]) == 0
    out = capsys.readouterr().out
    assert out.startswith("regressed: suite.py")
    assert out.endswith("\n\nNothing was gated in 3 of 4 tests.\n")
    assert main(["explain", str(report(*only, name="c")), "t1"]) == 0
    assert capsys.readouterr().out == "measured: s.py::t1\n  Nothing was gated.\n"


def test_the_report_of_a_killed_run_is_read_from_its_journal(tmp_path, capsys):
    head = {name: value for name, value in run().items() if name in ("run", "environment")}
    # As a test is journaled between its launches.
    waiting = {"verdicts": [], "verdict": "measured", "tolerances": {}}
    lines = [head, {**document({"tpot": 1.07}, **waiting), "provenance": None}]
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"nodeid": "cut')
    assert main(["explain", str(tmp_path)]) == 0
    assert "Nothing was gated." in capsys.readouterr().out


def test_a_report_that_was_written_before_there_were_conditions(report, capsys):
    old = document({"tpot": 1.07})
    for name in ("conditions", "provenance", "baseline_provenance"):
        del old[name]
    del old["tolerances"]
    for name in ("alpha", "looks", "interval", "minimum_detectable", "noise"):
        old["verdicts"][0][name] = None
    assert main(["explain", str(report(old, gate=None))]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not derived: it was recorded by a version that did not keep error rates" in out
    assert "Decode is 7.0 % slower (TPOT from 4.700 ms to 5.029 ms)." in out
    assert "it was not recorded" in out


def test_hostile_names_cannot_act_on_the_terminal(report, capsys):
    test = document({"tpot": 1.07}, nodeid="s.py::test\x1b[2J\n\u202e" + "x" * 200, kind="regressed",
                    provenance={"treatment": {"a\x1b]0;b": "\x07"}})  # fmt: skip
    folder = report(test)
    main(["explain", str(folder)])
    main(["compare", str(folder), str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() and len(line) <= 80 for line in lines)
    assert any("\\x1b[2J" in line for line in lines)


def test_the_explanation_is_a_field_of_the_published_record():
    assert record({"tpot": 1.07}).explanation == []
    assert "explanation" in json.loads(json_schema())["$defs"]["TestRecord"]["properties"]


def test_a_run_of_real_rules_whose_alpha_was_changed_is_found_out():
    run_ = results(document({"tpot": 1.055}, kind="inconclusive"))
    assert not derive(run_.tests[0], run_).differs
    looser = run_.model_copy(update={"gate": run_.gate.model_copy(update={"limit_alpha": 0.9})})
    assert derive(run_.tests[0], looser).differs


@pytest.mark.parametrize(
    ("name", "value", "tolerance", "follows"),
    [
        ("token_agreement", 0.95, 0.05, "pass"),
        ("token_agreement", 0.94, 0.05, "regressed"),
        ("logprob_difference", 0.05, 0.05, "pass"),
        ("logprob_difference", 0.06, 0.05, "regressed"),
    ],
)
def test_verdicts_on_answers_are_derived_from_their_value(name, value, tolerance, follows):
    one = {**verdict("tpot", 1.0), "metric": name, "current": value, "tolerance": tolerance, "change": None,
           "baseline": 1.0, "interval": None, "looks": None, "baseline_launches": [], "noise": None}  # fmt: skip
    fine = verdict("tpot", 1.0)  # answers alone let no test pass

    def of(stored):
        return only(document({"tpot": 1.0}, verdicts=[{**one, "verdict": stored}, fine], kind=stored))

    derived = of(follows)
    assert derived.verdicts[0].again.verdict == follows
    assert not derived.differs
    assert derived.explanation.sentences == ()
    other = "regressed" if follows == "pass" else "pass"
    assert of(other).differs
