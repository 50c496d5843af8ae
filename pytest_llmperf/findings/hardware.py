"""What do the machine's devices reach: copies within and between them, matrix products?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmperf.findings.points import Point
from pytest_llmperf.findings.telling import Labels, Rows, column, finding, listed, megahertz, share, short
from pytest_llmperf.report.units import format_value, printable
from pytest_llmperf.results import Finding, Peaks, Results, TestRecord

__all__ = ["hardware"]

_TITLES = {
    "copy_bandwidth": "Copy within its memory",
    "host_to_device": "Host to device",
    "device_to_host": "Device to host",
    "peer_to_peer": "To the slowest peer",
}
_HALVES = ("float16", "bfloat16")
#: Devices of one product within this of each other are alike.
_ALIKE = 0.02


def hardware(results: Results, points: Sequence[Point], _: Labels) -> list[Finding]:
    """A finding for what tests of the hardware found, or else for what was measured when the engines were to start."""
    peaks = results.environment.peaks
    gauges = [test for test in results.tests if test.invalid is None and test.workload is None and _rates(test)]
    if gauges:
        ordered = sorted(gauges, key=lambda test: (test.clock.locked_mhz or 0.0, test.nodeid))
        return [_gauged(ordered, points, peaks or [])]
    return [_measured(peaks, points)] if peaks else []


def _rates(test: TestRecord) -> dict[str, tuple[float, str]]:
    """Rates that a test of the hardware found, with their units."""
    names = (*_TITLES, "matmul_flops")
    return {
        name: (metric.value, metric.unit)
        for name in names
        if (metric := test.metrics.get(name)) is not None and metric.value is not None
    }


def _sheet(points: Sequence[Point], device: str) -> dict[str, float]:
    """The peaks of one device by its data sheet, as the roofs of tests on that product hold them, by column."""
    found: dict[str, float] = {}
    for point in points:
        roof = point.test.roof
        if roof is None or point.axes.device != device or "data sheet" not in (roof.source or ""):
            continue
        gpus = point.axes.tensor_parallel_size
        if roof.peak_bandwidth:
            found["copy_bandwidth"] = max(found.get("copy_bandwidth", 0.0), roof.peak_bandwidth / gpus)
        # At a clock that is held the peak is less, and of quantized weights it is that of another format.
        if roof.peak_flops and point.axes.clock is None and point.axes.quantization is None:
            found[point.axes.dtype] = max(found.get(point.axes.dtype, 0.0), roof.peak_flops / gpus)
    return found


def _measured(peaks: Sequence[Peaks], points: Sequence[Point]) -> Finding:
    dtypes = list(dict.fromkeys(dtype for one in peaks for dtype in one.matmul_flops))
    rows: Rows = []
    for index, one in enumerate(peaks):
        sheet = _sheet(points, one.device)
        slowest = min(one.peer_to_peer.values(), default=None)
        products = [one.matmul_flops.get(dtype) for dtype in dtypes]
        copied = _part(one.copy_bandwidth, sheet.get("copy_bandwidth"))
        rows.append([
            float(index), printable(one.device), one.copy_bandwidth, copied, one.host_to_device, one.device_to_host,
            slowest, *products,
        ])  # fmt: skip
    columns = [
        column("device", "Device"), column("name", "Product"),
        column("copy_bandwidth", _TITLES["copy_bandwidth"], "B/s"), column("copy_share", "Share of the peak", "1"),
        *(column(name, _TITLES[name], "B/s") for name in ("host_to_device", "device_to_host", "peer_to_peer")),
        *(column(f"matmul_{dtype}", f"Matrix product, {dtype}", "FLOP/s") for dtype in map(printable, dtypes)),
    ]  # fmt: skip
    sentences = [_told(one, _sheet(points, one.device)) for one in _each_product(peaks)]
    sentences += _unequal(peaks)
    methods = dict.fromkeys(printable(one.method.rstrip(".")) for one in peaks)
    sentences += [f"{method[:1].upper()}{method[1:]}." for method in methods if method]
    return finding("hardware", "peaks", "What the devices reach", sentences, columns, rows, [])


def _part(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def _each_product(peaks: Sequence[Peaks]) -> list[Peaks]:
    first: dict[str, Peaks] = {}
    for one in peaks:
        first.setdefault(one.device, one)
    return list(first.values())


def _told(one: Peaks, sheet: Mapping[str, float]) -> str:
    copy = (
        f"copies {format_value(one.copy_bandwidth, 'B')}/s{_of_sheet(one.copy_bandwidth, sheet.get('copy_bandwidth'))}"
    )
    products = [
        f"{_flops(rate)} in {printable(dtype)}{_of_sheet(rate, sheet.get(dtype))}"
        for dtype, rate in one.matmul_flops.items()
    ]
    return f"{short(one.device)} {copy}{' and multiplies at ' + listed(products) if products else ''}."


def _of_sheet(rate: float, peak: float | None) -> str:
    return f" ({share(rate / peak)} of its data sheet)" if peak else ""


def _flops(rate: float) -> str:
    return format_value(rate / 1e12, "TFLOP/s")


def _unequal(peaks: Sequence[Peaks]) -> list[str]:
    """Boards of one product that are not alike."""
    told = []
    for product in _each_product(peaks):
        alike = [(one.copy_bandwidth, index) for index, one in enumerate(peaks) if one.device == product.device]
        low, high = min(alike), max(alike)
        if low[0] < high[0] * (1 - _ALIKE):
            told.append(
                f"Device {low[1]} copies {share(1 - low[0] / high[0])} less than device {high[1]} of the same product."
            )
    return told


def _gauged(tests: Sequence[TestRecord], points: Sequence[Point], peaks: Sequence[Peaks]) -> Finding:
    """Of the tests, a row a rate; what the session measured for itself is not told again."""
    rows: Rows = []
    sentences = []
    for test in tests:
        device = test.engine.device if test.engine is not None else None
        sheet = _sheet(points, device) if device is not None else {}
        # A matrix product is that of the faster of the 16-bit formats.
        sheet["matmul_flops"] = max((sheet[name] for name in _HALVES if name in sheet), default=0.0)
        clock = test.clock.locked_mhz
        parts = []
        for name, (rate, unit) in _rates(test).items():
            what, peak = _TITLES.get(name, "Matrix product"), sheet.get(name)
            flops = unit == "FLOP/s"
            rows.append([what, clock, None if flops else rate, rate if flops else None, _part(rate, peak)])
            parts.append(f"{what.lower()} {_rate(rate, unit)}{_of_sheet(rate, peak)}")
        held = "" if clock is None else f" at {megahertz(clock)}"
        sentences.append(f"{short(device) if device else 'The device'} reaches{held}: {'; '.join(parts)}.")
    columns = [column("what", "What"), column("clock"), column("bandwidth", "Bandwidth", "B/s"),
               column("flops", "FLOPs a second", "FLOP/s"), column("share", "Share of the peak", "1")]  # fmt: skip
    one = finding("hardware", "test", "What the devices reach", [*sentences, *_unequal(peaks)], columns, rows, [])
    return one.model_copy(update={"tests": [test.nodeid for test in tests]})


def _rate(rate: float, unit: str) -> str:
    if unit == "FLOP/s":
        return _flops(rate)
    return f"{format_value(rate, 'B')}/s" if unit == "B/s" else format_value(rate, unit)
