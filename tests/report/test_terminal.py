"""What the terminal is given to print."""

import shlex

import pytest

from pytest_llmperf.report.terminal import failure_paragraph, table
from pytest_llmperf.results.findings import Finding

from .records import (
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


def test_the_engines_line_cannot_act_on_the_terminal():
    engine = ENGINE | {"kind": "openai", "version": "1\x1b[2J", "model": "m\r\n\x07", "device": "d\x9b"}
    lines = lines_of(record("f.py::t\x1b", engine=engine))
    assert lines[0] == r"openai 1\x1b[2J, m\r\n\x07, d\x9b"
    assert all(line.isprintable() for line in lines)


def lines_of(*records, width=80, **fields):
    return [line for line, _ in table(results(*records, **fields), width)]


def paragraph(test, command=None):
    return failure_paragraph(results(test).tests[0].model_dump(mode="json"), command).splitlines()


def test_what_regressed_comes_first_then_what_is_not_known():
    lines = lines_of(PASSED, IMPROVED, UNSTORED, INCONCLUSIVE, REGRESSED, gate=GATE)
    verdicts = [line.split("  ")[-1].strip() for line in lines[2:7]]
    assert verdicts == [
        "regressed tpot +7.2 %", "inconclusive tpot +4.1 %", "no-baseline", "improved tpot -10.0 %", "pass",
    ]  # fmt: skip


def test_the_run_says_how_it_was_judged_and_what_would_decide():
    text = " ".join(" ".join(lines_of(INCONCLUSIVE, PASSED, gate=GATE)).split())
    assert (
        "26 comparisons; an unchanged engine is called regressed in at most 1 run of 20; "
        "launches used 3.0 on average, of 8 at most" in text
    )
    assert "tpot of test_decode[4]: If it is what it seems, 12 launches would decide." in text


def test_a_tolerance_below_the_noise_is_said_once_for_each_metric():
    def noisy(metric, n):
        return verdict(metric, advice=f"The tolerance of {n}.0% is below the noise: launches differ by {n} %.")

    tests = [record(f"f.py::t{i}", noisy("tpot", 1), noisy("ttft", 2)) for i in range(9)]
    said = [line for line in lines_of(*tests, width=200) if "below the noise" in line]
    assert [line.partition(":")[0] for line in said] == ["tpot of t0", "ttft of t0"]
    assert all(line.endswith("(and 8 more of this kind)") for line in said)


def test_an_improvement_of_a_test_that_passes_is_seen():
    test = record("t", verdict("ttft", "pass"), verdict("tpot", "improved", -0.2), worst="pass")
    assert any(line.endswith("  pass, tpot -20.0 %") for line in lines_of(test))
    assert any(line.endswith("  pass, but failed") for line in lines_of(test | {"outcome": "failed"}))


def test_of_two_metrics_that_say_the_same_the_first_is_named():
    same = (verdict("tpot", "regressed", 0.1), verdict("mbu", "regressed", 1 / 1.1001 - 1))
    assert any(line.endswith("  regressed tpot +10.0 %") for line in lines_of(record("t", *same)))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    tests = [
        record(f"f.py::{name}", verdict("token_agreement", "regressed", -0.2), verdict("tpot", advice="x " * 99))
        for name in HOSTILE
    ]
    lines = lines_of(*tests, REGRESSED, INCONCLUSIVE, width=width, gate=GATE)
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)
    said = {60: "regressed answers -20 %", 80: "regressed answers -20 %", 120: "regressed token_agreement -20.0 %"}
    assert any(line.endswith(said[width]) for line in lines)


def finding(number, *sentences, title="Sweet spot of decode"):
    return {
        "kind": "sweet_spot", "name": f"f{number}", "title": title, "sentences": list(sentences), "columns": [],
        "rows": [], "marks": [], "tests": [],
    }  # fmt: skip


def with_findings(*found):
    return results(PASSED).model_copy(update={"findings": [Finding.model_validate(one) for one in found]})


def test_the_answer_of_every_finding_stands_below_the_table():
    said = [
        line for line, _ in table(with_findings(finding(1, "Lock at 900 MHz: " + "-20 % energy, " * 9, "Why.")), 80)
    ]
    first = next(place for place, line in enumerate(said) if line.startswith("  Sweet spot of decode: Lock at 900 MHz"))
    assert said[first - 1] == "what the tests say together:"
    assert first > next(place for place, line in enumerate(said) if line.startswith("decode[2]"))
    assert max(map(len, said)) <= 80
    assert "Why." not in " ".join(said)


def test_of_many_findings_the_report_has_the_rest():
    said = [line for line, _ in table(with_findings(*(finding(n, f"Answer {n}.") for n in range(11))), 80)]
    assert [line for line in said if "Answer" in line][-1].endswith("Answer 7.")
    assert "  3 more findings are in the report" in said


