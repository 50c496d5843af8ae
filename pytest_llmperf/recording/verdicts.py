"""The metrics, the conditions beside them, and what the gate says."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_llmperf.conditions import observe
from pytest_llmperf.fingerprint import DEFINITIONS
from pytest_llmperf.gate import Comparison
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.runner import Launch

__all__ = ["condition_records", "definitions", "metric_record", "verdict_record"]


def definitions() -> dict[str, dict[str, str]]:
    """What every metric of the registry means, for the record."""
    return {
        name: {"unit": m.unit, "better": m.better, "formula": m.formula, "source": m.source}
        for name, m in REGISTRY.items()
    } | {name: dict(definition) for name, definition in DEFINITIONS.items()}


def metric_record(name: str, summary: Summary) -> dict[str, Any]:
    """One metric over all launches."""
    return {
        "unit": REGISTRY[name].unit,
        "better": REGISTRY[name].better,
        "value": summary.value,
        "percentiles": None if summary.percentiles is None else dict(summary.percentiles),
        "launches": [list(launch) for launch in summary.launches],
        "reason": summary.reason,
    }


def condition_records(launches: Sequence[Launch], baseline: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """What was so while the launches were measured, beside what was so with the baseline's, by name."""
    return {
        name: {
            "unit": observed.unit,
            "launches": list(observed.launches),
            "value": observed.value,
            "baseline": statistics.median(before) if (before := baseline.get(name)) else None,
            "baseline_launches": list(before or ()),
            "reason": observed.reason,
        }
        for name, observed in observe(launches).items()
    }


def verdict_record(comparison: Comparison) -> dict[str, Any]:
    """One verdict, with all that it can be derived from again."""
    return {
        "metric": comparison.metric,
        "verdict": comparison.verdict,
        "baseline": comparison.baseline,
        "current": comparison.current,
        "change": comparison.change,
        "interval": None if comparison.interval is None else list(comparison.interval),
        "tolerance": comparison.tolerance,
        "minimum_detectable": comparison.minimum_detectable,
        "baseline_launches": [list(launch) for launch in comparison.baseline_launches],
        "alpha": comparison.alpha,
        "looks": comparison.looks,
        "reason": comparison.reason,
        "against": comparison.against,
        "launches": comparison.launches,
        "advice": comparison.advice,
        "noise": None if comparison.noise is None else asdict(comparison.noise),
        "prediction": comparison.prediction,
        "saved_at": comparison.saved_at,
    }
