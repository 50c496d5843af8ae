"""Colours and fonts: one Vega config for light pages and PNGs, one for dark pages.

Categories are told apart under every common colour blindness (they differ in lightness and along blue to orange), and
wherever it can be by shape or place as well. Text has a contrast of at least 4.5:1, marks of at least 3:1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["theme"]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class _Palette:
    paper: str
    ink: str
    dim: str
    line: str
    category: tuple[str, ...]
    ordinal: tuple[str, ...]
    ramp: tuple[str, ...]
    mark: str


_LIGHT = _Palette(
    paper="#ffffff", ink="#1a1d21", dim="#59626d", line="#e1e4e9",
    category=("#1764ab", "#c14e00", "#00806b", "#9c3f8c", "#7a6400", "#5f6670"),
    ordinal=("#5596cb", "#3d7fbd", "#2463a3", "#154a86", "#0c3368", "#071f45"),
    ramp=("#f1f5fa", "#c3d8ec", "#85b2da"),
    mark="#b3261e",
)  # fmt: skip
_DARK = _Palette(
    paper="#14171a", ink="#e6e9ed", dim="#a0aab5", line="#2c3239",
    category=("#6fb1f2", "#f2935c", "#4cc9ab", "#e394d4", "#d9c04f", "#aab3bd"),
    ordinal=("#4a7fb3", "#5f97cb", "#7caee0", "#9cc5f0", "#bddafa", "#e2f0ff"),
    ramp=("#1c232b", "#24425f", "#2c618f"),
    mark="#ff8a80",
)  # fmt: skip


def theme(dark: bool) -> dict[str, Any]:
    """The Vega config of all charts on a light or a dark page; a light one is what PNGs are drawn with."""
    palette = _DARK if dark else _LIGHT
    axis = {
        "labelColor": palette.dim, "titleColor": palette.ink, "gridColor": palette.line, "domainColor": palette.dim,
        "tickColor": palette.dim, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": 500, "titlePadding": 8,
        "labelLimit": 170, "titleLimit": 420, "labelOverlap": True,
    }  # fmt: skip
    return {
        "background": None if dark else palette.paper,
        "font": _FONT,
        "padding": 4,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "view": {"stroke": None},
        "axis": axis,
        "axisBand": {"grid": False, "ticks": False, "domain": False, "labelPadding": 7},
        "axisXQuantitative": {"labelFlush": False, "labelSeparation": 10, "tickCount": {"expr": "ceil(whole / 90)"}},
        "legend": {
            "orient": "top", "titleOrient": "left", "labelColor": palette.ink, "titleColor": palette.ink,
            "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": 500, "symbolSize": 80, "labelLimit": 200,
            "offset": 6, "columnPadding": 14,
        },
        "range": {
            "category": list(palette.category), "ordinal": {"scheme": list(palette.ordinal)},
            "ramp": list(palette.ramp), "heatmap": list(palette.ramp),
            "symbol": ["circle", "square", "triangle-up", "diamond", "cross", "stroke"],
        },
        "line": {"strokeWidth": 1.8, "strokeCap": "round", "color": palette.category[0]},
        "point": {"size": 46, "filled": True, "opacity": 1, "color": palette.category[0]},
        "bar": {"color": palette.category[0]},
        "rect": {"color": palette.category[0]},
        "rule": {"color": palette.dim},
        "text": {"color": palette.ink, "fontSize": 11},
        "style": _styles(palette),
    }  # fmt: skip


def _styles(palette: _Palette) -> dict[str, Any]:
    """Marks with a meaning of their own, by the names under which templates ask for them."""
    return {
        "band": {"color": palette.category[0], "opacity": 0.13},
        "centre": {"color": palette.dim, "strokeDash": [4, 3], "strokeWidth": 1},
        "mark": {"color": palette.mark, "strokeWidth": 1.5, "strokeDash": [5, 3]},
        "mark-band": {"color": palette.mark, "opacity": 0.1},
        "mark-bar": {"color": palette.mark},
        "mark-ring": {"color": palette.mark, "strokeWidth": 2},
        "mark-text": {"color": palette.mark, "fontWeight": 600},
        "note": {"color": palette.dim},
        "cell": {"stroke": palette.paper, "strokeWidth": 1.5},
        "roof": {"color": palette.dim, "strokeWidth": 2},
        "trace": {"color": palette.ink, "strokeWidth": 1.5},
    }
