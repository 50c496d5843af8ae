"""At which clock does a joule bring most tokens, and what does that cost in latency?

Power rises faster than the clock, and speed slower. Tokens per joule therefore have a maximum: below it what the board
draws anyway lasts longer, above it voltage and clock take more than they bring.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.fits import pooled_spread, student
from pytest_llmperf.findings.points import Point, group
from pytest_llmperf.findings.telling import (
    Labels,
    change,
    column,
    finding,
    listed,
    mark,
    megahertz,
    quantity,
    shape,
    size,
    table,
)  # fmt: skip
from pytest_llmperf.report.units import format_value
from pytest_llmperf.results import Finding, Mark, Results

__all__ = ["sweet_spot"]

_LEAST_CLOCKS = 3
#: Of the statement that a clock is worse than the best one.
_CONFIDENCE = 0.95
#: How much more latency than at the reference clock is allowed, where the load has no limits of its own.
_MORE_LATENCY = (0.05, 0.10, 0.25)
#: Launches that differ by less are equal: a simulation without noise.
_NO_SPREAD = 1e-9
#: A clock is as good as the best one within this share of its tokens per joule.
_AS_GOOD = 0.01
_METRICS = ("power", "tpj", "e2e_latency", "tpot", "ttft", "throughput")
_LATENCIES = ("e2e_latency", "tpot", "ttft")
#: The column of what is maximised.
_YIELDS = 2


@dataclass(frozen=True)
class _Swept:
    """One clock.

    Attributes:
        point: What was measured at it.
        yields: Tokens per joule: of the prompt where prefill alone ran, else of the output.
        launches: That of each launch.
    """

    point: Point
    yields: float
    launches: tuple[float, ...]

    @property
    def clock(self) -> float:
        assert self.point.axes.clock is not None
        return self.point.axes.clock


@dataclass(frozen=True)
class _Optimum:
    """The best clock and the nearest ones that are certainly worse; ``None`` where the sweep holds none."""

    best: int
    below: int | None
    above: int | None
    by_noise: bool


def sweet_spot(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran at three or more clocks."""
    found, asked = [], _asked(points)
    for members in group(points, "clock"):
        swept = [one for point in members if point.axes.clock is not None and (one := _swept(point)) is not None]
        if len(swept) < _LEAST_CLOCKS:
            continue
        free = next((one for p in members if p.axes.clock is None and (one := _swept(p)) is not None), None)
        found.append(_finding(swept, free, asked.get(members[0].axes.without("clock"), {}), labels))
    return found


def _swept(point: Point) -> _Swept | None:
    value = point.value("tpj")
    if value is None:
        return None
    tokens = _prompt(point)
    return _Swept(point, value * tokens, tuple(one * tokens for one in point.launches("tpj")))


def _prompt(point: Point) -> int:
    """Prompt tokens for each output token of a prefill; 1 of what decodes as well, or has prompts of many lengths."""
    prompt = point.axes.input_len
    return prompt if point.axes.output_len == 1 and isinstance(prompt, int) and prompt > 0 else 1


def _asked(points: Sequence[Point]) -> dict[tuple[object, ...], dict[float, list[float]]]:
    """By load: the clocks that were asked for at each clock that was held, where they are several."""
    asked: dict[tuple[object, ...], dict[float, set[float]]] = {}
    for point in points:
        if point.axes.clock is not None and point.requested_mhz is not None:
            held = asked.setdefault(point.axes.without("clock"), {})
            held.setdefault(point.axes.clock, set()).add(point.requested_mhz)
    return {
        load: {clock: sorted(wanted) for clock, wanted in sorted(held.items()) if len(wanted) > 1}
        for load, held in asked.items()
    }


