"""The charts of one test, number by number."""

import pytest

from pytest_llmperf import results
from pytest_llmperf.report.charts import charts_of_test

from ..records import metric, record, verdict
from .examples import CONDITIONS, condition, gated, measured, timeline


def chart(test, template):
    """The test's one chart of a template, or ``None``."""
    return next((one for one in charts_of_test(test) if one.template.startswith(template)), None)


def of(*verdicts, **fields):
    return results.TestRecord.model_validate(record("t", *verdicts, **fields))


def test_launches_stand_beside_the_baselines_in_percent_of_it():
    told = verdict(baseline=0.004, baseline_launches=[[0.004], [0.00404, 0.0042, 0.0041]], tolerance=0.05)
    drawn = chart(of(told, metrics={"tpot": metric("tpot", 0.0042, 0.0038)}), "distribution")
    assert [(row["series"], row["launch"], row["change_percent"]) for row in drawn.rows] == [
        ("baseline", 1, 0.0), ("baseline", 2, pytest.approx(2.5)), ("this run", 1, pytest.approx(5)),
        ("this run", 2, pytest.approx(-5)),
    ]  # fmt: skip
    assert [row["change_percent"] for row in drawn.extra["repeats"]] == pytest.approx([1, 5, 2.5])
    (band,) = drawn.extra["band"]
    assert (band["low_percent"], band["high_percent"]) == pytest.approx((-4.7619, 5), rel=1e-5)
    assert drawn.rows[0]["value"] == "4.000 ms"


def test_the_worst_metric_comes_first_and_each_says_its_verdict():
    drawn = chart(of(verdict("ttft", "pass", 0.01), verdict("tpot", "regressed", 0.072)), "distribution")
    assert list(dict.fromkeys(row["label"] for row in drawn.rows)) == ["TPOT +7.2 %, regressed", "TTFT +1.0 %, pass"]
    assert drawn.description == (
        "Medians of launches, in percent of the baseline: TPOT +7.2 % (+6.1 to +8.4 %), regressed; TTFT +1.0 % "
        "(-0.1 to +2.2 %), pass."
    )
    assert drawn.params["height"] == 2 * 58


def test_an_interval_is_drawn_to_its_ends():
    drawn = chart(of(verdict(change=0.07, interval=[0.061, 0.084])), "distribution")
    (interval,) = drawn.extra["interval"]
    assert (interval["low_percent"], interval["high_percent"]) == (6.1, 8.4)
    assert drawn.extra["cuts"] == []


def test_an_interval_without_end_is_cut_and_ends_in_an_arrow():
    told = verdict(change=0.07, interval=[-0.9, 1e300], baseline_launches=[[0.004]])
    drawn = chart(of(told, metrics={"tpot": metric("tpot", 0.0042)}), "distribution")
    (interval,) = drawn.extra["interval"]
    assert -20 < interval["low_percent"] < interval["high_percent"] < 20
    assert {row["shape"]: row["change_percent"] for row in drawn.extra["cuts"]} == {
        "triangle-left": interval["low_percent"],
        "triangle-right": interval["high_percent"],
    }


def test_only_comparisons_with_the_baseline_that_stand_on_numbers_are_drawn():
    nothing = (
        verdict("tpot", "no-baseline", None, baseline=None), verdict("ttft", "regressed", 0.2, against="anchor"),
        verdict("token_agreement", "pass", 0.0, baseline=1.0),
    )  # fmt: skip
    assert chart(of(*nothing), "distribution") is None
    assert chart(of(*nothing), "launches") is not None


def test_a_measured_test_shows_its_launches_around_their_median():
    drawn = chart(measured(), "launches")
    tpot = [row for row in drawn.rows if row["metric"] == "TPOT"]
    assert [row["change_percent"] for row in tpot] == pytest.approx([0.0, -0.21413, 0.42827], rel=1e-4)
    assert "mbu" not in {row["metric"] for row in drawn.rows}
    assert "TTFT 22.90 ms to 23.60 ms" in drawn.description


def test_one_value_is_no_distribution():
    assert chart(of(metrics={"tpot": metric("tpot", 0.004), "mbu": metric("mbu")}), "launches") is None
    assert charts_of_test(of(metrics={})) == []
    assert (
        chart(of(metrics={"tpot": metric("tpot", 0.004, 0.004), "ttft": metric("ttft", 0.02, 0.02)}), "launches")
        is None
    )


def test_very_many_repeats_are_thinned():
    many = metric("tpot") | {"value": 0.004, "launches": [[0.004 + at * 1e-6 for at in range(500)]] * 2}
    drawn = chart(of(metrics={"tpot": many}), "launches")
    assert len(drawn.rows) == 2
    assert len(drawn.extra["repeats"]) == 60


@pytest.mark.parametrize(
    ("changed", "template"),
    [
        ({}, "trace_activity"),
        ({"sm_activity": None}, "trace"),
        ({"sm_activity": [None] * 120}, "trace"),
        ({"sm_clock": [None] * 120}, "trace_power"),
    ],
)
def test_a_trace_has_a_panel_for_what_was_read(changed, template):
    drawn = chart(gated(timeline=timeline() | changed), "trace")
    assert drawn.template == template
    assert len(drawn.rows) == 120
    assert drawn.rows[60]["power_w"] == pytest.approx(180, abs=4)
    assert ("clock_mhz" in drawn.rows[0]) == (template != "trace_power")


