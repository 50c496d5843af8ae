"""Which clock is worth a lock: what it saves, what it costs in latency, and what a limit on latency leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.optimum import Optimum, Swept
from pytest_llmperf.findings.telling import change, listed, megahertz
from pytest_llmperf.report.units import format_value, printable

__all__ = [
    "AS_GOOD",
    "Limit",
    "cost",
    "latencies",
    "latency_changes",
    "limit_of",
    "most_of",
    "offered",
    "recommended",
    "saves",
]

#: How much more latency than at the reference clock a lock may cost, where the load has no limits of its own.
_MORE = 0.10
#: How much else is offered.
_MORE_LATENCY = (0.05, _MORE, 0.25)
#: A clock is as good as the best one within this share of its tokens per joule.
AS_GOOD = 0.01
_LATENCIES = ("e2e_latency", "tpot", "ttft")


@dataclass(frozen=True)
class Limit:
    """What latency a lock may cost.

    Attributes:
        told: In words, behind "within" or "for".
        kept: The clocks that keep it, by rising clock.
        of_load: Whether the load itself sets it.
    """

    told: str
    kept: list[Swept]
    of_load: bool


def limit_of(swept: Sequence[Swept], reference: Swept) -> Limit | None:
    """The load's own limits on latency, or else some more than now; ``None`` where latency is not known."""
    slo = (swept[0].point.test.workload or {}).get("slo")
    limits = (
        {name: limit for name, limit in slo.items() if isinstance(limit, int | float)} if isinstance(slo, dict) else {}
    )
    if limits:
        told = listed([f"{_called(name)} of {format_value(limit, 's')}" for name, limit in sorted(limits.items())])
        kept = [one for one in swept if all(_within(one, name, limit) for name, limit in limits.items())]
        return Limit(f"the limit on {told}", kept, of_load=True)
    before = reference.point.value("e2e_latency")
    if before is None:
        return None
    return Limit(f"{_MORE * 100:+.0f} % latency", _no_slower(swept, before * (1 + _MORE)), of_load=False)


def _called(name: str) -> str:
    return "end-to-end latency" if name == "e2e_latency" else printable(name.upper())


def _within(one: Swept, name: str, limit: float) -> bool:
    """Whether 99 of 100 requests keep a limit; half of them where no more is known."""
    metric = one.point.test.metrics.get(name)
    if metric is None or metric.value is None:
        return False
    return (metric.value if metric.percentiles is None else metric.percentiles.p99) <= limit


def _no_slower(swept: Sequence[Swept], limit: float) -> list[Swept]:
    return [one for one in swept if (now := one.point.value("e2e_latency")) is not None and now <= limit]


def most_of(swept: Sequence[Swept]) -> Swept | None:
    """That of most tokens per joule, of equals the lowest clock; ``None`` of none."""
    return max(swept, key=lambda one: (one.yields, -one.clock), default=None)


def saves(optimum: Optimum, reference: Swept, one: Swept) -> bool:
    """Whether a clock takes less energy than the reference beyond doubt, and by more than is worth nothing."""
    return optimum.is_worse(reference, one) and reference.yields < one.yields * (1 - AS_GOOD)


