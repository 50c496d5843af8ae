"""Nothing in a name or a message acts in the Markdown that it stands in."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_llmperf.report.exporters.markdown import code, fence, keep_within, table, text

from ..records import HOSTILE

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
#: What GitHub makes of plain text afterwards: mentions, issues, links, addresses.
ACTING = re.compile(r"@\w|#\d|://|www\.|\w@\w", re.IGNORECASE)


def inline(markdown):
    """The inline tokens of Markdown, flat."""
    return [child for token in GITHUB.parse(markdown) for child in token.children or []]


def acting(markdown):
    """What in it is more than text or code."""
    tokens = inline(markdown)
    html = [t.content for t in tokens if t.type == "html_inline" and t.content not in ("<code>", "</code>")]
    kinds = {t.type for t in tokens} - {"text", "code_inline", "html_inline", "text_special", "softbreak"}
    blocks = [t.type for t in GITHUB.parse(markdown) if t.type in ("html_block", "heading_open", "fence", "hr")]
    linked = ACTING.findall("".join(t.content for t in tokens if t.type in ("text", "text_special")))
    return [*html, *kinds, *blocks, *linked]


anything = (
    st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(HOSTILE) | st.text("`|\\<>@#[]()!*_:/w. \n")
)


@given(anything)
def test_text_is_text(value):
    assert acting(f"x {text(value)} x") == []
    assert "\n" not in text(value)


@given(anything)
def test_code_is_code(value):
    written = code(value)
    assert acting(f"x {written} x") == []
    assert "|" not in written


@given(st.lists(st.lists(anything, min_size=3, max_size=3), max_size=4))
def test_a_table_has_as_many_cells_in_every_row(rows):
    lines = table(["a", "b", "c"], [[code(a), text(b), text(c)] for a, b, c in rows], numbers=1)
    tokens = GITHUB.parse("\n".join(lines))
    assert [t.type for t in tokens].count("tr_open") == 1 + len(rows)
    assert [t.type for t in tokens].count("td_open") == 3 * len(rows)
    assert acting("\n".join(lines)) == []


@pytest.mark.parametrize("name", ["t[x](http)", "t://x", "www.x", "[x]: y"])
def test_a_name_that_would_be_a_link_is_none_even_where_code_is_not_recognised(name):
    assert not code(name).startswith("`")


def test_a_plain_name_reads_as_it_is():
    assert code("suites/test_x.py::TestC::test_y[1-two]") == "`suites/test_x.py::TestC::test_y[1-two]`"


@pytest.mark.parametrize("name", [n for n in HOSTILE if n.isprintable() and len(n) < 100])
def test_what_is_shown_is_what_was_given(name):
    shown = "".join(t.content for t in inline(f"x{text(name)}x") if t.type != "html_inline")
    assert shown.replace("\u200b", "") == f"x{' '.join(name.split())}x"


@given(st.text("@&|x", max_size=2000), st.integers(1, 300))
def test_lengths_are_bounded(value, longest):
    assert len(text(value, longest)) <= longest + 1
    assert len(code(value, longest)) <= 4 * longest + len("<code></code>…")


def test_of_a_long_name_the_end_is_kept():
    assert code("f.py::" + "x" * 300 + "[7]").endswith("x[7]`")


@given(st.text("`~ab\n\x1b", max_size=40) | st.sampled_from(["```", "a\n```\nb", "~~~\n`````\n# b"]))
@example("```\n# heading")
def test_a_fence_holds_whatever_it_is_given(value):
    tokens = GITHUB.parse("\n".join(["before", "", *fence(value), "", "after"]))
    assert [t.type for t in tokens if t.type == "fence"] == ["fence"]
    assert tokens[-2].content == "after"


def test_lines_are_kept_while_they_fit():
    assert keep_within(["aa", "bb", "cc"], 6) == (["aa", "bb"], 1)
    assert keep_within([], 0) == ([], 0)
