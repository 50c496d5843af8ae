"""summary.md, read as GitHub reads it."""

import json
from types import SimpleNamespace

import pytest

from pytest_llmperf.report.exporters.summary import LONGEST, summary
from pytest_llmperf.results import Results

from ..records import (
    ENGINE,
    GATE,
    HOSTILE,
    IMPROVED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    UNSTORED,
    metric,
    record,
    results,
    verdict,
)
from .test_markdown import GITHUB, acting

ALL = (PASSED, IMPROVED, UNSTORED, INCONCLUSIVE, REGRESSED)


def rows(markdown):
    """The cells of its one table, row by row, as text."""
    found = []
    for token, content in zip(tokens := GITHUB.parse(markdown), tokens[1:], strict=False):
        if token.type == "tr_open":
            found.append([])
        if token.type in ("th_open", "td_open"):
            found[-1].append("".join(t.content for t in content.children if t.type in ("text", "code_inline")))
    return found


def test_the_worst_regression_is_one_paragraph_at_the_top():
    lines = summary(results(*ALL, gate=GATE)).splitlines()
    assert lines[2] == "**1 regressed**, **1 inconclusive**, **1 no-baseline**, 1 improved, 1 pass"
    assert lines[4] == (
        "`suites/test_x.py::test_decode[16]` regressed: `tpot` 4.000 ms in the baseline, 4.288 ms now, +7.2 % "
        "(+6.1 to +8.4 %), tolerance 5.0 %, 3 launches against 5."
    )


def test_the_worst_is_the_one_furthest_beyond_its_own_tolerance():
    wide = record("a.py::wide", verdict("ttft", "regressed", 0.6, tolerance=0.5))
    assert "`b.py::narrow` regressed: `tpot`" in summary(
        results(wide, record("b.py::narrow", verdict("tpot", "regressed", 0.2)))
    )


def test_the_table_has_the_worst_first_and_the_changes():
    head, *body = rows(summary(results(*ALL, gate=GATE)))
    assert head == ["Test", "Verdict", "TTFT", "TPOT", "tokens/s", "tokens/J"]
    assert {len(row) for row in body} == {6}
    assert [row[1] for row in body] == ["regressed", "inconclusive", "no-baseline", "improved", "pass"]
    assert body[0] == [
        "suites/test_x.py::test_decode[16]", "regressed", "4.840 ms (+21.0 %)", "4.288 ms (+7.2 %)", "210.3", "0.466",
    ]  # fmt: skip


def test_a_change_against_the_anchor_is_not_put_into_the_table():
    test = record("t", verdict("tpot", "regressed", 0.2, against="anchor"), verdict("tpot", "pass", 0.01))
    assert rows(summary(results(test)))[1][3] == "4.040 ms (+1.0 %)"


def test_the_table_shows_the_value_that_the_change_is_of():
    # The verdict stands on an earlier look than the last: the median over all launches is another value.
    told = verdict("tpot", "pass", 0.0025, current=0.00401, launches=1)
    test = record("t", told, metrics={"tpot": metric("tpot", 0.00401, 0.0043, 0.0044), "ttft": metric("ttft", 0.021)})
    assert rows(summary(results(test)))[1] == ["t", "pass", "21.00 ms", "4.010 ms (+0.2 %)"]
    advised = record("t", advisory=[{"metric": "tpot", "baseline": 0.004, "current": 0.00467, "change": 0.1675}])
    assert rows(summary(results(advised)))[1][3] == "4.670 ms (+16.8 %)"


def test_what_would_decide_is_said():
    text = summary(results(*ALL))
    assert "#### Inconclusive\n\n- `suites/test_x.py::test_decode[4]`: `tpot` 4.000 ms" in text
    assert "8 launches against 5. If it is what it seems, 12 launches would decide.\n" in text


def test_improvements_are_accepted_by_a_command_that_is_only_proposed():
    text = summary(results(*ALL, command="pytest suites --gpu-clock 900 --llmperf-report=r -x"))
    assert "To accept them, measure these tests again and store:" in text
    assert "\npytest 'suites/test_x.py::test_decode[1]' --gpu-clock 900 --llmperf-save\n" in text


