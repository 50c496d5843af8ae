"""What the page carries for its scripts: charts, the library that draws them, the record; and what may run.

All of it is gzip in base64, which the browser unpacks (DecompressionStream): it is a quarter of the size, and no name
in it can end its element.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmperf.errors import ChartError
from pytest_llmperf.report import charts
from pytest_llmperf.report.charts import Chart
from pytest_llmperf.report.page.heights import height_of
from pytest_llmperf.results import Results

__all__ = ["Figures", "packed", "policy", "record"]

#: The compressed record is left out from this size on; the file beside the page has it.
_LARGEST_RECORD = 700_000
#: No record becomes smaller than by this; what is larger need not be compressed to see it.
_BEST_RATIO = 15


@dataclass(frozen=True)
class Figures:
    """The charts of the page.

    Attributes:
        data: Templates, themes and data of all charts, as packed JSON; ``None`` where there is nothing to draw.
        library: The script that draws them, packed.
        reason: Why there are no charts although there is something to draw; ``None`` otherwise.
    """

    data: str | None = None
    library: str | None = None
    reason: str | None = None

    @classmethod
    def of(cls, shown: Mapping[str, Chart]) -> Figures:
        """Of the charts by the ids of their elements.

        Args:
            shown: In the order in which they stand on the page.
        """
        if not shown:
            return cls()
        try:
            library = _library()
            made = charts.templates()
        except ChartError as error:
            return cls(reason=str(error))
        used = {chart.template for chart in shown.values()}
        templates = {name: made[name] for name in sorted(used)}
        return cls(
            packed(
                json.dumps(
                    {
                        "themes": {"light": charts.theme(dark=False), "dark": charts.theme(dark=True)},
                        "templates": templates,
                        "charts": {name: _compact(chart) for name, chart in shown.items()},
                    },
                    separators=(",", ":"),
                    ensure_ascii=False,
                    allow_nan=False,
                )
            ),
            library,
        )


def _compact(chart: Chart) -> dict[str, Any]:
    return {
        "template": chart.template,
        "title": chart.title,
        "description": chart.description,
        "height": height_of(chart),
        "params": dict(chart.params),
        "data": {name: _columns(rows) for name, rows in chart.datasets().items()},
    }


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[Sequence[Any]]:
    """A dataset as a table: first the names of its fields, then one list a row. Names are not repeated."""
    if not rows:
        return [[]]
    fields = list(rows[0])
    if len(fields) > 1 and all(map(rows[0].keys().__eq__, (row.keys() for row in rows))):
        return [fields, *map(operator.itemgetter(*fields), rows)]
    fields = list(dict.fromkeys(name for row in rows for name in row))
    return [fields, *([row.get(name) for name in fields] for row in rows)]


def packed(text: str) -> str:
    """Text as gzip in base64; the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")


@functools.cache
def _library() -> str:
    return packed(charts.javascript())


def record(results: Results) -> str | None:
    """results.json, compressed; ``None`` where it would make the page too large."""
    text = results.to_json(indent=None)
    if len(text) > _BEST_RATIO * _LARGEST_RECORD:
        return None
    found = packed(text)
    return found if len(found) <= _LARGEST_RECORD else None


def policy(scripts: Iterable[str]) -> str:
    """The Content-Security-Policy: no network, and no script but those of the page, told by their hashes.

    Args:
        scripts: The texts of all script elements that run, to the character.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
