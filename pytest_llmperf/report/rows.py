"""The table of tests in the terminal: a line each, with as many columns as fit beside a name and a verdict.

Nothing is cut that need not be. Where the terminal is narrow the columns that matter least for this run go first, down
to the narrowest name and verdict that still say something; then names are cut in the middle and verdicts shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_llmperf.report.cells import SHORT, abridged, before_parameters, deciding, labels, verdict_cell
from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import unit_of, value_of
from pytest_llmperf.results import Results, TestRecord

__all__ = ["rows", "told_in_rows", "without_columns"]

Line = tuple[str, dict[str, bool]]

_MARKUP: Mapping[str, dict[str, bool]] = {
    "pass": {"green": True},
    "improved": {"green": True, "bold": True},
    "measured": {},
    "not-applicable": {},
}


@dataclass(frozen=True)
class _Column:
    """One metric of the table.

    Attributes:
        metric: Its name.
        title: What stands above it.
        bare: Whether its unit stands in the title.
        spare: Whether it is there only where nothing has to be cut for it.
    """

    metric: str
    title: str
    bare: bool = False
    spare: bool = False


#: From left to right.
_COLUMNS = (
    _Column("ttft", "TTFT"),
    _Column("tpot", "TPOT"),
    _Column("e2e_latency", "latency", spare=True),
    _Column("throughput", "tokens/s", bare=True),
    _Column("power", "power", spare=True),
    _Column("tpj", "tokens/J", bare=True),
    _Column("mbu", "MBU", spare=True),
)
#: Which are kept where not all fit, after those that have decided a verdict.
_KEPT = ("tpot", "tpj", "ttft", "throughput", "power", "e2e_latency", "mbu")
#: Narrower than these a name and a verdict are cut only where nothing but them is left.
_NAME, _VERDICT = 14, 24
#: So wide a name is made, where it has to be cut, to tell it from another one that would be cut alike.
_DISTINCT = 28
#: What stands before and after the figures, and between them: one column where whole names and verdicts fit only so.
_GAP = "  "
_BETWEEN = ("  ", " ")


@dataclass(frozen=True)
class _Layout:
    """The table at a width: which columns it has, and how wide they are.

    Attributes:
        tests: Those that need a reader first.
        names: What they are called.
        columns: Those that fit.
        between: What stands between two of them.
        figures: Columns that the figures have together.
        name: Columns of the names.
        verdict: Columns of the verdicts.
        detailed: Whether there is room for all that verdicts stand on.
    """

    tests: list[TestRecord]
    names: list[str]
    columns: list[_Column]
    between: str
    figures: int
    name: int
    verdict: int
    detailed: bool

    @cached_property
    def cells(self) -> list[list[str]]:
        """The figures of each test."""
        return [[_cell(test, column) for column in self.columns] for test in self.tests]

    @cached_property
    def widths(self) -> list[int]:
        """How wide each column is."""
        return [_widest(column.title, (row[place] for row in self.cells)) for place, column in enumerate(self.columns)]

    @property
    def cuts(self) -> bool:
        """Whether a name or a verdict has to be cut."""
        told = [verdict_cell(test, brief=True) for test in self.tests]
        return self.name < _widest("test", self.names) or self.verdict < _widest("verdict", told)

    def others(self, test: TestRecord) -> tuple[str, bool]:
        """The figures of a test that has none for the columns, in their place, and whether these are all."""
        return _others(test, self.figures)


def rows(results: Results, width: int) -> Iterable[Line]:
    """The head and the lines of the table with their markup, those that need a reader first.

    Args:
        results: Of the run.
        width: No line has more columns.
    """
    layout = _layout(results, width)
    shorten = _shortening(layout.names, layout.name)

    def line(name: str, figures: str, verdict: str) -> str:
        middle = [f"{figures:<{layout.figures}}"] if layout.figures else []
        return _GAP.join([f"{name:<{layout.name}}", *middle, verdict])[:width]

    def in_columns(cells: Sequence[str]) -> str:
        return layout.between.join(f"{cell:>{wide}}" for cell, wide in zip(cells, layout.widths, strict=True))

    titles = in_columns([column.title for column in layout.columns])
    yield line("test"[: layout.name], titles, "verdict"), {"bold": True}
    for test, name, cells in zip(layout.tests, layout.names, layout.cells, strict=True):
        told = verdict_cell(test, detailed=layout.detailed)
        shown = told if len(told) <= layout.verdict else verdict_cell(test, layout.verdict)
        figures = layout.others(test)[0] or in_columns(cells)
        yield line(shorten(name, layout.name), figures, shown), _MARKUP.get(test.verdict, {"red": True})


def told_in_rows(results: Results, width: int) -> frozenset[str]:
    """Ids of the tests without figures for the columns of which the table tells all figures in their place."""
    layout = _layout(results, width)
    return frozenset(test.nodeid for test in layout.tests if layout.others(test)[1])


def _layout(results: Results, width: int) -> _Layout:
    """The table with wide gaps between the figures, or narrow ones where something would be cut."""
    tests = results.worst_first()
    wide, narrow = (_laid_out(tests, width, between) for between in _BETWEEN)
    return narrow if wide.cuts else wide


def _laid_out(tests: list[TestRecord], width: int, between: str) -> _Layout:
    names = labels([test.nodeid for test in tests])
    columns = _fitting(tests, names, width, between)
    widths = [_widest(column.title, (_cell(test, column) for test in tests)) for column in columns]
    figures = sum(widths) + len(between) * max(len(widths) - 1, 0)
    if not columns:  # all the room that names and verdicts leave
        beside = min(_widest("test", names), _DISTINCT) + _widest("verdict", [verdict_cell(test) for test in tests])
        figures = max(min(_longest_of_others(tests), width - beside - 2 * len(_GAP)), 0)
    left = width - len(_GAP) - (figures + len(_GAP) if figures else 0)
    told = [verdict_cell(test, detailed=True) for test in tests]
    detailed = _widest("verdict", told) <= left - _widest("test", names)
    if not detailed:
        told = [verdict_cell(test) for test in tests]
    brief = [verdict_cell(test, brief=True) for test in tests]
    if _widest("verdict", told) > left - _widest("test", names) >= _widest("verdict", brief):
        told = brief
    return _Layout(tests, names, columns, between, figures, *_divided(left, names, told), detailed)


def _longest_of_others(tests: Sequence[TestRecord]) -> int:
    return max((len(_others(test, 10_000)[0]) for test in tests), default=0)


def _fitting(tests: Sequence[TestRecord], names: Sequence[str], width: int, between: str) -> list[_Column]:
    """The columns that any test has a value for, without those for which there is no room."""
    columns = [column for column in _COLUMNS if any(value_of(test, column.metric) is not None for test in tests)]
    longest, widest = _widest("test", names), _widest("verdict", [verdict_cell(test) for test in tests])
    telling = _telling(names)
    decided = {found.metric for test in tests if (found := deciding(test)) is not None}
    kept: list[_Column] = []
    taken = 0
    for column in sorted(columns, key=lambda c: (c.metric not in decided, _KEPT.index(c.metric))):
        needs = len(between if kept else _GAP) + _widest(column.title, (_cell(test, column) for test in tests))
        whole = column.spare and column.metric not in decided
        name = longest if whole else min(longest, telling)
        verdict = widest if whole else min(widest, _VERDICT)
        if taken + needs + name + len(_GAP) + verdict <= width:
            kept.append(column)
            taken += needs
    return [column for column in columns if column in kept]


def _divided(left: int, names: Sequence[str], verdicts: Sequence[str]) -> tuple[int, int]:
    """How the columns that the figures leave are divided between names and verdicts."""
    longest, widest = _widest("test", names), _widest("verdict", verdicts)
    verdict = min(widest, _VERDICT)
    if longest + widest <= left:
        return longest, left - longest
    name = min(longest, max(left - verdict, min(_NAME, left // 2)), max(_telling(names), left - widest))
    return max(name, 1), max(left - name, 1)


def _widest(title: str, cells: Iterable[str]) -> int:
    return max(len(title), *(len(cell) for cell in cells), 0)


def _telling(names: Sequence[str]) -> int:
    """The fewest columns in which no two different names look alike; ``_NAME`` where many columns do not help."""
    return next((width for width in range(_NAME, _DISTINCT + 1) if _distinct(names, width, abridged)), _NAME)


def _distinct(names: Sequence[str], width: int, shorten: Callable[[str, int], str]) -> bool:
    different = set(names)
    return len({shorten(name, width) for name in different}) == len(different)


def _shortening(names: Sequence[str], width: int) -> Callable[[str, int], str]:
    """How names are cut: before their parameters, where that tells them apart; else in the middle."""
    return before_parameters if _distinct(names, width, before_parameters) else abridged


def _others(test: TestRecord, room: int) -> tuple[str, bool]:
    """The figures of a test that has none for the columns, as many as fit, and whether these are all.

    What decided the verdict comes first, then the last: of the rungs of an idle board those with a model.
    """
    if not without_columns(test) or test.search is not None:
        return "", False
    told = {
        name: f"{SHORT.get(name, name)} {format_value(value, unit_of(test.metrics, name))}"
        for name in test.metrics
        if (value := value_of(test, name)) is not None
    }
    decided = deciding(test)
    kept: list[str] = []
    last_first = list(reversed(told))
    for name in sorted(last_first, key=lambda name: decided is None or name != decided.metric):
        if len(", ".join([*(told[one] for one in kept), told[name]])) <= room:
            kept.append(name)
    return ", ".join(text for name, text in told.items() if name in kept), len(kept) == len(told)


def _cell(test: TestRecord, column: _Column) -> str:
    value = value_of(test, column.metric)
    return "-" if value is None else format_value(value, unit_of(test.metrics, column.metric), bare=column.bare)


def without_columns(test: TestRecord) -> bool:
    """Whether none of the table's columns says anything of a test that has measured something."""
    measured = [name for name, metric in test.metrics.items() if metric.value is not None]
    return bool(measured) and not {column.metric for column in _COLUMNS}.intersection(measured)
