"""The charts of findings: which there are, from which columns, and what is in them."""

import pytest

from pytest_llmperf.report.charts import charts_of_finding, complete
from pytest_llmperf.results import Results

from .examples import (
    CACHE,
    FORMATS,
    GRID,
    HARDWARE,
    IDLE,
    LENGTHS,
    LOAD,
    PHASES,
    POLICIES,
    ROOFLINE,
    SCALING,
    SIZES,
    SPLIT,
    SWEET_SPOT,
    finding,
    mark,
    run,
)  # fmt: skip

RUN: Results = run()


def charts(one):
    return charts_of_finding(one, RUN)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (PHASES, ["dots", "bars"]),
        (GRID, ["heatmap"] * 4 + ["curves"] * 2),
        (SWEET_SPOT, ["sweet_spot"]),
        (IDLE, ["bars"]),
        (LOAD, ["path", "corner"]),
        (LENGTHS, ["heatmap", "heatmap", "line"]),
        (SCALING, ["grouped"] * 4),
        (SIZES, ["proportion"]),
        (POLICIES, ["policies"] * 3),
        (FORMATS, ["bars"] * 3),
        (HARDWARE, ["bars"]),
        (ROOFLINE, ["roofline"]),
        (CACHE, ["line"]),
        (SPLIT, ["stacked"]),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_each_kind_has_its_charts(one, expected):
    assert [chart.template for chart in charts(one)] == expected


@pytest.mark.parametrize("one", [PHASES, GRID, SWEET_SPOT, IDLE, LOAD, LENGTHS, SCALING, SIZES, POLICIES, FORMATS,
                                 HARDWARE, ROOFLINE, CACHE, SPLIT], ids=lambda one: one.kind)  # fmt: skip
@pytest.mark.parametrize("emptied", ["rows", "numbers", "columns", "some"])
def test_a_finding_without_numbers_has_no_chart_and_raises_nothing(one, emptied):
    rows = {
        "rows": [],
        "numbers": [[v if isinstance(v, str) else None for v in row] for row in one.rows],
        "columns": [row[:1] for row in one.rows],
        "some": [[v if isinstance(v, str) or (at + i) % 2 else None for i, v in enumerate(row)]
                 for at, row in enumerate(one.rows)],
    }[emptied]  # fmt: skip
    columns = one.columns[:1] if emptied == "columns" else one.columns
    left = charts(one.model_copy(update={"rows": rows, "columns": columns}))
    assert emptied == "some" or left == []
    for chart in left:
        assert chart.rows
        complete(chart)


def test_a_cell_has_its_value_and_its_shade():
    power, tpj, *_ = charts(GRID)
    assert len(power.rows) == 7 * 12
    first = next(row for row in power.rows if (row["batch"], row["clock_mhz"]) == (1, 750))
    assert first["shade"] == 0
    assert first["label"] == "125"
    assert max(row["shade"] for row in power.rows) == 1
    assert power.params["value"] == "power_w"
    assert power.params["height"] == 7 * 27
    assert tpj.title == "Tokens per joule (tokens/J) by batch size and SM clock"
    assert power.description.startswith(
        "Power from 125.1 W (batch size 1 and SM clock 750) to 365.3 W (batch size 64 and"
    )


def test_a_grid_of_one_value_has_one_shade():
    (chart,) = charts(finding("lengths", ("input_len", "output_len", "e2e_latency"), [(1, 1, 0.5), (2, 1, 0.5)]))
    assert [row["shade"] for row in chart.rows] == [0.5, 0.5]


def test_a_cell_that_was_not_measured_is_left_out():
    (chart,) = charts(finding("lengths", ("input_len", "output_len", "e2e_latency"), [(1, 1, 0.5), (2, 1, None)]))
    assert [row["e2e_latency_ms"] for row in chart.rows] == [500.0]


def test_the_sweet_spot_has_its_optimum_interval_and_limits_in_lanes():
    (chart,) = charts(SWEET_SPOT)
    assert [(m["label"], m["x"], m["lane"], m["align"]) for m in chart.extra["marks"]] == [
        ("900 MHz", 900, 0, "left"), ("+10 % latency", 1050, 1, "right"), ("+5 % latency", 1100, 2, "right"),
    ]  # fmt: skip
    assert [(i["low"], i["high"]) for i in chart.extra["intervals"]] == [(850, 1000)]
    assert [row["clock_mhz"] for row in chart.rows] == sorted(row["clock_mhz"] for row in chart.rows)
    assert chart.params["latency_title"] == "latency (ms)"
    assert chart.params["efficiency_title"] == "tokens/J"


def test_a_prefill_is_told_in_prompt_tokens():
    rows = [(900, 200.0, 30.0, 0.1), (1000, 230.0, 28.0, 0.09), (1100, 260.0, 26.0, None)]
    one = finding("sweet_spot", ("clock", "power", "tpj", "ttft"), rows, tpj="Prompt tokens per joule")
    (chart,) = charts(one)
    assert chart.params == {"efficiency_title": "prompt tokens/J", "latency_title": "TTFT (ms)"}
    assert chart.rows[2]["latency_ms"] is None
    assert "most, 30, at 900 MHz with 200 W" in chart.description


