"""How findings are told: the columns of their tables, the names of loads, numbers in sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from pytest_llmperf.findings.points import Axes, Point, ordered, varied
from pytest_llmperf.report.units import format_change, format_value, printable
from pytest_llmperf.results import Column, Finding, FindingKind, Mark

__all__ = [
    "Labels",
    "Rows",
    "axis",
    "change",
    "column",
    "finding",
    "listed",
    "mark",
    "megahertz",
    "quantity",
    "ratio",
    "shape",
    "share",
    "short",
    "size",
    "slug",
    "table",
]

Rows = list[list[float | str | None]]

#: A name that is longer is cut.
_LONGEST = 60
#: From here on a ratio is told without decimals.
_MANY = 100

#: Title and unit of the columns that findings share.
_COLUMNS: dict[str, tuple[str, str | None]] = {
    "batch": ("Batch", None),
    "concurrency": ("Concurrency", None),
    "rate": ("Offered load", "1/s"),
    "clock": ("SM clock", "MHz"),
    "input_len": ("Prompt tokens", None),
    "output_len": ("Output tokens", None),
    "tensor_parallel_size": ("GPUs", None),
    "policy": ("Policy", None),
    "model": ("Model", None),
    "test": ("Test", None),
    "power": ("Power", "W"),
    "tpj": ("Tokens per joule", "tokens/J"),
    "jpt": ("Energy per token", "J/token"),
    "throughput": ("Throughput", "tokens/s"),
    "request_throughput": ("Requests served", "1/s"),
    "ttft": ("TTFT", "s"),
    "tpot": ("TPOT", "s"),
    "e2e_latency": ("End-to-end latency", "s"),
    "gpu_utilization": ("GPU utilisation", "1"),
    "sm_activity": ("SM activity", "1"),
    "mbu": ("MBU", "1"),
    "mfu": ("MFU", "1"),
    "memory_used": ("Memory in use", "B"),
}

#: The axes that a load's name tells where they are not what is usual.
_UNUSUAL = ("quantization", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size", "policy", "arrival")
#: Those that it tells where a run has several.
_SEVERAL = ("model", "engine", "device", "dtype")


def column(name: str, title: str | None = None, unit: str | None = None) -> Column:
    """A column; its title and unit are the usual ones of the name unless told otherwise."""
    usual = _COLUMNS.get(name, (name, None))
    return Column(name=name, title=title or usual[0], unit=unit or usual[1])


def mark(
    name: str, label: str, x: float | None = None, y: float | None = None, low: float | None = None,
    high: float | None = None,
) -> Mark:  # fmt: skip
    """A place in a chart."""
    return Mark(name=name, label=label, x=x, y=y, low=low, high=high)


def table(points: Iterable[Point], axes: Sequence[str], metrics: Sequence[str]) -> Rows:
    """A row a point: of axes, then of metrics."""
    return [[*(axis(point, name) for name in axes), *(point.value(name) for name in metrics)] for point in points]


def axis(point: Point, name: str) -> float | str | None:
    """One axis of a point as a table has it; the load's size goes by the load's name."""
    if name in ("batch", "concurrency", "rate"):
        return point.axes.size if point.axes.load == name else None
    value: float | str | None = getattr(point.axes, name)
    return printable(value) if isinstance(value, str) else value


def finding(
    kind: FindingKind, name: str, title: str, sentences: Iterable[str], columns: Sequence[Column], rows: Rows,
    points: Iterable[Point], marks: Sequence[Mark] = (),
) -> Finding:  # fmt: skip
    """A finding from points; its tests are in the order of their axes."""
    tests = dict.fromkeys(point.test.nodeid for point in ordered(points))
    return Finding(
        kind=kind, name=name, title=title, sentences=list(sentences), columns=list(columns), rows=rows,
        marks=list(marks), tests=list(tests),
    )  # fmt: skip


def quantity(value: float | None, name: str) -> str:
    """A value of a column with its unit."""
    _, unit = _COLUMNS[name]
    return format_value(value, unit or "").rstrip()


def change(before: float, now: float) -> str:
    """The relative change with its sign; ``"0.0 %"`` has none."""
    told = format_change(now / before - 1)
    return told[1:] if told[1:] == "0.0 %" else told


def ratio(value: float) -> str:
    """How many times: ``"2.5"``, ``"140"``."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= _MANY else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def share(value: float) -> str:
    """A part of a whole: ``"13 %"``; a small one with a decimal."""
    return f"{value * 100:.0f} %" if value >= 0.0995 or value == 0 else f"{value * 100:.1f} %"


