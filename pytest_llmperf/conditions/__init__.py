"""The conditions of a launch: what was so while it was measured, for the explanation of what became of it.

They gate nothing. A clock that was lower, a cap that was reached, a queue that was longer: each is one number a launch
or the reason why there is none, kept beside the metrics in the record and in the baseline, so that a regression can be
read together with what moved with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmperf.conditions import boards, requests
from pytest_llmperf.conditions.types import Condition, Observed
from pytest_llmperf.metrics import Missing
from pytest_llmperf.runner import Launch

__all__ = ["CONDITIONS", "Condition", "Observed", "observe"]

CONDITIONS: Mapping[str, Condition] = {c.name: c for c in (*requests.CONDITIONS, *boards.CONDITIONS)}


def observe(launches: Sequence[Launch]) -> dict[str, Observed]:
    """Every condition over the launches of a test; one launch without a number leaves a condition without any."""
    return {name: _over(condition, launches) for name, condition in CONDITIONS.items()}


def _over(condition: Condition, launches: Sequence[Launch]) -> Observed:
    values = [condition.of_launch(launch) for launch in launches]
    missing = next((value for value in values if isinstance(value, Missing)), None)
    if missing is not None:
        return Observed(condition.unit, (), missing.reason)
    return Observed(condition.unit, tuple(v for v in values if not isinstance(v, Missing)))