def test_a_clock_in_hertz_is_drawn_in_megahertz_with_its_marks():
    rows = [(9e8, 200.0, 3.0), (1e9, 230.0, 2.0)]
    one = finding("sweet_spot", ("clock", "power", "tpj"), rows, mark("optimum", "here", 9e8, None, 8e8, 1e9))
    hertz = one.columns[0].model_copy(update={"unit": "Hz"})
    (chart,) = charts(one.model_copy(update={"columns": [hertz, *one.columns[1:]]}))
    assert [row["clock_mhz"] for row in chart.rows] == [900, 1000]
    assert chart.extra["marks"][0]["x"] == pytest.approx(900)
    assert chart.extra["intervals"][0]["high"] == pytest.approx(1000)
    assert chart.template == "sweet_spot_energy"


def test_the_knee_rings_the_point_of_its_load_and_the_rest_marks_the_corner():
    path, corner = charts(LOAD)
    (knee,) = path.extra["marks"]
    at = next(row for row in path.rows if row["batch"] == 64)
    assert {field: at[field] for field in knee if field != "note"} == {k: v for k, v in knee.items() if k != "note"}
    assert [m["label"] for m in corner.extra["marks"]] == ["measured: 90", "predicted: 173"]
    assert len(corner.extra["intervals"]) == 1


def test_labels_of_points_that_lie_on_each_other_are_left_out():
    path, _ = charts(LOAD)
    shown = [row["label"] for row in path.rows]
    assert shown[-1] == "256"
    assert None in shown
    assert [row["order"] for row in path.rows] == list(range(9))


@pytest.mark.parametrize("one", [LOAD, PHASES, ROOFLINE, CACHE, SIZES], ids=lambda one: one.kind)
def test_a_log_axis_gets_no_zero(one):
    zeroed = [[0.0 if isinstance(v, float | int) else v for v in row] for row in one.rows[:1]]
    ones = [mark("zero", "zero", 0.0, 0.0, 0.0, 1.0), *(m.model_dump() for m in one.marks)]
    raw = one.model_dump() | {"rows": [*zeroed, *one.rows], "marks": ones}
    for chart in charts(type(one).model_validate(raw)):
        if chart.template not in ("corner", "dots", "roofline", "proportion"):
            continue
        drawn = [row for rows in (chart.rows, *chart.extra.values()) for row in rows]
        numbers = [value for row in drawn for field, value in row.items() if field not in ("lane", "order")]
        numbers = [value for value in numbers if isinstance(value, float | int)]
        assert numbers
        assert min(numbers) > 0


def test_roofs_meet_at_the_balance():
    (chart,) = charts(ROOFLINE)
    memory = [row for row in chart.extra["roofs"] if row["roof"] == "memory"]
    compute = [row for row in chart.extra["roofs"] if row["roof"] == "compute"]
    assert (memory[-1]["intensity"], memory[-1]["tflop_per_s"]) == (173, 125)
    assert {row["tflop_per_s"] for row in compute} == {125}
    # Below the balance FLOP/s over FLOP/B is the bandwidth.
    assert {round(row["tflop_per_s"] / row["intensity"], 3) for row in memory} == {0.723}
    assert all(row["share_percent"] < 100 for row in chart.rows)
    assert "the roofs are 125 TFLOP/s and 723 GB/s, which meet at 173 FLOP/B" in chart.description


def test_a_roofline_without_peaks_has_its_points():
    (chart,) = charts(ROOFLINE.model_copy(update={"marks": []}))
    assert chart.extra["roofs"] == []
    assert {row["share_percent"] for row in chart.rows} == {None}


def test_growing_in_proportion_begins_at_the_smallest_model():
    (chart,) = charts(SIZES)
    assert [row["tpot_ms"] for row in chart.extra["proportion"]] == pytest.approx([21.5, 21.5 * 32.5 / 6.7], rel=1e-3)
    assert "4.85 times the parameters (6.7 billions to 32.5 billions) take 4.14 times the TPOT" in chart.description


def test_names_that_repeat_are_told_apart():
    rows = [("fp8", 1, 0.01), ("fp8", 16, 0.02), ("plain", 1, 0.02), ("plain", 1, 0.03)]
    (chart,) = charts(finding("formats", ("format", "batch", "tpot"), rows))
    assert [row["name"] for row in chart.rows] == [
        "fp8, batch size 1", "fp8, batch size 16", "plain, batch size 1", "plain, batch size 1 (2)",
    ]  # fmt: skip


def test_a_policy_has_one_curve():
    rows = [("static", 1, 90.0), ("static", 2, 95.0), ("static", 2, 50.0), ("other", 1, 3.0)]
    (chart,) = charts(finding("batching_policies", ("policy", "rate", "throughput"), rows))
    assert [(row["rate_per_s"], row["throughput_tokens_per_s"]) for row in chart.rows] == [(1, 90), (2, 95)]


def test_a_split_of_very_many_shows_some_and_counts_the_rest():
    rows = [[f"load {at}", 1, 1.0, 3.0, 0.1] for at in range(50)]
    (chart,) = charts(SPLIT.model_copy(update={"rows": rows}))
    assert len({row["bar"] for row in chart.rows}) == 24
    assert chart.params["height"] == 24 * 32
    assert chart.description.endswith("; and 46 more.")


def test_a_split_shows_shares_of_what_is_known():
    (chart,) = charts(SPLIT.model_copy(update={"rows": [["a", 1, 1.0, 3.0, None], ["b", 1, None, None, None]]}))
    assert [(row["part"], row["share_percent"]) for row in chart.rows] == [("idle floor", 25), ("weights", 75)]
    assert chart.description == "Attributed by bytes moved, not measured. a: idle floor 25%, weights 75%."
