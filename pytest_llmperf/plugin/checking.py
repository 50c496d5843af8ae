"""What the ``llmperf`` fixture gives a test: measure, gate, and the numbers for its own assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.fingerprint import DEFINITIONS
from pytest_llmperf.gate import PASSING, Comparison, worst
from pytest_llmperf.measurement import (
    BaseMeasurement,
    HardwareMeasurement,
    IdleMeasurement,
    Measurement,
    PhaseMeasurement,
    RateMeasurement,
)
from pytest_llmperf.metrics import Summary
from pytest_llmperf.plugin.replay import replay
from pytest_llmperf.plugin.session import Enough, LlmperfSession, TestState
from pytest_llmperf.recording import outputs_record, record_of
from pytest_llmperf.report.terminal import failure_paragraph
from pytest_llmperf.runner import RatePlan
from pytest_llmperf.workload import Workload

__all__ = ["Llmperf", "MeasuredRun"]


@dataclass(frozen=True)
class MeasuredRun:
    """What was measured, for assertions of the test's own.

    Attributes:
        metrics: By name, as attributes: ``run.metrics.tpot.value`` in SI units, ``None`` when not measured.
        verdict: The gate's; ``"measured"`` when nothing was gated.
        record: The test's record as it will stand in results.json.
        measurement: Every trace of every launch.
    """

    metrics: SimpleNamespace
    verdict: str
    record: Mapping[str, Any]
    measurement: BaseMeasurement


class Llmperf:
    """The fixture's value; belongs to one test."""

    def __init__(self, session: LlmperfSession, item: pytest.Item, state: TestState, benchmark: Any) -> None:
        self._session = session
        self._item = item
        self._state = state
        self._benchmark = benchmark
        self._named: set[str] = set()
        self.recorded = False

    def check(self, workload: Workload, *, name: str | None = None) -> MeasuredRun:
        """Measure a workload and gate it against the stored baseline.

        With ``--llmperf-save`` nothing is gated; the baseline is stored when the test has passed.

        Args:
            workload: What to send and when.
            name: Tells a second measurement in the same test from the first.

        Raises:
            pytest.fail.Exception: the verdict is not one with which a test passes.
            WorkloadError: the model cannot serve the workload, or the name was used twice.
            EngineError: the engine did not start, or died.
        """
        return self._judged(*self._measure(name, _of(workload, Measurement)))

    def check_phases(self, workload: Workload, *, name: str | None = None) -> MeasuredRun:
        """Measure a workload and what a prompt token and an output token of it cost, and gate both.

        Every launch measures the workload itself, its prefill alone (one output token), its decode alone (a prompt of
        one token), half of that prefill, and the workload with half of its output. ``prefill_jpt`` and ``decode_jpt``
        are those of the phases alone; a regression over all windows stands beside them in the record.

        Args:
            workload: Of one prompt length and one output length.
            name: Tells a second measurement in the same test from the first.

        Raises:
            pytest.fail.Exception: the verdict is not one with which a test passes.
            WorkloadError: the workload's lengths cannot be taken apart, or the model cannot serve it.
            EngineError: the engine did not start, or died.
        """
        return self._judged(*self._measure(name, _of(workload, PhaseMeasurement)))

    def check_max_rate(
        self,
        workload: Workload,
        *,
        low: float = 1.0,
        high: float = 1024.0,
        attainment: float = 0.9,
        precision: float = 0.05,
        seconds: float = 20.0,
        name: str | None = None,
    ) -> MeasuredRun:
        """Search the highest request rate that meets the workload's SLOs, and gate that rate against the baseline.

        Every launch searches on its own. The metric is ``max_rate``; the others are those measured at that rate.

        Args:
            workload: With its SLOs; its way to load is replaced by Poisson arrivals (or its own ``arrival``) at the
                rate of each trial.
            low: The lowest rate that is tried, requests per second.
            high: The highest.
            attainment: Share of the requests that have to meet every SLO.
            precision: How close to each other the rates that passed and failed have to come, relative.
            seconds: How long each trial offers load.
            name: Tells a second measurement in the same test from the first.

        Raises:
            pytest.fail.Exception: the verdict is not one with which a test passes.
            WorkloadError: the workload sets no SLO, or a bound makes no sense.
            EngineError: the engine did not start, or died.
        """
        plan = RatePlan(low, high, attainment, precision, seconds)

        def search(test: str, workload: Workload) -> Measurement:
            return RateMeasurement(test, plan.workload(workload, plan.low), plan=plan)

        return self._judged(*self._measure(name, _of(workload, search)))

    def check_idle(self, *, name: str | None = None) -> MeasuredRun:
        """Measure what the boards of the test's engine draw while nothing is asked of them, and gate it.

        Every launch reads them rung by rung: ``bare_power`` (no engine, no CUDA context), ``context_power`` (a process
        holds a context and nothing else), ``loaded_power`` (the engine is up, its model loaded), each with the clock
        free, and ``locked_power`` (the same at the clock that is held). What cannot be had is ``None`` with a reason;
        somebody else on a board makes the measurement invalid. Gated as energy is, on the same board only.

        Args:
            name: Tells a second measurement in the same test from the first.

        Raises:
            pytest.skip.Exception: no board can be read from here.
            pytest.fail.Exception: the verdict is not one with which a test passes.
            WorkloadError: the name was used twice.
            EngineError: the engine did not start.
        """
        if (why := self._session.gauges.why_no_idle()) is not None:
            pytest.skip(f"There is no idle power to measure: {why}.")
        return self._judged(*self._measure(name, IdleMeasurement))

    def check_hardware(self, *, name: str | None = None) -> MeasuredRun:
        """Measure what the devices in use reach at best, without any engine, and gate it.

        Every launch measures in a process of its own: ``copy_bandwidth``, ``host_to_device``, ``device_to_host``,
        ``peer_to_peer`` (of the slowest pair) and ``matmul_flops`` (of float16 and bfloat16 the faster), of several
        devices that of the slowest. A baseline of it holds for the hardware, whatever the model and the engine. Of a
        processor there is the copy alone, which gates nothing unless a tolerance names it: it depends on who else runs.

        Args:
            name: Tells a second measurement in the same test from the first.

        Raises:
            pytest.skip.Exception: the devices are a server's.
            pytest.fail.Exception: the verdict is not one with which a test passes.
            WorkloadError: the name was used twice.
            HardwareError: they could not be measured.
        """
        if (why := self._session.gauges.why_no_hardware()) is not None:
            pytest.skip(f"There is no hardware to measure: {why}.")
        processor = self._session.gauges.on_processor
        return self._judged(*self._measure(name, lambda test: HardwareMeasurement(test, processor)))

    def _judged(self, measurement: BaseMeasurement, summaries: dict[str, Summary]) -> MeasuredRun:
        if self._session.options.save:
            record = record_of(measurement, summaries, None)
            record["tolerances"] = self._session.judge.gated(self._state, measurement)
            failed = 0 if record["requests"] is None else record["requests"]["failed"]
            if not measurement.invalid and not failed:
                record["warnings"] += self._session.shelf.stage(self._state, measurement, summaries)
                record["warnings"] += self._session.judge.too_noisy(self._state, measurement, summaries)
            run = self._finish(measurement, summaries, record)
            if measurement.invalid:
                self._fail(record)
            if failed:
                why = f"{failed} requests failed, and no baseline is stored from such a run"
                self._fail_with(record, f"{why}; the first with: {record['requests']['first_error']}")
            return run
        comparisons, differing = self._session.judge.gate(self._state, measurement, summaries)
        answers = self._session.judge.answers(self._state, measurement)
        if answers is not None:
            comparisons, differing = [*comparisons, *answers.comparisons], [*differing, *answers.warnings]
        beside = self._session.shelf.beside(measurement)
        gates = bool(self._session.judge.gated(self._state, measurement))
        if not gates:
            self._session.shelf.pass_by(measurement)
        record = record_of(
            measurement, summaries, comparisons if gates else None, incomparable=differing, beside=beside
        )
        record["tolerances"] = self._session.judge.gated(self._state, measurement)
        record["advisory"] = self._session.judge.advisory(self._state, measurement, summaries)
        if answers is not None:
            record["outputs"] = outputs_record(measurement, answers.agreement, answers.reason)
        run = self._finish(measurement, summaries, record)
        if measurement.invalid or (gates and not self._passes(comparisons)):
            self._fail(record)
        return run

    def measure(self, workload: Workload, *, name: str | None = None) -> MeasuredRun:
        """Measure a workload without gating it.

        Raises:
            pytest.fail.Exception: the measurement itself cannot be trusted.
            WorkloadError: the model cannot serve the workload, or the name was used twice.
            EngineError: the engine did not start, or died.
        """
        launches = self._session.options.measure_launches

        def enough(measurement: BaseMeasurement, _: Mapping[str, Summary]) -> bool:
            return len(measurement.launches) >= launches

        measurement, summaries = self._measured(name, enough, _of(workload, Measurement))
        self._session.shelf.pass_by(measurement)
        record = record_of(measurement, summaries, None)
        run = self._finish(measurement, summaries, record)
        if measurement.invalid:
            self._fail(record)
        return run

    def _fail(self, record: Mapping[str, Any]) -> NoReturn:
        self._fail_with(record, failure_paragraph(record, self._session.recorder.command))

    def _fail_with(self, record: Mapping[str, Any], paragraph: str) -> NoReturn:
        # Kept with the test as well: whoever swallows the exception does not swallow the verdict.
        self._state.failures[record["nodeid"]] = paragraph
        pytest.fail(paragraph, pytrace=False)

    def _measure(
        self, name: str | None, made: Callable[[str], BaseMeasurement]
    ) -> tuple[BaseMeasurement, dict[str, Summary]]:
        """Measure what is to be saved or gated."""
        session = self._session

        def enough(measurement: BaseMeasurement, summaries: Mapping[str, Summary]) -> bool:
            if len(measurement.launches) >= session.options.launches:
                return True
            return not session.options.save and session.judge.decided(self._state, measurement, summaries)

        return self._measured(name, enough, made)

    def _measured(
        self, name: str | None, enough: Enough, made: Callable[[str], BaseMeasurement]
    ) -> tuple[BaseMeasurement, dict[str, Summary]]:
        test = self._item.nodeid if name is None else f"{self._item.nodeid}#{name}"
        if _loop_is_running():
            raise WorkloadError(
                "llmperf measures on an event loop of its own and cannot do so inside another.",
                remedy="Write the test as a plain function, not as async def.",
            )
        if test in self._named:
            raise WorkloadError(
                "This test measures twice under one name.", remedy='Give the second one a name: name="...".'
            )
        self._named.add(test)
        return self._session.measure(self._item, self._state, made(test), enough=enough)

    def _finish(
        self, measurement: BaseMeasurement, summaries: Mapping[str, Summary], record: dict[str, Any]
    ) -> MeasuredRun:
        self._session.keep(self._state, record)
        values = {name: metric["value"] for name, metric in record["metrics"].items()}
        if not self.recorded:
            self.recorded = True
            replay(
                self._benchmark,
                self._session.replay_clock,
                measurement.wall_seconds(),
                {
                    "llmperf": values,
                    "verdict": record["verdict"],
                    "simulated": measurement.info.simulated,
                    "launches": len(measurement.launches),
                },
            )
        return MeasuredRun(SimpleNamespace(**summaries), record["verdict"], record, measurement)

    def _passes(self, comparisons: list[Comparison]) -> bool:
        verdicts = [c.verdict for c in comparisons]
        if all(c.verdict == "not-applicable" for c in comparisons if c.metric not in DEFINITIONS):
            return False  # nothing compared is never passed, and answers say nothing of performance
        if worst(verdicts) == "inconclusive":
            return self._session.options.inconclusive == "warn"
        return worst(verdicts) in PASSING


def _of(workload: Workload, kind: Callable[[str, Workload], BaseMeasurement]) -> Callable[[str], BaseMeasurement]:
    """What makes an empty measurement of a workload, given its id.

    Raises:
        WorkloadError: it is no workload.
    """
    if not isinstance(workload, Workload):
        raise WorkloadError(f"check and measure take a Workload, not {workload!r}.")
    return lambda test: kind(test, workload)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
