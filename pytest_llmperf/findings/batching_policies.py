"""Static, dynamic or continuous batching: which one serves an equal load best, and where?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.latency_throughput import keeps_up
from pytest_llmperf.findings.points import Point, group, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    change,
    column,
    finding,
    listed,
    quantity,
    ratio,
    share,
    short,
    size,
)
from pytest_llmperf.report.units import printable
from pytest_llmperf.results import Finding, Results

__all__ = ["batching_policies"]

_METRICS = ("request_throughput", "throughput", "e2e_latency", "ttft", "tpot", "goodput", "tpj")
_POLICY = ("policy", "max_batch", "max_wait")
_LOWER = ("e2e_latency",)
#: Values nearer than this are a tie, said as one; of energy, which is read less exactly, those nearer than that.
_TIE, _SAME_ENERGY = 0.02, 0.05
#: From here on a gain is told as a ratio.
_TWICE = 1.995


def batching_policies(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load that was served under two or more policies; its rates together."""
    found = []
    for members in group([p for p in points if p.axes.load in ("rate", "trace")], *_POLICY, "size"):
        sizes = [
            s for s in varied(members, "size") if len(varied([p for p in members if p.axes.size == s], "policy")) > 1
        ]
        compared = [point for point in members if point.axes.size in sizes]
        if compared:
            found.append(_finding(compared, labels))
    return found


