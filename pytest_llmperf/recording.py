"""From a measurement and its verdicts to the record that results.json keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.baselines import Identity
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.gate import Comparison, worst
from pytest_llmperf.metrics import REGISTRY, Context, Summary, roof_of, summarize
from pytest_llmperf.overhead import client_overhead
from pytest_llmperf.runner import Launch
from pytest_llmperf.trace import RequestTrace
from pytest_llmperf.workload import Workload

__all__ = ["Measurement", "definitions", "failure_record", "identity_of", "record_of"]


@dataclass
class Measurement:
    """All launches of one workload in one test.

    Attributes:
        test: The test's id, with ``#name`` for a named measurement.
        workload: What was sent.
        launches: What came back, launch by launch.
        peaks: The device's peaks as measured, where no data sheet gives them.
    """

    test: str
    workload: Workload
    launches: list[Launch] = field(default_factory=list)
    peaks: Hardware | None = None

    @property
    def info(self) -> EngineInfo:
        """The engine that ran."""
        return self.launches[-1].info

    @property
    def invalid(self) -> str | None:
        """Why the measurement cannot be trusted, or ``None``."""
        return next((launch.invalid for launch in self.launches if launch.invalid), None)

    @property
    def warnings(self) -> list[str]:
        """Each warning once."""
        return list(dict.fromkeys(w for launch in self.launches for w in launch.warnings))

    def summaries(self) -> dict[str, Summary]:
        """Every metric of the registry over all launches."""
        info = self.info
        roof = roof_of(
            info.model_config,
            device=info.device,
            dtype=info.dtype,
            quantization=info.quantization,
            kv_cache_dtype=info.kv_cache_dtype,
            gpus=info.device_count,
            measured=self.peaks,
        )
        context = Context(slo=self.workload.slo, roof=roof)
        launches = [launch.repeats for launch in self.launches]
        return {name: summarize(metric, launches, context) for name, metric in REGISTRY.items()}

    def wall_seconds(self) -> list[float]:
        """How long each repeat took from its first due time to its last token, over all launches."""
        return [
            (max(r.last_ns for r in repeat.completed) - min(r.due_ns for r in repeat.completed)) / NS_PER_S
            for launch in self.launches
            for repeat in launch.repeats
            if repeat.completed
        ]


def identity_of(
    info: EngineInfo, workload: Workload, *, clock_mhz: int | None, power_limit_w: float | None
) -> Identity:
    """What a baseline of this measurement holds for."""
    return Identity(
        hardware=info.device,
        device_count=info.device_count,
        power_limit_w=power_limit_w,
        simulated=info.simulated,
        clock_mhz=clock_mhz,
        model=info.model,
        model_digest=info.model_digest,
        dtype=info.dtype,
        quantization=info.quantization,
        kv_cache_dtype=info.kv_cache_dtype,
        tensor_parallel_size=info.tensor_parallel_size,
        pipeline_parallel_size=info.pipeline_parallel_size,
        workload=workload.digest,
    )


def record_of(
    measurement: Measurement,
    summaries: Mapping[str, Summary],
    comparisons: Sequence[Comparison] | None,
    *,
    incomparable: Sequence[str] = (),
) -> dict[str, Any]:
    """The test's record in plain JSON types.

    Args:
        measurement: What was measured.
        summaries: Its metrics.
        comparisons: The gate's verdicts; ``None`` when nothing was gated.
        incomparable: Fields in which the baseline differs, as sentences.
    """
    invalid = measurement.invalid
    if invalid is not None:
        verdict = "invalid"
    elif comparisons is None:
        verdict = "measured"
    else:
        verdict = worst(c.verdict for c in comparisons)
    overhead = client_overhead(repeat for launch in measurement.launches for repeat in launch.repeats)
    return {
        "nodeid": measurement.test,
        "verdict": verdict,
        "outcome": "unfinished",
        "workload": {**measurement.workload.to_json(), "digest": measurement.workload.digest},
        "engine": _engine(measurement.info),
        "clock": {"requested_mhz": None, "locked_mhz": None, "observed_mhz": None, "throttled_fraction": None},
        "metrics": {name: _metric(name, summary) for name, summary in summaries.items()},
        "verdicts": [_verdict(c) for c in comparisons or ()],
        "requests": _requests([r for la in measurement.launches for re in la.repeats for r in re.requests]),
        "client_overhead": None if overhead is None else asdict(overhead),
        "warnings": [*measurement.warnings, *_beyond_peak(summaries), *incomparable],
        "invalid": invalid,
    }


def definitions() -> dict[str, dict[str, str]]:
    """What every metric of the registry means, for the record."""
    return {
        name: {"unit": m.unit, "better": m.better, "formula": m.formula, "source": m.source}
        for name, m in REGISTRY.items()
    }


def failure_record(test: str, reason: str) -> dict[str, Any]:
    """The record of a test that failed before anything was measured."""
    return {
        "nodeid": test,
        "verdict": "invalid",
        "outcome": "failed",
        "workload": None,
        "engine": None,
        "clock": {},
        "metrics": {},
        "verdicts": [],
        "requests": None,
        "client_overhead": None,
        "warnings": [],
        "invalid": reason,
    }


def _beyond_peak(summaries: Mapping[str, Summary]) -> list[str]:
    """More than the peak is not clipped but said: either the peak or the count is wrong."""
    return [
        f"{name} is {summary.value:.0%} of the peak: the peak is too low for this hardware, or not all that was "
        "counted is read from memory (a model that fits into a cache)."
        for name in ("mbu", "mfu", "roofline_efficiency")
        if (summary := summaries.get(name)) is not None and summary.value is not None and summary.value > 1
    ]


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


def _verdict(comparison: Comparison) -> dict[str, Any]:
    return {
        "metric": comparison.metric,
        "verdict": comparison.verdict,
        "baseline": comparison.baseline,
        "current": comparison.current,
        "change": comparison.change,
        "interval": None,
        "tolerance": comparison.tolerance,
        "minimum_detectable": None,
        "baseline_launches": [list(launch) for launch in comparison.baseline_launches],
        "alpha": None,
        "looks": None,
        "reason": comparison.reason,
    }


def _requests(requests: Sequence[RequestTrace]) -> dict[str, Any]:
    done = [r for r in requests if r.completed]
    failed = [r for r in requests if not r.completed]
    sources = {r.token_source for r in done}
    return {
        "sent": len(requests),
        "completed": len(done),
        "failed": len(failed),
        "first_error": failed[0].error if failed else None,
        "output_tokens": sum(r.output_tokens for r in done),
        "token_source": None if not sources else ("server" if sources == {"server"} else "counted"),
    }
