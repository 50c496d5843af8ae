"""Static, dynamic or continuous batching: which one serves an equal load best, and where?"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.findings.points import Point, group, varied
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
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

_METRICS = ("throughput", "e2e_latency", "ttft", "tpot", "goodput", "tpj")
_POLICY = ("policy", "max_batch", "max_wait")
#: Values nearer than this are a tie, said as one.
_TIE = 0.02


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
    sentences = [text for members in loads if (text := _winner(members, "" if members is not loads[0] else subject))]
    return finding(
        "batching_policies",
        labels.name(axes, *_POLICY, "size"),
        labels.title("Batching policies", axes, *_POLICY, "size"),
        sentences or ["Neither throughput nor latency was measured under two policies."],
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


def _winner(members: Sequence[Point], subject: str) -> str:
    """Who has the most throughput, who the least latency, and by how much, at one load."""
    throughput, latency = _most(members, "throughput"), _most(members, "e2e_latency")
    at = size(members[0].axes) + (f" ({subject})" if subject else "")
    where = f"For {at}" if members[0].axes.load == "trace" else f"At {at}"
    if throughput is None or latency is None:
        parts = [
            f"{_of(best, name, members)}"
            for best, name in ((throughput, "throughput"), (latency, "e2e_latency"))
            if best
        ]
        return f"{where} {'; '.join(parts)}." if parts else ""
    ties = [_is_tie(best, members, name) for best, name in ((throughput, "throughput"), (latency, "e2e_latency"))]
    if all(ties):
        return f"{where} throughput and latency are the same under all policies within {share(_TIE)}."
    if ties[0]:
        told = f"throughput is the same within {share(_TIE)}, and {_of(latency, 'e2e_latency', members)}"
    elif ties[1]:
        told = f"{_of(throughput, 'throughput', members)}; latency is the same within {share(_TIE)}"
    elif throughput is latency and (alike := _alike(throughput, members)):
        named = listed([_short(point, members) for point in (throughput, *alike)])
        told = f"{named} batching are ahead alike: {_of(throughput, 'throughput', members)}"
    elif throughput is latency:
        more, longer = (_others(throughput, name, members) for name in ("throughput", "e2e_latency"))
        told = (
            f"{_short(throughput, members)} batching wins: {quantity(throughput.value('throughput'), 'throughput')} "
            f"({more}) at {quantity(throughput.value('e2e_latency'), 'e2e_latency')} ({longer})"
        )
    else:
        told = f"{_of(throughput, 'throughput', members)}, and {_of(latency, 'e2e_latency', members)}"
    return f"{where} {told}."


def _most(members: Sequence[Point], name: str) -> Point | None:
    """The best under a metric, of equals the first by name; ``None`` where fewer than two have a value."""
    known = [point for point in members if point.value(name) is not None]
    if len(known) < 2:
        return None
    sign = -1 if name == "throughput" else 1
    return min(known, key=lambda point: (sign * (point.value(name) or 0), _named(point, members)))


def _is_tie(best: Point, members: Sequence[Point], name: str) -> bool:
    return all(gain <= 1 + _TIE for gain, _ in _gains(best, members, name))


def _alike(best: Point, members: Sequence[Point]) -> list[Point]:
    """Those that are as good as the best one in throughput and in latency."""
    close = [
        {point.test.nodeid for gain, point in _gains(best, members, name) if gain <= 1 + _TIE}
        for name in ("throughput", "e2e_latency")
    ]
    return [point for point in members if all(point.test.nodeid in names for names in close)]


def _gains(best: Point, members: Sequence[Point], name: str) -> list[tuple[float, Point]]:
    """How many times better the best one is than each other."""
    mine = best.value(name) or 1
    pairs = [(value, point) for point in members if point is not best and (value := point.value(name)) is not None]
    return [(mine / value if name == "throughput" else value / mine, point) for value, point in pairs]


def _others(best: Point, name: str, members: Sequence[Point]) -> str:
    gains = _gains(best, members, name)
    if name == "throughput":
        return listed([f"{_times(gain)}that of {_short(point, members)}" for gain, point in gains])
    return listed([
        f"{_short(point, members)} takes {'as' if gain <= 1 + _TIE else f'{ratio(gain)} times as'} long"
        for gain, point in gains
    ])  # fmt: skip


def _times(gain: float) -> str:
    return "about " if gain <= 1 + _TIE else f"{ratio(gain)} times "


def _of(best: Point, name: str, members: Sequence[Point]) -> str:
    what = "the most throughput" if name == "throughput" else "the least latency"
    return f"{_short(best, members)} has {what}, {quantity(best.value(name), name)} ({_others(best, name, members)})"


def _short(point: Point, members: Sequence[Point]) -> str:
    return short(_named(point, members))
