"""Between the measurements of a session and its stored baselines: looking up, comparing, storing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmperf import baselines
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.fingerprint import Outputs
from pytest_llmperf.fingerprint.record import OutputsRecord
from pytest_llmperf.gate import Comparison, compare
from pytest_llmperf.gpu.nvml import Board
from pytest_llmperf.measurement import Measurement, identity_of
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.options import SessionOptions
from pytest_llmperf.plugin.outputs import Judged, judge
from pytest_llmperf.recording import record_of

if TYPE_CHECKING:
    from pytest_llmperf.plugin.recorder import Recorder
    from pytest_llmperf.plugin.session import TestState

__all__ = ["Gatekeeper"]

#: Kinds of engines that are reached through an API.
_NO_BOARD = "advisory: the baseline holds the energy of no board (store this one's with --llmperf-save)"
_OVER_HTTP = ("openai", "serve")


class Gatekeeper:
    """Compares measurements with stored baselines, and stores new ones.

    Args:
        options: Of the session.
        boards: The GPUs in use.
        recorder: Knows where a baseline comes from.
    """

    def __init__(self, options: SessionOptions, boards: Sequence[Board], recorder: Recorder) -> None:
        self.options = options
        self.boards = boards
        self.recorder = recorder

    def _identity(self, measurement: Measurement) -> baselines.Identity:
        info = measurement.info
        limit = None
        if not info.simulated:
            limit = next((b.power_limit_w for b in self.boards if b.name == info.device), None)
        return identity_of(
            info,
            measurement.digest,
            clock_mhz=measurement.clock,
            memory_clock_mhz=measurement.memory_clock,
            power_limit_w=limit,
        )

    def gate(
        self, state: TestState, measurement: Measurement, summaries: Mapping[str, Summary]
    ) -> tuple[list[Comparison], list[str]]:
        """The verdicts on a test's gated metrics, and in what the baseline differs, as sentences.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        path, baseline, differing = self._find(self._identity(measurement), measurement.test)
        gated = measurement.gated(state.tolerances, state.tolerance_for_all)
        if measurement.peaks is not None and "mbu" not in state.asked_for:
            # Its peak was measured in this very run: TPOT gates the same thing without that second noise.
            gated.pop("mbu", None)
        stored = {} if baseline is None else baseline.summaries(measurement.boards)
        others = None if baseline is None else baseline.of_other_boards(measurement.boards)
        absent = f"none is stored in {path}" if baseline is None else f"{path} does not hold this metric"
        incomparable = f"{path} was measured on something else: {'; '.join(differing)}" if differing else None
        other_slo = None
        if baseline is not None and (before := baseline.workload.get("slo")) != dict(measurement.workload.slo):
            other_slo = f"{path} counts goodput against other limits: {before} in the baseline"

        def verdict(name: str, tolerance: float) -> Comparison:
            current = summaries.get(name) or Summary(None, (), None, "not measured")
            if others is not None and name in others[1] and not incomparable:
                return _advisory(name, tolerance, *others, measurement.boards, current)
            if _knows_no_board(name, baseline, current) and not incomparable:
                return Comparison(name, "not-applicable", tolerance, current=current.value, reason=_NO_BOARD)
            why = incomparable or (other_slo if name == "goodput" else None)
            return self._compare(name, tolerance, stored.get(name), current, absent, why)

        verdicts = [verdict(name, tolerance) for name, tolerance in gated.items()]
        return verdicts, [*differing, *_taken_otherwise(baseline, measurement.info)]

    def judge_outputs(self, state: TestState, measurement: Measurement) -> Judged | None:
        """The verdicts on what the engine answered; ``None`` when its answers were not to be compared.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        if measurement.outputs is None or state.outputs is None:
            return None
        _, baseline, differing = self._find(self._identity(measurement), measurement.test)
        stored = None if baseline is None or differing or baseline.outputs is None else baseline.outputs.outputs()
        if baseline is None:
            absent = "no baseline is stored"
        elif differing:
            absent = "the baseline was measured on something else"
        else:
            absent = "the baseline holds no answers (store them with --llmperf-save)"
        return judge(state.outputs, stored, measurement.outputs, absent=absent)

    def _find(self, identity: baselines.Identity, test: str) -> tuple[Path, baselines.Baseline | None, list[str]]:
        """The baseline of a test; without one, that of the nearest other hardware, model or clock, and what differs."""
        path = baselines.baseline_path(self.options.baselines, identity, test)
        baseline = baselines.load(path)
        if baseline is not None:
            return path, baseline, baselines.differing(baseline.identity, identity)
        others = []
        for other in baselines.find_elsewhere(self.options.baselines, test):
            with suppress(BaselineError):  # of other hardware: its own runs will tell
                if (found := baselines.load(other)) is not None:
                    others.append((other, found, baselines.differing(found.identity, identity)))
        return min(others, key=lambda entry: len(entry[2]), default=(path, None, []))

    @staticmethod
    def _compare(
        name: str, tolerance: float, stored: Summary | None, current: Summary, absent: str, incomparable: str | None
    ) -> Comparison:
        if incomparable is None:
            better = REGISTRY[name].better if name in REGISTRY else "higher"
            return compare(name, stored, current, better=better, tolerance=tolerance, absent=absent)
        if current.value is None:
            return Comparison(name, "not-applicable", tolerance, reason=current.reason)
        return Comparison(name, "incomparable", tolerance, current=current.value, reason=incomparable)

    def stage(self, state: TestState, measurement: Measurement, summaries: Mapping[str, Summary]) -> None:
        """Keep a baseline ready to be stored when the test has passed."""
        identity = self._identity(measurement)
        info = measurement.info
        now = datetime.now(UTC).isoformat(timespec="seconds")
        records = baselines.as_records(REGISTRY, summaries)
        boards = {}
        if measurement.boards is not None:
            bound = {name: records.pop(name) for name in list(records) if REGISTRY[name].bound_to_board}
            boards[measurement.boards] = baselines.BoardRecord(saved_at=now, metrics=bound)
        baseline = baselines.Baseline(
            schema_version=1,
            test=measurement.test,
            saved_at=now,
            identity=identity,
            workload=measurement.workload.to_json(),
            provenance={
                "engine": info.kind,
                "engine_version": info.version,
                **({"request": info.args["request"]} if "request" in info.args else {}),
                "treatment": record_of(measurement, summaries, None)["engine"]["treatment"],
                **self.recorder.provenance(),
            },
            metrics=records,
            boards=boards,
            outputs=OutputsRecord.of(measurement.outputs) if isinstance(measurement.outputs, Outputs) else None,
        )
        path = baselines.baseline_path(self.options.baselines, identity, measurement.test)
        state.staged.append((path, baseline))

    def store(self, state: TestState) -> None:
        """Store what a test has staged, now that it has passed.

        Raises:
            BaselineError: the folder cannot be written.
        """
        for path, baseline in state.staged:
            before = None
            with suppress(BaselineError):  # unusable: it is replaced
                before = baselines.load(path)
            baselines.store(path, baselines.keeping_boards(before, baseline))
        self.recorder.saved += len(state.staged)
        state.staged.clear()


def _taken_otherwise(baseline: baselines.Baseline | None, info: EngineInfo) -> list[str]:
    """What is comparable and yet concerns more than the engine: another way to it, or other requests."""
    if baseline is None:
        return []
    before, now = baseline.provenance.get("engine"), info.kind
    over_http = before in _OVER_HTTP
    if isinstance(before, str) and not info.simulated and over_http != (now in _OVER_HTTP):
        return [
            f"The baseline was measured {'over HTTP' if over_http else 'in process'} ({before}), this run "
            f"{'in process' if over_http else 'over HTTP'} ({now}): the difference includes the API."
        ]
    asked, asking = baseline.provenance.get("request"), info.args.get("request")
    if isinstance(asked, str) and isinstance(asking, str) and asked != asking:
        return [f"The baseline's requests were {asked}, this run's {asking}: the difference includes theirs."]
    return []


def _knows_no_board(name: str, baseline: baselines.Baseline | None, current: Summary) -> bool:
    """Whether a baseline was stored where no board could be read, and says nothing of this figure of a board."""
    if baseline is None or baseline.boards or current.value is None or not REGISTRY[name].bound_to_board:
        return False
    stored = baseline.metrics.get(name)
    return stored is None or stored.value is None


def _advisory(
    name: str, tolerance: float, others: str, stored: Mapping[str, Summary], boards: str | None, current: Summary
) -> Comparison:
    """What a metric that compares on the same boards only says on other ones: it gates nothing, and is shown."""
    before = stored[name]
    if current.value is None or before.value is None:
        return compare(name, before, current, better=REGISTRY[name].better, tolerance=tolerance)
    why = (
        f"advisory: the baseline holds the energy of {others} and not of {boards}, and boards of one product differ "
        "by 10 % (store this board's beside it with --llmperf-save)"
    )
    change = current.value / before.value - 1 if before.value > 0 else None
    return Comparison(
        name, "not-applicable", tolerance, before.value, current.value, change, before.launches, reason=why
    )
