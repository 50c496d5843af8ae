"""What vl-convert draws of the specs, and the script for the page."""

import re
import struct
import sys
import zlib

import pytest

from pytest_llmperf.errors import ChartError
from pytest_llmperf.report.charts import charts_of_finding, charts_of_test, drawing, javascript, png, svg

from .examples import GRID, IDLE, LOAD, ROOFLINE, finding, gated, measured, run
from .test_templates import ALL

BY_TEMPLATE = {chart.template: chart for chart in ALL}


def pixels(image):
    """Width, height and the set of pixels of a PNG of eight bits a channel."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size = 8, b"", None
    while at < len(image):
        (length,) = struct.unpack(">I", image[at : at + 4])
        kind, body = image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    width, height, depth, colour = size
    assert (depth, colour) == (8, 6)
    raw = zlib.decompress(data)
    stride = 4 * width + 1
    # Rows without a filter hold pixels as they are: of the others how many distinct values there are is enough.
    return width, height, {raw[row * stride + 1 + 4 * x : row * stride + 5 + 4 * x]
                           for row in range(height) for x in range(0, width, 3)}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BY_TEMPLATE))
def test_every_template_makes_a_png_with_something_on_it(name):
    width, height, colours = pixels(png(BY_TEMPLATE[name], width=400, scale=1))
    assert 400 <= width <= 420
    assert height > 50
    assert len(colours) > 20


def marks(drawn, role):
    """How many shapes a kind of mark has in an SVG."""
    groups = re.findall(rf'<g class="mark-{role} role-mark[^"]*"[^>]*>(.*?)</g>', drawn, re.DOTALL)
    return sum(group.count("<path") + group.count("<text") for group in groups)


def test_every_number_has_its_mark():
    power = charts_of_finding(GRID, run())[0]
    drawn = svg(power)
    assert marks(drawn, "rect") == 84
    assert ">365<" in drawn
    (idle,) = charts_of_finding(IDLE, run())
    assert marks(svg(idle), "rect") == 4
    (roof,) = charts_of_finding(ROOFLINE, run())
    assert marks(svg(roof), "symbol") == len(roof.rows)


def test_a_distribution_has_a_dot_a_launch_a_repeat_and_its_band():
    chart = charts_of_test(gated())[0]
    drawn = svg(chart)
    assert marks(drawn, "symbol") == len(chart.rows) + len(chart.extra["repeats"]) == 18 + 24
    assert "interval of the change" in drawn
    assert "TPOT +7.2 %, regressed" in drawn


def test_a_trace_names_what_held_the_clock_down():
    drawn = svg(next(chart for chart in charts_of_test(gated()) if chart.template == "trace_activity"))
    for said in ("sw_power_cap", "SM clock (MHz)", "SM activity (%)", "power (W)", "prefill", "decode"):
        assert f">{said}<" in drawn


def test_marks_are_labelled():
    path, corner = charts_of_finding(LOAD, run())
    assert ">knee<" in svg(path)
    drawn = svg(corner)
    assert ">predicted: 173<" in drawn
    assert ">measured: 90<" in drawn


@pytest.mark.parametrize("width", [350, 640])
def test_every_category_is_named_however_narrow_the_chart(width):
    names = ("bfloat16", "eager", "fp8 KV cache", "fp8 weights", "float16, awq_marlin weights")
    rows = [(name, batch, batch / 1000) for name in names for batch in (1, 16, 64)]
    chart, *_ = charts_of_finding(finding("formats", ("format", "batch", "tpot"), rows), run())
    drawn = svg(chart, width=width)
    for word in ("bfloat16", "eager", "KV", "fp8", "float16,", "awq_marlin"):
        assert f">{word}<" in drawn
    assert drawn.count(">weights<") == 2


def test_light_and_dark_differ_and_are_the_same_every_time():
    chart = charts_of_test(measured())[0]
    assert svg(chart) == svg(chart)
    assert png(chart) == png(chart)
    assert svg(chart) != svg(chart, dark=True)


def test_a_name_is_text_in_the_drawing():
    chart = charts_of_test(gated(timeline=None))[0]
    evil = "<script>alert(1)</script>"
    rows = [row | {"label": evil} for row in chart.rows]
    drawn = svg(type(chart)(**{**vars(chart), "rows": rows}))
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_the_script_can_stand_within_a_page():
    script = javascript()
    assert "</script" not in script.lower()
    assert "<!--" not in script
    for name in ("window.vegaEmbed", "window.llmperfCharts"):
        assert name in script
    assert 5e5 < len(script) < 1.2e6


@pytest.fixture
def bundled(monkeypatch):
    """How often a stand-in for vl-convert has bundled."""
    calls = []

    class Converter:
        @staticmethod
        def javascript_bundle(snippet):
            calls.append(snippet)
            return "window.llmperfCharts = '</script><!--'"

    monkeypatch.setitem(sys.modules, "vl_convert", Converter)
    return calls


SAFE = "window.llmperfCharts = '<\\/script><\\!--'"


def test_the_script_is_kept_and_a_broken_copy_is_not_used(tmp_path, monkeypatch, bundled):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = drawing.javascript.__wrapped__
    assert script() == script() == SAFE
    assert len(bundled) == 1
    (kept,) = (tmp_path / "pytest-llmperf").glob("*.js")
    kept.write_text(kept.read_text("utf-8").replace("window", "evil"), "utf-8")
    assert script() == SAFE
    assert len(bundled) == 2
    kept.write_bytes(b"\xff")
    assert script() == SAFE


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path, monkeypatch, bundled):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    script = drawing.javascript.__wrapped__
    assert script() == script() == SAFE
    assert len(bundled) == 2


@pytest.mark.parametrize("broken", [None, object()])
def test_without_a_working_converter_the_error_says_what_to_do(monkeypatch, tmp_path, broken):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "vl_convert", broken)
    for draw in (lambda: png(ALL[0]), drawing.javascript.__wrapped__):
        with pytest.raises(ChartError, match="cannot be drawn") as raised:
            draw()
        assert "pip install" in str(raised.value)
