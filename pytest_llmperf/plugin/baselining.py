"""Between the measurements of a session and its stored baselines: looking up and storing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmperf import baselines
from pytest_llmperf.conditions import observe
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.fingerprint import Outputs
from pytest_llmperf.fingerprint.record import OutputsRecord
from pytest_llmperf.gpu.nvml import Board
from pytest_llmperf.measurement import BaseMeasurement, identity_of
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.options import SessionOptions, budgets
from pytest_llmperf.plugin.recorder import printable
from pytest_llmperf.recording import Beside, record_of

if TYPE_CHECKING:
    from pytest_llmperf.plugin.recorder import Recorder
    from pytest_llmperf.plugin.session import TestState

__all__ = ["Shelf"]


class Shelf:
    """Finds the stored baseline of a measurement, and stores new ones.

    Args:
        options: Of the session.
        boards: The GPUs in use.
        recorder: Knows where a baseline comes from.

    Attributes:
        sought: By the id of each test that was to be gated, where its baseline lies or would lie.
        groups: The folders of hardware, model and clock that these lie in, and that baselines of what was only
            measured would lie in.
        missing: Those of these tests that have none.
        passed_by: Whether anything was measured to be compared with none.
    """

    def __init__(self, options: SessionOptions, boards: Sequence[Board], recorder: Recorder) -> None:
        self.options = options
        self.boards = boards
        self.recorder = recorder
        self.sought: dict[str, Path] = {}
        self.groups: set[Path] = set()
        self.missing: list[str] = []
        self.passed_by = False
        #: Schema versions of the files that were read.
        self._versions: dict[Path, int] = {}

    def identity(self, measurement: BaseMeasurement) -> baselines.Identity:
        """What a baseline of this measurement holds for."""
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

    def doubts(self, path: Path, baseline: baselines.Baseline | None, measurement: BaseMeasurement) -> list[str]:
        """That a baseline is old, that of another test, or that nothing shows whether it was edited, as sentences."""
        if baseline is None:
            return []
        max_age = self.options.baseline_max_age
        aged = baselines.age_warnings(baseline, measurement.boards, now=datetime.now(UTC), max_age_days=max_age)
        undigested = baselines.undigested(path, self._versions.get(path, baselines.SCHEMA_VERSION))
        another = baselines.of_another_test(path, baseline, printable(measurement.test))
        return [*aged, *(text for text in (undigested, another) if text)]

    def pass_by(self, measurement: BaseMeasurement) -> None:
        """Take note of where the baseline of a measurement would lie that is compared with none."""
        self.passed_by = True
        self.groups.add(baselines.group_folder(self.options.baselines, self.identity(measurement)))

    def find(self, identity: baselines.Identity, test: str) -> tuple[Path, baselines.Baseline | None, list[str]]:
        """The baseline of a test; without one, that of the nearest other hardware, model or clock, and what differs.

        A simulated one is none for a real engine, nor a real one for a simulation.
        """
        test = printable(test)
        path = baselines.baseline_path(self.options.baselines, identity, test)
        self.sought[test] = path
        self.groups.add(baselines.group_folder(self.options.baselines, identity))
        if (stored := baselines.read(path)) is not None:
            baseline, self._versions[path] = stored
            return path, baseline, baselines.differing(baseline.identity, identity)
        if test not in self.missing:
            self.missing.append(test)
        others = []
        for other in baselines.find_elsewhere(self.options.baselines, test):
            with suppress(BaselineError):  # of other hardware: its own runs will tell
                found = baselines.load(other)
                # A measurement is nothing that a simulation is held against, nor the other way round.
                if found is not None and found.identity.simulated == identity.simulated:
                    others.append((other, found, baselines.differing(found.identity, identity)))
        return min(others, key=lambda entry: len(entry[2]), default=(path, None, []))

    def stage(self, state: TestState, measurement: BaseMeasurement, summaries: Mapping[str, Summary]) -> list[str]:
        """Keep a baseline ready to be stored when the test has passed.

        Returns:
            What makes it doubtful, as sentences.

        Raises:
            BaselineError: a value is no number that can be stored.
        """
        identity = self.identity(measurement)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            records = baselines.as_records(REGISTRY, summaries)
        except ValueError as error:
            raise BaselineError(f"{measurement.test} measured what no baseline may hold: {error}") from None
        boards = {}
        if measurement.boards is not None:
            bound = {name: records.pop(name) for name in list(records) if REGISTRY[name].bound_to_board}
            boards[measurement.boards] = baselines.BoardRecord(saved_at=now, metrics=bound)
        baseline = baselines.Baseline(
            test=printable(measurement.test),
            saved_at=now,
            identity=identity,
            workload=printable(measurement.work),
            provenance=printable(self._provenance(measurement)),
            metrics=records,
            boards=boards,
            conditions={name: one.launches for name, one in observe(measurement.launches).items() if one.launches},
            outputs=OutputsRecord.of(measurement.outputs) if isinstance(measurement.outputs, Outputs) else None,
        )
        path = baselines.baseline_path(self.options.baselines, identity, baseline.test)
        state.staged.append((path, baseline))
        few = baselines.few_launches(len(measurement.launches))
        doubts = [*self._left_behind(path, identity), *self._crept(state, path, baseline)]
        return [*([few] if few else []), *_replaced(path, baseline, state.tolerances), *doubts]

    def beside(self, measurement: BaseMeasurement) -> Beside:
        """What is told of the baseline beside the verdicts: where it comes from, and what was so when it was measured.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        _, baseline, _ = self.find(self.identity(measurement), measurement.test)
        now = self._provenance(measurement)
        del now["run"]  # the record's own run says it, and two runs of one seed are to have equal records
        if baseline is None:
            return Beside(now)
        return Beside(now, {**baseline.provenance, "saved_at": baseline.saved_at}, baseline.conditions)

    def _provenance(self, measurement: BaseMeasurement) -> dict[str, Any]:
        """What was under test, and where: recorded with a baseline, and no part of its identity."""
        info = measurement.info
        return {
            "engine": info.kind,
            "engine_version": info.version,
            **({"request": info.args["request"]} if "request" in info.args else {}),
            "treatment": record_of(measurement, {}, None)["engine"]["treatment"],
            "launches": len(measurement.launches),
            "first_launch": measurement.launches[0].index,
            "repeats": self.options.repeats,
            **self.recorder.provenance((measurement.boards or "").split("+")),
        }

    @staticmethod
    def _left_behind(path: Path, identity: baselines.Identity) -> list[str]:
        """That the baseline which is about to be replaced takes its anchor with it."""
        try:
            before = baselines.load(path)
        except BaselineError as error:
            return [f"Its anchor is lost: {error.problem} It is replaced, and the new baseline is the anchor."]
        if before is None or not (differing := baselines.differing(before.identity, identity)):
            return []
        return [f"The anchor of {path} is dropped, it was measured on something else: {'; '.join(differing)}."]

    def _crept(self, state: TestState, path: Path, baseline: baselines.Baseline) -> list[str]:
        """That many small steps have led a new baseline beyond the budget of its anchor."""
        heir = _heir(path, baseline)
        if heir.anchor is None:
            return []
        own = next(iter(baseline.boards), None)
        anchored = heir.anchor_summaries(own)
        if heir.anchor.workload.get("slo") != heir.workload.get("slo"):
            anchored.pop("goodput", None)  # counted against other limits
        allowed = budgets(self.options, state.tolerances)
        return baselines.beyond_budget(heir.anchor, heir.summaries(own), anchored, allowed)

    def store(self, state: TestState) -> None:
        """Store what a test has staged, now that it has passed.

        Raises:
            BaselineError: the folder cannot be written.
        """
        for path, baseline in state.staged:
            baselines.store(path, _heir(path, baseline))
        self.recorder.saved += len(state.staged)
        state.staged.clear()


def _replaced(path: Path, baseline: baselines.Baseline, gated: Iterable[str]) -> list[str]:
    """What is accepted with a baseline: how the gated metrics changed since the one that it replaces."""
    try:
        before = baselines.load(path)
    except BaselineError:
        return []  # there is nothing that it could be compared with
    if before is None or before.identity != baseline.identity:
        return []
    own = next(iter(baseline.boards), None)
    old, new = before.summaries(own), baseline.summaries(own)
    values = [(name, old[name].value, new[name].value) for name in gated if name in old and name in new]
    changes = [f"{name} {now / then - 1:+.1%}" for name, then, now in values if then and now is not None]
    return [f"It replaces a baseline of {before.saved_at[:10]}: {', '.join(changes)}."] if changes else []


def _heir(path: Path, baseline: baselines.Baseline) -> baselines.Baseline:
    """A baseline that is about to be stored, with what it takes over from the one that lies there."""
    before = None
    with suppress(BaselineError):  # unusable: it is replaced
        before = baselines.load(path)
    return baselines.keeping_anchor(before, baselines.keeping_boards(before, baseline))
