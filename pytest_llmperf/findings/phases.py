"""What do prefill and decode cost, apart and together: time, power, utilisation, joules a token?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmperf.findings.points import Axes, Point, distinct, group
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    column,
    finding,
    quantity,
    ratio,
    share,
    slug,
)
from pytest_llmperf.results import Finding, Results

__all__ = ["phases"]

_Lengths = tuple[int | str | None, int | str | None]

#: Of more batches than this a few stand for all.
_MANY = 3
_COLUMNS = ("e2e_latency", "power", "gpu_utilization", "sm_activity")


@dataclass(frozen=True)
class _Apart:
    """The phases of one load.

    Attributes:
        prefill: Requests for one output token; ``None`` where only :meth:`check_phases` ran.
        decode: Requests with one prompt token; likewise.
        whole: The requests that both are parts of.
        own: The test that took the phases apart itself.
        prefill_jpt: Joules a prompt token: of that test where there is one.
        decode_jpt: Joules an output token; likewise.
    """

    prefill: Point | None
    decode: Point | None
    whole: Point | None
    own: Point | None
    prefill_jpt: float
    decode_jpt: float

    @property
    def points(self) -> list[Point]:
        return [point for point in (self.prefill, self.decode, self.whole) if point is not None]

    @property
    def sources(self) -> list[Point]:
        """All whose figures are told."""
        return self.points if self.own is None else [*self.points, self.own]


def phases(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each batch whose phases were measured apart.

    Of a sweep over the clock it tells two places: the clock that runs free (or else the highest), and the one of most
    tokens per joule.
    """
    static = [point for point in points if point.axes.load == "batch"]
    both = {point.axes: point for point in distinct(point for point in static if point.test.phases is not None)}
    usual = Counter((point.axes.input_len, point.axes.output_len) for point in distinct(static))
    twice: dict[Axes, list[Point]] = {}
    for point in static:
        twice.setdefault(point.axes, []).append(point)
    apart = [one for members in group(static, "input_len", "output_len") for one in _apart(members, both, usual, twice)]
    chosen: dict[tuple[object, ...], _Apart] = {}
    swept: dict[tuple[object, ...], list[_Apart]] = {}
    for one in apart:
        if one.points[-1].axes.clock is not None:
            swept.setdefault(one.points[-1].axes.without("clock"), []).append(one)
        axes = one.points[-1].axes
        place = axes.without("clock")
        held = chosen.get(place)
        if held is None or (held.points[-1].axes.clock is not None and _higher(axes.clock, held.points[-1].axes.clock)):
            chosen[place] = one
    told = _few(list(chosen.values()))
    locked = [max(several, key=_efficiency) for several in swept.values() if len(several) > 1]
    return [_finding(one, labels) for one in (*told, *(one for one in _few(locked) if one not in told))]


def _efficiency(one: _Apart) -> tuple[float, float]:
    """Tokens per joule end to end where that was measured, else by the decode; of equals the lower clock."""
    whole = None if one.whole is None else one.whole.value("tpj")
    return whole or 1 / one.decode_jpt, -(one.points[-1].axes.clock or 0.0)


