"""What is measured without a workload: what the boards draw while nothing is asked of them, and what devices reach.

They belong to no repeat and to no launch of an engine, so that none of them is computed here: whoever measures one has
the number, or the reason why there is none.
"""

from __future__ import annotations

from pytest_llmperf.metrics.types import Metric

__all__ = ["HARDWARE", "IDLE", "METRICS"]

_SENSORS = "the boards' energy counters (else their power readings)"
_PEAKS = "measured in a process of its own (python -m pytest_llmperf peaks), the best of several rounds"


def _idle(name: str, formula: str) -> Metric:
    return Metric(name, "W", "lower", f"power of the engine's boards, idle: {formula}", _SENSORS, bound_to_board=True)


#: What idle boards draw, rung by rung.
IDLE = (
    _idle("bare_power", "no engine and no CUDA context on them, the clock free"),
    _idle("context_power", "a process holds a CUDA context and nothing else, the clock free"),
    _idle("loaded_power", "the engine is up with its model loaded, the clock free"),
    _idle("locked_power", "as loaded_power, at the clock that is held"),
)

#: What the devices reach at best.
HARDWARE = (
    Metric(
        "copy_bandwidth", "B/s", "higher", "bytes read and written / time of a copy within the memory, of the slowest "
        "device", _PEAKS,
    ),
    Metric("host_to_device", "B/s", "higher", "bytes / time from pinned host memory, to the slowest device", _PEAKS),
    Metric("device_to_host", "B/s", "higher", "bytes / time to pinned host memory, from the slowest device", _PEAKS),
    Metric("peer_to_peer", "B/s", "higher", "bytes / time from GPU to GPU, of the slowest ordered pair", _PEAKS),
    Metric(
        "matmul_flops", "FLOP/s", "higher", "2 n^3 / time of a product of two square matrices, of the slowest device; "
        "of the dtypes measured the fastest", _PEAKS,
    ),
)  # fmt: skip

METRICS = (*IDLE, *HARDWARE)
