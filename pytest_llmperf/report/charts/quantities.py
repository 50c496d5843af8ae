"""What a figure is called in a chart, and in which unit it is drawn: times in milliseconds, clocks in megahertz."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_llmperf.report.charts.chart import number

__all__ = ["Quantity", "quantity", "title_of"]

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
    "s": ("_ms", "ms", 1e3),
    "Hz": ("_mhz", "MHz", 1e-6),
    "MHz": ("_mhz", "MHz", 1.0),
    "B": ("_gb", "GB", 1e-9),
    "B/token": ("_kb", "kB/token", 1e-3),
    "B/s": ("_gb_per_s", "GB/s", 1e-9),
    "FLOP/s": ("_tflop_per_s", "TFLOP/s", 1e-12),
    "FLOP/B": ("_flop_per_b", "FLOP/B", 1.0),
    "W": ("_w", "W", 1.0),
    "J": ("_j", "J", 1.0),
    "J/token": ("_j_per_token", "J/token", 1.0),
    "tokens/J": ("_tokens_per_j", "tokens/J", 1.0),
    "tokens/s": ("_tokens_per_s", "tokens/s", 1.0),
    "1/s": ("_per_s", "1/s", 1.0),
    "1": ("_percent", "%", 100.0),
}
#: The unit 1 is a share, except of these.
_COUNTS = {"batch", "concurrency", "input_len", "output_len", "tensor_parallel_size", "total_params"}
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
        """The title of its axis: ``"TPOT (ms)"``."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def of(self, value: float | str | None) -> float | None:
        """A value of the record in this unit; ``None`` for what is no number."""
        return None if value is None or isinstance(value, str) else number(value, self.factor)

    def told(self, value: float | None) -> str:
        """A value, already in this unit, with it: ``"4.67 ms"``."""
        if value is None:
            return "not measured"
        digits = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        return f"{digits} {self.unit}".strip()


def quantity(name: str, unit: str | None) -> Quantity | None:
    """How a column or a metric is drawn; ``None`` for a name that no figure of ours has."""
    if not _PLAIN.fullmatch(name):
        return None
    title = _TITLES.get(name, name.replace("_", " "))
    suffix, drawn, factor = ("", "", 1.0) if unit is None or name in _COUNTS else _UNITS.get(unit, ("", "", 1.0))
    if name == "total_params":
        suffix, drawn, factor = "_billions", "billions", 1e-9
    return Quantity(name + suffix, title, drawn, factor)


def title_of(name: str) -> str:
    """What a metric is called in a chart; a name that is not ours as it is."""
    return _TITLES.get(name, name)
