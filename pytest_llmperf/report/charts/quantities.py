"""What a figure is called in a chart, and in which unit it is drawn: one that its values have few digits in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_llmperf.report.charts.chart import number
from pytest_llmperf.report.units import format_value

__all__ = ["Quantity", "drawn_in", "quantity", "title_of"]

_TITLES = {
    "batch": "batch size",
    "chunk_gap": "gap between chunks",
    "clock": "SM clock",
    "concurrency": "requests at once",
    "decode_jpt": "decode energy",
    "dram_utilization": "memory bandwidth in use",
    "e2e_latency": "latency",
    "energy": "energy",
    "goodput": "goodput",
    "gpu_utilization": "GPU utilisation",
    "input_len": "prompt tokens",
    "intensity": "arithmetic intensity",
    "itl": "ITL",
    "jpt": "energy per token",
    "max_rate": "highest rate within limits",
    "mbu": "MBU",
    "memory_used": "memory in use",
    "mfu": "MFU",
    "net_jpt": "energy per token above idle",
    "net_tpj": "tokens per joule above idle",
    "output_len": "output tokens",
    "copy_share": "share",
    "efficiency": "efficiency",
    "power": "power",
    "prefill_jpt": "prefill energy",
    "prompt_share": "prompt's share of the latency",
    "rate": "offered rate",
    "request_throughput": "request throughput",
    "roofline_efficiency": "roofline efficiency",
    "sm_activity": "SM activity",
    "sm_clock": "SM clock",
    "tensor_parallel_size": "GPUs (tensor parallel)",
    "tensor_utilization": "tensor cores in use",
    "throughput": "throughput",
    "total_params": "parameters",
    "total_throughput": "total throughput",
    "tpj": "tokens per joule",
    "tpot": "TPOT",
    "ttft": "TTFT",
}
#: Unit of the record: suffix of the field, unit in the chart, factor.
_UNITS = {
    "Hz": ("_mhz", "MHz", 1e-6),
    "MHz": ("_mhz", "MHz", 1.0),
    "B/token": ("_kb", "kB/token", 1e-3),
    "FLOP/s": ("_tflop_per_s", "TFLOP/s", 1e-12),
    "FLOP/B": ("_flop_per_b", "FLOP/B", 1.0),
    "W": ("_w", "W", 1.0),
    "J/token": ("_j_per_token", "J/token", 1.0),
    "tokens/J": ("_tokens_per_j", "tokens/J", 1.0),
    "tokens/s": ("_tokens_per_s", "tokens/s", 1.0),
    "1/s": ("_per_s", "1/s", 1.0),
    "1": ("_percent", "%", 100.0),
}
#: Units that go with the largest value: from which on, suffix of the field, unit in the chart, factor. The usual one is
#: that of values that are not known.
_SCALED = {
    "s": ((1.0, "_s", "s", 1.0), (1e-3, "_ms", "ms", 1e3), (0.0, "_us", "µs", 1e6)),
    "B": ((2e12, "_tb", "TB", 1e-12), (1e9, "_gb", "GB", 1e-9), (0.0, "_mb", "MB", 1e-6)),
    "B/s": ((1e13, "_tb_per_s", "TB/s", 1e-12), (1e9, "_gb_per_s", "GB/s", 1e-9), (0.0, "_mb_per_s", "MB/s", 1e-6)),
    "J": ((1e4, "_kj", "kJ", 1e-3), (0.1, "_j", "J", 1.0), (0.0, "_mj", "mJ", 1e3)),
}
_USUAL = 1
#: The unit 1 is a share, except of these.
_COUNTS = {"batch", "concurrency", "input_len", "output_len", "tensor_parallel_size", "total_params"}
_TIMES = {"s", "ms", "µs"}
#: Titles that say their unit.
_WORDED = {"tokens per joule", "tokens per joule above idle"}
#: Names from a record become names of fields only if they are plain.
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True)
class Quantity:
    """A figure as charts draw it.

    Attributes:
        field: Its name in rows.
        title: In words.
        unit: In which it is drawn; ``""`` for a count.
        factor: From the record's unit to this one.
    """

    field: str
    title: str
    unit: str
    factor: float

    @property
    def axis(self) -> str:
        """The title of its axis: ``"TPOT (ms)"``; a title that names its unit in words stands alone."""
        return f"{self.title} ({self.unit})" if self.unit and self.title not in _WORDED else self.title

    @property
    def label(self) -> str:
        """The Vega expression that writes the numbers of its axis; clocks are written without a comma."""
        return "format(datum.value, '.0f')" if self.unit == "MHz" else "format(datum.value, ',.6~r')"

    def of(self, value: float | str | None) -> float | None:
        """A value of the record in this unit; ``None`` for what is no number."""
        return None if value is None or isinstance(value, str) else number(value, self.factor)

    def told(self, value: float | None) -> str:
        """A value, already in this unit, with it: ``"4.67 ms"``."""
        if value is None:
            return "not measured"
        if self.unit in _TIMES:  # a small one beside large ones has its own prefix
            return format_value(value / self.factor, "s")
        digits = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        if self.unit == "MHz":
            digits = f"{value:.0f}"
        return f"{digits} {self.unit}".strip()


def quantity(name: str, unit: str | None, values: Iterable[float | str | None] = ()) -> Quantity | None:
    """How a column or a metric is drawn; ``None`` for a name that no figure of ours has.

    Args:
        name: Of the column.
        unit: Of the record.
        values: All that a chart shows of it, in that unit: the largest of them chooses the one that is drawn.
    """
    if not _PLAIN.fullmatch(name):
        return None
    title = _TITLES.get(name, name.replace("_", " "))
    suffix, drawn, factor = ("", "", 1.0) if unit is None or name in _COUNTS else drawn_in(unit, values)
    if name == "total_params":
        suffix, drawn, factor = "_billions", "billions", 1e-9
    return Quantity(name + suffix, title, drawn, factor)


def drawn_in(unit: str, values: Iterable[float | str | None] = ()) -> tuple[str, str, float]:
    """How values of a unit are drawn: the suffix of a field, the unit in a chart, the factor to it."""
    if unit not in _SCALED:
        return _UNITS.get(unit, ("", "", 1.0))
    sizes = [abs(value) for value in values if isinstance(value, float | int) and math.isfinite(value)]
    choices = _SCALED[unit]
    known = max(sizes, default=0.0)
    return next((choice for choice in choices if known >= choice[0]), choices[-1])[1:] if known else choices[_USUAL][1:]


def title_of(name: str) -> str:
    """What a metric is called in a chart; a name that is not ours as it is."""
    return _TITLES.get(name, name)
