"""The verdict on one metric of one test: everything around the statistics.

Which metric is better in which direction, what a missing or an unusable value means, and what a reader is told.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmperf.gate.decision import Better, decide, logs
from pytest_llmperf.gate.noise import Noise, NoisePool
from pytest_llmperf.gate.power import advice, below_noise, minimum_detectable
from pytest_llmperf.gate.rules import Rules
from pytest_llmperf.metrics import Summary

__all__ = ["Comparison", "again", "compare"]


@dataclass(frozen=True)
class Comparison:
    """The verdict on one metric, with what led to it.

    Attributes:
        metric: Its name.
        verdict: One of :data:`~pytest_llmperf.gate.verdicts.SEVERITY`.
        tolerance: The relative change that was tolerated.
        baseline: The baseline's value: the geometric mean of its launches; ``None`` when there is none.
        current: The run's value, likewise, of the launches that the verdict stands on; ``None`` when there is none.
        change: current / baseline - 1, or ``None``.
        baseline_launches: The baseline's raw values, launch by launch.
        reason: Why there was nothing to decide, or ``None``.
        interval: Lower and upper bound of ``change``, each at the error allowed for it; ``None`` when the noise is
            unknown.
        minimum_detectable: The smallest relative worsening that the last look would have called ``regressed`` with the
            rules' power; ``None`` when the noise is unknown.
        alpha: The error of calling this comparison ``regressed`` when nothing changed, over all looks.
        looks: How many looks were made.
        against: ``"baseline"``, or ``"anchor"``.
        launches: On how many launches of the run the verdict stands.
        advice: What would decide it, or that the tolerance lies below the noise; ``None`` when there is nothing to say.
        noise: Between launches; ``None`` when nothing was decided.
        prediction: One launch against a baseline of several: the interval is the prediction interval of a launch.
        saved_at: When what it was compared with was saved, ISO 8601; ``None`` when that is not known.
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
    against: str = "baseline"
    launches: int = 0
    advice: str | None = None
    noise: Noise | None = None
    prediction: bool = False
    saved_at: str | None = None

    @property
    def decided(self) -> bool:
        """Whether further launches would change nothing."""
        return self.verdict != "inconclusive"


def compare(
    metric: str,
    baseline: Summary | None,
    current: Summary,
    *,
    better: Better,
    tolerance: float,
    absent: str = "the baseline does not hold this metric",
    rules: Rules | None = None,
    pool: NoisePool | None = None,
    test: str = "",
    against: str = "baseline",
) -> Comparison:
    """The verdict on one metric of one test.

    Args:
        metric: Its name.
        baseline: The stored summary; ``None`` when the baseline does not know the metric.
        current: The run's summary.
        better: Which direction is the better one.
        tolerance: Relative, such as 0.05.
        absent: Why there is no ``baseline``, for the verdict's reason.
        rules: The errors that the run is allowed; without any, those of a run of this one comparison, which looks once.
        pool: What the other tests of the suite know of the metric's noise; without one the test stands alone.
        test: The test's id, under which the pool may know it.
        against: What it is compared with: ``"baseline"`` or ``"anchor"``.
    """
    if current.value is None:
        if baseline is None or (baseline.value is None and _without_figures(baseline) == _without_figures(current)):
            return Comparison(metric, "not-applicable", tolerance, reason=current.reason, against=against)
        before = "was measured" if baseline.value is not None else f"was not measured ({baseline.reason})"
        return Comparison(
            metric, "invalid", tolerance, baseline.value, baseline_launches=baseline.launches, against=against,
            reason=f"no data now ({current.reason}); in the baseline it {before}",
        )  # fmt: skip
    if baseline is None or baseline.value is None:
        why = absent if baseline is None else f"in the baseline: {baseline.reason}"
        return Comparison(metric, "no-baseline", tolerance, current=current.value, reason=why, against=against)
    for whose, summary in (("baseline", baseline), ("run", current)):
        if unusable := _unusable(summary):
            reason = f"the {whose} holds {unusable}"
            return Comparison(metric, "invalid", tolerance, reason=reason, against=against)
    rules = rules or Rules(looks=(len(current.launches),))
    seen = current.launches[: rules.seen(len(current.launches))]
    return _decided(
        metric, baseline.launches, seen, better, tolerance, rules,
        lambda before, after: (pool or NoisePool()).of(test, before, after), against,
    )  # fmt: skip