@pytest.mark.parametrize(
    ("title", "sentence", "told"),
    [
        ("What idle boards draw", "The idle boards draw 79 W.", "The idle boards draw 79 W."),
        ("KV cache: mistral-7b", "A token of mistral-7b takes 131 kB.", "A token of mistral-7b takes 131 kB."),
        ("KV cache: mistral-7b", "A token takes 131 kB.", "KV cache: mistral-7b: A token takes 131 kB."),
        ("Knee: 512 + 256 tokens", "Batch 16 (512 + 256 tokens).", "Batch 16 (512 + 256 tokens)."),
        ("Knee: 512 + 256 tokens", "Batch 16 (512 tokens).", "Knee: 512 + 256 tokens: Batch 16 (512 tokens)."),
    ],
)
def test_a_title_is_told_where_the_sentence_lacks_its_subject(title, sentence, told):
    said = [line for line, _ in table(with_findings(finding(1, sentence, title=title)), 80)]
    assert f"  {told}" in said


def test_without_findings_there_is_no_heading():
    assert not any("say together" in line for line in lines_of(PASSED))


def caused(nodeid, cause="slowdown=1.05 (not given in the baseline)", **fields):
    told = [f"Decode is 5.0 % slower; under test: {cause}.", "As in the baseline: clocks."]
    advised = verdict("tpot", "inconclusive", 0.05, advice="Launch again.")
    return record(nodeid, advised, outcome="failed", explanation=told, **fields)


def test_what_is_under_test_is_told_once_where_it_is_the_same_for_all():
    said = " ".join(" ".join(lines_of(caused("f.py::a"), caused("f.py::b"), PASSED)).split())
    assert "under test in all 2 that moved: slowdown=1.05 (not given in the baseline)" in said
    assert "under test in all" not in "".join(lines_of(caused("f.py::a"), PASSED))
    assert "under test in all" not in "".join(lines_of(caused("f.py::a"), caused("f.py::b", "engine version 2")))


def test_a_paragraph_leaves_out_what_the_summary_tells():
    record = results(caused("f.py::a")).tests[0].model_dump(mode="json")
    whole = failure_paragraph(record).splitlines()
    cause = "slowdown=1.05 (not given in the baseline)"
    short = failure_paragraph(record, cause=cause, advised={"Launch again."}).splitlines()
    assert "    Launch again." in whole
    assert "  Decode is 5.0 % slower." in short
    assert not any("slowdown" in line or "Launch again" in line for line in short)
    assert failure_paragraph(record, cause="another one").splitlines() == whole


def test_an_invalid_measurements_reason_is_wrapped_and_its_paths_stay_whole():
    path = "/" + "x" * 90
    lines = paragraph(record("t", verdict(), worst="invalid", invalid=f"{'too short ' * 12}{path}"))
    assert f"    {path}" in lines
    assert all(len(line) <= 80 for line in lines if path not in line)


def test_a_long_name_of_an_engine_is_wrapped_and_not_cut():
    engine = ENGINE | {"model": "a-model-of-a-very-long-name " * 3}
    lines = lines_of(record("t", engine=engine), width=80)
    assert max(map(len, lines)) <= 80
    assert "NVIDIA H200" in " ".join(lines[:3])


def test_a_finding_without_an_answer_says_nothing_and_a_hostile_one_does_nothing():
    said = [line for line, _ in table(with_findings(finding(1), finding(2, "\x1b[2J", title="a\nb")), 80)]
    assert "  a\\nb: \\x1b[2J" in said
    assert all(line.isprintable() for line in said)