def recommended(
    swept: Sequence[Swept], optimum: Optimum, reference: Swept, limit: Limit | None, locked: Swept | None, subject: str
) -> str:
    """What to do: the clock within the limit on latency that saves most, if one does; and the one of most tokens."""
    best = swept[optimum.best]
    against = f"{subject}, against {_named(reference)}"
    if limit is not None and limit.of_load and not limit.kept:
        return f"{_unkept(limit)} ({against}); most tokens per joule at {megahertz(best.clock)}."
    if best is reference:
        return f"No lock is worth it ({subject}): {megahertz(best.clock)}, the highest clock of the sweep, is the best."
    if not optimum.known:
        return (
            f"No lock is told to be worth it ({against}): one launch a clock does not show how launches vary. Most "
            f"tokens per joule were at {megahertz(best.clock)}: {_brief(best, reference)}."
        )
    most = f"most tokens per joule at {megahertz(best.clock)}: {_brief(best, reference)}"
    if not saves(optimum, reference, best):
        worst = f"none takes clearly less energy, the best, {megahertz(best.clock)}, is {_brief(best, reference)}"
        return f"No lock is worth it ({against}): {worst}."
    if limit is None:
        return f"Lock at {megahertz(best.clock)}: {_brief(best, reference, 'energy')} ({against})."
    if locked is None:
        if not limit.kept:
            return f"{_unkept(limit)} ({against}); {most}."
        return f"No lock is worth it within {limit.told} ({against}); {most}."
    told = f"Lock at {megahertz(locked.clock)}: {_brief(locked, reference, 'energy', ' latency')} ({against})"
    if limit.of_load:
        told += f", within {limit.told}"
    return f"{told}, the clock of most tokens per joule." if locked is best else f"{told}; {most}."


def _unkept(limit: Limit) -> str:
    if limit.of_load:
        return f"No clock of the sweep keeps {limit.told}"
    return f"No lock is worth it within {limit.told}, which no clock of the sweep keeps"


def _named(reference: Swept) -> str:
    return "the clock running free" if reference.point.axes.clock is None else megahertz(reference.clock)


def _brief(one: Swept, reference: Swept, energy: str = "energy", latency: str = " latency") -> str:
    """``"-29.1 % energy, +8.7 % latency"``."""
    slower = latency_changes(one, reference).get("e2e_latency")
    saved = f"{change(one.yields, reference.yields)} {energy}"
    return f"{saved}, {slower}{latency}" if slower else saved


def latencies(best: Swept, locked: Swept | None, reference: Swept) -> list[str]:
    """What the clocks of the first sentence do to TPOT and TTFT."""
    told = []
    for one in [one for one in (None if locked is best else locked, best) if one is not None and one is not reference]:
        changes = latency_changes(one, reference)
        parts = [f"{name.upper()} {text}" for name, text in changes.items() if name != "e2e_latency"]
        told += [f"{megahertz(one.clock)}: {', '.join(parts)}"] if parts else []
    return [f"Of the latency, against the same: {'; '.join(told)}."] if told else []


def cost(best: Swept, other: Swept) -> str:
    """``"-37.6 % energy, +23.1 % latency (against 1297 MHz; TPOT +20.0 %)"``."""
    changes = latency_changes(best, other)
    latency = f", {changes['e2e_latency']} latency" if "e2e_latency" in changes else ""
    parts = [f"{name.upper()} {text}" for name, text in changes.items() if name != "e2e_latency"]
    named = "the clock running free" if other.point.axes.clock is None else megahertz(other.clock)
    return f"{change(best.yields, other.yields)} energy{latency} (against {'; '.join([named, *parts])})"


def latency_changes(best: Swept, other: Swept) -> dict[str, str]:
    """By latency its relative change from the other clock to the one, of those that both measured."""
    found = {}
    for name in _LATENCIES:
        before, now = other.point.value(name), best.point.value(name)
        if before is not None and now is not None:
            found[name] = change(before, now)
    return found


def offered(swept: Sequence[Swept], reference: Swept) -> list[str]:
    """The best clocks under other limits on latency."""
    before = reference.point.value("e2e_latency")
    if before is None:
        return []
    limited = [(more, most_of(_no_slower(swept, before * (1 + more)))) for more in _MORE_LATENCY]
    told_of = []
    for clock in dict.fromkeys(None if one is None else one.clock for _, one in limited):
        alike = [(more, one) for more, one in limited if (None if one is None else one.clock) == clock]
        allowed, one = listed([f"{more * 100:+.0f}" for more, _ in alike]), alike[0][1]
        if one is None:
            told_of.append(f"no clock of the sweep for {allowed} %")
        else:
            told_of.append(f"{megahertz(one.clock)} for {allowed} % ({change(one.yields, reference.yields)} energy)")
    return [f"Of most tokens per joule under a limit on latency, against {_named(reference)}: {listed(told_of)}."]
