"""Runs made by hand for the findings: a test is where it lies and what it found there."""

from __future__ import annotations

import statistics
from typing import Any

from pytest_llmperf.results import Finding, Results

UNITS = {
    "ttft": "s", "tpot": "s", "e2e_latency": "s", "throughput": "tokens/s",
    "request_throughput": "1/s", "goodput": "1/s", "power": "W",
    "tpj": "tokens/J", "jpt": "J/token", "prefill_jpt": "J/token", "decode_jpt": "J/token", "mbu": "1", "mfu": "1",
    "gpu_utilization": "1", "memory_used": "B", "bare_power": "W", "context_power": "W", "loaded_power": "W",
    "locked_power": "W", "copy_bandwidth": "B/s", "matmul_flops": "FLOP/s",
}  # fmt: skip
_ENGINE = {
    "kind": "vllm", "version": "0.32.0", "model": "m", "args": {}, "treatment": {}, "simulated": False,
    "device": "Tesla V100-SXM2-32GB", "dtype": "float16", "quantization": None, "kv_cache_dtype": "auto",
    "tensor_parallel_size": 1,
}  # fmt: skip
_ROOF = {
    "peak_flops": 125e12, "peak_bandwidth": 900e9, "copy_bandwidth": 722e9, "source": "data sheet",
    "memory_bytes": 34359738368, "total_params": 7_000_000_000, "weight_bytes": 14e9, "kv_bytes_per_token": 131072.0,
    "points": [], "reason": None,
}  # fmt: skip


def metric(name: str, *launches: float | None) -> dict[str, Any]:
    """One value a launch; none, or ``None``, is a metric that was not measured."""
    known = [value for value in launches if value is not None]
    value = statistics.median(known) if known else None
    return {
        "unit": UNITS[name], "better": "lower", "value": value,
        "percentiles": None, "launches": [[one] for one in known], "reason": None if known else "not measured",
    }  # fmt: skip


def roof(*points: dict[str, Any], **more: Any) -> dict[str, Any]:
    """That of a V100, with a model of 7e9 parameters in 16 bit."""
    return {**_ROOF, "points": list(points), **more}


def step(phase: str, flops: float, weights: float, cache: float, seconds: float) -> dict[str, Any]:
    return {"phase": phase, "flops": flops, "weight_bytes": weights, "kv_bytes": cache, "seconds": seconds}


def case(
    nodeid: str, *, clock: float | None = None, requested: float | None = None, engine: dict[str, Any] | None = None,
    values: dict[str, float | tuple[float, ...] | None] | None = None, record: dict[str, Any] | None = None,
    **work: Any,
) -> dict[str, Any]:  # fmt: skip
    """A test's record.

    Args:
        nodeid: Its id.
        clock: At which it was held.
        requested: The clock that was asked for, where it was another.
        engine: What differs about the engine.
        values: Of its metrics; a tuple has one a launch.
        record: Other fields of the record.
        work: Fields of the workload.
    """
    loads = {"batch", "concurrency", "rate", "trace"} & set(work)
    return {
        "nodeid": nodeid, "verdict": "measured", "outcome": "passed",
        "workload": {"input_len": 512, "output_len": 256, "policy": "continuous", **({} if loads else {"batch": 1}),
                     **work},
        "engine": {**_ENGINE, **(engine or {})},
        "clock": {"locked_mhz": clock, "requested_mhz": clock if requested is None else requested},
        "metrics": {
            name: metric(name, *(value if isinstance(value, tuple) else (value,)))
            for name, value in (values or {}).items()
        },
        "verdicts": [], "requests": None, "client_overhead": None, "warnings": [], "invalid": None,
        **(record or {}),
    }  # fmt: skip


def results(*tests: dict[str, Any], **environment: Any) -> Results:
    return Results.model_validate({
        "schema_version": 1, "tests": list(tests),
        "run": {"id": "r", "started_at": "2026-01-01T00:00:00+00:00", "command": "pytest", "commit": None,
                "dirty": None, "plugin_version": "0.1.0"},
        "environment": {"python": "3.12", "platform": "Linux", "cpu": "c", "cuda": None, "gpus": [], "sensor": None,
                        **environment},
    })  # fmt: skip


def energy(power: float, idle: float) -> dict[str, Any]:
    """One launch of 10 s."""
    return {
        "joules": power * 10, "error": 0.1, "source": "counter", "power": power, "integral_power": None, "reason": None,
        "seconds": 10.0, "busy": 1.0, "repeats": 1, "idle_power": idle, "idle_reason": None, "boards": [],
    }  # fmt: skip


def column(finding: Finding, name: str) -> list[float | str | None]:
    """A finding's column by its name."""
    at = [one.name for one in finding.columns].index(name)
    return [row[at] for row in finding.rows]


def said(finding: Finding) -> str:
    return " ".join(finding.sentences)
