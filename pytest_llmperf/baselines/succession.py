"""What a new baseline takes over from the one that it replaces: other boards' energy, and the anchor."""

from __future__ import annotations

from pytest_llmperf.baselines.model import Anchor, Baseline

__all__ = ["keeping_anchor", "keeping_boards", "pinned"]


def keeping_boards(before: Baseline | None, now: Baseline) -> Baseline:
    """A baseline that is about to replace another, with what that one knows of other boards."""
    if before is None or before.identity != now.identity:
        return now
    return now.model_copy(update={"boards": {**before.boards, **now.boards}})


def keeping_anchor(before: Baseline | None, now: Baseline) -> Baseline:
    """A baseline that is about to replace another, with that one's anchor.

    One without an anchor becomes the anchor itself: so the first baseline is it until a release is pinned. Energy of
    a board that the anchor does not know is anchored at the first baseline of that board. What holds for something
    else anchors nothing.
    """
    if before is None or before.identity != now.identity:
        return now
    anchor = before.anchor
    if anchor is None:
        anchor = Anchor(
            saved_at=before.saved_at,
            provenance=before.provenance,
            workload=before.workload,
            metrics=before.metrics,
            boards=before.boards,
        )
    boards = {**before.boards, **anchor.boards}
    return now.model_copy(update={"anchor": anchor.model_copy(update={"boards": boards})})


def pinned(baseline: Baseline) -> Baseline:
    """The same baseline as the release that later ones are held to: an anchor of earlier times is dropped."""
    return baseline.model_copy(update={"anchor": None})
