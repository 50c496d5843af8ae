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
        (SPLIT, ["stacked"] * 2),
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
    assert tpj.title == "Tokens per joule by batch size and SM clock"
    assert power.description == (
        "Power: least 125.1 W at batch size 1 and 750 MHz, most 365.3 W at batch size 64 and 1300 MHz."
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
        ("optimum: 850 to 1000 MHz", 850, 1, "left"), ("900 MHz: +17.0 %", 900, 2, "left"),
        ("1100 MHz: +8.7 %", 1100, 3, "left"), ("running free: 1485 MHz", 1485, 0, "right"),
    ]  # fmt: skip
    # The name of the interval has no line of its own, and the clock that ran free is no point of the curve.
    assert [m.get("line") for m in chart.extra["marks"]] == [False, None, None, None]
    assert [row["clock_mhz"] for row in chart.extra["free"]] == [1485]
    assert [(i["low"], i["high"]) for i in chart.extra["intervals"]] == [(850, 1000)]
    assert [row["clock_mhz"] for row in chart.rows] == sorted(row["clock_mhz"] for row in chart.rows)
    assert chart.params["latency_title"] == "latency (s)"
    # Four lanes of labels, three panels.
    assert [chart.params[name] for name in ("top_0", "bottom_0", "top_1", "bottom_2", "height")] == [
        66,
        158,
        180,
        386,
        386,
    ]
    assert chart.params["efficiency_title"] == "tokens/J"


def test_a_prefill_is_told_in_prompt_tokens():
    rows = [(900, 200.0, 30.0, 0.1), (1000, 230.0, 28.0, 0.09), (1100, 260.0, 26.0, None)]
    one = finding("sweet_spot", ("clock", "power", "tpj", "ttft"), rows, tpj="Prompt tokens per joule")
    (chart,) = charts(one)
    assert (chart.params["efficiency_title"], chart.params["latency_title"]) == ("prompt tokens/J", "TTFT (ms)")
    assert chart.params["top_0"] == 4
    assert chart.rows[2]["ttft_ms"] is None
    assert "900 MHz gives most prompt tokens per joule: 30, at 200 W; 1100 MHz gives 26 at 260 W." in chart.description


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
    assert (shown[0], shown[-1]) == ("1", "256")
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
    reached = {row["tflop_per_s"] for row in chart.extra["reached"] if row["roof"] == "compute"}
    assert reached == {91}
    assert "dashed, what a copy and a matrix product reached: 91 TFLOP/s and 650 GB/s" in chart.description
    assert "the roofs are 125 TFLOP/s and 723 GB/s, which meet at 173 FLOP/B" in chart.description


def test_a_roofline_without_peaks_has_its_points():
    (chart,) = charts(ROOFLINE.model_copy(update={"marks": []}))
    assert chart.extra["roofs"] == chart.extra["reached"] == []
    assert {row["share_percent"] for row in chart.rows} == {None}


def test_growing_in_proportion_begins_at_the_smallest_model():
    (chart,) = charts(SIZES)
    first = 21.5 * (1 + 1 / 16)
    ends = [row["tpot_ms"] for row in chart.extra["proportion"] if row["batch"] == 1]
    assert ends == pytest.approx([first, first * 32.5 / 6.7], rel=1e-3)
    assert [row["batch"] for row in chart.extra["proportion"]] == [1, 1, 16, 16]
    assert (
        "4.85 times the parameters take 4.14 times the TPOT at batch size 1 (22.84 ms to 94.56 ms)" in chart.description
    )


