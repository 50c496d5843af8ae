"""What a baseline file holds: the launches of every metric, where they come from, and the anchor.

Speed compares on every board of a product. Energy does not: two boards of one product were seen 8 to 12 % apart at the
same work. So a baseline keeps energy board by board, by UUID, and one that does not know a board says nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pytest_llmperf.baselines.identity import Identity, Strict
from pytest_llmperf.fingerprint.record import OutputsRecord
from pytest_llmperf.metrics import REGISTRY, Summary

__all__ = ["SCHEMA_VERSION", "Anchor", "Baseline", "BoardRecord", "MetricRecord", "as_records"]

SCHEMA_VERSION = 2

#: No clock and no sensor here resolves a part in ten million of what it reads, and a gate decides on parts in a
#: thousand. Digits beyond these only make the files, and the differences that are reviewed, larger.
_DIGITS = 7


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


Finite = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_rounded)]
Measured = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_rounded)]


class MetricRecord(Strict):
    """One metric as stored: the raw repeats by launch, or the reason why there are none.

    Numbers are rounded to 7 significant digits.
    """

    unit: str
    better: Literal["lower", "higher"]
    launches: tuple[tuple[Measured, ...], ...] = Field(strict=False)
    value: Measured | None
    reason: str | None = None

    def summary(self) -> Summary:
        """The form that the gate compares."""
        return Summary(self.value, self.launches, None, self.reason)


class BoardRecord(Strict):
    """What holds for certain boards only."""

    saved_at: str
    metrics: dict[str, MetricRecord]


class Anchor(Strict):
    """The baseline of a release: what many accepted steps together are held to.

    Attributes:
        saved_at: When it was measured, ISO 8601.
        provenance: Of the run that measured it.
        workload: What was sent; its limits count goodput.
        metrics: As in :class:`Baseline`.
        boards: Likewise.
    """

    saved_at: str
    provenance: dict[str, Any]
    workload: dict[str, Any]
    metrics: dict[str, MetricRecord]
    boards: dict[str, BoardRecord] = Field(default={})


class Baseline(Strict):
    """One stored file, but for its digest.

    Attributes:
        saved_at: When it was measured, ISO 8601.
        provenance: Of the run that measured it: what is recorded and never part of the identity. ``run`` is the run's
            id, ``first_launch`` the engine start that its first launch was on, from 0; baselines that agree in both
            have shared the launches of an engine.
        metrics: What compares on every board of the same product.
        boards: What compares on the same boards only, by their UUIDs (several are joined by ``+``).
        conditions: What was so while it was measured: one number a launch for each condition that could be observed.
        outputs: What the engine answered to fixed prompts; ``None`` when it was not asked, or did not tell.
        anchor: The release that this one is held to as well; ``None`` while its own content is that.
    """

    schema_version: Literal[2] = 2
    test: str
    saved_at: str
    identity: Identity
    workload: dict[str, Any]
    provenance: dict[str, Any]
    metrics: dict[str, MetricRecord]
    boards: dict[str, BoardRecord] = Field(default={})
    conditions: dict[str, Annotated[tuple[Finite, ...], Field(strict=False)]] = Field(default={})
    outputs: OutputsRecord | None = None
    anchor: Anchor | None = None

    @property
    def launches(self) -> int:
        """Of the metric with the most, on whatever boards."""
        kept = [self.metrics, *(board.metrics for board in self.boards.values())]
        return max((len(record.launches) for metrics in kept for record in metrics.values()), default=0)

    def summaries(self, boards: str | None) -> dict[str, Summary]:
        """What a run on these boards is compared with."""
        return _on(boards, self.metrics, self.boards)

    def anchor_summaries(self, boards: str | None) -> dict[str, Summary]:
        """What a run on these boards is held to besides: the anchor's metrics; nothing without an anchor."""
        return {} if self.anchor is None else _on(boards, self.anchor.metrics, self.anchor.boards)

    def of_other_boards(self, boards: str | None) -> tuple[str, dict[str, Summary]] | None:
        """The boards that were measured last, if they are others, and what was measured on them."""
        if not self.boards or boards in self.boards:
            return None
        other, record = max(self.boards.items(), key=lambda entry: entry[1].saved_at)
        return other, _bound(record.metrics)


def _on(
    boards: str | None, metrics: Mapping[str, MetricRecord], known: Mapping[str, BoardRecord]
) -> dict[str, Summary]:
    own = known.get(boards) if boards is not None else None
    return {**_summaries(metrics), **(_bound(own.metrics) if own is not None else {})}


def _summaries(records: Mapping[str, MetricRecord]) -> dict[str, Summary]:
    return {name: record.summary() for name, record in records.items()}


def _bound(records: Mapping[str, MetricRecord]) -> dict[str, Summary]:
    """Of what is kept for certain boards, what belongs there: nothing else may take the place of a portable figure."""
    known = (name for name in records if name in REGISTRY and REGISTRY[name].bound_to_board)
    return _summaries({name: records[name] for name in known})


def as_records(metrics: Mapping[str, Any], summaries: Mapping[str, Summary]) -> dict[str, MetricRecord]:
    """Summaries in the form that is stored; ``metrics`` is the registry."""
    return {
        name: MetricRecord(
            unit=metrics[name].unit,
            better=metrics[name].better,
            launches=summary.launches,
            value=summary.value,
            reason=summary.reason,
        )
        for name, summary in summaries.items()
    }
