"""Specs drawn without a browser, and the script that draws them in the page: both by vl-convert."""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from pytest_llmperf.files import write_atomically
from pytest_llmperf.report.charts.chart import Chart, complete
from pytest_llmperf.report.charts.library import charting
from pytest_llmperf.report.charts.theme import theme

__all__ = ["javascript", "png", "svg"]

#: What the page's own script calls. ``spec`` is ``complete`` of ``chart.py`` once more; ``draw`` evaluates expressions
#: by Vega's interpreter (``ast``), so that a page needs no ``unsafe-eval``.
_SNIPPET = """
const fill = (node, params) => {
  if (typeof node === "string") {
    return node[0] === "$" && Object.hasOwn(params, node.slice(1)) ? params[node.slice(1)] : node;
  }
  if (Array.isArray(node)) {
    return node.flatMap(item => typeof item === "string" ? fill(item, params) : [fill(item, params)]);
  }
  if (node !== null && typeof node === "object") {
    return Object.fromEntries(Object.entries(node).flatMap(([key, value]) => {
      const filled = fill(value, params);
      const leftOut = (filled === null && value !== null) || (Array.isArray(filled) && !filled.length && value.length);
      return leftOut ? [] : [[key, filled]];
    }));
  }
  return node;
};
const withoutEmpty = (spec, datasets) => !spec.layer ? spec : {
  ...spec,
  layer: spec.layer.filter(layer => !layer.data || datasets[layer.data.name].length)
    .map(layer => withoutEmpty(layer, datasets)),
};
const spec = (template, chart, width) => {
  const datasets = {rows: chart.rows, ...chart.extra};
  const filled = withoutEmpty(fill(template, chart.params), datasets);
  return {...filled, width, params: [{name: "whole", value: width}], datasets};
};
// How it is fitted is told Vega alone: Vega-Lite warns of a fitted width wherever the height follows the rows.
const draw = (element, spec, {autosize, ...config}) => vegaEmbed(element, spec, {
  mode: "vega-lite", renderer: "svg", actions: false, ast: true, config, tooltip: {theme: "llmperf"},
  patch: compiled => ({...compiled, autosize}),
});
window.vegaEmbed = vegaEmbed;
window.llmperfCharts = {spec, draw};
"""


def png(chart: Chart, *, width: int = 640, scale: float = 2) -> bytes:
    """A chart as PNG, light.

    Args:
        chart: What to draw.
        width: In pixels of a page.
        scale: Pixels of the image for each of them.

    Raises:
        ChartError: Altair or vl-convert is not installed or broken, or cannot draw it.
    """
    drawn: bytes = _drawn("vegalite_to_png", complete(chart, width), config=theme(dark=False), scale=scale)
    return drawn


def svg(chart: Chart, *, width: int = 640, dark: bool = False) -> str:
    """A chart as SVG.

    Raises:
        ChartError: likewise.
    """
    drawn: str = _drawn("vegalite_to_svg", complete(chart, width), config=theme(dark))
    return drawn


def _drawn(function: str, *arguments: Any, **options: Any) -> Any:
    # No base URL is allowed: whatever is in a spec, drawing it asks nobody for anything.
    return _called(function, *arguments, **options, allowed_base_urls=[])


def _called(function: str, *arguments: Any, **options: Any) -> Any:
    with charting("vl-convert", "vl-convert-python"):
        import vl_convert

        return getattr(vl_convert, function)(*arguments, **options)


@cache
def javascript() -> str:
    """Vega, Vega-Lite and vega-embed as one script that may stand within ``<script>``.

    It defines ``vegaEmbed``, and ``llmperfCharts`` with ``spec(template, chart, width)`` and
    ``draw(element, spec, config)``, the promise of vega-embed. To bundle it takes more than a second, therefore it is
    kept among the user's caches (``$XDG_CACHE_HOME/pytest-llmperf``) for each version of vl-convert.

    Raises:
        ChartError: vl-convert is not installed, or cannot bundle it.
    """
    kept = _kept()
    if kept is not None and (found := _read(kept)) is not None:
        return found
    script: str = _called("javascript_bundle", _SNIPPET)
    # Within a script only these could end it, or hide its end; in both places a string or a regular expression.
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if kept is not None:
        with contextlib.suppress(OSError):  # a read-only home costs a second each time
            write_atomically(kept, f"{_digest(script)}\n{script}")
    return script


def _kept() -> Path | None:
    """Where the script of the installed version is kept; ``None`` where it has no place."""
    try:
        from importlib.metadata import version

        base = os.environ.get("XDG_CACHE_HOME")
        folder = Path(base) if base else Path.home() / ".cache"
        return folder / "pytest-llmperf" / f"vega-{version('vl-convert-python')}-{_digest(_SNIPPET)[:12]}.js"
    except Exception:  # not installed, or nobody's home: the bundling says which
        return None


def _read(path: Path) -> str | None:
    """The script, if it is as it was written."""
    try:
        digest, _, script = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if digest == _digest(script) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
