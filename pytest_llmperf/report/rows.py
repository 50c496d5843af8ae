"""The table of tests in the terminal: a line each, with as many columns as fit beside a name and a verdict.

Nothing is cut that need not be. Where the terminal is narrow the columns that matter least for this run go first, down
to the narrowest name and verdict that still say something; then names are cut in the middle and verdicts shortened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_llmperf.report.units import format_change, format_value, printable
from pytest_llmperf.report.wording import (
    badness,
    better_of,
    failed_otherwise,
    format_interval,
    improved,
    unit_of,
    value_of,
    verdict_word,
)
from pytest_llmperf.results import Results, TestRecord, VerdictRecord

__all__ = ["abridged", "labels", "rows", "verdict_cell", "without_columns"]

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
_GAP = "  "


def rows(results: Results, width: int) -> Iterable[Line]:
    """The head and the lines of the table with their markup, those that need a reader first.

    Args:
        results: Of the run.
        width: No line has more columns.
    """
    tests = results.worst_first()
    names = labels([test.nodeid for test in tests])
    columns = _fitting(tests, names, width)
    cells = [[_cell(test, column) for column in columns] for test in tests]
    widths = [_widest(column.title, (row[place] for row in cells)) for place, column in enumerate(columns)]
    left = width - sum(widths) - len(_GAP) * (len(columns) + 1)
    told = [verdict_cell(test, detailed=True) for test in tests]
    if _widest("verdict", told) > left - _widest("test", names):
        told = [verdict_cell(test) for test in tests]
    name_width, verdict_width = _divided(left, names, told)

    def line(name: str, row: Sequence[str], verdict: str) -> str:
        figures = [f"{cell:>{wide}}" for cell, wide in zip(row, widths, strict=True)]
        return _GAP.join([f"{name:<{name_width}}", *figures, verdict])[:width]

    yield line("test"[:name_width], [column.title for column in columns], "verdict"), {"bold": True}
    for test, name, row, verdict in zip(tests, names, cells, told, strict=True):
        shown = verdict if len(verdict) <= verdict_width else verdict_cell(test, verdict_width)
        yield line(abridged(name, name_width), row, shown), _MARKUP.get(test.verdict, {"red": True})


def _fitting(tests: Sequence[TestRecord], names: Sequence[str], width: int) -> list[_Column]:
    """The columns that any test has a value for, without those for which there is no room."""
    columns = [column for column in _COLUMNS if any(value_of(test, column.metric) is not None for test in tests)]
    longest, widest = _widest("test", names), _widest("verdict", [verdict_cell(test) for test in tests])
    telling = _telling(names)
    deciding = {found.metric for test in tests if (found := _deciding(test)) is not None}
    kept: list[_Column] = []
    taken = 0
    for column in sorted(columns, key=lambda c: (c.metric not in deciding, _KEPT.index(c.metric))):
        needs = len(_GAP) + _widest(column.title, (_cell(test, column) for test in tests))
        whole = column.spare and column.metric not in deciding
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
    different = set(names)
    for width in range(_NAME, _DISTINCT + 1):
        if len({abridged(name, width) for name in different}) == len(different):
            return width
    return _NAME


def labels(nodeids: Sequence[str]) -> list[str]:
    """Ids as names of lines: without the file, and without ``test_`` where every one begins with it.

    Two tests of the same name in two files are told apart by the name of the file before theirs.
    """
    names = [printable(nodeid.partition("::")[2] or nodeid) for nodeid in nodeids]
    plain = names and all(name.rpartition("::")[2].startswith("test_") for name in (n.partition("[")[0] for n in names))
    if plain:
        names = [_without_prefix(name) for name in names]
    alike = Counter(names)
    files = [PurePosixPath(nodeid.partition("::")[0]).stem.removeprefix("test_") for nodeid in nodeids]
    return [printable(f"{file}: {name}") if alike[name] > 1 else name for file, name in zip(files, names, strict=True)]


def _without_prefix(name: str) -> str:
    head, bracket, parameters = name.partition("[")
    classes, colons, function = head.rpartition("::")
    return f"{classes}{colons}{function.removeprefix('test_')}{bracket}{parameters}"


def abridged(name: str, width: int) -> str:
    """A name of at most ``width`` columns, cut in the middle: its parameters stand at the end."""
    if len(name) <= width:
        return name
    if width < 3:
        return name[:width]
    behind = (width - 1) * 3 // 5
    return f"{name[: width - 1 - behind]}…{name[-behind:]}"


def _cell(test: TestRecord, column: _Column) -> str:
    value = value_of(test, column.metric)
    return "-" if value is None else format_value(value, unit_of(test.metrics, column.metric), bare=column.bare)


def _deciding(test: TestRecord) -> VerdictRecord | None:
    """Of a test's verdicts the one that decided it: of several the one furthest beyond its tolerance."""
    deciding = [v for v in test.verdicts if v.verdict == test.verdict and v.change is not None]
    if test.verdict not in ("regressed", "inconclusive", "improved") or not deciding:
        return improved(test) if test.verdict == "pass" else None
    sign = -1 if test.verdict == "improved" else 1
    return max(deciding, key=lambda v: sign * badness(v, better_of(test.metrics, v.metric)))


def verdict_cell(test: TestRecord, width: int | None = None, *, detailed: bool = False) -> str:
    """A test's verdict with the metric that decided it: ``"regressed tpot +7.2 %"``.

    Args:
        test: The record.
        width: It is shortened to this: a large change is rounded, the metric's name cut, then what decided left out.
        detailed: With the interval and the tolerance.
    """
    word = verdict_word(test)
    decided = _deciding(test)
    if decided is None:
        text = f"{word}, but failed" if failed_otherwise(test) else word
        return text if width is None or len(text) <= width else abridged_end(text, width)
    if word == "pass":
        word = "pass,"
    change = format_change(decided.change)
    anchor = " (anchor)" if decided.against == "anchor" and word != "pass," else ""
    text = f"{word} {decided.metric} {change}{anchor}"
    if detailed and decided.interval is not None:
        text += f" ({format_interval(decided.interval)}), tolerance {decided.tolerance * 100:.1f} %"
    if width is None or len(text) <= width:
        return text
    if decided.change is not None and 0.1 <= abs(decided.change) < 10:
        change = f"{decided.change * 100:+.0f} %"
    room = width - len(f"{word}  {change}")
    shorter = [f"{word} {abridged_end(decided.metric, room)} {change}"] if room >= min(4, len(decided.metric)) else []
    shorter += [f"{word} {change}", word.rstrip(",")]
    return next((one for one in shorter if len(one) <= width), abridged_end(word.rstrip(","), width))


def abridged_end(text: str, width: int) -> str:
    """A text of at most ``width`` columns, cut at its end."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"[:width]


def without_columns(test: TestRecord) -> bool:
    """Whether none of the table's columns says anything of a test that has measured something."""
    measured = [name for name, metric in test.metrics.items() if metric.value is not None]
    return bool(measured) and not {column.metric for column in _COLUMNS}.intersection(measured)