def test_an_improvement_of_a_test_that_passes_is_seen_and_can_be_accepted():
    test = record("t#x", verdict("ttft", "pass"), verdict("tpot", "improved", -0.2), worst="pass")
    text = summary(results(test, PASSED))
    assert "2 pass, 1 of the passes with an improvement" in text
    assert [row[1] for row in rows(text)[1:]] == ["pass, improved", "pass"]
    assert "\npytest t --llmperf-engine vllm --llmperf-save\n" in text
    worse = record("t", verdict("ttft", "regressed", 0.8), verdict("tpot", "improved", -0.2))
    assert "To accept them" not in summary(results(worse))


def test_many_improvements_are_accepted_by_the_command_of_the_run():
    many = [record(f"a.py::t[{i}]", verdict("tpot", "improved", -0.1)) for i in range(6)]
    assert "measure all tests of this run again and store:\n\n```sh\npytest suites/ " in summary(results(*many))


def test_what_gates_nothing_shows_its_change_too():
    run = results(PASSED)
    told = run.tests[0].model_copy(update={"advisory": [SimpleNamespace(metric="throughput", change=0.021)]})
    assert rows(summary(run.model_copy(update={"tests": [told]})))[1][4] == "210.3 (+2.1 %)"


def test_metrics_that_share_a_reason_are_one_line():
    text = summary(results(UNSTORED))
    assert text.count("none is stored in b/x.json") == 1
    assert "(`ttft`, `tpot`)" in text
    assert "pytest suites/ --llmperf-engine vllm --llmperf-save" in text


def test_how_it_was_judged_is_said():
    text = summary(results(*ALL, gate=GATE))
    assert "- 26 comparisons; an unchanged engine is called regressed in at most 1 run of 20; launches used 3.0" in text
    assert "probability of at most 0.05 a metric; looks after 1, 2, 3, 4, 5, 6, 8 launches" in text
    assert "- smallest worsening that would have been called regressed: +7.1 % to +7.1 %" in text
    assert "commit `0123456789ab`" in text


def test_engine_treatment_and_clock_are_said():
    test = record("t", verdict(), engine=ENGINE | {"treatment": {"enforce_eager": True}})
    text = summary(results(test, PASSED))
    assert text.count("- vllm 0.32.0, mistral-7b (bfloat16) on NVIDIA H200\n") == 1
    assert '- arguments under test: {"enforce&#95;eager": true} in 1 of 2 tests\n' in text
    assert "- SM clock locked at 900 MHz\n" in text


def test_a_simulation_is_marked():
    assert "**Simulated: the figures are computed, and are of no real board.**" in summary(
        results(record("t", engine=ENGINE | {"simulated": True}))
    )
    assert "Simulated" not in summary(results(PASSED))


def test_a_test_that_failed_for_another_reason_is_told_apart():
    text = summary(results(record("t", verdict(), outcome="failed")))
    assert "1 pass, **1 failed for another reason**" in text
    assert rows(text)[1][1] == "pass, but failed"


def test_an_invalid_test_says_why():
    broken = record("t", worst="invalid", metrics={}, engine=None, workload=None, requests=None, clock={},
                    outcome="failed", invalid="The engine died.")  # fmt: skip
    text = summary(results(broken))
    assert "- `t`: The engine died.\n" in text
    assert rows(text) == [["Test", "Verdict"], ["t", "invalid"]]


def test_a_metric_of_the_answers_has_no_values_of_its_own():
    test = record("t", verdict("token_agreement", "regressed", None, baseline=None, reason="answers differ: 71 %"))
    assert "`t` regressed: `token_agreement`: answers differ: 71 %." in summary(results(test))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_results(count):
    text = summary(results(*[PASSED, REGRESSED][:count]))
    assert len(rows(text)) == (count + 1 if count else 0)
    assert ("No test measured anything." in text) == (count == 0)


def test_the_last_section_says_what_the_terminal_says_of_the_whole_run():
    warned = "The clock ran free and gave way for 40% of the time: 9 of 300 samples throttled (power cap)."
    last = summary(results(record("t", warnings=[warned]), PASSED)).partition("#### How it was judged")[2]
    assert "- how often: 3 launches of 1 repeat a test\n" in last
    assert "- power cap: the clock ran free and gave way in 1 of 2 tests, for 40 % of the time\n" in last


