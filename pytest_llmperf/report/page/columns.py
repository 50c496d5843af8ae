"""The columns of the table of tests: the axes along which the run varies, and as many metrics as have room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_llmperf.report.page.facts import length, served, verdict_words, worst_change
from pytest_llmperf.report.units import format_change, format_value
from pytest_llmperf.report.wording import unit_of, value_of
from pytest_llmperf.results import TestRecord

__all__ = ["Axis", "MetricColumn", "axes", "axis_words", "metric_columns"]

#: Metric, its title, and whether it has a column also when no test has it.
_METRICS = (
    ("ttft", "TTFT", True), ("tpot", "TPOT", True), ("e2e_latency", "Latency", True),
    ("throughput", "Tokens/s", True), ("mbu", "MBU", True), ("power", "Power", False), ("tpj", "Tokens/J", False),
)  # fmt: skip
#: Not a metric: goodput or the highest rate, whichever a test has.
_LIMITS = "limits"
#: What gives way first where columns have no room.
_LEAST_FIRST = ("mbu", "power", _LIMITS, "e2e_latency", "ttft", "tpj", "throughput", "tpot")
#: Pixels of a page of 1200, and of a name, which wraps.
_ROOM, _NAME = 1140, 190
#: Of a character, of one of a title, of the arrow beside a title, and between columns.
_CHARACTER, _OF_TITLE, _ARROW, _BETWEEN = 7.2, 8.5, 18, 9


@dataclass(frozen=True)
class Axis:
    """One axis along which the tests of a run differ.

    Attributes:
        title: As short as a column needs it, with the unit.
        name: In full, for whoever cannot guess, with the unit.
        cells: Of each test, in their order: a number, a text, or ``None`` where the axis does not apply.
    """

    title: str
    name: str
    cells: tuple[float | str | None, ...]

    @property
    def is_number(self) -> bool:
        """Whether there is a number in it: its column is aligned to the right."""
        return any(isinstance(cell, (int, float)) for cell in self.cells)


@dataclass(frozen=True)
class MetricColumn:
    """A metric in the table of tests.

    Attributes:
        metric: Its name; ``limits`` for the rate that was served within the limits.
        title: Of the column.
        unit: In which the record has it, SI.
        shown: Whether there is room; where there is none it is in the table's CSV all the same.
    """

    metric: str
    title: str
    unit: str
    shown: bool


def _clock(test: TestRecord) -> float | str | None:
    if test.clock.locked_mhz is not None:
        return test.clock.locked_mhz
    return "free" if test.workload is not None else None


def _work(name: str) -> Callable[[TestRecord], float | str | None]:
    def found(test: TestRecord) -> float | str | None:
        value = (test.workload or {}).get(name)
        return value if isinstance(value, (int, float)) else None

    return found


def _length(name: str) -> Callable[[TestRecord], float | str | None]:
    def found(test: TestRecord) -> float | str | None:
        value = (test.workload or {}).get(name)
        return value if value is None or isinstance(value, (int, float)) else length(value)

    return found


def _model(test: TestRecord) -> str | None:
    if test.engine is None or test.engine.kind == "hardware":
        return None
    return test.engine.model.rstrip("/").rpartition("/")[2]


def _gpus(test: TestRecord) -> float | None:
    return None if test.engine is None or test.workload is None else test.engine.tensor_parallel_size


_AXES: tuple[tuple[str, str, Callable[[TestRecord], float | str | None]], ...] = (
    ("Model", "Model", _model),
    ("GPUs", "GPUs (tensor parallel)", _gpus),
    ("Prompt", "Prompt tokens", _length("input_len")),
    ("Output", "Output tokens", _length("output_len")),
    ("Batch", "Batch size", _work("batch")),
    ("Conc.", "Concurrency", _work("concurrency")),
    ("Req/s", "Offered rate (1/s)", _work("rate")),
    ("MHz", "SM clock, locked (MHz)", _clock),
)


def axes(tests: Sequence[TestRecord]) -> list[Axis]:
    """The axes of which the tests have at least two values; what all of them share stands on the first screen."""
    found = [Axis(title, name, tuple(of(test) for test in tests)) for title, name, of in _AXES]
    return [axis for axis in found if len({cell for cell in axis.cells if cell is not None}) > 1]


def axis_words(test: TestRecord) -> str:
    """What a filter finds a test by besides its name: where it lies, and no figure that was measured."""
    words = [f"{test.clock.locked_mhz:g} MHz"] if test.clock.locked_mhz is not None else []
    if (engine := test.engine) is not None:
        words += [engine.model, engine.kind, engine.device, engine.dtype, engine.quantization or ""]
        words += [f"{engine.tensor_parallel_size} GPUs"] if test.workload is not None else []
    return " ".join(word for word in words if word)


def metric_columns(tests: Sequence[TestRecord], beside: Sequence[Axis]) -> list[MetricColumn]:
    """The metrics' columns; the least important are not shown where the axes leave no room for them.

    Args:
        tests: Of the run.
        beside: The axes that have columns too.
    """
    widths: dict[str, float] = {}
    units: dict[str, str] = {}
    for name, title, always in _METRICS:
        values = [(test, value) for test in tests if (value := value_of(test, name)) is not None]
        if always or values:
            units[name] = unit_of(values[0][0].metrics, name) if values else ""
            texts = [format_value(value, units[name], bare=True) for _, value in values]
            widths[name] = _width(title, texts)
    taken = _NAME + _width("Verdict", ["x" * 3 + verdict_words(test) for test in tests])
    if any(test.verdicts for test in tests):
        worst = [one for test in tests if (one := worst_change(test)) is not None]
        taken += _width("Change", [f"{format_change(one.change)} {one.metric}" for one in worst])
    if any(served(test) for test in tests):
        units[_LIMITS] = ""
        widths[_LIMITS] = _width("Within limits", [served(test) or "" for test in tests])
    taken += sum(_width(axis.title, [_text(cell) for cell in axis.cells]) for axis in beside)
    shown = set(widths)
    for name in _LEAST_FIRST:
        if taken + sum(widths[name] for name in shown) <= _ROOM:
            break
        shown.discard(name)
    titles = {name: title for name, title, _ in _METRICS} | {_LIMITS: "Within limits"}
    return [MetricColumn(name, titles[name], units[name], name in shown) for name in titles if name in widths]


def _width(title: str, texts: Sequence[str]) -> float:
    longest = max(map(len, texts), default=0) * _CHARACTER
    return max(longest, len(title) * _OF_TITLE + _ARROW) + _BETWEEN


def _text(cell: float | str | None) -> str:
    return cell if isinstance(cell, str) else "" if cell is None else f"{cell:g}"
