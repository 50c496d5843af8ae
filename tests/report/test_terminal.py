"""What the terminal is given to print."""

from types import SimpleNamespace

import pytest

from pytest_llmperf.report.terminal import failure_paragraph, table

from .records import (
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
    engine = SimpleNamespace(kind="openai", version="1\x1b[2J", model="m\r\n\x07", device="d\x9b", simulated=False)
    test = SimpleNamespace(
        nodeid="f.py::t\x1b", engine=engine, metrics={}, verdicts=[], verdict="measured", outcome="passed", client=[],
        server=[], client_overhead=None, requests=None, warnings=[], workload=None, search=None,
    )  # fmt: skip
    results = SimpleNamespace(tests=[test], worst_first=lambda: [test], gate=None)
    lines = [line for line, _ in table(results, 80)]
    assert lines[0] == r"openai 1\x1b[2J, m\r\n\x07, d\x9b"
    assert all(line.isprintable() for line in lines)


def test_warnings_of_one_kind_are_one_line():
    def one(name, *warnings):
        return SimpleNamespace(
            nodeid=f"f.py::{name}", engine=None, metrics={}, verdicts=[], verdict="measured", outcome="passed",
            client=[], server=[], client_overhead=None, requests=None, warnings=warnings, workload=None, search=None,
        )  # fmt: skip

    tests = [
        one("a", "The clock ran free and gave way for 12% of the time: x.", "Other words altogether."),
        one("b", "prefill: The clock ran free and gave way for 99.5% of the time: y."),
    ]
    results = SimpleNamespace(tests=tests, worst_first=lambda: tests, gate=None)
    said = " ".join(" ".join(line for line, _ in table(results, 80)).split())
    assert "a: The clock ran free and gave way for 12% of the time: x. (and 1 more of this kind)" in said
    assert "a: Other words altogether." in said
    assert "99.5%" not in said


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
    assert any(line.endswith("regressed token_agreement -20.0 %") for line in lines)


def test_a_failure_says_on_what_it_stands():
    assert paragraph(REGRESSED) == [
        "regressed: suites/test_x.py::test_decode[16]",
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
        "    tolerance 5.0 % (to -4.8 %), higher is better",
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
    line = next(line for line, _ in table(results(test), 100) if line.startswith("t "))
    assert line.split() == ["t", "21.00", "ms", "3.600", "ms", "-", "improved", "tpot", "-10.0", "%"]


def test_an_anchors_verdict_does_not_change_the_value():
    test = record("f.py::t", verdict("tpot", "pass", 0.2, against="anchor"), metrics={"tpot": metric("tpot", 0.00467)})
    assert "4.670 ms" in next(line for line, _ in table(results(test), 100) if line.startswith("t "))
