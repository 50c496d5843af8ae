"""The highest request rate that meets a workload's SLOs, searched in every launch."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmperf.measurement.plain import LaunchOf, Measurement
from pytest_llmperf.metrics import Summary, percentile
from pytest_llmperf.runner import Launch, RatePlan, RateSearch, search_rate
from pytest_llmperf.workload import Workload

__all__ = ["TOLERANCE", "RateMeasurement"]

#: The search finds the rate to within its precision, 5 % unless told otherwise.
TOLERANCE = 0.10


@dataclass
class RateMeasurement(Measurement):
    """All launches of a search for the highest rate; its launches are those at the rate that each search found.

    Attributes:
        plan: How it was searched.
        searches: What was found, launch by launch.
    """

    plan: RatePlan = field(kw_only=True)
    searches: list[RateSearch] = field(default_factory=list)

    def take(self, launch_of: LaunchOf, *, repeats: int, allowed_failures: int) -> None:  # noqa: ARG002  # once a rate
        """Search once more."""

        def at_its_rate(workload: Workload) -> Launch:
            # Whoever searches judges the failures.
            return launch_of(
                workload,
                test=f"{self.test}/{workload.rate}",
                repeats=1,
                allowed_failures=None,
                doing=f"at {workload.rate:.3g}/s",
            )

        found = search_rate(self.workload, self.plan, at_its_rate, allowed_failures=allowed_failures)
        self.searches.append(found)
        self.launches.append(found.launch)

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """The rate alone: the latencies at it lie wherever it puts them, below the limits."""
        return {"max_rate": tolerances.get("max_rate", TOLERANCE if for_all is None else for_all)}

    @property
    def digest(self) -> str:
        """Equal for equal work and equal questions."""
        text = json.dumps([self.workload.digest, self.plan.to_json(), dict(self.workload.slo)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def warnings(self) -> list[str]:
        """Those of the launches, and whether the search ran into its upper end."""
        if not any(search.reached_the_top(self.plan) for search in self.searches):
            return super().warnings
        return [
            *super().warnings,
            f"The search ended at its upper end of {self.plan.high:g} requests/s; the highest rate may lie above.",
        ]

    def summaries(self) -> dict[str, Summary]:
        """The metrics at the rates found, and the rate itself."""
        return {**super().summaries(), "max_rate": self._max_rate()}

    def _max_rate(self) -> Summary:
        rates = [search.rate for search in self.searches if search.rate is not None]
        if len(rates) < len(self.searches):
            return Summary(None, (), None, f"not even {self.plan.low:g} requests/s met the SLOs")
        rates.sort()
        percentiles = {f"p{p}": percentile(rates, p / 100) for p in (50, 90, 99)}
        launches = tuple((search.rate,) for search in self.searches if search.rate is not None)
        return Summary(statistics.median(rates), launches, percentiles, None)

    def record(self) -> dict[str, Any]:
        """How it was searched, and every trial."""
        names = ("rate", "attained", "kept_up", "failed", "met")
        trials = [
            {"launch": number, **{name: getattr(trial, name) for name in names}}
            for number, search in enumerate(self.searches)
            for trial in search.trials
        ]
        return {"search": {**self.plan.to_json(), "trials": trials}}
