"""What do the boards draw while they do nothing, and how much of a test's power is that floor?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_llmperf.findings.points import Point, distinct
from pytest_llmperf.findings.telling import Labels, Rows, column, finding, listed, share, short
from pytest_llmperf.report.units import format_value, printable
from pytest_llmperf.results import Finding, Results, TestRecord

__all__ = ["idle"]

#: What stands between the rungs of the ladder, from the lowest.
_RUNGS = {
    "bare": "without an engine",
    "context": "with a CUDA context",
    "loaded": "with the model loaded",
}
#: The metric of each rung in a test that measures nothing else.
_METRICS = {"bare": "bare_power", "context": "context_power", "loaded": "loaded_power", "locked": "locked_power"}


def idle(results: Results, points: Sequence[Point], _: Labels) -> list[Finding]:
    """A finding where the run measured its boards at rest."""
    shares = _shares(points)
    gauges = [
        test for test in results.tests if test.invalid is None and any(_watts_of(test, m) for m in _METRICS.values())
    ]
    if gauges:
        return [_from_gauges(sorted(gauges, key=lambda test: (test.clock.locked_mhz or 0.0, test.nodeid)), shares)]
    ladder = _ladder(results)
    if ladder is None:
        return []
    board, rungs, reasons = ladder
    rows = _rows(rungs)
    sentences = [_floor(rungs, "An idle board draws"), *_share(shares), *_held(rungs)]
    sentences += [f"Not known {_rung(name)}: {reason}." for name, reason in reasons.items()]
    if board:
        sentences.append(f"Of one board, {board}.")
    tests = [point for point, _ in shares]
    return [finding("idle", "floor", "What an idle board draws", sentences, _columns(), rows, tests)]


def _columns() -> list[Any]:
    return [column("rung", "Idle"), column("clock"), column("power")]


def _rows(rungs: Mapping[str, float]) -> Rows:
    return [[_rung(name), _clock(name), watts] for name, watts in rungs.items()]


def _clock(name: str) -> float | None:
    """At which a rung was held, MHz; ``None`` where none was, or it is not told."""
    clock = name.removeprefix("held").strip() if name.startswith("held") else ""
    try:
        return float(clock)
    except ValueError:
        return None


def _watts_of(test: TestRecord, metric: str) -> float | None:
    found = test.metrics.get(metric)
    return None if found is None else found.value


def _from_gauges(tests: Sequence[TestRecord], shares: Sequence[tuple[Point, float]]) -> Finding:
    """Of tests that measured nothing but the floor, by rising clock: each rung once, and each clock that was held."""
    rungs: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for test in tests:
        at = test.clock.locked_mhz
        for name, metric in _METRICS.items():
            rung = name if name != "locked" else f"held {at:g}" if at is not None else "held"
            value = test.metrics.get(metric)
            if value is not None and value.value is not None:
                rungs.setdefault(rung, value.value)
            elif value is not None and value.reason:
                reasons.setdefault(rung, printable(value.reason.rstrip(".")))
    if any(name.startswith("held") for name in rungs):
        reasons.pop("held", None)
    known = _known(rungs)
    boards = max((test.engine.tensor_parallel_size for test in tests if test.engine is not None), default=1)
    draws = "An idle board draws" if boards == 1 else f"The {boards} idle boards together draw"
    title = "What an idle board draws" if boards == 1 else "What idle boards draw together"
    sentences = [_floor(known, draws), *_share(shares), *_held(known)]
    sentences += [f"Not known {_rung(name)}: {reason}." for name, reason in reasons.items() if name not in known]
    rows = _rows(known)
    one = finding("idle", "floor", title, sentences, _columns(), rows, [point for point, _ in shares])
    return one.model_copy(update={"tests": [*(test.nodeid for test in tests), *one.tests]})


def _rung(name: str) -> str:
    if name.startswith("held"):
        clock = name.removeprefix("held").strip()
        return f"model loaded, {clock} MHz" if clock else "model loaded, clock held"
    return _RUNGS.get(name, name)


def _ladder(results: Results) -> tuple[str, dict[str, float], dict[str, str]] | None:
    """One board's watts rung by rung, and why some are missing; of the board that draws most with the model loaded."""
    sensor = results.environment.sensor
    told = sensor.get("idle") if isinstance(sensor, Mapping) else None
    if not isinstance(told, Mapping):
        return None
    boards = told.get("boards_w")
    by_board = {
        str(uuid): rungs
        for uuid, watts in sorted(boards.items() if isinstance(boards, Mapping) else ())
        if (rungs := _known(watts))
    }
    raw = told.get("reasons")
    reasons = (
        {str(name): printable(str(why).rstrip(".")) for name, why in raw.items()} if isinstance(raw, Mapping) else {}
    )
    if by_board:
        uuid = max(by_board, key=lambda one: by_board[one].get("loaded", 0.0))
        names = {gpu.uuid: f"GPU {gpu.index} ({short(gpu.name)})" for gpu in results.environment.gpus}
        return names.get(uuid, short(uuid)), by_board[uuid], reasons
    held = told.get("held_w")
    sums = _known({
        "bare": told.get("bare_w"), "context": told.get("context_w"), "loaded": told.get("loaded_w"),
        **({f"held {clock}": watts for clock, watts in held.items()} if isinstance(held, Mapping) else {}),
    })  # fmt: skip
    return ("", sums, reasons) if sums else None


def _known(watts: Any) -> dict[str, float]:
    """Those that are numbers, from the lowest rung to the held clocks."""
    if not isinstance(watts, Mapping):
        return {}
    numbers = {
        str(name): float(value)
        for name, value in watts.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    }
    order = list(_RUNGS)
    return dict(sorted(numbers.items(), key=lambda one: (order.index(one[0]) if one[0] in order else len(order),
                                                         len(one[0]), one[0])))  # fmt: skip


def _shares(points: Sequence[Point]) -> list[tuple[Point, float]]:
    """Of each test the share of its power that its boards draw idle, with the model loaded and the clock in force."""
    found = []
    for point in distinct(points):
        shares = [
            energy.idle_power / energy.power
            for energy in point.test.energy
            if energy.idle_power is not None and energy.power is not None and energy.power > 0
        ]
        if shares:
            found.append((point, statistics.median(shares)))
    return found


def _floor(rungs: Mapping[str, float], who: str) -> str:
    told = [f"{format_value(watts, 'W')} {_rung(name)}" for name, watts in rungs.items() if not name.startswith("held")]
    if not told:
        told = [f"{format_value(watts, 'W')} {_rung(name)}" for name, watts in list(rungs.items())[:1]]
    return f"{who} {listed(told)}."


def _held(rungs: Mapping[str, float]) -> list[str]:
    watts = {name: value for name, value in rungs.items() if name.startswith("held")}
    if not watts:
        return []
    clocks = sorted(clock for name in watts if (clock := _clock(name)) is not None)
    at = f"held at {clocks[0]:g} MHz" if clocks else "the clock held"
    if len(clocks) > 1:
        at = f"held at {len(clocks)} clocks from {clocks[0]:g} to {clocks[-1]:g} MHz"
    told = list(dict.fromkeys(format_value(value, "W") for value in (min(watts.values()), max(watts.values()))))
    return [f"With the model loaded and {at} it draws {' to '.join(told)}."]


def _share(shares: Sequence[tuple[Point, float]]) -> list[str]:
    if not shares:
        return []
    low, high = min(one for _, one in shares), max(one for _, one in shares)
    told = share(low) if share(low) == share(high) else f"{share(low)} to {share(high)}"
    return [f"That floor (the model loaded, the clock as in the test) is {told} of the power of this run's tests."]