def _optimum(swept: Sequence[_Swept]) -> _Optimum:
    """The best clock, bounded on either side by the nearest one that is certainly worse.

    Between these the optimum lies, if tokens per joule rise and then fall. With launches that differ, certainly is to
    95 % by Student's distribution, of one spread between launches for all clocks; with none it is any difference.
    """
    best = max(range(len(swept)), key=lambda i: (swept[i].yields, -i))
    spread, freedom = pooled_spread([one.launches for one in swept])
    by_noise = freedom > 0 and spread > _NO_SPREAD
    quantile = student(_CONFIDENCE, freedom) if by_noise else 0.0

    def worse(i: int) -> bool:
        if not by_noise or not swept[i].launches or not swept[best].launches:
            return swept[i].yields < swept[best].yields
        distance = _mean_log(swept[best]) - _mean_log(swept[i])
        error = spread * math.sqrt(1 / len(swept[i].launches) + 1 / len(swept[best].launches))
        return distance > quantile * error

    below = next((i for i in range(best - 1, -1, -1) if worse(i)), None)
    above = next((i for i in range(best + 1, len(swept)) if worse(i)), None)
    return _Optimum(best, below, above, by_noise)


def _mean_log(one: _Swept) -> float:
    return statistics.fmean(math.log(value) for value in one.launches)


def _finding(
    swept: Sequence[_Swept], free: _Swept | None, asked: Mapping[float, list[float]], labels: Labels
) -> Finding:
    optimum = _optimum(swept)
    best, axes = swept[optimum.best], swept[0].point.axes
    tokens = _maximised(best.point)
    rows = table([one.point for one in swept], ["clock"], _METRICS)
    for row, one in zip(rows, swept, strict=True):
        row[_YIELDS] = one.yields
    columns = [column(name) for name in ("clock", *_METRICS)]
    columns[_YIELDS] = column("tpj", f"{tokens.capitalize()} per joule")
    limits, under_limits = _under_limits(swept, free or swept[-1])
    low, high = _bounds(swept, optimum)
    sentences = [
        *_recommended(best, swept, free),
        _best(swept, optimum, tokens),
        *_edges(swept, optimum),
        *under_limits,
        *(
            f"{listed([f'{mhz:g}' for mhz in wanted])} MHz were all held at {megahertz(clock)} and count once."
            for clock, wanted in asked.items()
        ),
    ]
    return finding(
        "sweet_spot",
        labels.name(axes, "clock"),
        labels.title("Most tokens per joule over the clock", axes, "clock"),
        sentences,
        columns,
        rows,
        [one.point for one in (*swept, *([free] if free else []))],
        [mark("optimum", megahertz(best.clock), best.clock, best.yields, low, high), *limits],
    )


def _maximised(point: Point) -> str:
    if point.axes.output_len != 1:
        return "output tokens"
    return "prompt tokens" if isinstance(point.axes.input_len, int) else "first tokens"


def _bounds(swept: Sequence[_Swept], optimum: _Optimum) -> tuple[float, float]:
    """The interval in which the optimum lies; the ends of the sweep where nothing in it bounds it."""
    below, above = optimum.below, optimum.above
    return swept[0 if below is None else below].clock, swept[-1 if above is None else above].clock


def _recommended(best: _Swept, swept: Sequence[_Swept], free: _Swept | None) -> list[str]:
    """What to do, against the clock that runs free where it was measured, and against the highest one swept."""
    highest, load = swept[-1], f"{shape(best.point.axes)}, {size(best.point.axes)}"
    if free is not None and free.yields >= best.yields:
        return [f"Let the clock run free for {load}: the best clock of the sweep is {_cost(best, free)}."]
    lock = f"Lock at {megahertz(best.clock)} for {load}:"
    told = [] if free is None else [f"{lock} {_cost(best, free)}."]
    if highest is not best:
        told.append(f"{'Of the clocks swept it is' if told else lock} {_cost(best, highest)}.")
    return told


def _cost(best: _Swept, other: _Swept) -> str:
    """``"-37.6 % energy, +23.1 % latency (against 1297 MHz; TPOT +20.0 %)"``."""
    changes = _latency_changes(best, other)
    latency = f", {changes['e2e_latency']} latency" if "e2e_latency" in changes else ""
    parts = [f"{name.upper()} {text}" for name, text in changes.items() if name != "e2e_latency"]
    named = "the clock running free" if other.point.axes.clock is None else megahertz(other.clock)
    return f"{change(best.yields, other.yields)} energy{latency} (against {'; '.join([named, *parts])})"


def _latency_changes(best: _Swept, other: _Swept) -> dict[str, str]:
    found = {}
    for name in _LATENCIES:
        before, now = other.point.value(name), best.point.value(name)
        if before is not None and now is not None:
            found[name] = change(before, now)
    return found


