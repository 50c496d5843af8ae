"""At which clock does a joule bring most tokens, and what does that cost in latency?

Power rises faster than the clock, and speed slower. Tokens per joule therefore have a maximum: below it what the board
draws anyway lasts longer, above it voltage and clock take more than they bring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_llmperf.findings.optimum import Optimum, Swept, optimum_of
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
    share,
    table,
)
from pytest_llmperf.report.units import format_value
from pytest_llmperf.results import Finding, Mark, Results

__all__ = ["sweet_spot"]

_LEAST_CLOCKS = 3
#: From so many sizes of one load on one stands for all.
_MANY_SIZES = 3
#: How much more latency than at the reference clock is allowed, where the load has no limits of its own.
_MORE_LATENCY = (0.05, 0.10, 0.25)
#: A clock is as good as the best one within this share of its tokens per joule.
_AS_GOOD = 0.01
_METRICS = ("power", "tpj", "e2e_latency", "tpot", "ttft", "throughput")
_LATENCIES = ("e2e_latency", "tpot", "ttft")
#: The column of what is maximised.
_YIELDS = 2


def sweet_spot(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran at three or more clocks; of many sizes of one load for one of them."""
    found, asked = [], _asked(points)
    sweeps = [[p for p in members if p.value("tpj")] for members in group(points, "clock")]
    enough = [sweep for sweep in sweeps if len([p for p in sweep if p.axes.clock is not None]) >= _LEAST_CLOCKS]
    for members in _one_size(enough):
        swept = [one for point in members if point.axes.clock is not None and (one := _swept(point)) is not None]
        free = next((one for p in members if p.axes.clock is None and (one := _swept(p)) is not None), None)
        found.append(_finding(swept, free, asked.get(members[0].axes.without("clock"), {}), labels))
    return found


def _one_size(sweeps: Sequence[list[Point]]) -> list[list[Point]]:
    """Of a load that was swept in many sizes that which most of the run's sweeps share, of equals the middle one.

    What the optimum does over the batch is told with the grid of batch and clock.
    """
    shared = Counter(sweep[0].axes.size for sweep in sweeps)
    alike: dict[tuple[object, ...], list[list[Point]]] = {}
    for sweep in sweeps:
        alike.setdefault(sweep[0].axes.without("clock", "size"), []).append(sweep)
    kept = []
    for sizes in alike.values():
        most = max(shared[sweep[0].axes.size] for sweep in sizes)
        usual = [sweep for sweep in sizes if shared[sweep[0].axes.size] == most]
        kept += sizes if len(sizes) < _MANY_SIZES else [usual[len(usual) // 2]]
    return kept


def _swept(point: Point) -> Swept | None:
    value = point.value("tpj")
    if value is None:
        return None
    tokens = _prompt(point)
    return Swept(point, value * tokens, tuple(one * tokens for one in point.launches("tpj")))


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


def _finding(swept: Sequence[Swept], free: Swept | None, asked: Mapping[float, list[float]], labels: Labels) -> Finding:
    optimum = optimum_of(swept)
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
        *_recommended(optimum, swept, free),
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
        labels.title("Sweet spot of the clock", axes, "clock"),
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


def _bounds(swept: Sequence[Swept], optimum: Optimum) -> tuple[float, float]:
    """The interval in which the optimum lies; the ends of the sweep where nothing in it bounds it."""
    below, above = optimum.below, optimum.above
    return swept[0 if below is None else below].clock, swept[-1 if above is None else above].clock


def _recommended(optimum: Optimum, swept: Sequence[Swept], free: Swept | None) -> list[str]:
    """What to do, against the clock that runs free where it was measured, and against the highest one swept."""
    best, highest = swept[optimum.best], swept[-1]
    others = [other for other in (free, highest) if other is not None and other is not best]
    if not others:
        return ["The highest clock of the sweep is the best."]
    first, *second = others
    if optimum.is_worse(first, best):
        told = [f"Lock at {megahertz(best.clock)}: {_cost(best, first)}."]
    elif first is free:
        told = [f"Let the clock run free: the best one swept, {megahertz(best.clock)}, is {_cost(best, free)}."]
    else:
        told = [
            f"Leave the clock at {megahertz(highest.clock)}: no lower one takes certainly less energy, the "
            f"best, {megahertz(best.clock)}, is {_cost(best, highest)}."
        ]
    return [*told, *(f"Of the clocks swept it is {_cost(best, other)}." for other in second)]


def _cost(best: Swept, other: Swept) -> str:
    """``"-37.6 % energy, +23.1 % latency (against 1297 MHz; TPOT +20.0 %)"``."""
    changes = _latency_changes(best, other)
    latency = f", {changes['e2e_latency']} latency" if "e2e_latency" in changes else ""
    parts = [f"{name.upper()} {text}" for name, text in changes.items() if name != "e2e_latency"]
    named = "the clock running free" if other.point.axes.clock is None else megahertz(other.clock)
    return f"{change(best.yields, other.yields)} energy{latency} (against {'; '.join([named, *parts])})"


def _latency_changes(best: Swept, other: Swept) -> dict[str, str]:
    found = {}
    for name in _LATENCIES:
        before, now = other.point.value(name), best.point.value(name)
        if before is not None and now is not None:
            found[name] = change(before, now)
    return found


def _best(swept: Sequence[Swept], optimum: Optimum, tokens: str) -> str:
    best = swept[optimum.best]
    told = f"Most {tokens} per joule at {megahertz(best.clock)}: {quantity(best.yields, 'tpj')}"
    if optimum.below is not None and optimum.above is not None:
        low, high = _bounds(swept, optimum)
        which = "nearest clocks that are certainly worse" if optimum.freedom else "nearest clocks that were worse"
        told += f"; the optimum lies between {low:g} and {high:g} MHz, the {which}"
    as_good = [one.clock for one in swept if one.yields >= best.yields * (1 - _AS_GOOD)]
    flat = f" Within {share(_AS_GOOD)} of it from {as_good[0]:g} to {as_good[-1]:g} MHz." if len(as_good) > 1 else ""
    return f"{told}.{flat}"


def _edges(swept: Sequence[Swept], optimum: Optimum) -> list[str]:
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


def _under_limits(swept: Sequence[Swept], reference: Swept) -> tuple[list[Mark], list[str]]:
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


def _no_slower(swept: Sequence[Swept], limit: float) -> list[Swept]:
    return [one for one in swept if (now := one.point.value("e2e_latency")) is not None and now <= limit]


def _within(one: Swept, name: str, limit: float) -> bool:
    """Whether 99 of 100 requests keep a limit; half of them where no more is known."""
    metric = one.point.test.metrics.get(name)
    if metric is None or metric.value is None:
        return False
    return (metric.value if metric.percentiles is None else metric.percentiles.p99) <= limit


def _most(swept: Sequence[Swept]) -> Swept | None:
    return max(swept, key=lambda one: (one.yields, -one.clock), default=None)
