"""The specs without data: of one test, and of what several tests say together."""

from __future__ import annotations

from functools import cache
from typing import Any

from pytest_llmperf.report.charts.library import charting

__all__ = ["templates"]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@cache
def templates() -> dict[str, dict[str, Any]]:
    """Every template by its name, as plain JSON; made once a process, because Altair takes half a second to load.

    A text ``"$name"`` in one is a placeholder for the parameter of a chart. Datasets are named, ``rows`` the first of
    them. There is no width: whoever draws a chart knows it.

    Raises:
        ChartError: Altair is not installed, or broken.
    """
    with charting("Altair", "altair"):
        from pytest_llmperf.report.charts.templates import curves, panels, parts, tables, tests

        made = {**tests.specs(), **panels.specs(), **curves.specs(), **tables.specs()}
        return {name: _plain(chart.to_dict(validate=False), parts.HEIGHT) for name, chart in made.items()}


def _plain(spec: dict[str, Any], by_rows: int) -> dict[str, Any]:
    """Without Altair's own config (a chart's config is the theme), and of the schema's major version."""
    kept = {key: value for key, value in spec.items() if key not in ("$schema", "config")}
    if kept.get("height") == by_rows:
        kept["height"] = "$height"
    return {"$schema": _SCHEMA, **kept}