def _best(swept: Sequence[_Swept], optimum: _Optimum, tokens: str) -> str:
    best = swept[optimum.best]
    told = f"Most {tokens} per joule at {megahertz(best.clock)}: {quantity(best.yields, 'tpj')}"
    if optimum.below is not None and optimum.above is not None:
        low, high = _bounds(swept, optimum)
        which = "nearest clocks that are certainly worse" if optimum.by_noise else "nearest clocks that were worse"
        told += f"; the optimum lies between {low:g} and {high:g} MHz, the {which}"
    as_good = [one.clock for one in swept if one.yields >= best.yields * (1 - _AS_GOOD)]
    flat = f" Within {_AS_GOOD:.0%} of it from {as_good[0]:g} to {as_good[-1]:g} MHz." if len(as_good) > 1 else ""
    return f"{told}.{flat}"


def _edges(swept: Sequence[_Swept], optimum: _Optimum) -> list[str]:
    """Where the sweep does not bound the optimum, and what would."""
    told = []
    sides: list[tuple[int | None, int, int, str]] = [(optimum.below, 0, 1, "below"), (optimum.above, -1, -2, "above")]
    for bound, edge, neighbour, side in sides:
        if bound is not None:
            continue
        end = swept[edge].clock
        step = end - swept[neighbour].clock
        add = listed([f"{clock:g}" for clock in (end + step, end + 2 * step) if clock > 0])
        reason = (
            "is the best" if swept[optimum.best] is swept[edge] else "cannot be told from the best by these launches"
        )
        advice = f": add {add} MHz to the sweep" if add else ""
        told.append(f"The optimum may lie {side} {end:g} MHz, which is the end of the sweep and {reason}{advice}.")
    return told


def _under_limits(swept: Sequence[_Swept], reference: _Swept) -> tuple[list[Mark], list[str]]:
    """The best clock whose latency stays within the load's own limits, or else within some more than now."""
    slo = (swept[0].point.test.workload or {}).get("slo")
    limits = (
        {name: limit for name, limit in slo.items() if isinstance(limit, int | float)} if isinstance(slo, dict) else {}
    )
    if limits:
        told = listed([f"{name} of {format_value(limit, 's')}" for name, limit in sorted(limits.items())])
        within = _most([one for one in swept if all(_within(one, name, limit) for name, limit in limits.items())])
        if within is None:
            return [], [f"No clock of the sweep keeps the limit on {told}."]
        label = f"within the limit on {told}"
        marks = [mark("limit", label, within.clock, within.yields)]
        return marks, [f"Of the clocks that keep the limit on {told}, {megahertz(within.clock)} is the best."]
    before = reference.point.value("e2e_latency")
    if before is None:
        return [], []
    best, limited = _most(swept), [(more, _most(_no_slower(swept, before * (1 + more)))) for more in _MORE_LATENCY]
    marks, told_of = [], []
    for clock in dict.fromkeys(None if one is None else one.clock for _, one in limited):
        alike = [(more, one) for more, one in limited if (None if one is None else one.clock) == clock]
        allowed, one = listed([f"{more * 100:+.0f}" for more, _ in alike]), alike[0][1]
        if one is None:
            told_of.append(f"no clock of the sweep for {allowed} %")
            continue
        told_of.append(f"{megahertz(one.clock)} for {allowed} % ({change(one.yields, reference.yields)} energy)")
        if one is not best:
            marks.append(mark("limit", f"{allowed} % latency", one.clock, one.yields))
    named = "the clock running free" if reference.point.axes.clock is None else megahertz(reference.clock)
    return marks, [f"With a limit on latency, against {named}: {listed(told_of)}."]


def _no_slower(swept: Sequence[_Swept], limit: float) -> list[_Swept]:
    return [one for one in swept if (now := one.point.value("e2e_latency")) is not None and now <= limit]


def _within(one: _Swept, name: str, limit: float) -> bool:
    """Whether 99 of 100 requests keep a limit; half of them where no more is known."""
    metric = one.point.test.metrics.get(name)
    if metric is None or metric.value is None:
        return False
    return (metric.value if metric.percentiles is None else metric.percentiles.p99) <= limit


def _most(swept: Sequence[_Swept]) -> _Swept | None:
    return max(swept, key=lambda one: (one.yields, -one.clock), default=None)
