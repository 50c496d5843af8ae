"""What a chart is, and how its template, parameters and datasets become one spec."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_llmperf.report.charts.templates import templates

__all__ = ["Chart", "Param", "Row", "complete", "fill", "number", "room", "shown", "slug"]

#: One item of a dataset, flat.
Row = dict[str, float | int | str | None]
#: What a placeholder stands for; ``None`` and an empty list leave out what it is the value of.
Param = str | float | bool | Sequence[str] | Sequence[float] | None

#: So many significant digits can be seen in a chart and read in its tooltip.
_ROUNDED = "%.5g"
#: So much of a name is kept in a slug, its end, where tests of one file differ.
_LONGEST = 90
#: The width of a letter of a label, of what is beside it, and of the bars of a narrow chart; pixels.
_LETTER, _BESIDE, _NARROW = 6.4, 10, 190


@dataclass(frozen=True)
class Chart:
    """One chart: which template draws it, and its data.

    Attributes:
        id: A slug, unique in a run and the same in every run.
        template: The key of :func:`~pytest_llmperf.report.charts.templates.templates`.
        title: What it shows, in a few words.
        description: What it shows with its main figures, for screen readers and as the text of an image.
        rows: The dataset ``rows``; fields end in their unit, such as ``tpot_ms``. Values have all their digits, as
            what is said in words is rounded from them.
        extra: Further datasets by name, such as ``marks``.
        params: What the template's placeholders stand for; numbers, and texts from constants of this package alone.
    """

    id: str
    template: str
    title: str
    description: str
    rows: Sequence[Row]
    extra: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    params: Mapping[str, Param] = field(default_factory=dict)

    def datasets(self) -> dict[str, list[Row]]:
        """All datasets by name, their numbers with the digits that can be seen."""
        named = {"rows": self.rows, **self.extra}
        return {name: [_rounded(row) for row in rows] for name, rows in named.items()}


def _rounded(row: Row) -> Row:
    return {
        name: shown(value) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in row.items()
    }


def complete(chart: Chart, width: int = 640) -> dict[str, Any]:
    """The whole spec, its data inlined, as the page's script makes it as well (``llmperfCharts.spec``).

    Args:
        chart: What to draw.
        width: Of the chart with its axes and legends, in pixels.

    Raises:
        ChartError: Altair is not installed, or broken.
    """
    datasets = chart.datasets()
    spec: dict[str, Any] = _without_empty(fill(templates()[chart.template], chart.params), datasets)
    spec["width"] = width
    spec["params"] = [{"name": "whole", "value": width}]
    spec["datasets"] = datasets
    return spec


def _without_empty(spec: dict[str, Any], datasets: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Without the layers that would show nothing: an axis over no values has no ends."""
    if "layer" not in spec:
        return spec
    shown = [layer for layer in spec["layer"] if "data" not in layer or datasets[layer["data"]["name"]]]
    return {**spec, "layer": [_without_empty(layer, datasets) for layer in shown]}


def fill(node: Any, params: Mapping[str, Param]) -> Any:
    """A copy in which every text ``"$name"`` is the parameter of that name.

    Where a list holds the placeholder of a list, its items take the place. What becomes ``None`` or an empty list by it
    is left out, as if the template did not have it.
    """
    if isinstance(node, str):
        return params.get(node[1:], node) if node.startswith("$") else node
    if isinstance(node, dict):
        filled_in = {key: fill(value, params) for key, value in node.items()}
        return {key: value for key, value in filled_in.items() if not _left_out(node[key], value)}
    if isinstance(node, list):
        filled: list[Any] = []
        for item in node:
            value = fill(item, params)
            if isinstance(item, str) and isinstance(value, list | tuple):
                filled += value
            else:
                filled.append(value)
        return filled
    return node


def _left_out(template: Any, filled: Any) -> bool:
    return (filled is None and template is not None) or (filled == [] and template != [])


def number(value: float | None, factor: float = 1.0) -> float | None:
    """A number in a chart's unit; ``None`` for what is none."""
    if value is None:
        return None
    scaled = value * factor
    return scaled if math.isfinite(scaled) else None


def shown(value: float) -> float:
    """With the digits that can be seen in a chart."""
    return float(_ROUNDED % value)


def room(value: float, label: str = "") -> float | None:
    """How far an axis has to reach for a label beside the end of a bar.

    Args:
        value: The end of the bar.
        label: Where all bars are as long as the longest, what has to have room in a narrow chart.
    """
    wide = (_LETTER * len(label) + _BESIDE) / _NARROW
    return number(max(1.14, 1 / (1 - min(wide, 0.5))) * value)


def slug(*names: str) -> str:
    """Lower-case letters, digits and hyphens of names, and a digest that keeps apart what these alone do not.

    It is fit for an anchor and for a file's name.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower())[-_LONGEST:].strip("-")
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{readable}-{digest}" if readable else digest
