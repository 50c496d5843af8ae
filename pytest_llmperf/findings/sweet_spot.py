"""At which clock does a joule bring most tokens, and what does that cost in latency?

Power rises faster than the clock, and speed slower. Tokens per joule therefore have a maximum: below it what the board
draws anyway lasts longer, above it voltage and clock take more than they bring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_llmperf.findings.locking import (
    AS_GOOD,
    cost,
    latencies,
    latency_changes,
    limit_of,
    most_of,
    offered,
    recommended,
    saves,
)
from pytest_llmperf.findings.optimum import Optimum, Swept, optimum_of
from pytest_llmperf.findings.points import Point, distinct, group
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    column,
    finding,
    listed,
    mark,
    megahertz,
    quantity,
    share,
    table,
)
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Column, Finding, Mark, Results

__all__ = ["sweet_spot"]

_LEAST_CLOCKS = 3
#: From so many sizes of one load on one stands for all.
_MANY_SIZES = 3
_METRICS = ("power", "tpj", "e2e_latency", "tpot", "ttft", "throughput")
#: Columns of what is maximised, and of the throughput.
_YIELDS, _THROUGHPUT = 2, 6


def sweet_spot(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that ran at three or more clocks; of many sizes of one load for one of them."""
    found, asked, unmeasured = [], _asked(points), _unmeasured(points)
    sweeps = [[p for p in members if p.value("tpj")] for members in group(points, "clock")]
    enough = [sweep for sweep in sweeps if len([p for p in sweep if p.axes.clock is not None]) >= _LEAST_CLOCKS]
    for members in _one_size(enough):
        swept = [one for point in members if point.axes.clock is not None and (one := _swept(point)) is not None]
        free = next((one for p in members if p.axes.clock is None and (one := _swept(p)) is not None), None)
        place = members[0].axes.without("clock")
        found.append(_finding(swept, free, asked.get(place, {}), unmeasured.get(place, []), labels))
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


def _unmeasured(points: Sequence[Point]) -> dict[tuple[object, ...], list[Point]]:
    """By load: the clocks that were held, and at which no energy was measured."""
    found: dict[tuple[object, ...], list[Point]] = {}
    for point in distinct(points):
        if point.axes.clock is not None and not point.value("tpj"):
            found.setdefault(point.axes.without("clock"), []).append(point)
    return found


def _is_exact(point: Point) -> bool:
    """Whether launches cannot vary: of a simulated engine without noise."""
    engine = point.test.engine
    if engine is None or not engine.simulated:
        return False
    return not any(engine.args.get(name) for name in ("launch_noise", "repeat_noise"))


def _finding(
    swept: Sequence[Swept], free: Swept | None, asked: Mapping[float, list[float]], unmeasured: Sequence[Point],
    labels: Labels,
) -> Finding:  # fmt: skip
    optimum = optimum_of(swept, exact=all(_is_exact(one.point) for one in swept))
    best, axes = swept[optimum.best], swept[0].point.axes
    tokens = _maximised(best.point)
    reference = free or swept[-1]
    limit = limit_of(swept, reference)
    locked = None if limit is None else most_of(limit.kept)
    if locked is not None and not saves(optimum, reference, locked):
        locked = None
    columns, rows = _table(swept, free, tokens)
    subject = labels.subject(axes, "clock")
    sentences = [
        recommended(swept, optimum, reference, limit, locked, subject),
        *latencies(best, locked, reference),
        *([f"Of the clocks swept {megahertz(best.clock)} is {cost(best, swept[-1])}."]
          if free is not None and best is not swept[-1] else []),
        _best(swept, optimum, tokens),
        *_edges(swept, optimum, [point.axes.clock for point in unmeasured]),
        *_without_energy(unmeasured),
        *offered(swept, reference),
        *(
            f"{listed([f'{mhz:g}' for mhz in wanted])} MHz were all held at {megahertz(clock)} and count once."
            for clock, wanted in asked.items()
        ),
    ]  # fmt: skip
    return finding(
        "sweet_spot",
        labels.name(axes, "clock"),
        labels.title("Sweet spot of the clock", axes, "clock"),
        sentences,
        columns,
        rows,
        [one.point for one in (*swept, *([free] if free else []))],
        _marks(swept, optimum, locked, free),
    )


def _table(swept: Sequence[Swept], free: Swept | None, tokens: str) -> tuple[list[Column], Rows]:
    """The clocks by rising clock, and last the clock that ran free, at what it was seen at."""
    shown = [*swept, *([free] if free is not None else [])]
    rows = table([one.point for one in shown], ["clock"], _METRICS)
    columns = [column(name) for name in ("clock", *_METRICS)]
    columns[_YIELDS] = column("tpj", f"{tokens.capitalize()} per joule")
    if tokens == "prompt tokens":
        columns[_THROUGHPUT] = column("throughput", "Prompt tokens per second")
    for row, one in zip(rows, shown, strict=True):
        row[_YIELDS] = one.yields
        speed = row[_THROUGHPUT]
        row[_THROUGHPUT] = speed * _prompt(one.point) if isinstance(speed, float | int) else None
        if one is free:
            row[0] = _observed(free)
        row.append("free" if one is free else "locked")
    return [*columns, column("held", "Clock")], rows


