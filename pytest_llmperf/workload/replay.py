"""Traces of requests that were recorded elsewhere, to be replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.workload.checks import check_count, is_number

__all__ = ["TraceRequest", "read_trace"]


@dataclass(frozen=True)
class TraceRequest:
    """One line of a replayed trace: when a request arrives (seconds from the start) and its lengths in tokens."""

    arrival: float
    input_len: int
    output_len: int


#: Three years: a later arrival is a time stamp, not a time from the start.
_LATEST_S = 1e8


def read_trace(path: Path) -> tuple[TraceRequest, ...]:
    """The requests of a trace file, one JSON object a line, in the order of their arrival."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise WorkloadError(f"trace: {path} cannot be read ({error}).") from None
    requests = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            request = TraceRequest(record["arrival"], record["input_len"], record["output_len"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkloadError(
                f"trace: line {number} of {path} is no request ({type(error).__name__}: {error}).",
                remedy='Each line is like {"arrival": 0.25, "input_len": 512, "output_len": 64}.',
            ) from None
        if not is_number(request.arrival) or not 0 <= request.arrival <= _LATEST_S:
            raise WorkloadError(f"trace: line {number} of {path}: arrival is a number of seconds from the start.")
        request = replace(request, arrival=float(request.arrival))
        check_count(f"trace: line {number} of {path}: input_len", request.input_len, least=1)
        check_count(f"trace: line {number} of {path}: output_len", request.output_len, least=1)
        requests.append(request)
    if not requests:
        raise WorkloadError(f"trace: {path} holds no request.")
    return tuple(sorted(requests, key=lambda r: r.arrival))
