"""Between the measurements of a session and its stored baselines: looking up and storing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmperf import baselines
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.gpu.nvml import Board
from pytest_llmperf.measurement import Measurement, identity_of
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.options import SessionOptions
from pytest_llmperf.recording import record_of

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
    """

    def __init__(self, options: SessionOptions, boards: Sequence[Board], recorder: Recorder) -> None:
        self.options = options
        self.boards = boards
        self.recorder = recorder

    def identity(self, measurement: Measurement) -> baselines.Identity:
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

    def find(self, identity: baselines.Identity, test: str) -> tuple[Path, baselines.Baseline | None, list[str]]:
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

    def stage(self, state: TestState, measurement: Measurement, summaries: Mapping[str, Summary]) -> None:
        """Keep a baseline ready to be stored when the test has passed."""
        identity = self.identity(measurement)
        info = measurement.info
        now = datetime.now(UTC).isoformat(timespec="seconds")
        records = baselines.as_records(REGISTRY, summaries)
        boards = {}
        if measurement.boards is not None:
            bound = {name: records.pop(name) for name in list(records) if REGISTRY[name].bound_to_board}
            boards[measurement.boards] = baselines.BoardRecord(saved_at=now, metrics=bound)
        baseline = baselines.Baseline(
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
            baselines.store(path, baselines.keeping_anchor(before, baselines.keeping_boards(before, baseline)))
        self.recorder.saved += len(state.staged)
        state.staged.clear()
