"""What makes a stored baseline doubtful though it can be read: its age, few launches, a long way from its anchor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_llmperf.baselines.model import Anchor, Baseline
from pytest_llmperf.baselines.storage import DIGESTED_SINCE
from pytest_llmperf.metrics import REGISTRY, Summary

__all__ = ["ENOUGH_LAUNCHES", "age_warnings", "beyond_budget", "few_launches", "of_another_test", "undigested"]

#: Launches that a baseline needs for its own noise to be known at all: of 5 the standard deviation is known within
#: a factor of 3 (chi-squared with 4 degrees of freedom, 95 %), of 3 within a factor of 6.
ENOUGH_LAUNCHES = 5
#: Machines' clocks differ a little; this much is no clock that is wrong.
_CLOCKS_APART = timedelta(minutes=10)


def few_launches(launches: int) -> str | None:
    """A sentence about a baseline of too few launches; ``None`` of enough."""
    if launches >= ENOUGH_LAUNCHES:
        return None
    return (
        f"The baseline is of {launches} launch{'es' if launches != 1 else ''}: noise is hardly known; save it again "
        f"with --llmperf-launches={ENOUGH_LAUNCHES} or more."
    )


def undigested(path: Path, version: int) -> str | None:
    """A sentence about a file of a schema version without digest; ``None`` of one that carries one."""
    if version >= DIGESTED_SINCE:
        return None
    return (
        f"The baseline {path} is of schema version {version} and carries no digest: nothing shows whether it was "
        "edited; python -m pytest_llmperf baselines DIR --migrate gives it one."
    )


def of_another_test(path: Path, baseline: Baseline, test: str) -> str | None:
    """A sentence about a file that lies where a test's baseline would, and was stored for another one."""
    if baseline.test == test:
        return None
    return (
        f"The baseline {path} is that of {baseline.test}, by what stands in it: if it was not just renamed with its "
        "test, it does not belong here; store this test's own with --llmperf-save."
    )


def age_warnings(baseline: Baseline, boards: str | None = None, *, now: datetime, max_age_days: float) -> list[str]:
    """Sentences about a baseline that is old, or that a clock in the future has dated.

    Args:
        baseline: The stored one.
        boards: Whose energy is compared as well: it may have been saved at another time.
        now: With its time zone.
        max_age_days: 0 lets it grow as old as it may.
    """
    dates = {"The baseline": baseline.saved_at}
    if (known := baseline.boards.get(boards or "")) is not None and known.saved_at != baseline.saved_at:
        dates[f"The energy of {boards} in the baseline"] = known.saved_at
    return [warning for what, saved_at in dates.items() if (warning := _dated(what, saved_at, now, max_age_days))]


def _dated(what: str, saved_at: str, now: datetime, max_age_days: float) -> str | None:
    try:
        saved = datetime.fromisoformat(saved_at)
    except ValueError:
        return f"{what} says that it was saved at {saved_at!r}, which is no date: its age is not known."
    saved = saved if saved.tzinfo is not None else saved.replace(tzinfo=UTC)
    age = now - saved
    if age < -_CLOCKS_APART:
        return f"{what} was saved at {saved_at}, which is in the future: a clock is wrong, and its age is not known."
    if max_age_days and age / timedelta(days=1) > max_age_days:
        return (
            f"{what} was saved {age.days} days ago (llmperf_baseline_max_age is {max_age_days:g}): machine and driver "
            "have moved on since; save it again with --llmperf-save."
        )
    return None


def beyond_budget(
    anchor: Anchor, metrics: Mapping[str, Summary], anchored: Mapping[str, Summary], budgets: Mapping[str, float]
) -> list[str]:
    """Sentences about metrics that are further worse than their anchor than all steps together may lead.

    Args:
        anchor: Says of when it is.
        metrics: What is about to become the baseline.
        anchored: The anchor's values.
        budgets: By metric, relative: the ratio in the direction of worse may be 1 + budget.
    """
    warnings = []
    for name, budget in budgets.items():
        before, now = (side[name].value if name in side else None for side in (anchored, metrics))
        if not before or not now or name not in REGISTRY:
            continue
        worse = now / before if REGISTRY[name].better == "lower" else before / now
        if worse > 1 + budget:
            warnings.append(
                f"{name} has changed by {now / before - 1:+.1%} since the anchor of {anchor.saved_at[:10]}, and the "
                f"budget of all steps together is {budget:.1%}: find the steps, or accept it as a release with "
                "python -m pytest_llmperf baselines DIR --pin."
            )
    return warnings