def test_nothing_gated_is_said():
    assert "1 measured, nothing was gated" in summary(results(record("t")))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_everywhere(name):
    test = record(
        f"f.py::t[{name}]",
        verdict("tpot", "regressed", 0.2),
        verdict("ttft", "inconclusive", 0.2, advice=name),
        verdict("tpj", "improved", 0.2),
        verdict("mbu", "incomparable", None, reason=name),
        engine=ENGINE | {"model": name, "version": name, "treatment": {name: name}},
    )
    invalid = record(f"g.py::{name}", worst="invalid", invalid=name)
    text = summary(results(test, invalid, command=f"pytest 'f.py::t[{name}]'", plugin_version=name, id=name))
    meant = {"strong_open", "strong_close"}  # our own emphasis of verdicts
    ours = {"heading_open", "fence"}
    assert set(acting(text)) <= meant | ours
    assert sum(token.type == "heading_open" for token in GITHUB.parse(text)) == 5
    assert {len(row) for row in rows(text)} == {6}


def test_a_thousand_tests_stay_below_githubs_limit_and_the_rest_is_counted():
    many = [record(f"f.py::{'@' * 150}[{i}]", *(verdict(m, "inconclusive", 0.2, advice="@" * 500) for m in "ab"))
            for i in range(1000)]  # fmt: skip
    more = [record(f"g.py::{'<' * 300}[{i}]", verdict("tpot", "improved", -0.2)) for i in range(300)]
    text = summary(results(*many, *more, gate=GATE))
    assert len(text) <= LONGEST
    shown = len(rows(text)) - 2  # the heads: of the table, and of the rows that are folded
    assert shown >= 5
    assert f"{1300 - shown} more tests, less bad than these, in the report." in text
    assert "more, in the report" in text


def test_missing_and_stale_baselines_are_named_where_the_record_has_them():
    found = {"missing": ["a.py::new"], "stale": [{"test": "a.py::old", "path": "baselines/<x>.json"}], "not_run": 4}
    text = summary(Results.model_validate({**results(PASSED).model_dump(), "baselines": found}))
    assert "- missing: `a.py::new`\n" in text
    assert "- stale, its test is gone: `a.py::old` in <code>baselines/&#60;x&#62;.json</code>\n" in text
    assert "- 4 stored baselines of tests that did not run" in text
    assert "#### Baselines" not in summary(results(PASSED))


def test_a_record_of_an_older_version_is_read():
    old = json.loads(results(REGRESSED).to_json())
    del old["gate"]
    for entry in old["tests"][0]["verdicts"]:
        for name in ("against", "launches", "advice", "noise", "prediction", "saved_at"):
            del entry[name]
        entry |= {"interval": None, "minimum_detectable": None, "alpha": None, "looks": None}
    text = summary(Results.model_validate(old))
    assert "4.288 ms now, +7.2 %, tolerance 5.0 %." in text
    assert metric("mbu")["value"] is None


def test_a_long_table_stands_below_what_has_to_be_read_and_what_the_tests_say_together():
    quiet = [record(f"t[{at}]") for at in range(31)]
    bad = [record(f"bad[{at}]", verdict("tpot", "regressed", at / 10)) for at in (1, 2)]
    broken = record("broken", worst="invalid", invalid="The engine died.")
    run = results(*quiet, *bad, broken)
    found = {"kind": "idle", "name": "floor", "title": "Idle", "sentences": ["It draws 80 W."], "columns": [],
             "rows": [], "marks": [], "tests": []}  # fmt: skip
    text = summary(Results.model_validate(run.model_dump() | {"findings": [found]}))
    places = [text.index(part) for part in (
        "#### Regressed", "#### Not judged", "#### Findings", "#### Tests", "t[30]", "#### How it was judged",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "- `bad[1]`: `tpot` 4.000 ms in the baseline, 4.400 ms now" in text
    assert "#### Regressed" not in summary(results(*bad))
    assert "<details>" not in text


def test_the_rest_of_a_long_table_is_folded():
    text = summary(results(*(record(f"t[{at}]") for at in range(80))))
    seen, folded = text.split("<details>\n<summary>30 more tests</summary>\n\n")
    assert len(rows(seen)) == 51
    assert len(rows(folded.partition("</details>")[0])) == 31
    assert "`t[79]`" in folded


@pytest.mark.parametrize(("models", "named", "more"), [(5, 5, ""), (7, 4, "\n- and 3 more\n")])
def test_all_models_are_named_or_counted(models, named, more):
    text = summary(results(*(record(f"t[{n}]", engine=ENGINE | {"model": f"m{n}"}) for n in range(models))))
    assert text.count("on NVIDIA H200\n") == named
    assert ("\n- and " in text) == bool(more)
    assert more in text
