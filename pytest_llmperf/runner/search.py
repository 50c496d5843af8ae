"""The highest rate at which a service still meets its objectives.

A trial offers the workload at one rate and asks which share of the requests met every SLO, and whether the server ended
as many requests as came: one that does not is beyond its capacity, however well the first seconds went. The rate is
doubled until a trial fails, then the gap between the best rate that passed and the worst that failed is halved (on the
log scale) until it is narrow enough. What passes at a rate passes, but for noise, at every lower one; that is what the
search relies on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.metrics import attainment, backlog
from pytest_llmperf.runner.launch import Launch
from pytest_llmperf.workload import Workload

__all__ = ["RatePlan", "RateSearch", "Trial", "search_rate"]

#: A share taken of fewer requests says little, and of fewer than this nothing.
_FEWEST_REQUESTS = 20
_MOST_TRIALS = 40
#: A server that ends less than this share of what comes does not keep up.
_KEPT_UP = 0.9


@dataclass(frozen=True)
class RatePlan:
    """How to search.

    Attributes:
        low: The rate of the first trial, requests per second.
        high: No rate above is tried.
        attainment: Share of the requests that have to meet every SLO.
        precision: The search ends when the rates that passed and failed are this close, relative.
        seconds: How long a trial offers load; at least 20 requests whatever the rate.

    Raises:
        WorkloadError: a value is out of range.
    """

    low: float
    high: float
    attainment: float = 0.9
    precision: float = 0.05
    seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("low", "high", "attainment", "precision", "seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise WorkloadError(f"{name} of a rate search is a number above 0, not {value!r}.")
        if self.low > self.high:
            raise WorkloadError(f"A rate search goes from low to high, and low={self.low:g} is above {self.high:g}.")
        if self.attainment > 1:
            raise WorkloadError(f"attainment is a share of the requests up to 1, not {self.attainment!r}.")
        if not 0.001 <= self.precision <= 1:
            raise WorkloadError(f"precision is a relative width from 0.001 to 1, not {self.precision!r}.")

    def workload(self, base: Workload, rate: float) -> Workload:
        """The workload of one trial."""
        return base.replace(rate=rate, requests=max(_FEWEST_REQUESTS, math.ceil(rate * self.seconds)))

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        return {name: getattr(self, name) for name in ("low", "high", "attainment", "precision", "seconds")}


@dataclass(frozen=True)
class Trial:
    """One rate that was tried.

    Attributes:
        rate: Requests per second offered.
        attained: Share of them that met every SLO.
        kept_up: Requests ended over requests due in the second half of the offer.
        failed: Requests that failed.
        met: Whether enough of them met every SLO, the server kept up, and no more failed than may.
    """

    rate: float
    attained: float
    kept_up: float
    failed: int
    met: bool


@dataclass(frozen=True)
class RateSearch:
    """What one launch found.

    Attributes:
        rate: The highest rate that met the SLOs; ``None`` when not even the lowest did.
        trials: In the order in which they were made.
        launch: The measurement at that rate; at the lowest one when none met them.
    """

    rate: float | None
    trials: tuple[Trial, ...]
    launch: Launch

    def reached_the_top(self, plan: RatePlan) -> bool:
        """Whether the search ended at its upper end, so that the true rate may be higher."""
        return self.rate is not None and self.rate >= plan.high


def search_rate(
    workload: Workload, plan: RatePlan, measure: Callable[[Workload], Launch], *, allowed_failures: int = 0
) -> RateSearch:
    """Search.

    Args:
        workload: With its SLOs; its rate is replaced.
        plan: How.
        measure: Measures a workload once. What it calls invalid ends the search; failed requests do not make it so.
        allowed_failures: At a rate with more failed requests than this, the service does not meet its objectives: a
            server that refuses what it cannot serve is beyond its capacity, not beyond measuring.

    Raises:
        WorkloadError: the workload sets no SLO.
    """
    if not workload.slo:
        raise WorkloadError(
            "A search for the highest rate needs limits to meet.", remedy='Set slo={"ttft": 0.5, "tpot": 0.05}, say.'
        )
    trials: list[Trial] = []
    best: tuple[float, Launch] | None = None
    failed: float | None = None
    lowest: Launch | None = None
    rate: float | None = plan.low
    while rate is not None and len(trials) < _MOST_TRIALS:
        work = plan.workload(workload, rate)
        launch = measure(work if not trials else replace(work, warmup=0))
        lowest = lowest or launch
        trial = _judged(rate, launch, workload, plan, allowed_failures)
        trials.append(trial)
        if launch.invalid is not None:
            return RateSearch(None, tuple(trials), launch)
        if trial.met:
            best = rate, launch
        else:
            failed = rate
        rate = _next_rate(plan, None if best is None else best[0], failed)
    if best is None:
        assert lowest is not None
        return RateSearch(None, tuple(trials), lowest)
    return RateSearch(best[0], tuple(trials), best[1])


def _judged(rate: float, launch: Launch, workload: Workload, plan: RatePlan, allowed_failures: int) -> Trial:
    attained = attainment(launch.repeats, workload.slo)
    due, ended = backlog(launch.repeats)
    # Arrivals come at random: that so many fewer ended has to be more than their chance.
    piles_up = ended < _KEPT_UP * due and due - ended > 3 * math.sqrt(due)
    failed = sum(not request.completed for repeat in launch.repeats for request in repeat.requests)
    met = attained >= plan.attainment and not piles_up and failed <= allowed_failures
    return Trial(rate, attained, ended / due if due else 1.0, failed, met)


def _next_rate(plan: RatePlan, passed: float | None, failed: float | None) -> float | None:
    """The next rate to try; ``None`` when the search is over."""
    if passed is None:
        return None  # the lowest one failed
    if failed is None:
        return None if passed >= plan.high else min(2 * passed, plan.high)
    if failed / passed <= 1 + plan.precision:
        return None
    return math.sqrt(passed * failed)
