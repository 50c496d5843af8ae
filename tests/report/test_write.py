"""A report of several parts: what one of them cannot do is said, and costs no other."""

import json
import sys

import pytest

from pytest_llmperf.__main__ import main
from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report import charts, html
from pytest_llmperf.report.charts import templates
from pytest_llmperf.report.exporters import benchmark, pictures, summary
from pytest_llmperf.report.failures import told
from pytest_llmperf.report.write import write_report

from .records import REGRESSED, results

PARTS = {"results.json", "report.html", "summary.md", "benchmark.json"}


def run():
    return results(REGRESSED)


def written(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def fail(*_, **__):
    raise KeyError("a part's own fault")


class Panic(BaseException):
    """As pyo3's PanicException, which is no Exception."""


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        (summary, "summary", "summary.md"), (benchmark, "benchmark", "benchmark.json"),
        (html, "render", "report.html"),
    ],
)  # fmt: skip
def test_a_part_that_fails_is_named_and_the_others_are_written(monkeypatch, tmp_path, module, name, lost):
    monkeypatch.setattr(module, name, fail)
    (tmp_path / lost).write_text("of before")
    with pytest.raises(ResultsError, match=f'{lost} could not be written: KeyError: "a part\'s own fault"') as raised:
        write_report(run(), tmp_path)
    assert sum(part in str(raised.value) for part in PARTS) == 1
    assert written(tmp_path) == PARTS
    assert (tmp_path / lost).read_text() == "of before"
    assert all((tmp_path / part).stat().st_size > 20 for part in PARTS - {lost})


def test_several_failures_are_all_named(monkeypatch, tmp_path):
    monkeypatch.setattr(summary, "summary", fail)
    monkeypatch.setattr(html, "render", fail)
    with pytest.raises(ResultsError, match=r"summary\.md could not.*report\.html could not"):
        write_report(run(), tmp_path)
    assert written(tmp_path) == {"results.json", "benchmark.json"}


def test_charts_that_fail_leave_a_summary_and_a_page_that_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(pictures, "pictures", fail)
    monkeypatch.setattr(charts, "charts_of_test", fail)
    write_report(run(), tmp_path)
    assert "The charts could not be made: KeyError" in (tmp_path / "summary.md").read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "The charts of 1 test or finding could not be made: KeyError" in page
    assert "test_decode" in page or REGRESSED["nodeid"] in page


@pytest.fixture
def unloaded(monkeypatch):
    """Nothing of the charts' libraries is in this process yet."""
    templates.cache_clear()
    for name in list(sys.modules):
        if name == "altair" or name.startswith(("altair.", "pytest_llmperf.report.charts.templates.")):
            monkeypatch.delitem(sys.modules, name)
    yield
    templates.cache_clear()


@pytest.mark.parametrize(
    "error", [ImportError("no altair here"), OSError("half a wheel"), Panic("index out of bounds")]
)
@pytest.mark.parametrize(("library", "package"), [("altair", "altair"), ("vl_convert", "vl-convert-python")])
def test_whatever_a_library_of_the_charts_raises_costs_the_charts_alone(
    monkeypatch, tmp_path, unloaded, error, library, package
):
    class Broken:
        def find_spec(self, name, *_):
            if name == library:
                raise error

    monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    monkeypatch.setattr(
        html.embedded, "_library", lambda: html.embedded.packed(charts.drawing.javascript.__wrapped__())
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    write_report(run(), tmp_path)
    for part in ("summary.md", "report.html"):
        text = (tmp_path / part).read_text("utf-8")
        assert str(error) in text
        assert f"pip install --force-reinstall {package}" in text
    assert written(tmp_path) == PARTS
    assert json.loads((tmp_path / "benchmark.json").read_text())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_on_purpose_ends_it(monkeypatch, tmp_path, error):
    def end(*_, **__):
        raise error

    monkeypatch.setitem(sys.modules, "vl_convert", type("Converter", (), {"vegalite_to_png": end}))
    with pytest.raises(error):
        write_report(run(), tmp_path)
    assert "results.json" in written(tmp_path)


def test_an_unforeseen_error_is_told_in_a_line_with_its_place():
    with pytest.raises(TypeError) as raised:
        charts.drawing.png(None, width="\n".join(["wide"] * 999), scale=1, surplus=2)
    assert "\n" not in told(raised.value)
    with pytest.raises(AttributeError) as raised:
        html.render(None)
    assert told(raised.value).endswith(")")
    assert "report/html.py, line " in told(raised.value)
    assert len(told(ValueError("x" * 9999))) < 400


TEMPLATES = {
    "{{ 1 }}\n{{ 1 / 0 }}": r"line 2: ZeroDivisionError",
    "\n\n{% include 'mine.j2' %}": r"line 3: RecursionError",
    "{% macro endless() %}\n{{ endless() }}{% endmacro %}{{ endless() }}": r"line 2: RecursionError",
    "\n{{ results.run.id.encode('no-such-code') }}": r"line 2: LookupError",
    "\n{{ tests['one'] }}\n{{ 1 + 'one' }}": r"(line \d|tests|list)",
    "\n{% for test in tests %}\n{{ test.verdicts | sum }}{% endfor %}": r"line 3: TypeError",
    "{% import 'other.j2' as other %}{{ other.wrong() }}": r"other\.j2, line 1: ZeroDivisionError",
    "{% include 'report.html.j2' %}\n{{ 1 // 0 }}": r"mine\.j2, line 2: ZeroDivisionError",
    b"fine\n\xff\xfe": r"line 2: not UTF-8",
}


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_that_fails_is_a_sentence_with_its_line_and_the_old_page_stays(tmp_path, text, capsys):
    write_report(run(), tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    template = tmp_path / "mine.j2"
    template.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "other.j2").write_text("{% macro wrong() %}{{ 1 / 0 }}{% endmacro %}")
    with pytest.raises(ResultsError, match=TEMPLATES[text]) as raised:
        write_report(run(), tmp_path, template)
    assert "\n" not in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert main(["report", str(tmp_path), "--template", str(template)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "report.html").read_bytes() == before
