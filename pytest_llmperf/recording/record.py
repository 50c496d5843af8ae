"""The record of one test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.explanation import explain
from pytest_llmperf.fingerprint import DEFINITIONS, Outputs, Unavailable
from pytest_llmperf.gate import PASSING, Comparison, worst
from pytest_llmperf.measurement import BaseMeasurement, Measurement
from pytest_llmperf.metrics import Summary
from pytest_llmperf.overhead import client_overhead
from pytest_llmperf.recording.boards import clock_record, energy_record
from pytest_llmperf.recording.outputs import outputs_record
from pytest_llmperf.recording.roof import roof_record
from pytest_llmperf.recording.serving import client_record, engine_record, plain, requests_record, server_record
from pytest_llmperf.recording.timeline import timeline_record
from pytest_llmperf.recording.verdicts import condition_records, metric_record, verdict_record
from pytest_llmperf.results import TestRecord

__all__ = ["Beside", "beyond_peak", "cut_short_record", "failure_record", "record_of"]


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
        "engine": engine_record(measurement.info),
        "clock": clock_record(measurement.launches),
        "energy": [energy_record(launch) for launch in measurement.launches if launch.samples],
        "metrics": {name: metric_record(name, summary) for name, summary in summaries.items()},
        "verdicts": [verdict_record(c) for c in comparisons or ()],
        "advisory": [],
        "requests": requests_record([r for la in measurement.launches for re in la.repeats for r in re.requests]),
        "client_overhead": None if overhead is None else asdict(overhead),
        "client": [told for launch in measurement.launches if (told := client_record(launch.account)) is not None],
        "server": [told for launch in measurement.launches if (told := server_record(launch.account)) is not None],
        "roof": roof_record(measurement) if isinstance(measurement, Measurement) else None,
        "timeline": timeline_record(measurement.launches[-1]),
        "conditions": condition_records(measurement.launches, beside.conditions),
        "provenance": None if beside.provenance is None else plain(beside.provenance),
        "baseline_provenance": None if beside.baseline_provenance is None else plain(beside.baseline_provenance),
        "explanation": [],
        "warnings": [*measurement.warnings, *beyond_peak(summaries), *_unanswered(measurement.outputs), *incomparable],
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
        "roof": None,
        "timeline": None,
        "conditions": {},
        "provenance": None,
        "baseline_provenance": None,
        "explanation": [],
        "warnings": [],
        "invalid": reason,
    }


def beyond_peak(summaries: Mapping[str, Summary]) -> list[str]:
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
