"""The page as a browser shows it: charts, sorting, filters, links, definitions, downloads, print."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from pytest_llmperf.report.page.anchors import test_anchor as anchor_of

from ..charts import examples
from ..charts.examples import ROOFLINE, finding
from ..records import HOSTILE, REGRESSED, record, results, verdict
from . import runs

pytestmark = pytest.mark.browser

DECODE_16 = "#" + anchor_of("suites/test_x.py::test_decode[16]")


@pytest.fixture(scope="module")
def gated(opened):
    shown = opened(runs.gated())
    shown.settle()
    return shown


#: In place of a number that there is not.
DASH = "\u2013"


def column(page, number):
    return page.eval_on_selector_all(
        f"#table tbody tr:not([hidden]) > :nth-child({number})", "all => all.map(c => c.textContent.trim())"
    )


def seconds(text):
    number, unit = text.split()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


def test_every_chart_is_drawn_and_nothing_is_asked_for_or_forbidden(gated):
    drawn = gated.page.eval_on_selector_all(
        ".plot", "all => all.map(p => [p.dataset.state, p.querySelectorAll('svg path, svg rect, svg text').length])"
    )
    assert len(drawn) >= 4
    assert all(state == "drawn" and marks > 5 for state, marks in drawn), drawn
    assert gated.said == []
    assert gated.asked == []
    assert gated.violations() == []


def test_columns_sort_by_number_by_mouse_and_by_keyboard(gated):
    page = gated.page
    heads = page.locator("#table thead th")
    tpot = heads.all_text_contents().index("TPOT")
    heads.nth(tpot).locator("button").click()
    assert heads.nth(tpot).get_attribute("aria-sort") == "ascending"
    shown = column(page, tpot + 1)
    numbers = [seconds(text) for text in shown if text != DASH]
    assert numbers == sorted(numbers)
    assert numbers[-1] == pytest.approx(1.198)
    heads.nth(tpot).locator("button").focus()
    page.keyboard.press("Enter")
    assert heads.nth(tpot).get_attribute("aria-sort") == "descending"
    assert [seconds(text) for text in column(page, tpot + 1) if text != DASH] == numbers[::-1]
    heads.nth(0).locator("button").click()
    assert heads.nth(tpot).get_attribute("aria-sort") is None
    names = [name.rpartition("::")[2] for name in column(page, 1)]
    assert names.index("test_decode[4]") < names.index("test_decode[16]") < names.index("test_decode[128]")


def test_tests_are_filtered_by_verdict_and_by_text(gated):
    page = gated.page
    chip = page.locator(".filters button[data-verdict=improved]")
    chip.focus()
    page.keyboard.press("Space")
    assert column(page, 1) == ["suites/test_x.py::test_decode[1]"]
    assert page.locator("details.test:visible").count() == 1
    assert page.locator(".overview button[data-verdict=improved]").get_attribute("aria-pressed") == "true"
    assert page.text_content("#shown") == "1 of 6 tests"
    chip.click()
    page.fill("#filter", "DECODE[1 prompt")
    assert {name.rpartition("::")[2] for name in column(page, 1)} == {
        "test_decode[1]",
        "test_decode[16]",
        "test_decode[128]",
    }
    page.fill("#filter", "4.288")  # a figure of a test, and no name
    assert page.text_content("#shown") == "0 of 6 tests"
    page.fill("#filter", "")
    assert page.text_content("#shown") == "6 tests"


def test_a_link_opens_the_test_it_names_whatever_hides_it(opened):
    shown = opened(runs.gated(), anchor=DECODE_16)
    page = shown.page
    assert page.locator(f"{DECODE_16}[open]").count() == 1
    other = "#" + anchor_of("suites/test_x.py::test_new")
    assert page.locator(f"{other}[open]").count() == 0
    page.fill("#filter", "test_decode")
    page.evaluate("hash => { location.hash = hash; }", other)
    page.wait_for_selector(f"{other}[open]")
    shown.until(f"Math.abs(document.querySelector('{other}').getBoundingClientRect().top) < innerHeight")
    assert page.input_value("#filter") == ""


SETTLED = """place => new Promise((done) => {
  const target = document.getElementById(place);
  let last = null, since = performance.now();
  const look = () => {
    const top = target.getBoundingClientRect().top;
    if (top !== last) [last, since] = [top, performance.now()];
    if (performance.now() - since < 400) return requestAnimationFrame(look);
    const root = document.documentElement;
    done({ top, left: root.scrollHeight - innerHeight - scrollY });
  };
  look();
})"""


@pytest.mark.parametrize("viewport", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_every_link_leads_to_its_place_also_when_charts_are_drawn_above_it(opened, viewport):
    size = {"width": viewport[0], "height": viewport[1]}
    page = opened(runs.tall(), viewport=size).page
    places = [link.removeprefix("#") for link in page.eval_on_selector_all("nav a", "a => a.map(a => a.hash)")]
    assert len(places) == 5
    for place in places:
        page.locator(f"nav a[href='#{place}']").click()
        found = page.evaluate(SETTLED, place)
        assert 0 <= found["top"] <= 80 or found["left"] <= 2, (place, found)
    test = anchor_of("suites/test_x.py::test_t[16]")
    for place in ("finding-sweet-spot-decode-batch-32", test, "m-tpot", "data")[: 4 if viewport[0] > 400 else 2]:
        page = opened(runs.tall(), anchor=f"#{place}", viewport=size).page
        found = page.evaluate(SETTLED, place)
        assert 0 <= found["top"] <= 80 or found["left"] <= 2, (place, found)


def test_a_reader_who_moves_on_is_not_held(opened):
    shown = opened(runs.tall(), anchor="#tests")
    page = shown.page
    page.evaluate(SETTLED, "tests")
    page.mouse.wheel(0, -700)
    shown.until("document.getElementById('tests').getBoundingClientRect().top > 300")
    page.evaluate("llmperfPage.openAll()")
    assert page.evaluate(SETTLED, "tests")["top"] > 300


def test_the_place_of_a_chart_is_kept_before_it_is_drawn(opened):
    shown = opened(runs.gated())
    shown.page.evaluate("llmperfPage.openAll()")
    shown.page.wait_for_selector("details.test .plot", state="attached")
    kept = shown.page.eval_on_selector_all(".plot", "all => all.map(p => parseFloat(p.style.minHeight))")
    shown.settle()
    drawn = shown.page.eval_on_selector_all(".plot", "all => all.map(p => p.offsetHeight)")
    assert len(kept) == len(drawn) >= 4
    assert all(abs(before - after) <= 30 for before, after in zip(kept, drawn, strict=True)), (kept, drawn)


def test_what_is_long_or_told_again_is_closed_until_a_link_leads_there(opened):
    page = opened(runs.tall()).page
    assert page.locator("#finding-sweet-spot-decode-batch-1 figure").first.is_visible()
    assert page.locator("#finding-sweet-spot-decode-batch-1 table").is_hidden()  # of 30 rows
    again = page.locator("#finding-sweet-spot-decode-batch-8")
    assert again.locator("h3, .answer").all_inner_texts() == [
        "Sweet spot of decode, batch 8",
        "Lock at 900 MHz: -31 % energy, +4.2 % latency.",
    ]
    assert again.locator("figure").first.is_hidden()
    page.evaluate("location.hash = '#finding-sweet-spot-decode-batch-8'")
    again.locator("figure .plot[data-state=drawn]").first.wait_for()
    assert again.locator("table").is_visible()


def test_the_sections_of_many_tests_are_closed_until_a_link_leads_to_one(opened):
    name = "suites/test_x.py::test_m[44]"
    shown = opened(results(*(record(f"suites/test_x.py::test_m[{n}]", timeline=runs.TIMELINE) for n in range(45))))
    page = shown.page
    assert page.locator("details.test:visible").count() == 0
    place = anchor_of(name)
    page.locator(f"#table a[href='#{place}']").click()
    page.locator(f"#{place}[open] .plot[data-state=drawn]").first.wait_for()
    assert 0 <= page.evaluate(SETTLED, place)["top"] <= 80
    assert page.locator("details.test:visible").count() == 45


def test_axes_are_columns_that_can_be_sorted(opened):
    page = opened(runs.tall()).page
    heads = page.locator("#table thead th:visible").all_inner_texts()
    heads = [head.rstrip(" \u2195").strip() for head in heads]
    assert heads[:4] == ["Test", "Verdict", "Batch", "MHz"]
    page.locator("#table thead th", has_text="Batch").get_by_role("button").click()
    assert column(page, 3) == ["1", "2", "4", "8", "16", "32"]
    page.fill("#filter", "900 MHz")
    assert column(page, 3) == ["1", "4", "16"]


def test_the_finding_has_a_link_on_the_first_screen(gated):
    link = gated.page.locator(".found a")
    assert link.text_content() == "Lock at 900 MHz: -31 % energy, +4.2 % latency."
    assert link.get_attribute("href") == "#finding-sweet-spot-decode-batch-16"
    assert gated.page.locator(link.get_attribute("href")).count() == 1


def test_a_metrics_name_opens_its_definition(gated):
    page = gated.page
    page.locator(f"{DECODE_16} .metrics a", has_text="tpot").first.focus()
    page.keyboard.press("Enter")
    text = page.locator("#definition:popover-open").text_content()
    assert "(t_last - t_first) / (N - 1)" in text
    assert "mistral-7b (bfloat16); Engine vllm 0.32.0; Board NVIDIA H200; SM clock 900 MHz" in text
    assert page.evaluate("document.activeElement.id") == "definition"
    page.keyboard.press("Escape")
    assert page.locator("#definition:popover-open").count() == 0
    assert page.evaluate("document.activeElement.textContent") == "tpot"


def test_the_theme_is_chosen_kept_and_drawn(opened):
    page = opened(runs.gated()).page
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    assert page.evaluate(paper) != light
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("async () => { llmperfPage.openAll(); await llmperfPage.drawAll(); }")
    assert page.eval_on_selector_all(".plot", "all => all.every(p => p.dataset.as.startsWith('true'))")


def saved(page, button):
    with page.expect_download() as download:
        button.click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        return download.value.suggested_filename, file.read()


def test_downloads_are_what_the_page_shows(gated):
    page = gated.page
    name, text = saved(page, page.locator("#save-record"))
    assert name == "results.json"
    assert json.loads(text) == runs.gated().model_dump(mode="json")
    name, text = saved(page, page.locator("#save-table"))
    head, *rows = csv.reader(io.StringIO(text))
    assert name == "tests.csv"
    assert len(rows) == 6
    row = next(row for row in rows if row[0].endswith("test_decode[16]"))
    assert float(row[head.index("TPOT (s)")]) == pytest.approx(0.004288)
    name, text = saved(page, page.locator(".finding .save"))
    assert name == "finding-sweet-spot-decode-batch-16.csv"
    assert next(csv.reader(io.StringIO(text)))[:2] == ["SM clock (MHz)", "Power (W)"]
    assert ["900", "162", "3.4", "0.0047"] in list(csv.reader(io.StringIO(text)))
    chart = page.locator(f"{DECODE_16} figure").first
    name, text = saved(page, chart.get_by_role("button", name=re.compile("^JSON")))
    assert json.loads(text)["rows"]
    name, text = saved(page, chart.get_by_role("button", name=re.compile("^CSV")))
    assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
    head = next(csv.reader(io.StringIO(text)))
    assert "change (%)" in head
    assert not {"label", "order", "room", "align"} & set(head)
    chart.get_by_role("button", name=re.compile("^Table")).click()
    assert (
        chart.locator("table tbody tr").count() >= len(json.loads(json.dumps(list(csv.reader(io.StringIO(text)))))) - 1
    )


def test_a_phone_never_scrolls_the_page_sideways(opened):
    shown = opened(runs.gated(), viewport={"width": 390, "height": 844})
    shown.settle()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = "all => all.map(t => t.parentElement).every(box => box.scrollWidth <= box.clientWidth)"
    assert shown.page.eval_on_selector_all("table.verdicts", boxes)
    for table in ("#table", f"{DECODE_16} .metrics"):
        verdict_of_first = shown.page.locator(f"{table} tbody tr .v, {table} tbody tr td.v").first.bounding_box()
        assert verdict_of_first["x"] + verdict_of_first["width"] <= 390
    assert shown.page.locator("h1").bounding_box()["y"] < 400


#: Texts of charts that reach beyond the chart, with how far.
BEYOND = """[...document.querySelectorAll(".plot svg")].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].flatMap((text) => {
    const { left, right, width } = text.getBoundingClientRect();
    return width && (right > box.right + 1 || left < box.left - 1) ? [[text.textContent, right - box.right]] : [];
  });
})"""


def test_no_label_of_a_chart_is_cut_on_a_phone(opened):
    lengths = ["batch 1, decode of 256 tokens", "batch 16, decode of 256 tokens", "batch 128, decode of 128 tokens"]
    shares = [(1, 0.55, 1.71, 0.004), (16, 0.034, 0.122, 0.0062), (128, 0.0065, 0.0262, 0.00412)]
    split = finding(
        "energy_split",
        ("load", "batch", "idle_jpt", "weights_jpt", "kv_jpt"),
        [(name, *row) for name, row in zip(lengths, shares, strict=True)],
    )
    # Its last tick lies at the right edge, 10,000 FLOP/B.
    far = ROOFLINE.model_copy(update={"rows": [*ROOFLINE.rows, ["test_prefill[8000]", "prefill", 8e3, 8.5e13]]})
    shown = opened(examples.run(found=[split, far]), viewport={"width": 390, "height": 844})
    shown.settle()
    assert shown.page.evaluate(BEYOND) == []


def test_heads_of_a_findings_table_wrap(opened):
    titles = {f"m{n}": f"What a reader has to know of it, number {n}" for n in range(9)}
    wide = finding("formats", ("format", *titles), [("fp8", *range(9))], **titles)
    shown = opened(examples.run(found=[wide]), viewport={"width": 1280, "height": 800})
    shown.settle()
    boxes = "all => all.map(t => t.closest('.wide')).every(box => box.scrollWidth <= box.clientWidth)"
    assert shown.page.eval_on_selector_all(".finding table", boxes)


def test_the_table_of_tests_fits_a_small_desktop(gated):
    gated.page.set_viewport_size({"width": 1200, "height": 800})
    assert gated.page.evaluate(
        "(box => box.scrollWidth <= box.clientWidth)(document.querySelector('#table').parentElement)"
    )
    gated.page.set_viewport_size({"width": 1280, "height": 800})


def test_hostile_texts_are_text_everywhere(opened):
    shown = opened(runs.hostile())
    shown.settle()
    page = shown.page
    assert shown.said == []
    assert shown.asked == []
    assert shown.violations() == []
    assert page.locator("img, iframe, object, embed, form, base, link").count() == 0
    assert page.locator("script").count() == 6  # five of the page's, and the library that it unpacked
    assert page.locator("a[href]:not([href^='#'])").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    shown_names = " ".join(column(page, 1))
    assert HOSTILE[0] in shown_names
    assert HOSTILE[1] in shown_names
    _, text = saved(page, page.locator("#save-table"))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    number = re.compile(r"-?[\d.]+(e[+-]?\d+)?")
    assert len([cell for cell in cells if cell.startswith("'") and "cmd|" in cell]) == len(runs.FORMULAS)
    assert not [cell for cell in cells if re.match(r"\s*[=+\-@]", cell) and not number.fullmatch(cell)]


def test_printed_it_has_every_test_and_every_chart(opened):
    shown = opened(runs.gated(), color_scheme="dark")
    page = shown.page
    page.evaluate(
        "window.print = () => { window.printed = document.querySelectorAll('.plot[data-state=drawn]').length; }"
    )
    page.click("#print")
    shown.until("window.printed !== undefined")
    assert page.evaluate("printed === document.querySelectorAll('figure.chart').length")
    page.emulate_media(media="print")
    assert page.locator("details.test:not([open])").count() == 0
    assert page.locator(":is(.tools, .filters, nav):visible").count() == 0
    assert page.locator(".metrics:visible").count() == 6
    assert len(page.pdf()) > 20_000


def test_without_scripts_the_tables_are_there(opened):
    page = opened(runs.gated(), java_script_enabled=False).page
    assert page.locator("#table tbody tr:visible").count() == 6
    assert page.locator("button:visible, .plot:visible").count() == 0
    page.locator("details.test summary").nth(2).click()
    assert page.locator("details.test[open] .metrics:visible").count() >= 1
    assert page.locator(".metrics a").first.get_attribute("href") == "#m-ttft"
    assert page.locator(".finding table:visible").count() == 1
    assert page.locator("figure:visible").count() == 0
    assert "The charts need JavaScript; the tables hold their figures." in page.inner_text("main")


def test_without_scripts_nothing_of_a_finding_is_closed(opened):
    page = opened(runs.tall(), java_script_enabled=False).page
    assert page.locator(".finding details:not([open])").count() == 0
    assert page.locator(".finding table:visible").count() == 6


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (results(), "No test measured anything."),
        (results(record("a.py::test_one", verdict())), "The one test is within tolerance."),
        (results(REGRESSED, REGRESSED | {"nodeid": "a.py::b"}), "2 of 2 tests regressed."),
        (runs.measured(), "3 tests measured; nothing was gated."),
    ],
    ids=["none", "one", "all-regressed", "measured"],
)
def test_a_page_of_any_run_opens(opened, run, said):
    shown = opened(run)
    shown.settle()
    assert shown.page.text_content("h1") == said
    assert shown.said == []
    assert shown.violations() == []