def _observed(free: Swept) -> float | None:
    """The median of what a clock that ran free was seen at, MHz."""
    observed = free.point.test.clock.observed_mhz
    return None if observed is None else observed.median


def _marks(swept: Sequence[Swept], optimum: Optimum, locked: Swept | None, free: Swept | None) -> list[Mark]:
    """The optimum with its interval, the clock within the limit where it is another, and the one that ran free."""
    best, reference = swept[optimum.best], free or swept[-1]
    low, high = _bounds(swept, optimum)
    found = [
        mark("optimum", _labelled(best, reference), best.clock, best.yields, *((low, high) if optimum.known else ())),
    ]
    if optimum.known:
        found.append(mark("interval", f"optimum: {low:g} to {high:g} MHz", None, None, low, high))
    if locked is not None and locked is not best:
        found.append(mark("limit", _labelled(locked, reference), locked.clock, locked.yields))
    if free is not None and (seen := _observed(free)) is not None:
        found.append(mark("free", f"running free: {seen:g} MHz", seen, free.yields))
    return found


def _labelled(one: Swept, reference: Swept) -> str:
    """The clock and what it costs in latency, short enough for a chart: ``"1102 MHz: +8.7 %"``."""
    latency = latency_changes(one, reference).get("e2e_latency")
    return megahertz(one.clock) + (f": {latency}" if latency and one is not reference else "")


def _maximised(point: Point) -> str:
    if point.axes.output_len != 1:
        return "output tokens"
    return "prompt tokens" if isinstance(point.axes.input_len, int) else "first tokens"


def _bounds(swept: Sequence[Swept], optimum: Optimum) -> tuple[float, float]:
    """The interval in which the optimum lies; the ends of the sweep where nothing in it bounds it."""
    below, above = optimum.below, optimum.above
    return swept[0 if below is None else below].clock, swept[-1 if above is None else above].clock


def _best(swept: Sequence[Swept], optimum: Optimum, tokens: str) -> str:
    best = swept[optimum.best]
    told = f"Most {tokens} per joule at {megahertz(best.clock)}: {quantity(best.yields, 'tpj')}"
    if optimum.below is not None and optimum.above is not None:
        low, high = _bounds(swept, optimum)
        which = "nearest clocks that are certainly worse" if optimum.freedom else "nearest clocks that were worse"
        told += f"; the optimum lies between {low:g} and {high:g} MHz, the {which}"
    as_good = [i for i, one in enumerate(swept) if one.yields >= best.yields * (1 - AS_GOOD)]
    if len(as_good) > 1:
        told += f". Within {share(AS_GOOD)} of it: {_runs(swept, as_good)} MHz"
    if optimum.known and len(optimum.candidates) <= optimum.candidates[-1] - optimum.candidates[0]:
        told += (
            f". The curve has more than one maximum: {_runs(swept, optimum.candidates)} MHz cannot be told from the "
            "best, and clocks between them are worse"
        )
    return f"{told}."


def _runs(swept: Sequence[Swept], indices: Sequence[int]) -> str:
    """Clocks as what lies beside each other in the sweep: ``"700 to 750 and 900"``."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    ends = [(swept[run[0]].clock, swept[run[-1]].clock) for run in runs]
    return listed([f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in ends])


def _without_energy(points: Sequence[Point]) -> list[str]:
    """The clocks that were held and have no energy, with the reason."""
    by_reason: dict[str, list[str]] = {}
    for point in points:
        metric = point.test.metrics.get("tpj")
        reason = printable(metric.reason.rstrip(".")) if metric is not None and metric.reason else "not told why"
        by_reason.setdefault(reason, []).append(f"{point.axes.clock:g}")
    return [f"Energy was not measured at {listed(clocks)} MHz: {reason}." for reason, clocks in by_reason.items()]


def _edges(swept: Sequence[Swept], optimum: Optimum, held: Sequence[float | None]) -> list[str]:
    """Where the sweep does not bound the optimum, and what would; clocks that were held already are no advice."""
    if not optimum.known:
        return ["Measure more launches (--llmperf-launches=3) to bound the optimum."]
    told = []
    sides: list[tuple[int | None, int, int, str]] = [(optimum.below, 0, 1, "below"), (optimum.above, -1, -2, "above")]
    for bound, edge, neighbour, side in sides:
        if bound is not None:
            continue
        end = swept[edge].clock
        step = end - swept[neighbour].clock
        add = listed([f"{clock:g}" for clock in (end + step, end + 2 * step) if clock > 0 and clock not in held])
        reason = (
            "is the best" if swept[optimum.best] is swept[edge] else "cannot be told from the best by these launches"
        )
        advice = f": add {add} MHz to the sweep" if add else ""
        told.append(f"The optimum may lie {side} {end:g} MHz, which is the end of the sweep and {reason}{advice}.")
    return told
