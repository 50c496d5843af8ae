"""Verdicts: pure functions from a baseline's launches and a run's launches to a decision.

How much of a change is noise is decided in one place, :func:`decide`. Everything around it (which metric is
better in which direction, what a missing value means, which verdict of a test is the worst) does not depend on
the statistics.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_llmperf.metrics import Summary

__all__ = ["PASSING", "Comparison", "Decision", "Noise", "compare", "decide", "worst"]

Better = Literal["lower", "higher"]

#: From the worst to the least; the verdict of a test is the worst of its metrics'.
SEVERITY = (
    "invalid",
    "regressed",
    "incomparable",
    "no-baseline",
    "inconclusive",
    "pass",
    "improved",
    "not-applicable",
)
#: The verdicts with which a gated metric lets its test pass.
PASSING = frozenset({"pass", "improved", "not-applicable"})


@dataclass(frozen=True)
class Decision:
    """What the launches say.

    Attributes:
        verdict: ``"pass"``, ``"regressed"`` or ``"improved"``.
        baseline: The baseline's value: the median over its launches of the median over repeats.
        current: The run's, likewise.
        change: current / baseline - 1; its sign is the value's, not better or worse.
    """

    verdict: str
    baseline: float
    current: float
    change: float


@dataclass(frozen=True)
class Noise:
    """How much launches of one thing differ, as a relative standard deviation, and what that is known from.

    Attributes:
        sd: The one that was used.
        df: Its degrees of freedom.
        own_sd: Of this test's own launches; ``None`` when there are too few.
        own_df: Its degrees of freedom.
        pooled_sd: Over all tests of the group; ``None`` when there is no pool.
        pooled_df: Its degrees of freedom.
        tests: How many tests the pool is made of.
        source: Which of the two was used; unknown when the launches are too few for either.
    """

    sd: float
    df: float
    own_sd: float | None
    own_df: float
    pooled_sd: float | None
    pooled_df: float
    tests: int
    source: Literal["pooled", "own", "unknown"]


@dataclass(frozen=True)
class Comparison:
    """The verdict on one metric, with what led to it.

    Attributes:
        metric: Its name.
        verdict: One of :data:`SEVERITY`.
        tolerance: The relative change that was tolerated.
        baseline: The baseline's value; ``None`` when there is none.
        current: The run's value; ``None`` when there is none.
        change: current / baseline - 1, or ``None``.
        baseline_launches: The baseline's raw values, launch by launch.
        reason: Why there was nothing to decide, or ``None``.
        interval: The lowest and the highest change that the launches leave possible, or ``None``.
        minimum_detectable: The smallest relative worsening that would have been called regressed with 80 %
            probability, or ``None``.
        alpha: The error rate of this comparison, or ``None``.
        looks: How many times the launches were looked at, or ``None``.
        against: What it was compared with.
        launches: How many launches of the run it stands on.
        advice: What would decide an inconclusive comparison, or how the tolerance lies to the noise; a sentence.
        noise: What the interval was made from, or ``None``.
        prediction: Whether ``interval`` is a prediction interval: one launch against a baseline of several.
    """

    metric: str
    verdict: str
    tolerance: float
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    baseline_launches: tuple[tuple[float, ...], ...] = ()
    reason: str | None = None
    interval: tuple[float, float] | None = None
    minimum_detectable: float | None = None
    alpha: float | None = None
    looks: int | None = None
    against: Literal["baseline", "anchor"] = "baseline"
    launches: int = 0
    advice: str | None = None
    noise: Noise | None = None
    prediction: bool = False


def decide(
    baseline: Sequence[Sequence[float]], current: Sequence[Sequence[float]], *, better: Better, tolerance: float
) -> Decision:
    """Judge a run's launches against a baseline's.

    The values compared are medians over launches of medians over repeats. Worse by more than the tolerance is
    ``regressed``, better by more than the tolerance is ``improved``. Noise is not modelled: the tolerance has to
    be wider than it.

    Args:
        baseline: Repeats' values by launch; each a finite number above 0.
        current: The run's, likewise.
        better: Which direction is the better one.
        tolerance: Relative, such as 0.05.
    """
    before, after = _centre(baseline), _centre(current)
    change = after / before - 1
    # A ratio in the direction of worse, so that "5 % slower" and "5 % less throughput" weigh the same.
    worse = after / before if better == "lower" else before / after
    if worse > 1 + tolerance:
        verdict = "regressed"
    elif worse < 1 / (1 + tolerance):
        verdict = "improved"
    else:
        verdict = "pass"
    return Decision(verdict, before, after, change)


def compare(
    metric: str,
    baseline: Summary | None,
    current: Summary,
    *,
    better: Better,
    tolerance: float,
    absent: str = "the baseline does not hold this metric",
) -> Comparison:
    """The verdict on one metric of one test.

    Args:
        metric: Its name.
        baseline: The stored summary; ``None`` when the baseline does not know the metric.
        current: The run's summary.
        better: Which direction is the better one.
        tolerance: Relative, such as 0.05.
        absent: Why there is no ``baseline``, for the verdict's reason.
    """
    if current.value is None:
        if baseline is None or (baseline.value is None and _without_figures(baseline) == _without_figures(current)):
            return Comparison(metric, "not-applicable", tolerance, reason=current.reason)
        before = "was measured" if baseline.value is not None else f"was not measured ({baseline.reason})"
        return Comparison(
            metric, "invalid", tolerance, baseline.value, baseline_launches=baseline.launches,
            reason=f"no data now ({current.reason}); in the baseline it {before}",
        )  # fmt: skip
    if baseline is None or baseline.value is None:
        why = absent if baseline is None else f"in the baseline: {baseline.reason}"
        return Comparison(metric, "no-baseline", tolerance, current=current.value, reason=why)
    for whose, summary in (("baseline", baseline), ("run", current)):
        if unusable := _unusable(summary):
            return Comparison(metric, "invalid", tolerance, reason=f"the {whose} holds {unusable}")
    decision = decide(baseline.launches, current.launches, better=better, tolerance=tolerance)
    if not all(math.isfinite(v) for v in (decision.baseline, decision.current, decision.change)):
        return Comparison(metric, "invalid", tolerance, reason="the two values are too far apart to be compared")
    return Comparison(
        metric,
        decision.verdict,
        tolerance,
        decision.baseline,
        decision.current,
        decision.change,
        baseline.launches,
        launches=len(current.launches),
    )


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; ``"no-baseline"`` of none, because nothing compared is never passed."""
    return min(verdicts, key=SEVERITY.index, default="no-baseline")


def _without_figures(summary: Summary) -> str:
    """Why there is no value, but for its figures: "31 ms are too short" and "30 ms are too short" are one reason."""
    return re.sub(r"\d+(\.\d+)?", "#", summary.reason or "")


def _centre(launches: Sequence[Sequence[float]]) -> float:
    return statistics.median(statistics.median(launch) for launch in launches)


def _unusable(summary: Summary) -> str | None:
    if not summary.launches or not all(summary.launches):
        return "a launch without any value"
    values = [v for launch in summary.launches for v in launch]
    return next((f"the unusable value {v!r}" for v in values if not math.isfinite(v) or v <= 0), None)