def test_names_of_models_of_nearly_one_size_share_a_place():
    (chart,) = charts(SIZES)
    assert [row["name"] for row in chart.extra["names"]] == [
        "left: llama-7b\nright: mistral-7b", "llama-13b", "llama-30b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "unit"), [((0.0004, 0.0009), "µs"), ((0.02, 0.9), "ms"), ((0.02, 14.0), "s"), ((None, 0.5), "ms")]
)
def test_the_largest_value_chooses_the_unit(seconds, unit):
    rows = [(1, 8, seconds[0]), (2, 8, seconds[1])]
    (chart,) = charts(finding("lengths", ("input_len", "output_len", "e2e_latency"), rows))
    assert chart.title.startswith(f"Latency ({unit}) by")
    known = [value for value in seconds if value is not None]
    factor = {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
    assert [row[chart.params["value"]] for row in chart.rows] == pytest.approx([value * factor for value in known])


def test_sizes_over_a_decade_are_on_a_log_axis_with_a_tick_at_each():
    (throughput, latency, _) = charts(POLICIES.model_copy(update={"rows": [
        [row[0], row[1] ** 2, *row[2:]] for row in POLICIES.rows
    ]}))  # fmt: skip
    assert throughput.params["x_scale"] == latency.params["x_scale"] == "log"
    assert throughput.params["x_ticks"] == [1, 4, 16, 64]
    assert throughput.params["y_scale"] == "linear"
    spec = complete(throughput)["layer"][0]["encoding"]
    assert spec["x"]["axis"]["values"] == [1, 4, 16, 64]
    assert "zero" not in spec["x"]["scale"]
    assert "values" not in spec["y"]["axis"]
    (throughput, *_) = charts(POLICIES)  # 1 to 8 is less than a decade
    assert throughput.params["x_scale"] == "linear"


def test_the_limits_of_the_fit_meet_at_its_corner():
    _, corner = charts(LOAD)
    assert [(row["batch"], row["tpot_ms"]) for row in corner.extra["envelope"]] == [
        (1, 21.5), (90, 21.5), (256, pytest.approx(21.5 * 256 / 90, rel=1e-4)),
    ]  # fmt: skip
    # 192 would have no room beside 128 and 256.
    assert corner.params["x_ticks"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_boards_that_are_alike_need_no_bars():
    rows = [("copy", 0.8), ("product", 0.8001)]
    assert charts(finding("hardware", ("what", "share"), rows)) == []


def test_more_models_of_nearly_one_size_are_named_from_the_left():
    rows = [(name, size, 1, 0.02) for name, size in (("b", 7.1e9), ("a", 7.0e9), ("c", 7.2e9), ("d", 40e9))]
    (chart,) = charts(finding("model_size", ("model", "total_params", "batch", "tpot"), rows))
    assert [row["name"] for row in chart.extra["names"]] == ["from the left:\na\nb\nc", "d"]


def test_figures_are_rounded_once_in_words_and_in_what_is_drawn():
    rows = [(1, 100.0, 2.0, 0.004), (256, 9000.0, 5.0, 0.00918347)]
    _, corner = charts(finding("latency_throughput", ("batch", "throughput", "e2e_latency", "tpot"), rows))
    assert "to 9.183 ms at batch size 256" in corner.description
    assert complete(corner)["datasets"]["rows"][-1]["tpot_ms"] == 9.1835


@pytest.mark.parametrize("batches", [(1,), (1, 16)])
def test_bars_of_formats_that_all_agree_are_left_out(batches):
    def drawn(last):
        rows = [
            (name, b, 0.02, memory) for b in batches for name, memory in (("a", 139e9), ("b", 139.5e9), ("c", last))
        ]
        return {chart.title.partition(" by")[0] for chart in charts(finding("formats", COLUMNS, rows))}

    assert drawn(141.5e9) == set()
    assert drawn(145e9) == {"Memory in use"}


COLUMNS = ("format", "batch", "tpot", "memory_used")


def test_labels_are_left_out_where_a_narrow_chart_has_no_room_for_them():
    def labels(throughput):
        rows = [(1, 0.0, 1.0), (8, throughput, 1.0), (16, 500.0, 1.01), (32, 1000.0, 2.0)]
        (path,) = charts(finding("latency_throughput", ("batch", "throughput", "e2e_latency"), rows))
        return [row["label"] for row in path.rows]

    assert labels(470.0) == ["1", None, "16", "32"]
    assert labels(430.0) == ["1", "8", "16", "32"]
    # One to the right of its point, and the other to the left of its own.
    assert labels(62.0) == ["1", None, "16", "32"]


def test_values_behind_bars_of_shares_have_room_in_a_narrow_chart():
    shares = charts(SPLIT)[1]
    longest = max(len(row["label"]) for row in shares.extra["totals"])
    plot = 190  # pixels
    assert max(plot * (1 - 100 / row["room"]) for row in shares.extra["totals"]) >= 6 + 6 * longest


def test_formats_at_several_loads_stand_side_by_side():
    rows = [("plain", 1, 0.02), ("plain", 16, 0.03), ("fp8", 1, 0.01), ("fp8", 16, 0.02), ("fp8", 16, 0.9)]
    (chart,) = charts(finding("formats", ("format", "batch", "tpot"), rows))
    assert chart.template == "grouped"
    assert [(row["name"], row["batch"], row["tpot_ms"]) for row in chart.rows] == [
        ("plain", 1, 20), ("plain", 16, 30), ("fp8", 1, 10), ("fp8", 16, 20),
    ]  # fmt: skip
    assert chart.description == "TPOT at batch size 16: plain 30.00 ms, fp8 20.00 ms."


def floors(watts):
    held = [(f"loaded, {clock} MHz", clock, watts(clock)) for clock in (750, 900, 1000, 1300)]
    return finding("idle", ("rung", "clock", "power"), [("bare", None, 23.0), ("with it", None, 53.0), *held])


def test_the_floor_over_the_clock_is_a_line_where_it_differs():
    bars, line = charts(floors(lambda clock: clock / 15))
    assert [row["name"] for row in bars.rows] == ["bare", "with it"]
    assert [(row["clock_mhz"], row["power_w"]) for row in line.rows][::3] == [
        (750, 50.0),
        (1300, pytest.approx(86.7, 0.01)),
    ]
    (bars,) = charts(floors(lambda clock: 53.0))
    assert [row["name"] for row in bars.rows] == ["bare", "with it"]


def test_names_that_repeat_are_told_apart():
    rows = [("a", 1, 100.0), ("a", 16, 200.0), ("b", 1, 100.0), ("b", 1, 300.0)]
    (chart,) = charts(finding("idle", ("rung", "batch", "power"), rows))
    assert [row["name"] for row in chart.rows] == [
        "a, batch size 1", "a, batch size 16", "b, batch size 1", "b, batch size 1 (2)",
    ]  # fmt: skip


def test_a_policy_has_one_curve():
    rows = [("static", 1, 90.0), ("static", 2, 95.0), ("static", 2, 50.0), ("other", 1, 3.0)]
    (chart,) = charts(finding("batching_policies", ("policy", "rate", "throughput"), rows))
    assert [(row["rate_per_s"], row["throughput_tokens_per_s"]) for row in chart.rows] == [(1, 90), (2, 95)]


def test_of_a_split_of_very_many_the_lengths_of_most_loads_are_shown():
    rows = [[f"batch 1, {at} tokens", 1, 1.0, 3.0, 0.1] for at in range(40)]
    rows += [[f"batch {batch}, usual", batch, 1.0, 3.0, 0.1] for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
    (chart,) = charts(SPLIT.model_copy(update={"rows": rows}))
    bars = list(dict.fromkeys(row["bar"] for row in chart.rows))
    assert len(bars) == 12
    assert bars[-8:] == [f"batch {batch}, usual" for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
    (chart,) = charts(SPLIT.model_copy(update={"rows": [[f"load {at}", 1, 1.0, 3.0, 0.1] for at in range(50)]}))
    assert chart.params["height"] == 12 * 32


def test_a_split_over_a_decade_is_shown_in_shares_as_well():
    _, shares = charts(SPLIT)
    assert shares.params["x"] == "share_percent"
    assert {row["share_percent"] for row in shares.extra["totals"]} == {100}
    assert shares.params["x_ticks"][-1] == 100


def test_a_split_shows_shares_of_what_is_known():
    (chart,) = charts(SPLIT.model_copy(update={"rows": [["a", 1, 1.0, 3.0, None], ["b", 1, None, None, None]]}))
    assert [(row["part"], row["share_percent"]) for row in chart.rows] == [("idle floor", 25), ("weights", 75)]
    assert chart.description == "Attributed by bytes moved, not measured: a 4 J/token (idle floor 25 %, weights 75 %)."
