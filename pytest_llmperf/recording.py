"""From a measurement and its verdicts to the record that results.json keeps."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.conditions import observe
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.engines.account import Account
from pytest_llmperf.explanation import explain
from pytest_llmperf.fingerprint import DEFINITIONS, Agreement, Outputs, Unavailable
from pytest_llmperf.gate import PASSING, Comparison, worst
from pytest_llmperf.gpu import value_or_none, why_unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy
from pytest_llmperf.measurement import BaseMeasurement
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.overhead import client_overhead
from pytest_llmperf.results import TestRecord
from pytest_llmperf.runner import Launch
from pytest_llmperf.trace import RequestTrace

__all__ = ["Beside", "cut_short_record", "definitions", "failure_record", "outputs_record", "record_of"]

#: Reasons of failed requests that the record keeps with their counts.
_REASONS = 10


@dataclass(frozen=True)
class Beside:
    """What a record holds of the baseline beside the verdicts.

    Attributes:
        provenance: Of this measurement, in the words of a baseline.
        baseline_provenance: Of the baseline; ``None`` when there is none.
        conditions: The baseline's, launch by launch.
    """

    provenance: Mapping[str, Any] | None = None
    baseline_provenance: Mapping[str, Any] | None = None
    conditions: Mapping[str, Sequence[float]] = field(default_factory=dict)


_ALONE = Beside()


def record_of(
    measurement: BaseMeasurement,
    summaries: Mapping[str, Summary],
    comparisons: Sequence[Comparison] | None,
    *,
    incomparable: Sequence[str] = (),
    beside: Beside = _ALONE,
) -> dict[str, Any]:
    """The test's record in plain JSON types.

    Args:
        measurement: What was measured.
        summaries: Its metrics.
        comparisons: The gate's verdicts; ``None`` when nothing was gated.
        incomparable: Fields in which the baseline differs, as sentences.
        beside: The baseline's circumstances.
    """
    invalid = measurement.invalid
    if invalid is not None:
        verdict = "invalid"
    elif comparisons is None:
        verdict = "measured"
    else:
        # Answers can spoil a verdict, and never make one: they say nothing of performance.
        verdict = worst(c.verdict for c in comparisons if c.metric not in DEFINITIONS or c.verdict not in PASSING)
    overhead = client_overhead(repeat for launch in measurement.launches for repeat in launch.repeats)
    record = {
        "nodeid": measurement.test,
        "verdict": verdict,
        "outcome": "unfinished",
        "tolerances": {},
        "workload": None if measurement.workload is None else {**measurement.work, "digest": measurement.digest},
        "search": None,
        "phases": None,
        "outputs": outputs_record(measurement),
        "engine": _engine(measurement.info),
        "clock": _clock(measurement.launches),
        "energy": [_energy(launch) for launch in measurement.launches if launch.samples],
        "metrics": {name: _metric(name, summary) for name, summary in summaries.items()},
        "verdicts": [_verdict(c) for c in comparisons or ()],
        "advisory": [],
        "requests": None if measurement.workload is None else _requests(_sent(measurement.launches)),
        "client_overhead": None if overhead is None else asdict(overhead),
        "client": [_client(launch.account) for launch in measurement.launches if launch.account.client is not None],
        "server": [_server(launch.account) for launch in measurement.launches if launch.account.server is not None],
        "conditions": _conditions(measurement.launches, beside.conditions),
        "provenance": None if beside.provenance is None else _plain(beside.provenance),
        "baseline_provenance": None if beside.baseline_provenance is None else _plain(beside.baseline_provenance),
        "explanation": [],
        "warnings": [*measurement.warnings, *_beyond_peak(summaries), *_unanswered(measurement.outputs), *incomparable],
        "invalid": invalid,
        **measurement.record(),
    }
    return record if comparisons is None else {**record, "explanation": _explanation(record)}


def _explanation(record: Mapping[str, Any]) -> list[str]:
    """What moved with the verdicts; nothing of a record that does not fit its schema, which the report will say."""
    try:
        return list(explain(TestRecord.model_validate(record)).sentences)
    except ValidationError:
        return []


def definitions() -> dict[str, dict[str, str]]:
    """What every metric of the registry means, for the record."""
    return {
        name: {"unit": m.unit, "better": m.better, "formula": m.formula, "source": m.source}
        for name, m in REGISTRY.items()
    } | {name: dict(definition) for name, definition in DEFINITIONS.items()}


def outputs_record(
    measurement: BaseMeasurement, agreement: Agreement | None = None, reason: str | None = None
) -> dict[str, Any] | None:
    """What the record says of the answers to fixed prompts; ``None`` when they were not asked for.

    Args:
        measurement: Holds them, or why there are none.
        agreement: With the baseline's; ``None`` when they were not compared.
        reason: Why they were not.
    """
    outputs = measurement.outputs
    if outputs is None:
        return None
    first = None if agreement is None else agreement.first_difference
    if agreement is None and reason is None:
        reason = outputs.reason if isinstance(outputs, Unavailable) else "nothing was gated"
    return {
        "prompts": len(outputs.answers) if isinstance(outputs, Outputs) else None,
        "tokens": outputs.tokens if isinstance(outputs, Outputs) else None,
        "compared_tokens": agreement and agreement.tokens,
        "ties": agreement and agreement.ties,
        "token_agreement": agreement and agreement.token_agreement,
        "logprob_difference": agreement and agreement.logprob_difference,
        "first_difference": None if first is None else asdict(first),
        "worst_prompt": agreement and agreement.worst_prompt,
        "reason": reason,
    }


def cut_short_record(measurement: BaseMeasurement, how: str, reason: str, *, trusted: bool) -> dict[str, Any]:
    """The record of what was measured of a test that ended before it was decided.

    Args:
        measurement: With at least one launch.
        how: Its end, such as ``"failed"``.
        reason: Of that.
        trusted: Whether the end says nothing against the measurement itself: it was the test's own.
    """
    record = record_of(measurement, measurement.summaries(), None)
    launches = len(measurement.launches)
    after = f"{launches} launch{'es' if launches > 1 else ''}"
    told = f"The test {how} after {after}, before it was decided: {reason}"
    if trusted or record["invalid"] is not None:
        return {**record, "warnings": [*record["warnings"], told]}
    return {**record, "verdict": "invalid", "invalid": told}


def failure_record(test: str, reason: str) -> dict[str, Any]:
    """The record of a test that failed before anything was measured."""
    return {
        "nodeid": test,
        "verdict": "invalid",
        "outcome": "failed",
        "tolerances": {},
        "workload": None,
        "engine": None,
        "clock": {},
        "energy": [],
        "metrics": {},
        "verdicts": [],
        "advisory": [],
        "requests": None,
        "client_overhead": None,
        "search": None,
        "phases": None,
        "outputs": None,
        "client": [],
        "server": [],
        "conditions": {},
        "provenance": None,
        "baseline_provenance": None,
        "explanation": [],
        "warnings": [],
        "invalid": reason,
    }


def _clock(launches: Sequence[Launch]) -> dict[str, Any]:
    """Over all launches: the lowest, the median and the highest clock of SMs and memory, and the most throttling."""
    clocks = [launch.clock for launch in launches if launch.clock is not None]
    if not clocks:
        nothing = ("requested_mhz", "locked_mhz", "observed_mhz", "throttled_fraction", "memory_mhz")
        return dict.fromkeys(nothing)
    held = clocks[-1].held
    memory = held and held.memory
    return {
        "requested_mhz": held and held.requested_mhz,
        "locked_mhz": held and held.locked_mhz,
        "observed_mhz": _observed(clock.observed_mhz for clock in clocks),
        "throttled_fraction": max(
            (clock.throttled_fraction for clock in clocks if clock.throttled_fraction is not None), default=None
        ),
        "memory_mhz": None
        if memory is None
        else {
            "requested": memory.requested_mhz,
            "locked": memory.locked_mhz,
            "observed": _observed(clock.observed_memory_mhz for clock in clocks),
        },
    }


def _observed(seen: Iterable[tuple[float, float, float] | None]) -> dict[str, float] | None:
    known = [values for values in seen if values is not None]
    if not known:
        return None
    low, middle, high = zip(*known, strict=True)
    return {"min": min(low), "median": statistics.median(middle), "max": max(high)}


def _energy(launch: Launch) -> dict[str, Any]:
    window, idle = launch.readings.window, launch.readings.idle_w
    return {
        "seconds": launch.readings.seconds,
        "busy": launch.readings.busy,
        "repeats": len(launch.watched),
        "idle_power": value_or_none(idle),
        "idle_reason": why_unreadable(idle),
        **_joules(window.energy, window.integral),
        "boards": [{"uuid": board.uuid, **_joules(board.energy, board.integral)} for board in window.boards],
    }


def _joules(energy: Joules | NoEnergy, integral: Joules | NoEnergy) -> dict[str, Any]:
    known = energy if isinstance(energy, Joules) else None
    return {
        "joules": known and known.value,
        "error": known and known.error,
        "source": known and known.source,
        "power": known and known.watts,
        "integral_power": integral.watts if isinstance(integral, Joules) else None,
        "reason": energy.reason if isinstance(energy, NoEnergy) else None,
    }


def _client(account: Account) -> dict[str, Any]:
    assert account.client is not None
    return asdict(account.client)


def _server(account: Account) -> dict[str, Any]:
    assert account.server is not None
    busiest = {"most_running": account.most_running, "most_waiting": account.most_waiting}
    return {**asdict(account.server), **busiest}


def _beyond_peak(summaries: Mapping[str, Summary]) -> list[str]:
    """More than the peak is not clipped but said: either the peak or the count is wrong."""
    return [
        f"{name} is {summary.value:.0%} of the peak: the peak is too low for this hardware, or not all that was "
        "counted is read from memory (a model that fits into a cache)."
        for name in ("mbu", "mfu", "roofline_efficiency")
        if (summary := summaries.get(name)) is not None and summary.value is not None and summary.value > 1
    ]


def _unanswered(outputs: Outputs | Unavailable | None) -> list[str]:
    """That the answers could not be taken, where they should have been there."""
    if not isinstance(outputs, Unavailable) or not outputs.failed:
        return []
    return [f"The answers to fixed prompts could not be taken: {outputs.reason}."]


def _engine(info: EngineInfo) -> dict[str, Any]:
    names = ("kind", "version", "model", "simulated", "device", "dtype", "quantization", "kv_cache_dtype")
    record: dict[str, Any] = {name: getattr(info, name) for name in names}
    record["tensor_parallel_size"] = info.tensor_parallel_size
    record["args"] = _plain(info.args)
    record["treatment"] = _plain(info.treatment)
    return record


def _plain(value: Any) -> Any:
    """JSON types only; anything else becomes its text."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _metric(name: str, summary: Summary) -> dict[str, Any]:
    return {
        "unit": REGISTRY[name].unit,
        "better": REGISTRY[name].better,
        "value": summary.value,
        "percentiles": None if summary.percentiles is None else dict(summary.percentiles),
        "launches": [list(launch) for launch in summary.launches],
        "reason": summary.reason,
    }


def _conditions(launches: Sequence[Launch], baseline: Mapping[str, Sequence[float]]) -> dict[str, Any]:
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


def _verdict(comparison: Comparison) -> dict[str, Any]:
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


def _sent(launches: Sequence[Launch]) -> list[RequestTrace]:
    return [request for launch in launches for repeat in launch.repeats for request in repeat.requests]


def _requests(requests: Sequence[RequestTrace]) -> dict[str, Any]:
    done = [r for r in requests if r.completed]
    failed = [r for r in requests if not r.completed]
    sources = {r.token_source for r in done}
    times = {r.time_source for r in done}
    return {
        "sent": len(requests),
        "completed": len(done),
        "failed": len(failed),
        "first_error": failed[0].error if failed else None,
        "output_tokens": sum(r.output_tokens for r in done),
        "token_source": None if not sources else ("server" if sources == {"server"} else "counted"),
        "time_source": next(iter(times)) if len(times) == 1 else "mixed" if times else None,
        "chunk_tokens": None if not done else "told" if all(r.chunk_tokens == "told" for r in done) else "apportioned",
        "errors": dict(Counter(r.error or "unknown" for r in failed).most_common(_REASONS)),
    }