def _finding(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    rows: Rows = [
        [point.axes.size if axes.load == "rate" else None, printable(_named(point, points)), point.axes.max_batch,
         point.axes.max_wait, *(point.value(name) for name in _METRICS)]
        for point in points
    ]  # fmt: skip
    columns = [
        column("rate"), column("policy"), column("max_batch", "Largest batch"),
        column("max_wait", "Longest wait", "s"), *(column(name) for name in _METRICS[:-2]),
        column("goodput", "Goodput", "1/s"), column("tpj"),
    ]  # fmt: skip
    # The highest load first: there the policies differ most.
    loads = [[p for p in points if p.axes.size == load] for load in reversed(varied(points, "size"))]
    subject = labels.subject(axes, *_POLICY, "size")
    sentences = [text for members in loads if (text := _compared(members, "" if members is not loads[0] else subject))]
    return finding(
        "batching_policies",
        labels.name(axes, *_POLICY, "size"),
        labels.title("Batching policies", axes, *_POLICY, "size"),
        sentences or ["Neither throughput, latency nor energy was measured under two policies."],
        columns,
        rows,
        points,
    )


def _named(point: Point, points: Sequence[Point]) -> str:
    """The policy; with its batch where it ran with several."""
    policy, most = point.axes.policy, point.axes.max_batch
    same = {(p.axes.max_batch, p.axes.max_wait) for p in points if p.axes.policy == policy}
    if len(same) < 2:
        return policy
    wait = f", {point.axes.max_wait:g} s" if point.axes.max_wait is not None else ""
    return f"{policy} (batch {most:g}{wait})" if most is not None else policy


def _compared(members: Sequence[Point], subject: str) -> str:
    """Who keeps up with one load, who of these has the least latency, and who the most tokens per joule."""
    at = size(members[0].axes) + (f" ({subject})" if subject else "")
    where = f"For {at}" if members[0].axes.load == "trace" else f"At {at}"
    kept = [point for point in members if keeps_up(point, _offered(members))]
    behind = [point for point in members if point not in kept]
    parts = [_alone(kept[0], members) if len(kept) == 1 else _latency(kept, members), _behind(behind, members),
             _energy(members)]  # fmt: skip
    told = "; ".join(part for part in parts if part)
    return f"{where} {told}." if told else ""


def _offered(members: Sequence[Point]) -> float:
    """Requests a second; of a trace at least what the fastest policy serves."""
    if members[0].axes.load == "rate":
        return members[0].axes.size
    return max((point.value("request_throughput") or 0.0 for point in members), default=0.0)


def _alone(point: Point, members: Sequence[Point]) -> str:
    """What the only policy reaches that keeps up."""
    more = [(f"{ratio(gain)} times that of", other) for gain, other in _gains(point, members, "throughput")]
    reached = []
    if point.value("throughput") is not None:
        over = f" ({listed(_merged(more, members))})" if more else ""
        reached.append(f"{quantity(point.value('throughput'), 'throughput')}{over}")
    if point.value("e2e_latency") is not None:
        reached.append(quantity(point.value("e2e_latency"), "e2e_latency"))
    name = _short(point, members)
    told = f"only {name} batching keeps up" if point.axes.load == "rate" else f"{name} batching is ahead"
    return ": ".join([told, *([" at ".join(reached)] if reached else [])])


def _latency(kept: Sequence[Point], members: Sequence[Point]) -> str:
    """How long each takes of those that keep up, whose throughput is what was offered.

    The same requests come back from all of them; that their windows differ is no merit of a policy. Those that fall
    behind have a latency that grows with the run, and no part in this.
    """
    is_rate = members[0].axes.load == "rate" and all(point.value("request_throughput") is not None for point in kept)
    who = "all" if len(kept) == len(members) else _names(kept, members)
    lead = f"{who} keep up" if is_rate and kept else ""
    best = _best(kept, "e2e_latency")
    if best is None:
        return lead
    gains = _gains(best, kept, "e2e_latency")
    longer = [(gain, point) for gain, point in gains if gain > 1 + _TIE]
    if not longer:
        return f"{f'{lead}, and ' if lead else ''}latency is the same within {share(_TIE)}"
    alike = [best, *(point for gain, point in gains if gain <= 1 + _TIE)]
    others = listed(_merged([(f"{ratio(gain)} times as long with", point) for gain, point in longer], members))
    has = "has" if len(alike) == 1 else "have"
    told = (
        f"{_names(alike, members)} {has} the least latency, {quantity(best.value('e2e_latency'), 'e2e_latency')} "
        f"({others})"
    )
    return f"{lead}: {told}" if lead else told


def _behind(behind: Sequence[Point], members: Sequence[Point]) -> str:
    """What is served by those that fall behind; of all of them who serves the most."""
    if not behind:
        return ""
    offered = _offered(members)
    of = f" of {offered:g} requests/s" if members[0].axes.load == "rate" else " requests/s"
    served = {ratio(point.value("request_throughput") or 0.0): None for point in behind}
    if len(behind) < len(members) or len(served) == 1:
        who = _names(behind, members) if len(behind) < len(members) else "all"
        return f"{who} {'falls' if len(behind) == 1 else 'fall'} behind: {listed(list(served))}{of}"
    best = _best(behind, "request_throughput") or behind[0]
    gains = _gains(best, behind, "request_throughput")
    fewer = [(f"{ratio(gain)} times as many as" if gain > 1 + _TIE else "as many as", point) for gain, point in gains]
    most = ratio(best.value("request_throughput") or 0.0)
    return f"all fall behind: {_short(best, members)} serves the most, {most}{of} ({listed(_merged(fewer, members))})"


def _energy(members: Sequence[Point]) -> str:
    """Who has the most tokens per joule, where policies differ in it."""
    best = _best(members, "tpj")
    gains = [] if best is None else _gains(best, members, "tpj")
    if best is None or all(gain <= 1 + _SAME_ENERGY for gain, _ in gains):
        return ""
    more = [(_more(gain), point) for gain, point in gains]
    return (
        f"{_short(best, members)} has the most tokens per joule, {quantity(best.value('tpj'), 'tpj')} "
        f"({listed(_merged(more, members))})"
    )


def _more(gain: float) -> str:
    if gain <= 1 + _SAME_ENERGY:
        return "about that of"
    return f"{ratio(gain)} times that of" if gain >= _TWICE else f"{change(1, gain)} over"


def _best(members: Sequence[Point], name: str) -> Point | None:
    """The best under a metric, of equals the first by name; ``None`` where fewer than two have a value."""
    known = [point for point in members if point.value(name) is not None]
    if len(known) < 2:
        return None
    sign = 1 if name in _LOWER else -1
    return min(known, key=lambda point: (sign * (point.value(name) or 0), _named(point, members)))


def _gains(best: Point, members: Sequence[Point], name: str) -> list[tuple[float, Point]]:
    """How many times better the best one is than each other."""
    mine = best.value(name)
    if mine is None:
        return []
    pairs = [(value, point) for point in members if point is not best and (value := point.value(name)) is not None]
    return [(value / mine if name in _LOWER else mine / value, point) for value, point in pairs]


def _merged(told: Sequence[tuple[str, Point]], members: Sequence[Point]) -> list[str]:
    """What is said of points before their names, the same of several once."""
    of: dict[str, list[Point]] = {}
    for text, point in told:
        of.setdefault(text, []).append(point)
    return [f"{text} {_names(points, members)}" for text, points in of.items()]


def _names(points: Sequence[Point], members: Sequence[Point]) -> str:
    return listed([_short(point, members) for point in points])


def _short(point: Point, members: Sequence[Point]) -> str:
    return short(_named(point, members))
