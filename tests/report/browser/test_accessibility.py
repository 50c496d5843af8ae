"""What axe finds on the page, with every chart drawn: nothing."""

import itertools

import pytest

from . import runs

pytestmark = pytest.mark.browser

RULES = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]


@pytest.mark.parametrize(
    "options",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing(opened, options):
    from axe_playwright_python.sync_playwright import Axe

    shown = opened(runs.gated(), **options)
    shown.settle()
    found = Axe().run(shown.page, options={"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]})
    told = [
        f"{rule['id']}: {node['html'][:160]}: {node['failureSummary'][:200]}"
        for rule in found.response["violations"]
        for node in rule["nodes"][:3]
    ]
    assert told == []


def test_the_keyboard_reaches_the_report_first(opened):
    page = opened(runs.gated()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0


def test_headings_go_down_one_at_a_time(opened):
    page = opened(runs.gated()).page
    levels = page.eval_on_selector_all("main :is(h1, h2, h3, h4)", "all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