def again(verdict: Mapping[str, Any], rules: Mapping[str, Any], metric: Mapping[str, Any]) -> Comparison:
    """Draw a recorded verdict again, from nothing but what results.json holds.

    Args:
        verdict: One of a test's ``verdicts`` for which launches were compared (its ``looks`` are no ``None``).
        rules: The run's ``gate``.
        metric: The test's metric of that name.
    """
    recorded = verdict["noise"]

    def noise(before: Sequence[float], after: Sequence[float]) -> Noise:
        if recorded is None:
            return Noise.judged((before, after))
        return Noise.judged((before, after), recorded["pooled_sd"], recorded["pooled_df"], recorded["tests"])

    return _decided(
        verdict["metric"],
        tuple(tuple(launch) for launch in verdict["baseline_launches"]),
        tuple(tuple(launch) for launch in metric["launches"][: verdict["launches"]]),
        metric["better"],
        verdict["tolerance"],
        _rules(rules),
        noise,
        verdict["against"],
    )


def _rules(recorded: Mapping[str, Any]) -> Rules:
    names = ("family_alpha", "limit_alpha", "pass_alpha", "power")
    return Rules(recorded["gated"], tuple(recorded["looks"]), **{name: recorded[name] for name in names})


def _decided(
    metric: str,
    baseline: tuple[tuple[float, ...], ...],
    current: tuple[tuple[float, ...], ...],
    better: Better,
    tolerance: float,
    rules: Rules,
    noise_of: Any,
    against: str,
) -> Comparison:
    before, after = logs(baseline), logs(current)
    look = rules.looks.index(len(after))
    noise = noise_of(before, after)
    decision = decide(before, after, better=better, tolerance=tolerance, noise=noise, rules=rules, look=look)
    sign = 1 if better == "lower" else -1
    centre, value = math.exp(statistics.fmean(before)), math.exp(statistics.fmean(after))
    change = _ratio(sign * decision.worse)
    if change is None:
        return Comparison(
            metric, "invalid", tolerance, reason="the two values are too far apart to be compared", against=against
        )
    bounds = sorted((sign * decision.lower, sign * decision.upper))
    low, high = _ratio(bounds[0]), _ratio(bounds[1])
    told = None
    if decision.verdict != "regressed":  # that one stands, however noisy what regressed has become
        told = below_noise(noise, rules, baseline=len(before), tolerance=tolerance)
    if told is None and decision.verdict == "inconclusive":
        told = advice(
            decision, noise, rules, baseline=len(before), current=len(after), tolerance=tolerance, better=better
        )
    return Comparison(
        metric,
        decision.verdict,
        tolerance,
        centre,
        value,
        change,
        baseline,
        interval=None if low is None or high is None else (low, high),
        minimum_detectable=minimum_detectable(noise, rules, baseline=len(before), tolerance=tolerance),
        alpha=rules.alpha,
        looks=look + 1,
        against=against,
        launches=len(after),
        advice=told,
        noise=None if noise.df <= 0 else noise,
        prediction=len(after) == 1 and len(before) > 1,
    )


def _ratio(log: float) -> float | None:
    """A relative change from its logarithm; ``None`` beyond all bounds."""
    return math.expm1(log) if log < 700 and log != -math.inf else None


def _without_figures(summary: Summary) -> str:
    """Why there is no value, but for its figures: "31 ms are too short" and "30 ms are too short" are one reason."""
    return re.sub(r"\d+(\.\d+)?", "#", summary.reason or "")


def _unusable(summary: Summary) -> str | None:
    if not summary.launches or not all(summary.launches):
        return "a launch without any value"
    values = [v for launch in summary.launches for v in launch]
    return next((f"the unusable value {v!r}" for v in values if not math.isfinite(v) or v <= 0), None)
