"""A finding's table as the charts read it: columns by name, in the units in which they are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.report.charts.chart import Chart, Row, slug
from pytest_llmperf.report.charts.quantities import Quantity, quantity
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Finding, Mark

__all__ = ["Records", "Table", "capital", "compact", "distinct", "numeric", "placed", "positive"]

#: What offers a load, in the order in which an axis is looked for.
LOADS = ("batch", "concurrency", "rate")


@dataclass(frozen=True)
class Records:
    """Rows with some of a table's columns, and how these are drawn."""

    rows: list[Row]
    of: dict[str, Quantity]


class Table:
    """A finding.

    Args:
        finding: Whose rows are read.
    """

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self._at: dict[str, int] = {}
        self._quantities: dict[str, Quantity] = {}
        for at, column in enumerate(finding.columns):
            known = quantity(column.name, column.unit)
            if known is not None and column.name not in self._at:
                self._at[column.name] = at
                self._quantities[column.name] = known

    def has(self, *names: str) -> bool:
        """Whether each of these columns holds something."""
        return all(name in self._at and any(value is not None for value in self.column(name)) for name in names)

    def column(self, name: str) -> list[float | str | None]:
        """The raw values of a column."""
        return [row[self._at[name]] if self._at[name] < len(row) else None for row in self.finding.rows]

    def title(self, name: str) -> str:
        """What the finding calls a column; to choose by, never to draw."""
        return self.finding.columns[self._at[name]].title

    def texts(self) -> list[str]:
        """The columns that hold text and no number."""
        return [
            name for name in self._at
            if any(isinstance(value, str) for value in self.column(name))
            and not any(isinstance(value, float | int) for value in self.column(name))
        ]  # fmt: skip

    def load(self) -> str | None:
        """The column that says how much load was offered."""
        return next((name for name in LOADS if self.has(name)), None)

    def records(self, *names: str, optional: Sequence[str] = ()) -> Records:
        """The rows in which all of these columns hold something, with these alone; texts stay texts.

        Args:
            names: Of the columns.
            optional: Columns that come along, whether or not they hold something.
        """
        of = {name: self._quantities[name] for name in (*names, *optional)}
        rows: list[Row] = []
        for at in range(len(self.finding.rows)):
            row: Row = {}
            for name, drawn in of.items():
                value = self.column(name)[at]
                row[drawn.field] = printable(value) if isinstance(value, str) else drawn.of(value)
            if all(row[of[name].field] is not None for name in names):
                rows.append(row)
        return Records(rows, of)

    def marks(self, *names: str) -> list[Mark]:
        """The marks of these names, or all; in the finding's order."""
        return [mark for mark in self.finding.marks if not names or mark.name in names]

    def chart(self, what: str, **fields: object) -> Chart:
        """A chart of this finding.

        Args:
            what: Tells it apart from the finding's others.
            fields: The rest of a :class:`~pytest_llmperf.report.charts.chart.Chart`.
        """
        return Chart(id=slug(self.finding.kind, self.finding.name, what), **fields)  # type: ignore[arg-type]


def compact(value: float | None) -> str:
    """A number for a place with little room: three digits."""
    if value is None:
        return "-"
    size = abs(value)
    if 1e4 <= size < 1e6:
        return f"{value / 1e3:.3g}k"
    if size >= 1e6 or (0 < size < 1e-3):
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if size >= 100 else f"{value:.3g}"


def capital(text: str) -> str:
    """With its first letter large, as titles begin."""
    return text[:1].upper() + text[1:]


def numeric(row: Row, of: Quantity) -> float:
    """The number of a row that is known to have one."""
    value = row[of.field]
    assert isinstance(value, float | int)
    return value


def distinct(found: Records, named: str, load: str | None) -> list[str]:
    """The names of rows, each once: where they repeat, the load tells them apart, and else a number.

    Args:
        found: The rows.
        named: The column with the names.
        load: The column with the load, if there is one.
    """
    names = [str(row[found.of[named].field]) for row in found.rows]
    told = []
    for row, name in zip(found.rows, names, strict=True):
        of = found.of[load] if load else None
        apart = of is not None and names.count(name) > 1 and row[of.field] is not None
        told.append(f"{name}, {of.title} {compact(numeric(row, of))}" if of is not None and apart else name)
    seen: dict[str, int] = {}
    once = []
    for name in told:
        seen[name] = seen.get(name, 0) + 1
        once.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return once


def positive(rows: Sequence[Row], *fields: str) -> list[Row]:
    """Those that a log axis can show."""
    return [row for row in rows if all(isinstance(v := row[field], float | int) and v > 0 for field in fields)]


def placed(
    marks: Sequence[Mark], xs: Sequence[float], factor: float = 1.0, *, log: bool = False
) -> dict[str, list[Row]]:
    """Marks as the datasets ``marks`` and ``intervals``; a label each in a lane and on the side where there is room.

    Args:
        marks: Those without a place are left out.
        xs: The places of the points, in the chart's unit.
        factor: From the marks' unit to it.
        log: Whether the axis is a log axis.
    """
    ordered = sorted((mark.x, at, mark) for at, mark in enumerate(marks) if mark.x is not None)
    least, most = min(xs, default=0.0), max(xs, default=0.0)
    middle = math.sqrt(least * most) if log else (least + most) / 2
    places: list[Row] = []
    intervals: list[Row] = []
    for lane, (x, _, mark) in enumerate(ordered):
        label = printable(mark.label)
        side = "right" if x * factor > middle else "left"
        places.append({"x": x * factor, "label": label, "lane": lane, "align": side})
        if mark.low is not None and mark.high is not None:
            intervals.append({"low": mark.low * factor, "high": mark.high * factor, "label": label})
    return {"marks": places, "intervals": intervals}
