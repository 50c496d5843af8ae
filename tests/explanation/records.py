"""Records made by hand: a test on one H200 at rest, and what is changed about it."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from pytest_llmperf.gate import Rules, compare
from pytest_llmperf.metrics import Summary
from pytest_llmperf.recording.verdicts import verdict_record as recorded
from pytest_llmperf.results import Results, TestRecord

#: What a run that is as its baseline shows of itself; the baseline's launches lie a little around it.
AT_REST = {
    "send_delay": ("s", 20e-6),
    "queue_time": ("s", 1e-3),
    "prefill_time": ("s", 0.040),
    "decode_time": ("s", 1.200),
    "client_overhead": ("s", 50e-6),
    "batch_occupancy": ("requests", 16.0),
    "repeat_spread": ("1", 0.004),
    "sm_clock": ("Hz", 1.980e9),
    "memory_clock": ("Hz", 3.201e9),
    "power": ("W", 500.0),
    "power_cap_share": ("1", 0.0),
    "thermal_share": ("1", 0.0),
    "other_throttle_share": ("1", 0.0),
    "temperature": ("°C", 55.0),
    "dram_utilization": ("1", 0.60),
    "tensor_utilization": ("1", 0.10),
    "gpu_utilization": ("1", 0.99),
    "memory_used": ("B", 128e9),
}
_UNITS = {"ttft": ("s", 0.042), "tpot": ("s", 0.0047), "tpj": ("tokens/J", 2.0), "mbu": ("1", 0.6),
          "e2e_latency": ("s", 1.242), "throughput": ("tokens/s", 200.0), "max_rate": ("1/s", 10.0),
          "copy_bandwidth": ("B/s", 4.27e12), "matmul_flops": ("FLOP/s", 8e14), "bare_power": ("W", 79.0)}  # fmt: skip
_HIGHER = {"tpj", "mbu", "throughput", "max_rate", "copy_bandwidth", "matmul_flops"}
PROVENANCE = {
    "engine": "vllm",
    "engine_version": "0.11.0",
    "treatment": {},
    "boards": [{"name": "NVIDIA H200", "uuid": "GPU-1"}],
    "driver": "570.1",
    "commit": "c",
    "dirty": False,
    "plugin_version": "0.1.0",
    "python": "3.12.3",
}


def metric(name: str, *launches: float, reason: str | None = None) -> dict[str, Any]:
    unit, _ = _UNITS[name]
    value = statistics.median(launches) if launches else None
    return {
        "unit": unit, "better": "higher" if name in _HIGHER else "lower", "value": value, "percentiles": None,
        "launches": [[one] for one in launches], "reason": reason,
    }  # fmt: skip


_OF_LAUNCHES = ("interval", "minimum_detectable", "alpha", "looks", "noise")
#: What the verdicts of these records are drawn by.
RULES = Rules.of_run(2, 8)
GATE = {**asdict(RULES), "launches": RULES.launches}
#: Launches lie a thousandth apart; their geometric mean is 1.
NOW, BEFORE = (1 / 1.001, 1.001), (1 / 1.001, 1.0, 1.001)


def verdict(name: str, ratio: float, kind: str | None = None, tolerance: float = 0.05, **more: Any) -> dict[str, Any]:
    """The gate's verdict on one metric that is ``ratio`` times its baseline, or the one that is given."""
    typical = _UNITS[name][1]
    before, now = (
        Summary(typical, tuple((typical * centre * factor,) for factor in factors), None, None)
        for centre, factors in ((1.0, BEFORE), (ratio, NOW))
    )
    better = "higher" if name in _HIGHER else "lower"
    found = recorded(compare(name, before, now, better=better, tolerance=tolerance, rules=RULES))
    if kind in ("no-baseline", "incomparable", "not-applicable", "invalid"):  # no launches were compared
        found |= {**dict.fromkeys(_OF_LAUNCHES), "launches": 0}
    return {**found, **({} if kind is None else {"verdict": kind}), **more}


def conditions(now: dict[str, float | None], before: dict[str, float | None] | None = None) -> dict[str, Any]:
    found = {}
    others = {*now, *(before or {})} - AT_REST.keys()
    others = {*now, *(before or {})} - AT_REST.keys()
    for name, (unit, rest) in {**AT_REST, **dict.fromkeys(others, ("1", 0.0))}.items():
        value, baseline = now.get(name, rest), (before or {}).get(name, rest)
        found[name] = {
            "unit": unit,
            "launches": [] if value is None else [value],
            "value": value,
            "baseline": baseline,
            "baseline_launches": [] if baseline is None else [baseline * f for f in (0.998, 1.0, 1.001)],
            "reason": None if value is not None else "NVML does not tell it",
        }
    return found


def document(
    regressed: dict[str, float],
    now: dict[str, float | None] | None = None,
    *,
    before: dict[str, float | None] | None = None,
    kind: str = "regressed",
    provenance: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A test whose metrics are so many times their baselines, under these conditions."""
    return {
        "nodeid": "suite.py::test_one[16]",
        "verdict": kind,
        "outcome": "failed",
        "workload": {"batch": 16, "digest": "d"},
        "tolerances": dict.fromkeys(regressed, 0.05),
        "engine": {
            "kind": "vllm", "version": "0.11.0", "model": "m", "args": {}, "treatment": {}, "simulated": False,
            "device": "NVIDIA H200", "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto",
            "tensor_parallel_size": 1,
        },
        "clock": {},
        "metrics": {
            name: metric(name, *(_UNITS[name][1] * ratio * factor for factor in NOW))
            for name, ratio in regressed.items()
        },
        "verdicts": [verdict(name, ratio, kind) for name, ratio in regressed.items()],
        "requests": None,
        "client_overhead": None,
        "conditions": conditions(now or {}, before),
        "provenance": {**PROVENANCE, **(provenance or {})},
        "baseline_provenance": PROVENANCE,
        "warnings": [],
        "invalid": None,
        **more,
    }  # fmt: skip


def record(*args: Any, **more: Any) -> TestRecord:
    return TestRecord.model_validate(document(*args, **more))


def run(
    *tests: dict[str, Any],
    id: str = "r",
    gpus: tuple[str, ...] = ("GPU-1",),
    gate: dict[str, Any] | None = GATE,
    **machine: Any,
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "run": {
            "id": id, "started_at": "2026-01-01T00:00:00+00:00", "command": "pytest", "commit": None, "dirty": None,
            "plugin_version": "0.1.0",
        },
        "environment": {
            "python": "3.12.3", "platform": "Linux", "cpu": "c", "cuda": "12.8", "sensor": None,
            "gpus": [
                {"index": i, "name": "NVIDIA H200", "uuid": uuid, "driver": "570.1", "power_limit_w": 700.0,
                 "memory_bytes": 1, "simulated": False}
                for i, uuid in enumerate(gpus)
            ],
            **machine,
        },
        "gate": gate,
        "tests": list(tests),
    }  # fmt: skip


def results(*tests: dict[str, Any], **more: Any) -> Results:
    return Results.model_validate(run(*tests, **more))
