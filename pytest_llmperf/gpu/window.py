"""What some boards said within one window of time: energy, power, clock, utilisation, memory.

The boards that serve one engine are one machine: their joules and bytes are added, their shares averaged.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy, by_counter, total
from pytest_llmperf.gpu.power_curve import integrated
from pytest_llmperf.gpu.sampler import BoardSamples

__all__ = ["NOBODY_READ", "BoardEnergy", "WindowReadings", "read_window"]

_HZ_PER_MHZ = 1e6


@dataclass(frozen=True)
class BoardEnergy:
    """The energy of one board in a window, by its two sensors.

    Attributes:
        uuid: Of the board.
        counter: By its energy counter, cut at the counter's steps; ``None`` where it has none.
        integral: By its power readings, over the whole window.
        why_no_counter: In the driver's words; empty where it has one.
    """

    uuid: str
    counter: Joules | NoEnergy | None
    integral: Joules | NoEnergy
    why_no_counter: str = ""

    @property
    def best(self) -> Joules | NoEnergy:
        """By the counter where there is one, be it only why it tells nothing; else by the power readings.

        What a counter cannot tell (the window is too short, the driver was reloaded), power readings would only seem
        to: they come from the same sensor, and no more often.
        """
        if self.counter is not None:
            return self.counter
        if isinstance(self.integral, NoEnergy):
            return NoEnergy(f"{self.why_no_counter}; {self.integral.reason}")
        return self.integral


@dataclass(frozen=True)
class WindowReadings:
    """What the boards of one engine said within one window.

    Attributes:
        boards: Energy board by board.
        energy: Of all boards together: by their counters if all have one, else by their power readings.
        integral: Of all boards together by their power readings, to be held beside the counters.
        sm_clock_hz: Median over samples and boards.
        gpu_utilization: Mean share of the time in which any kernel ran.
        dram_utilization: Mean share of the memory bandwidth that was used, by the boards' own counters.
        tensor_utilization: Mean share of the time in which the tensor cores worked.
        memory_used: Bytes, all boards together, at most.
    """

    boards: tuple[BoardEnergy, ...]
    energy: Joules | NoEnergy
    integral: Joules | NoEnergy
    sm_clock_hz: Reading[float]
    gpu_utilization: Reading[float]
    dram_utilization: Reading[float]
    tensor_utilization: Reading[float]
    memory_used: Reading[float]

    @classmethod
    def missing(cls, reason: str) -> WindowReadings:
        """Nothing of all this, for one reason."""
        nothing, none = Unreadable(reason), NoEnergy(reason)
        return cls((), none, none, nothing, nothing, nothing, nothing, nothing)


#: Of an engine on no board, or on boards that cannot be read from here.
NOBODY_READ = WindowReadings.missing("the engine runs on no GPU that can be read from here")


def read_window(samples: Sequence[BoardSamples], start_ns: int, end_ns: int) -> WindowReadings:
    """What the boards said between two moments.

    Args:
        samples: Of every board of the engine, from a little before the window to a little after.
        start_ns: Begin of the window, monotonic.
        end_ns: Its end.
    """
    if not samples:
        return NOBODY_READ
    boards = tuple(_energy(one, start_ns, end_ns) for one in samples)
    integral = total([board.integral for board in boards])
    counters = [board.counter for board in boards if board.counter is not None]
    # Counters of some boards and power readings of others would be of different windows.
    energy = total(counters) if len(counters) == len(boards) else integral
    if isinstance(energy, NoEnergy) and len(boards) == 1:
        energy = boards[0].best

    def inside(at_ns: array[int], values: array[float]) -> list[float]:
        return [v for at, v in zip(at_ns, values, strict=True) if start_ns <= at <= end_ns and v == v]

    return WindowReadings(
        boards,
        energy,
        integral,
        sm_clock_hz=_joined(
            samples, "sm_clock", lambda s: inside(s.at_ns, s.sm_clock_mhz), lambda v: statistics.median(v) * _HZ_PER_MHZ
        ),
        gpu_utilization=_joined(
            samples, "utilization", lambda s: inside(s.slow_at_ns, s.utilization), statistics.fmean
        ),
        dram_utilization=_joined(samples, "dram", lambda s: _present(s.dram), statistics.fmean),
        tensor_utilization=_joined(samples, "tensor", lambda s: _present(s.tensor), statistics.fmean),
        memory_used=_joined(samples, "memory_used", lambda s: _most(inside(s.slow_at_ns, s.memory_used)), sum),
    )


def _energy(samples: BoardSamples, start_ns: int, end_ns: int) -> BoardEnergy:
    counter, power = samples.counter(), samples.power()
    return BoardEnergy(
        samples.uuid,
        by_counter(counter, start_ns, end_ns) if counter else None,
        integrated(power, start_ns, end_ns) if power else NoEnergy(_refused(samples, "power", "the power")),
        "" if counter else _refused(samples, "energy", "the energy counter"),
    )


def _refused(samples: BoardSamples, name: str, what: str) -> str:
    return samples.refused.get(name, f"{what} was not read")


def _joined(
    samples: Sequence[BoardSamples],
    name: str,
    values: Callable[[BoardSamples], Sequence[float]],
    join: Callable[[Iterable[float]], float],
) -> Reading[float]:
    """One number of all boards; a board without any value leaves them all without one."""
    found: list[float] = []
    for one in samples:
        of_board = values(one)
        if not of_board:
            refused = one.refused.get(name) or one.refused.get("activity" if name in ("dram", "tensor") else name)
            return Unreadable(refused or "no sample of it falls into the window")
        found += of_board
    return float(join(found))


def _present(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _most(values: Sequence[float]) -> list[float]:
    return [max(values)] if values else []
