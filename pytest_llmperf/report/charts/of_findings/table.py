"""A finding's table as the charts read it: columns by name, in the units in which they are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.report.charts.chart import Chart, Param, Row, slug
from pytest_llmperf.report.charts.quantities import Quantity, quantity
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Finding, Mark

__all__ = [
    "Records",
    "Table",
    "at_size",
    "capital",
    "compact",
    "distinct",
    "labelled",
    "numeric",
    "placed",
    "positive",
    "stacked_panels",
]

#: The width of a letter of a label, of what is beside it, and of a narrow chart; pixels.
_LETTER, _BESIDE, _NARROW = 6.4, 10, 300
#: The height of a label's lane, and of the gap between panels; pixels.
LANE, GAP = 15, 22
#: A label of more letters has two digits.
_SHORT = 5
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
            known = quantity(column.name, column.unit, (row[at] for row in finding.rows if at < len(row)))
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


def at_size(of: Quantity, value: float) -> str:
    """A place on an axis of sizes: ``"batch size 16"``, ``"900 MHz"``, ``"512 prompt tokens"``."""
    if of.title.endswith("tokens"):
        return f"{value:,.0f} {of.title if value != 1 else of.title[:-1]}"
    if of.unit == "MHz":
        return of.told(value)
    if of.title == "requests at once":
        return f"{compact(value)} {of.title if value != 1 else 'request at once'}"
    return f"{of.title} {compact(value)}{'/s' if of.unit == '1/s' else ''}"


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


def labelled(rows: Sequence[Row], of: Quantity) -> list[Row]:
    """Rows with their figure as a short label, and the letters that the longest of them takes."""
    labels = [compact(numeric(row, of)) for row in rows]
    longest = max(map(len, labels), default=0)
    if longest > _SHORT:
        labels = [
            label if len(label) <= _SHORT else f"{numeric(row, of):.2g}"
            for label, row in zip(labels, rows, strict=True)
        ]
        longest = max(map(len, labels))
    return [{**row, "label": label, "chars": longest} for row, label in zip(rows, labels, strict=True)]


def positive(rows: Sequence[Row], *fields: str) -> list[Row]:
    """Those that a log axis can show."""
    return [row for row in rows if all(isinstance(v := row[field], float | int) and v > 0 for field in fields)]


def placed(
    marks: Sequence[Mark], xs: Sequence[float], factor: float = 1.0, *, log: bool = False
) -> dict[str, list[Row]]:
    """Marks as the datasets ``marks`` and ``intervals``; each label on the side and in a lane where it has room.

    Args:
        marks: Those without a place are left out; one with an interval alone names a band, at its lower end.
        xs: The places of the points, in the chart's unit.
        factor: From the marks' unit to it.
        log: Whether the axis is a log axis.
    """
    shown = [mark for mark in marks if mark.x is not None or mark.low is not None]
    at = {id(mark): (mark.low if mark.x is None else mark.x) * factor for mark in shown}  # type: ignore[operator]
    ends = [place for place in (*xs, *at.values()) if not log or place > 0]
    least, most = min(ends, default=0.0), max(ends, default=0.0)

    def fraction(x: float) -> float:
        low, here, high = (math.log(one) for one in (least, x, most)) if log else (least, x, most)
        return (here - low) / (high - low) if high > low else 0.5

    # From the edges inwards: a label hangs over the marks between it and the middle, whose lines begin below it.
    ordered = sorted(shown, key=lambda mark: (-abs(fraction(at[id(mark)]) - 0.5), at[id(mark)], mark.label))
    taken: list[tuple[int, float, float]] = []
    places: list[Row] = []
    for mark in ordered:
        x, label = at[id(mark)], printable(mark.label)
        width = min(1.0, (_LETTER * len(label) + _BESIDE) / _NARROW)
        # Towards the middle, or where a narrow chart has room for it.
        right = fraction(x) > 0.5 or fraction(x) + width > 1 >= 1 - (fraction(x) - width)
        low, high = (fraction(x) - width, fraction(x)) if right else (fraction(x), fraction(x) + width)
        lane = 1 + max((lane for lane, left, end in taken if left <= high and low <= end), default=-1)
        taken.append((lane, low, high))
        row: Row = {"x": x, "label": label, "lane": lane, "align": "right" if right else "left"}
        places.append(row if mark.x is not None else {**row, "line": False})
    intervals: list[Row] = [
        {"low": mark.low * factor, "high": mark.high * factor, "label": printable(mark.label)}
        for mark in shown if mark.x is not None and mark.low is not None and mark.high is not None
    ]  # fmt: skip
    return {"marks": sorted(places, key=lambda row: (_x_of(row), str(row["label"]))), "intervals": intervals}


def _x_of(row: Row) -> float:
    return float(row["x"] or 0.0)


def stacked_panels(panels: int, marks: Sequence[Row], height: int) -> dict[str, Param]:
    """Where the panels of a chart lie below the labels of its marks, in pixels: the parameters of its template.

    Args:
        panels: How many there are.
        marks: The dataset of that name.
        height: Of a panel.
    """
    lanes = 1 + max((int(row["lane"] or 0) for row in marks), default=-1)
    top = LANE * lanes + 6 if lanes else 4
    found: dict[str, Param] = {"height": top + panels * height + (panels - 1) * GAP}
    for at in range(panels):
        upper = top + at * (height + GAP)
        found |= {f"top_{at}": upper, f"bottom_{at}": upper + height}
    return found
