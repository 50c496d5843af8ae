"""The samples of a launch as one line of JSON a board, to be kept beside the traces.

Times are the first in nanoseconds and then the distance of each to the one before; what was not read is ``null``.
"""

from __future__ import annotations

import json
from array import array
from itertools import accumulate, pairwise
from typing import Any

from pytest_llmperf.gpu.sampling.sampler import NOTHING, REASONS, BoardSamples

__all__ = ["dump_samples", "load_samples"]

_TIMES = ("at_ns", "counter_at_ns", "slow_at_ns", "activity_since_ns", "activity_at_ns")
_WHOLE = ("reasons",)
#: Arrays of numbers, with the decimals that their sensors have.
_NUMBERS = {
    "power_w": 3, "sm_clock_mhz": 0, "memory_clock_mhz": 0, "counter_j": 3, "temperature_c": 0, "memory_used": 0,
    "utilization": 2, "sm_active": 4,
}  # fmt: skip
_PLAIN = ("throttle_ns", "dram", "tensor", "sm", "refused", "power_limit_w")


def dump_samples(samples: BoardSamples, launch: int) -> str:
    """One line of strict JSON, without the line end.

    Args:
        samples: Of one board.
        launch: Which launch they are of, from 0.
    """
    record: dict[str, Any] = {"launch": launch, "uuid": samples.uuid, "reasons_bits": list(REASONS)}
    for name in _TIMES:
        times = getattr(samples, name)
        record[name] = [*times[:1], *(later - earlier for earlier, later in pairwise(times))]
    for name in _WHOLE:
        record[name] = list(getattr(samples, name))
    for name, decimals in _NUMBERS.items():
        record[name] = [None if v != v else round(v, decimals) for v in getattr(samples, name)]
    record |= {name: getattr(samples, name) for name in _PLAIN}
    return json.dumps(record, allow_nan=False, separators=(",", ":"))


def load_samples(line: str) -> tuple[int, BoardSamples]:
    """Launch and samples of a line that :func:`dump_samples` wrote."""
    record = json.loads(line)
    # Older files have no power limit, and no activity over time.
    fields: dict[str, Any] = {name: array("q", accumulate(record.get(name, ()))) for name in _TIMES}
    fields |= {name: array("q", record[name]) for name in _WHOLE}
    fields |= {name: array("d", (NOTHING if v is None else v for v in record.get(name, ()))) for name in _NUMBERS}
    fields |= {name: record[name] for name in _PLAIN if name in record}
    return record["launch"], BoardSamples(record["uuid"], **fields)
