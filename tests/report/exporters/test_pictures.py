"""The PNGs beside summary.md, and what it says of them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from pytest_llmperf.report.exporters.pictures import pictures, write_pictures
from pytest_llmperf.report.exporters.summary import summary
from pytest_llmperf.report.write import write_report
from pytest_llmperf.results import Results

from ..charts.examples import FINDINGS, GRID, SPLIT, SWEET_SPOT, gated, measured, run
from ..records import HOSTILE
from .test_markdown import GITHUB

ACTION = Path(__file__).parents[3] / ".github" / "actions" / "llmperf" / "summarize.py"


def images(markdown):
    """The images in Markdown: where they lie, and the text instead of them."""
    found = [child for token in GITHUB.parse(markdown) for child in token.children or [] if child.type == "image"]
    return [(image.attrs["src"], image.content) for image in found]


def test_the_worst_regressed_test_comes_first_and_then_each_kind_of_finding():
    mild = json.loads(gated("a.py::mild").model_dump_json())
    mild["verdicts"][0]["change"] = 0.06
    another = GRID.model_copy(update={"name": "other"})
    results = run(gated("a.py::bad"), measured(), found=[GRID, another, SWEET_SPOT])
    results = Results.model_validate({**results.model_dump(), "tests": [mild, *results.model_dump()["tests"]]})
    assert [picture.caption.partition(". ")[0] for picture in pictures(results)] == [
        "bad: Each launch against the baseline", "mild: Each launch against the baseline", "batch_and_clock of it",
        "sweet_spot of it", "batch_and_clock of it",
    ]  # fmt: skip
    assert pictures(results)[2].caption == "batch_and_clock of it. Power (W) by batch size and SM clock"


def test_they_are_few():
    assert len(pictures(run(*(gated(f"a.py::t{at}") for at in range(5))))) == 6
    assert pictures(run(measured(), found=[])) == []


def test_they_are_written_and_those_of_an_earlier_report_are_gone(tmp_path):
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "old.png").write_bytes(b"")
    write_report(run(gated(), found=[SWEET_SPOT]), tmp_path)
    text = (tmp_path / "summary.md").read_text("utf-8")
    assert {path for path, _ in images(text)} == {f"charts/{file.name}" for file in (tmp_path / "charts").iterdir()}
    assert len(images(text)) == 2
    for path, alt in images(text):
        assert (tmp_path / path).read_bytes().startswith(b"\x89PNG")
        assert len(alt) > 40
    write_report(run(measured(), found=[]), tmp_path)
    assert list((tmp_path / "charts").iterdir()) == []
    assert "Charts" not in (tmp_path / "summary.md").read_text("utf-8")


def test_without_a_converter_a_report_is_written_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    write_report(run(gated()), tmp_path)
    text = (tmp_path / "summary.md").read_text("utf-8")
    assert "The charts cannot be drawn: vl-convert" in text
    assert images(text) == []
    assert {"results.json", "report.html", "benchmark.json"} <= {file.name for file in tmp_path.iterdir()}


def test_findings_are_told_by_their_first_sentences():
    text = summary(run(measured(), found=[SPLIT, SWEET_SPOT]))
    assert (
        "#### Findings\n\n- **energy&#95;split of it**: The answer.\n- **sweet&#95;spot of it**: The answer.\n" in text
    )
    assert "#### Findings" not in summary(run(measured(), found=[]))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_makes_no_image_and_breaks_none(name, tmp_path):
    one = SWEET_SPOT.model_copy(update={"name": name, "title": name, "sentences": [name]})
    results = run(gated(f"f.py::{name}"), found=[one])
    found = pictures(results)
    text = summary(results, found, name)
    assert [path for path, _ in images(text)] == [picture.path for picture in found]
    assert len(found) == 2


def test_a_job_s_summary_has_no_images_and_all_else():
    specification = importlib.util.spec_from_file_location("summarize", ACTION)
    action = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(action)
    results = run(gated())
    whole = summary(results, pictures(results))
    posted = action.without_images(whole)
    assert images(posted) == []
    assert "In the folder `charts` beside this file" in posted
    assert len(whole.splitlines()) - len(posted.splitlines()) == 6
    assert action.without_images(summary(results)) == summary(results)


def test_what_cannot_be_written_is_an_error_of_the_folder(tmp_path):
    (tmp_path / "charts").write_text("a file")
    with pytest.raises(OSError, match="charts"):
        write_pictures(pictures(run(gated())), tmp_path)


def test_the_summary_stays_below_the_limit_with_all_there_is():
    many = [one.model_copy(update={"name": f"{at}", "sentences": ["@" * 500]}) for at in range(40) for one in FINDINGS]
    results = run(*(gated(f"f.py::{'@' * 150}[{at}]") for at in range(300)), found=many)
    assert len(summary(results, pictures(results))) <= 60_000
