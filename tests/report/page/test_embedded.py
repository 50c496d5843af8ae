import base64
import gzip
import hashlib
import json
import re

import pytest

from pytest_llmperf.errors import ChartError
from pytest_llmperf.report import charts
from pytest_llmperf.report.html import render
from pytest_llmperf.report.page import embedded

from ..records import PASSED, REGRESSED, record, results


def carried(page, name):
    found = re.search(rf'<script type="application/gzip" id="{name}">([^<]*)</script>', page)
    return None if found is None else gzip.decompress(base64.b64decode(found[1])).decode()


def test_the_page_carries_the_record_and_what_draws_it():
    run = results(PASSED, REGRESSED)
    page = render(run)
    assert json.loads(carried(page, "record")) == run.model_dump(mode="json")
    assert carried(page, "library") == charts.javascript()
    held = json.loads(carried(page, "charts"))
    assert {chart["template"] for chart in held["charts"].values()} == held["templates"].keys()
    asked = " ".join(re.findall(r'data-charts="([^"]*)"', page)).split()
    assert sorted(asked) == sorted(held["charts"])
    for chart in held["charts"].values():
        for fields, *rows in chart["data"].values():
            assert all(len(row) == len(fields) for row in rows)


def test_the_policy_lets_just_the_scripts_of_the_page_run():
    page = render(results(REGRESSED))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert "'unsafe" not in policy.partition("script-src")[2].partition(";")[0]
    running = [*re.findall(r"<script>(.*?)</script>", page, re.DOTALL), carried(page, "library")]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in running}
    assert set(re.findall(r"'sha256-[^']*'", policy)) == hashes


def test_the_same_run_makes_the_same_page():
    assert render(results(REGRESSED)) == render(results(REGRESSED))


def test_without_the_library_there_is_a_page_that_says_so(monkeypatch):
    def broken():
        raise ChartError("The charts cannot be drawn: no vl-convert.")

    embedded._library.cache_clear()
    monkeypatch.setattr(charts, "javascript", broken)
    page = render(results(REGRESSED))
    assert "The charts cannot be drawn: no vl-convert." in page
    assert carried(page, "charts") is None
    assert 'data-charts="' not in page
    assert "test_decode[16]" in page


def test_a_text_that_utf8_cannot_hold_costs_neither_page_nor_record():
    run = results(record("a.py::t[\ud800]", warnings=["\ud800"]))
    assert json.loads(run.to_json())["tests"][0]["nodeid"] == "a.py::t[\ud800]"
    assert "a.py::t" in render(run)


@pytest.mark.parametrize("count", [3, 60])
def test_a_large_page_leaves_out_what_the_charts_show(count):
    page = render(results(*({**PASSED, "nodeid": f"a.py::t[{n}]"} for n in range(count))))
    assert ("are left out; results.json has them" in page) == (count > 40)
    assert ('<svg class="strip"' in page) == (count <= 40)