def megahertz(clock: float | None) -> str:
    """``"900 MHz"``, or that the clock ran free."""
    return "the free-running clock" if clock is None else f"{clock:g} MHz"


def listed(parts: Sequence[str]) -> str:
    """``"a, b and c"``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def short(name: str) -> str:
    """A name from elsewhere, on one line and cut where it is long; of a path its last part."""
    is_path = name.startswith(("/", "./", "../", "~"))
    told = printable((name.rstrip("/").rpartition("/")[2] or name) if is_path else name)
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}…"


def slug(*parts: str) -> str:
    """Small letters, digits and hyphens: fit for a link's anchor."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(part for part in parts if part).lower()).strip("-.")[: 2 * _LONGEST]


def shape(axes: Axes) -> str:
    """What a request is: ``"prefill of 512 tokens"``, ``"decode of 256 tokens"``, ``"512 + 256 tokens"``."""
    prompt, output = axes.input_len, axes.output_len
    if output == 1:
        return f"prefill of {_told(prompt)} tokens"
    if prompt == 1:
        return f"decode of {_told(output)} tokens"
    return f"{_told(prompt)} + {_told(output)} tokens"


def _told(length: int | str | None) -> str:
    return "?" if length is None else str(length)


def size(axes: Axes) -> str:
    """How it is offered: ``"batch 16"``, ``"concurrency 16"``, ``"8 requests/s"``."""
    if axes.load == "trace":
        return "a replayed trace"
    if axes.load == "rate":
        return f"{axes.size:g} request{'' if axes.size == 1 else 's'}/s"
    return f"{axes.load} {axes.size:g}"


class Labels:
    """Names for groups of a run's points: what is usual goes unsaid, as does what all points share.

    Args:
        points: All of the run.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self._several = {name for name in _SEVERAL if len(varied(points, name)) > 1}
        served = {(point.axes.model, point.axes.dtype) for point in points}
        # A dtype that goes with the model tells nothing beside its name.
        if len(served) == len(varied(points, "model")):
            self._several.discard("dtype")

    def parts(self, axes: Axes, *varying: str) -> list[str]:
        """What tells a group from others of the run, one text a fact.

        Args:
            axes: Of one of its points.
            varying: The axes that vary within it.
        """
        told = []
        if not {"input_len", "output_len"} & set(varying):
            told.append(shape(axes))
        if "size" not in varying:
            told.append(size(axes))
        return [*told, *self.serving(axes, *varying)]

    def subject(self, axes: Axes, *varying: str) -> str:
        """The same for a sentence: ``"decode of 256 tokens, batch 16, mistral-7b"``."""
        return ", ".join(self.parts(axes, *varying)) or short(axes.model)

    def serving(self, axes: Axes, *varying: str) -> list[str]:
        """Of these what says how and on what it was served."""
        told = []
        if "clock" not in varying and axes.clock is not None:
            told.append(megahertz(axes.clock))
        told += [text for name in _UNUSUAL if name not in varying and (text := _UNUSUALLY[name](axes))]
        told += [short(getattr(axes, name)) for name in _SEVERAL if name in self._several and name not in varying]
        return told

    def title(self, what: str, axes: Axes, *varying: str) -> str:
        """A section's title."""
        told = self.parts(axes, *varying)
        return f"{what}: {', '.join(told)}" if told else what

    def name(self, axes: Axes, *varying: str) -> str:
        """A section's anchor."""
        return (
            slug(*(part.replace(" of ", " ").removesuffix(" tokens") for part in self.parts(axes, *varying))) or "all"
        )


_UNUSUALLY: dict[str, Callable[[Axes], str]] = {
    "quantization": lambda axes: f"{short(axes.quantization)} weights" if axes.quantization else "",
    "kv_cache_dtype": lambda axes: "" if axes.kv_cache_dtype == "auto" else f"{short(axes.kv_cache_dtype)} KV cache",
    "enforce_eager": lambda axes: "eager" if axes.enforce_eager else "",
    "tensor_parallel_size": lambda axes: f"{axes.tensor_parallel_size} GPUs" if axes.tensor_parallel_size > 1 else "",
    "policy": lambda axes: "" if axes.policy == "continuous" else f"{short(axes.policy)} batching",
    "arrival": lambda axes: "" if axes.arrival in ("", "poisson") else f"{short(axes.arrival)} arrivals",
}
