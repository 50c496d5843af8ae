"""What is asked of the gate: a recorded verdict once more, and an interval for two series of launches.

Nothing is decided here. This is the one module of the explanation that calls the gate's statistics.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pytest_llmperf import gate
from pytest_llmperf.gate.decision import quantile, standard_error
from pytest_llmperf.results import MetricValue, VerdictRecord

__all__ = ["CONFIDENCE", "again", "centre", "ratio_interval", "usable"]

#: Of the interval for a change between two runs.
CONFIDENCE = 0.95
#: Logarithms above this have no number.
_BEYOND = 700
#: No test takes more.
_MOST_LAUNCHES = 10_000


def again(verdict: VerdictRecord, rules: Mapping[str, Any] | None, metric: MetricValue) -> gate.Comparison:
    """Draw a recorded verdict again, from nothing but what results.json holds.

    Args:
        verdict: Of a metric whose launches were compared.
        rules: The run's ``gate``: error rates, count of comparisons and looks.
        metric: The test's metric of that name.

    Raises:
        ValueError: the record holds too little, or what cannot be.
    """
    if not usable(verdict.baseline_launches) or not usable(metric.launches):
        raise ValueError("a launch without any value, or a value that is not above 0 or beyond all numbers")
    if rules is None:
        raise ValueError("the record does not hold what the run's verdicts were drawn by (gate)")
    _check(rules)
    if verdict.launches not in rules["looks"]:
        raise ValueError(f"after {verdict.launches} launches, on which it stands, the gate did not look")
    if verdict.launches > len(metric.launches):
        raise ValueError(f"it stands on {verdict.launches} launches, and {len(metric.launches)} are there")
    try:
        return gate.again(verdict.model_dump(), rules, metric.model_dump())
    except (KeyError, TypeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"the record contradicts itself: {error!r}") from None


def _check(rules: Mapping[str, Any]) -> None:
    """Refuse rules that no run is judged by.

    Raises:
        ValueError: names the field of ``gate``.
    """
    looks = rules["looks"]
    ascending = bool(looks) and looks[0] > 0 and all(one < other for one, other in pairwise(looks))
    if not ascending or looks[-1] != rules["launches"] or looks[-1] > _MOST_LAUNCHES:
        raise ValueError(f"the gate cannot look after {looks} launches of at most {rules['launches']}")
    if rules["gated"] < 1:
        raise ValueError(f"the gate cannot have made {rules['gated']} comparisons")
    for name in ("family_alpha", "limit_alpha", "pass_alpha", "power"):
        if not 0 < rules[name] < 1:
            raise ValueError(f"the gate's {name} cannot be {rules[name]:g}")


def usable(launches: Sequence[Sequence[float]]) -> bool:
    """Whether every launch has a value, and every value and their median a logarithm."""
    if not launches or not all(launches) or not all(value > 0 for launch in launches for value in launch):
        return False
    return all(math.isfinite(statistics.median(launch)) for launch in launches)


def centre(launches: Sequence[Sequence[float]]) -> float:
    """The geometric mean over launches of the median over repeats."""
    return math.exp(statistics.fmean(math.log(statistics.median(launch)) for launch in launches))


def ratio_interval(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The interval of the relative change of a value at :data:`CONFIDENCE`; ``None`` when nothing tells the noise.

    Student's, on the log scale, with one variance between launches for both sides, as the gate has it.

    Args:
        before: Repeats' values by launch, each above 0.
        after: Likewise.
    """
    first, second = gate.logs(before), gate.logs(after)
    noise = gate.Noise.judged((first, second))
    if noise.df <= 0:
        return None
    change = statistics.fmean(second) - statistics.fmean(first)
    reach = quantile((1 - CONFIDENCE) / 2, noise.df) * standard_error(noise.sd, len(second), len(first))
    if not change + reach <= _BEYOND:  # nor of what is no number
        return None
    return math.expm1(change - reach), math.expm1(change + reach)
