import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.report.page import anchors
from pytest_llmperf.results import Finding

from ..records import HOSTILE


def finding(name):
    return Finding(kind="idle", name=name, title="t", sentences=[], columns=[], rows=[], marks=[], tests=[])


def test_a_tests_anchor_is_readable_and_never_changes():
    assert anchors.test_anchor("suites/test_x.py::test_y[16]") == "test-suites-test-x-py-test-y-16-7ebdcc"


@given(st.text())
def test_an_anchor_needs_no_escaping_and_has_an_end(text):
    for anchor in (anchors.test_anchor(text), anchors.finding_anchor(finding(text)), anchors.metric_anchor(text)):
        assert anchor.replace("-", "").replace("_", "").isalnum()
        assert anchor.isascii()
        assert len(anchor) < 100


@pytest.mark.parametrize("one", HOSTILE)
def test_tests_of_names_that_look_alike_have_anchors_of_their_own(one):
    assert len({anchors.test_anchor(name) for name in (one, one + "-", one.upper() + "!", f"{one} ")}) == 4


def test_a_findings_anchor_is_its_name_where_that_is_a_slug():
    assert anchors.finding_anchor(finding("decode-batch-16")) == "finding-idle-decode-batch-16"
    assert anchors.finding_anchor(finding("Decode batch 16")) != "finding-idle-decode-batch-16"
