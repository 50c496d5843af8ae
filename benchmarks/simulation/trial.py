"""One point on a simulated board: the same work, measured as a real one is."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.metrics import request_tpot, request_ttft
from pytest_llmperf.metrics.throughput import tokens_within, window
from pytest_llmperf.runner.drive import drive
from pytest_llmperf.runner.plan import Planned, Vocabulary, plan
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.trace import RepeatTrace
from pytest_llmperf.workload import Workload

__all__ = ["FIGURES", "Point", "points_of", "simulate"]

#: What is compared, in SI units.
FIGURES = ("ttft", "tpot", "throughput", "power")
#: Repeats go on for so many seconds of virtual time, as the plugin's energy windows do.
_WINDOW_S = 1.6


@dataclass(frozen=True)
class Point:
    """What was measured.

    Attributes:
        source: The file it comes from.
        test: Its name there.
        board: Which of the boards.
        model: A shipped shape.
        arguments: The engine's.
        workload: What was sent.
        figures: By name, in SI units; ``None`` where there is none.
    """

    source: str
    test: str
    board: str
    model: str
    arguments: Mapping[str, Any]
    workload: Workload
    figures: Mapping[str, float | None]


def points_of(file: Path) -> list[Point]:
    """All points of a file in ``measured/``."""
    record = json.loads(file.read_text("utf-8"))
    return [
        Point(
            file.stem,
            point["test"],
            record["board"],
            record["model"],
            record["arguments"],
            Workload(**point["workload"]),
            {name: point[name] for name in (*FIGURES, "sm_clock")},
        )
        for point in record["points"]
    ]


class _NoWords:
    """Prompts of one token id: what is in them matters to a prefix cache alone."""

    def draw(self, _: Any, count: int) -> tuple[int, ...]:
        return (1,) * count

    def draws(self, _: Any, counts: Sequence[int]) -> list[tuple[int, ...]]:
        return [(1,) * count for count in counts]


def simulate(
    point: Point, model: BoardModel, *, gain: float = 1.0, sm_mhz: int | None = None
) -> dict[str, float | None]:
    """The figures of the same point on a simulated board.

    Args:
        point: What to do.
        model: Of the board.
        gain: A factor on its power.
        sm_mhz: The SM clock at which the board is locked; ``None``: it runs free.

    One warm-up, then repeats until the energy window is long enough; power is the mean over them.
    """
    spec = specify(
        EngineChoice(f"sim:{model.key}", "sim", {**point.arguments, "power_scale": gain}, ""),
        point.model,
        {},
    )
    devices = [SimulatedDevice(model)]
    if sm_mhz is not None:
        devices[0].lock_sm_clock(sm_mhz)
    engine = SimulatedEngine(spec, board=devices[0], model=model)

    async def work() -> tuple[list[RepeatTrace], float, float]:
        await engine.open()
        repeats = []
        await _repeat(engine, point, -1)
        begun = engine.clock.now()
        while engine.clock.now() - begun < _WINDOW_S * NS_PER_S or len(repeats) < 2:
            repeats.append(await _repeat(engine, point, len(repeats)))
        ended = engine.clock.now()
        history, inside = devices[0].history, devices[0].timeline.inside
        devices[0].power_w()  # a reading takes in what was told last
        power = history.mean("watts", inside(begun), inside(ended))
        pieces = list(history.pieces(inside(begun), inside(ended)))
        await engine.close()
        return repeats, power, _median_clock(pieces)

    with engine.clock.runner() as runner:
        repeats, power, clock = runner.run(work())
    tpots = [statistics.median(found) for repeat in repeats if (found := _tpots(repeat))]
    throughputs = [_tokens_per_second(repeat) for repeat in repeats]
    return {
        "ttft": statistics.median(statistics.median(map(request_ttft, repeat.completed)) for repeat in repeats),
        "tpot": statistics.median(tpots) if tpots else None,
        "throughput": statistics.median(throughputs),
        "power": power,
        "sm_clock": clock * 1e6,
    }


async def _repeat(engine: SimulatedEngine, point: Point, number: int) -> RepeatTrace:
    name = f"{number}" if number >= 0 else "warm-up"
    remembered = point.arguments.get("enable_prefix_caching", False)
    vocabulary: Any = Vocabulary(32000, frozenset()) if remembered else _NoWords()
    planned: list[Planned] = plan(point.workload, vocabulary, test=point.test, launch=0, repeat=name)
    return await drive(
        engine, point.workload, planned, launch=0, repeat=max(0, number), repeat_id=name, read_timeout=1e4
    )


def _tokens_per_second(repeat: RepeatTrace) -> float:
    """The tokens that came within the window, as they were counted when the points were measured."""
    start, end = window(repeat)
    return sum(tokens_within(r, start, end) for r in repeat.completed) / ((end - start) / NS_PER_S)


def _tpots(repeat: RepeatTrace) -> list[float]:
    return [tpot for request in repeat.completed if (tpot := request_tpot(request)) is not None]


def _median_clock(pieces: list[tuple[Any, int]]) -> float:
    """The SM clock in MHz that is not exceeded for half of the time."""
    spent = sorted((level.sm_mhz, lasted) for level, lasted in pieces)
    half, so_far = sum(lasted for _, lasted in spent) / 2, 0
    for clock, lasted in spent:
        so_far += lasted
        if so_far >= half:
            return float(clock)
    raise ValueError("nothing lasted any time")