def _few(apart: Sequence[_Apart]) -> list[_Apart]:
    """Of many batches of one load the smallest, the one in the middle, and the largest."""
    alike: dict[tuple[object, ...], list[_Apart]] = {}
    for one in apart:
        alike.setdefault(one.points[-1].axes.without("clock", "size", "input_len", "output_len"), []).append(one)
    kept = []
    for batches in alike.values():
        batches.sort(key=lambda one: one.points[-1].axes.size)
        kept += batches if len(batches) <= _MANY else [batches[0], batches[len(batches) // 2], batches[-1]]
    return kept


def _higher(clock: float | None, than: float) -> bool:
    return clock is None or clock > than


def _apart(
    members: Sequence[Point], both: Mapping[Axes, Point], usual: Mapping[_Lengths, int],
    twice: Mapping[Axes, Sequence[Point]],
) -> list[_Apart]:  # fmt: skip
    """The pairs of phases among points that differ in their lengths only.

    Args:
        members: These points.
        both: Tests that took the phases apart themselves, by where they lie.
        usual: How many of the run's tests have which lengths: of a grid of lengths the usual ones are told.
        twice: All points that measured the same thing, by where they lie.
    """
    taken_apart = {(p.axes.input_len, p.axes.output_len): both[p.axes] for p in members if p.axes in both}
    prefills = {p.axes.input_len: p for p in members if p.axes.output_len == 1 and p.value("prefill_jpt")}
    decodes = {p.axes.output_len: p for p in members if p.axes.input_len == 1 and p.value("decode_jpt")}
    wholes = {(p.axes.input_len, p.axes.output_len): p for p in members if p.axes.input_len != 1 != p.axes.output_len}
    shapes = [place for place in wholes if place in taken_apart or (place[0] in prefills and place[1] in decodes)]
    if taken_apart:
        shapes = [place for place in shapes if place in taken_apart]
    elif shapes:
        shapes = [max(shapes, key=lambda place: (usual.get(place, 0), -_tokens(place[0]), -_tokens(place[1])))]
    if not shapes and prefills and decodes:
        longest = (max(prefills, key=_tokens), max(decodes, key=_tokens))
        shapes = [longest]
    found = []
    for prompt, output in shapes:
        prefill, decode, own = prefills.get(prompt), decodes.get(output), taken_apart.get((prompt, output))
        whole = wholes.get((prompt, output), own)
        prefill, decode, whole = _of_one_file(prefill, decode, whole, own, twice)
        prefill_jpt = _first(own, prefill, "prefill_jpt")
        decode_jpt = _first(own, decode, "decode_jpt")
        if prefill_jpt is not None and decode_jpt is not None:
            found.append(_Apart(prefill, decode, whole, own, prefill_jpt, decode_jpt))
    return found


def _of_one_file(
    prefill: Point | None, decode: Point | None, whole: Point | None, own: Point | None,
    twice: Mapping[Axes, Sequence[Point]],
) -> tuple[Point | None, Point | None, Point | None]:  # fmt: skip
    """The same places, measured in one file as far as it has them: one phase is not to be longer than the whole.

    Times differ from one part of a run to the next more than within one.

    Args:
        prefill: As chosen for itself.
        decode: Likewise.
        whole: Likewise.
        own: The test that took the phases apart itself, whose file goes before others that have as many.
        twice: All points that measured the same thing, by where they lie.
    """
    options = [
        _measured(prefill, "prefill_jpt", twice), _measured(decode, "decode_jpt", twice), _measured(whole, "", twice),
    ]  # fmt: skip
    files = Counter(file for points in [*options, [own] if own else []] for file in {_file(point) for point in points})
    ranked = sorted(files, key=lambda file: (-files[file], own is None or _file(own) != file, file))
    if not ranked or files[ranked[0]] < 2:
        return prefill, decode, whole
    chosen = [
        next((point for point in points if _file(point) == ranked[0]), points[0] if points else None)
        for points in options
    ]
    return chosen[0], chosen[1], chosen[2]


def _measured(chosen: Point | None, name: str, twice: Mapping[Axes, Sequence[Point]]) -> list[Point]:
    """The chosen one, and after it others of its place that have the value and are of one phase, or whole."""
    if chosen is None:
        return []
    others = sorted(twice[chosen.axes], key=lambda point: (-point.most_launches, point.test.nodeid))
    return [
        chosen,
        *(p for p in others if p is not chosen and p.test.phases is None and (not name or p.value(name) is not None)),
    ]


def _file(point: Point) -> str:
    return point.test.nodeid.partition("::")[0]


def _tokens(length: int | str | None) -> int:
    return length if isinstance(length, int) else 0


def _first(one: Point | None, other: Point | None, name: str) -> float | None:
    return next((value for point in (one, other) if point is not None and (value := point.value(name))), None)


def _finding(apart: _Apart, labels: Labels) -> Finding:
    whole = apart.points[-1]
    prompt = (apart.whole or apart.prefill or whole).axes.input_len
    output = (apart.whole or apart.decode or whole).axes.output_len
    rows: Rows = [
        ["prefill", *_row(apart.prefill, prompt, 1), apart.prefill_jpt],
        ["decode", *_row(apart.decode, 1, output), apart.decode_jpt],
    ]
    if apart.whole is not None:
        rows.append(["end to end", *_row(apart.whole, prompt, output), apart.whole.value("jpt")])
    columns = [
        column("phase", "Phase"), column("input_len"), column("output_len"), *(column(name) for name in _COLUMNS),
        column("jpt", "Energy per token of the phase"),
    ]  # fmt: skip
    others = labels.parts(whole.axes, "input_len", "output_len")
    return finding(
        "phases",
        slug(labels.name(whole.axes, "input_len", "output_len"), f"{prompt}-{output}"),
        f"Prefill and decode: {', '.join([f'{prompt} + {output} tokens', *others])}",
        [_energy(apart, ", ".join([f"{prompt} + {output} tokens", *others])), *_time(apart), *_power(apart)],
        columns,
        rows,
        apart.sources,
    )


def _row(point: Point | None, prompt: int | str | None, output: int | str | None) -> list[float | str | None]:
    return [prompt, output, *(None if point is None else point.value(name) for name in _COLUMNS)]


def _energy(apart: _Apart, subject: str) -> str:
    prefill, decode = quantity(apart.prefill_jpt, "jpt"), quantity(apart.decode_jpt, "jpt")
    return (
        f"A decoded token takes {ratio(apart.decode_jpt / apart.prefill_jpt)} times the energy of a prefilled one "
        f"({decode} against {prefill}; {subject})."
    )


def _time(apart: _Apart) -> list[str]:
    """How the time of a request divides."""
    whole = apart.whole
    if whole is None or (latency := whole.value("e2e_latency")) is None or (ttft := whole.value("ttft")) is None:
        return []
    return [
        f"Of {quantity(latency, 'e2e_latency')} end to end, {quantity(ttft, 'ttft')} ({share(ttft / latency)}) pass "
        "until the first token."
    ]


def _power(apart: _Apart) -> list[str]:
    if apart.prefill is None or apart.decode is None:
        return []
    watts = [point.value("power") for point in (apart.prefill, apart.decode)]
    if watts[0] is None or watts[1] is None:
        return []
    return [f"Prefill draws {quantity(watts[0], 'power')}, decode {quantity(watts[1], 'power')}."]