def test_the_command_that_accepts_an_improvement_can_be_copied():
    command = (
        "pytest suites/ --llmperf-engine vllm,enforce_eager=true --llmperf-baselines='my baselines' -m 'not sweep'"
    )
    lines = lines_of(IMPROVED, PASSED, command=command)
    start = next(place for place, line in enumerate(lines) if line.startswith("    pytest "))
    end = next(place for place in range(start, len(lines)) if not lines[place].endswith("\\"))
    assert "Improvements change no baseline. To accept them, measure this test again and" in lines
    assert shlex.split("\n".join(lines[start : end + 1]).replace("\\\n", "")) == [
        "pytest", "suites/test_x.py::test_decode[1]", "--llmperf-engine", "vllm,enforce_eager=true",
        "--llmperf-baselines=my baselines", "-m", "not sweep", "--llmperf-save",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_where_nothing_improved_there_is_nothing_to_accept():
    assert not any("accept" in line for line in lines_of(PASSED, REGRESSED))


def test_a_simulated_figure_is_nowhere_called_measured():
    lines = lines_of(record("t", engine=ENGINE | {"simulated": True}))
    assert lines[1] == "SIMULATED: the figures are computed, and are of no real board"
    assert not any("measured" in line for line in lines)
    assert any(line.endswith("  simulated") for line in lines)


def test_mbu_that_moves_with_tpot_is_said_once():
    same = (verdict("tpot", "regressed", 0.1), verdict("mbu", "regressed", 1 / 1.1 - 1, advice="Halve it."))
    lines = paragraph(record("t", *same))
    assert lines[-1] == "  mbu moves with tpot: -9.1 %"
    assert not any("mbu: regressed" in line for line in lines)
    assert not any("mbu of" in line for line in lines_of(record("t", *same)))


@pytest.mark.parametrize(
    "mbu",
    [
        verdict("mbu", "regressed", -0.3),  # more than TPOT says
        verdict("mbu", "inconclusive", 1 / 1.1 - 1),
        verdict("mbu", "regressed", 1 / 1.1 - 1, against="anchor"),
    ],
)
def test_mbu_that_says_more_than_tpot_is_told(mbu):
    said = "\n".join(paragraph(record("t", verdict("tpot", "regressed", 0.1), mbu)))
    assert f"  mbu: {mbu['verdict']}: " in said


def test_a_failure_says_on_what_it_stands():
    assert paragraph(REGRESSED) == [
        "regressed tpot +7.2 %: suites/test_x.py::test_decode[16]",
        "  tpot: regressed: 4.000 ms in the baseline, 4.288 ms now: +7.2 %",
        "    (+6.1 to +8.4 %), tolerance 5.0 %, 3 launches against 5, lower is better",
    ]


def test_a_failure_against_the_anchor_says_so_with_its_date():
    anchored = verdict("tpot", "regressed", 0.2, against="anchor", saved_at="2026-03-01T12:00:00+00:00", tolerance=0.1)
    text = " ".join(" ".join(paragraph(record("t", anchored))).split())
    assert "4.000 ms in the anchor of 2026-03-01, 4.800 ms now" in text
    assert "budget 10.0 %" in text


def test_an_inconclusive_one_says_what_would_decide():
    assert paragraph(INCONCLUSIVE)[-1] == "    If it is what it seems, 12 launches would decide."


def test_one_launch_is_told_to_be_judged_by_a_prediction_interval():
    text = " ".join(paragraph(record("t", verdict("tpot", "regressed", 0.2, launches=1, prediction=True))))
    assert "1 launch against 5 (prediction interval)" in " ".join(text.split())


def test_what_it_recommends_is_this_runs_command():
    command = "pytest suites/ --llmperf-engine vllm,enforce_eager=true --gpu-clock 900 --llmperf-report=r"
    *_, what, shown = paragraph(UNSTORED, command)
    assert what == "  Store one with:"
    assert shown == "    pytest suites/ --llmperf-engine vllm,enforce_eager=true --gpu-clock 900 --llmperf-save"


def test_a_metric_that_is_no_number_of_the_measurement_is_said():
    agreement = verdict("token_agreement", "regressed", -0.29, baseline=1.0, current=0.71, interval=None, launches=0)
    assert paragraph(record("t", agreement))[1:] == [
        "  token_agreement: regressed: 100.0% in the baseline, 71.0% now: -29.0 %,",
        "    tolerance 5.0 % (down to -4.8 %), higher is better",
    ]


def test_metrics_that_share_a_reason_share_a_line():
    said = verdict(verdict="not-applicable", reason="advisory: another board", change=0.1)
    test = record("t", said, said | {"metric": "ttft"})
    assert paragraph(test)[1] == "  tpot, ttft: not-applicable: advisory: another board"


@pytest.mark.parametrize("test", [REGRESSED, INCONCLUSIVE, IMPROVED, PASSED])
def test_a_paragraph_fits_80_columns_and_breaks_no_number(test):
    lines = paragraph(test)[1:]
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(("tolerance", " to")) or line.lstrip().startswith("%") for line in lines)


def test_a_record_without_the_statistics_is_said():
    old = {
        k: v
        for k, v in verdict("tpot", "regressed", 0.2).items()
        if k not in ("against", "launches", "advice", "noise", "prediction")
    }
    test = results(record("t", verdict("tpot", "regressed", 0.2))).tests[0].model_dump() | {
        "verdicts": [old | {"interval": None}]
    }
    assert "now: +20.0 %, tolerance 5.0 %, lower is better" in " ".join(failure_paragraph(test).split())


def test_the_table_shows_the_value_on_which_the_verdict_stands():
    told = verdict("tpot", "improved", -0.1, current=0.0036, launches=1)
    test = record(
        "f.py::t", told, metrics={"tpot": metric("tpot", 0.0036, 0.0039, 0.004), "ttft": metric("ttft", 0.021)}
    )
    line = next(line for line in lines_of(test, width=60) if line.startswith("t "))
    assert line.split() == ["t", "21.00", "ms", "3.600", "ms", "improved", "tpot", "-10.0", "%"]


def test_an_anchors_verdict_does_not_change_the_value():
    test = record("f.py::t", verdict("tpot", "pass", 0.2, against="anchor"), metrics={"tpot": metric("tpot", 0.00467)})
    assert "4.670 ms" in next(line for line, _ in table(results(test), 100) if line.startswith("t "))