def test_a_trace_without_power_or_without_board_is_none():
    assert chart(gated(timeline=timeline() | {"power": [None] * 120}), "trace") is None
    assert chart(gated(timeline=None), "trace") is None


def test_a_reading_that_failed_is_a_gap_and_no_zero():
    broken = timeline(points=4) | {"power": [100.0, None, 120.0, 110.0]}
    drawn = chart(gated(timeline=broken), "trace")
    assert [row["power_w"] for row in drawn.rows] == [100.0, None, 120.0, 110.0]
    assert "100.0 W to 120.0 W" in drawn.description


def test_capping_is_named_once_a_reason_and_phases_by_what_they_are():
    held = [{"start": at, "end": at + 0.05, "reason": reason}
            for at, reason in ((0.1, "sw_power_cap"), (0.3, "sw_power_cap"), (1.2, "sw_thermal_slowdown"))]  # fmt: skip
    load = [{"phase": "load", "start": 0.0, "end": 1.3}]
    drawn = chart(gated(timeline=timeline() | {"capped": held, "phases": load}), "trace")
    assert [(row["label"], row["align"], row["at"]) for row in drawn.datasets()["capped"]] == [
        ("sw_power_cap", "left", 0.15), (None, "left", 0.35), ("sw_thermal_slowdown", "right", 1.2),
    ]  # fmt: skip
    assert drawn.params["phases"] == ["prefill", "decode", "prefill and decode together"]
    assert drawn.params["shown"] == ["prefill and decode together"]
    assert "held down by sw_power_cap, sw_thermal_slowdown." in drawn.description


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"capped": []}, "nothing held the clock down"),
        ({"capped": None}, "what holds the clock down was not read"),
        ({"capped_left_out": 1}, "held down by sw_power_cap (1 shorter stretch not marked)"),
        ({"capped_left_out": 3}, "held down by sw_power_cap (3 shorter stretches not marked)"),
    ],
)
def test_a_trace_says_what_held_the_clock_down_and_nothing_only_where_it_was_read(changed, said):
    assert said in chart(gated(timeline=timeline() | changed), "trace").description


def test_a_breakdown_adds_up_and_stands_beside_the_baseline():
    drawn = chart(gated(), "stacked")
    now = {row["part"]: row["s"] for row in drawn.rows if row["bar"] == "this run"}
    assert now == {"until sent": 0.00004, "queue": 0.0012, "prefill": 0.0961, "decode": 1.171, "client": 0.0006}
    assert drawn.params["x_title"] == "medians of one request (s)"
    assert [total["label"] for total in drawn.extra["totals"]] == ["1.269 s", "1.189 s"]
    assert drawn.extra["totals"][0]["s"] == pytest.approx(sum(now.values()), rel=1e-4)
    assert sum(row["share_percent"] for row in drawn.rows if row["bar"] == "baseline") == pytest.approx(100, abs=0.01)


def test_parts_that_are_not_known_are_left_out_and_named():
    parts = CONDITIONS | {
        "queue_time": condition(None, reason="the engine keeps no stamps"), "client_overhead": condition(-1e-5),
    }  # fmt: skip
    drawn = chart(gated(conditions=parts), "stacked")
    assert {"queue", "client"}.isdisjoint(row["part"] for row in drawn.rows if row["bar"] == "this run")
    assert "Left out: queue (the engine keeps no stamps), client (" in drawn.description


def test_a_part_that_takes_no_time_is_not_told():
    drawn = chart(gated(conditions=CONDITIONS | {"send_delay": condition(0.0, 0.0)}), "stacked")
    assert "until sent" not in drawn.description
    assert "until sent" not in drawn.params["shown"]
    # A part has its colour whether or not others are there.
    assert drawn.params["parts"] == chart(gated(), "stacked").params["parts"]


def test_a_wide_tolerance_does_not_make_the_changes_of_others_small():
    wide = verdict(
        "ttft", "pass", 0.02, tolerance=0.5, baseline=0.0224, interval=[-0.04, 0.06],
        baseline_launches=[[0.0222], [0.0226]],
    )  # fmt: skip
    drawn = chart(of(verdict("tpot", "regressed", 0.072, interval=[0.06, 0.08]), wide), "distribution")
    bands = {band["metric"]: band for band in drawn.extra["band"]}
    assert bands["TPOT"]["high_percent"] == 5
    assert 8 < bands["TTFT"]["high_percent"] < 30
    assert bands["TTFT"]["tolerance"] == "-33.3 to +50.0 %"


def test_without_prefill_or_decode_there_is_no_breakdown():
    assert chart(gated(conditions={"send_delay": condition(0.1)}), "stacked") is None
    assert chart(gated(conditions={}), "stacked") is None


def test_without_repeats_all_else_is_the_same():
    for test in (gated(), measured()):
        whole, without = charts_of_test(test), charts_of_test(test, repeats=False)
        assert [chart.rows for chart in whole] == [chart.rows for chart in without]
        for one, other in zip(whole, without, strict=True):
            assert {**one.extra, "repeats": []} == {**other.extra, "repeats": []}
    assert any(chart.extra.get("repeats") for chart in charts_of_test(gated()))
    assert not any(chart.extra.get("repeats") for chart in charts_of_test(gated(), repeats=False))
