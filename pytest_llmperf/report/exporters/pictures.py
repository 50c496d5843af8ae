"""The charts beside summary.md: a few PNGs, those that a reviewer should see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmperf.errors import ChartError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.report.charts import Chart, charts_of_finding, charts_of_test, png
from pytest_llmperf.report.wording import badness, better_of, short_name
from pytest_llmperf.results import Finding, Results, TestRecord

__all__ = ["FOLDER", "Picture", "pictures", "write_pictures"]

#: Beside summary.md.
FOLDER = "charts"
#: Drawing one takes about 40 ms, and more would not be looked at.
_MOST, _MOST_TESTS = 6, 2


@dataclass(frozen=True)
class Picture:
    """One PNG.

    Attributes:
        caption: Of what it is.
        chart: What it shows.
    """

    caption: str
    chart: Chart

    @property
    def path(self) -> str:
        """Relative to summary.md; letters, digits and hyphens."""
        return f"{FOLDER}/{self.chart.id}.png"


def pictures(results: Results) -> list[Picture]:
    """The launches of the worst regressed tests, then the first chart of the findings, each kind before a second."""
    regressed = sorted((test for test in results.tests if test.verdict == "regressed"), key=_how_bad, reverse=True)
    found = [
        Picture(f"{short_name(test.nodeid)}: {chart.title}", chart)
        for test in regressed[:_MOST_TESTS]
        for chart in charts_of_test(test)[:1]
    ]
    for finding in _each_kind_first(results.findings):
        if len(found) == _MOST:
            break
        found += [
            Picture(f"{finding.title}. {chart.title}", chart) for chart in charts_of_finding(finding, results)[:1]
        ]
    return found


def _how_bad(test: TestRecord) -> float:
    return max((badness(v, better_of(test.metrics, v.metric)) for v in test.verdicts), default=0.0)


def _each_kind_first(findings: Sequence[Finding]) -> list[Finding]:
    first = list({finding.kind: finding for finding in reversed(findings)}.values())[::-1]
    return [*first, *(finding for finding in findings if not any(finding is one for one in first))]


def write_pictures(found: Sequence[Picture], folder: Path) -> tuple[list[Picture], str | None]:
    """Draw pictures into a report's folder, and take away what an earlier report has left there.

    Args:
        found: What to draw.
        folder: The report's.

    Returns:
        What was drawn, and why the rest was not.

    Raises:
        OSError: the folder cannot be written.
    """
    for left in (folder / FOLDER).glob("*.png"):
        left.unlink()
    drawn: list[Picture] = []
    for picture in found:
        try:
            image = png(picture.chart)
        except ChartError as error:
            return drawn, str(error)
        write_atomically(folder / picture.path, image)
        drawn.append(picture)
    return drawn, None
