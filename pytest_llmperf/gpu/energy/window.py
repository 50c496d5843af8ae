"""What some boards said within one window of time: energy, power, clock, utilisation, memory.

The boards that serve one engine are one machine: their joules and bytes are added, their shares averaged.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy, plausible, total
from pytest_llmperf.gpu.energy.exact_window import across
from pytest_llmperf.gpu.energy.power_curve import integrated
from pytest_llmperf.gpu.sampling.sampler import BoardSamples

__all__ = ["NOBODY_READ", "BoardEnergy", "WindowReadings", "read_window"]

_HZ_PER_MHZ = 1e6
#: An energy of which not even this is known (standard uncertainty, relative) is none.
_WORST = 0.05


@dataclass(frozen=True)
class BoardEnergy:
    """The energy of one board in a window.

    Attributes:
        uuid: Of the board.
        energy: By its energy counter; without a usable one, by its power readings.
        integral: By its power readings.
    """

    uuid: str
    energy: Joules | NoEnergy
    integral: Joules | NoEnergy


@dataclass(frozen=True)
class WindowReadings:
    """What the boards of one engine said within one window.

    Attributes:
        boards: Energy board by board.
        energy: Of all boards together, each by the best that it has.
        integral: Of all boards together by their power readings, to be held beside the counters.
        sm_clock_hz: Median over samples and boards.
        gpu_utilization: Mean share of the time in which any kernel ran.
        dram_utilization: Mean share of the memory bandwidth that was used, by the boards' own counters.
        tensor_utilization: Mean share of the time in which the tensor cores worked.
        memory_used: Bytes, all boards together, at most.
        sm_activity: Mean share of the SMs that had work; unlike ``gpu_utilization`` it tells one kernel on one SM from
            a full board.
    """

    boards: tuple[BoardEnergy, ...]
    energy: Joules | NoEnergy
    integral: Joules | NoEnergy
    sm_clock_hz: Reading[float]
    gpu_utilization: Reading[float]
    dram_utilization: Reading[float]
    tensor_utilization: Reading[float]
    memory_used: Reading[float]
    sm_activity: Reading[float]

    @classmethod
    def missing(cls, reason: str) -> WindowReadings:
        """Nothing of all this, for one reason."""
        nothing, none = Unreadable(reason), NoEnergy(reason)
        return cls((), none, none, *[nothing] * 6)


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

    def inside(at_ns: array[int], values: array[float]) -> list[float]:
        return [v for at, v in zip(at_ns, values, strict=True) if start_ns <= at <= end_ns and v == v]

    return WindowReadings(
        boards,
        total([board.energy for board in boards]),
        total([board.integral for board in boards]),
        sm_clock_hz=_joined(
            samples, "sm_clock", lambda s: inside(s.at_ns, s.sm_clock_mhz), lambda v: statistics.median(v) * _HZ_PER_MHZ
        ),
        gpu_utilization=_joined(
            samples, "utilization", lambda s: inside(s.slow_at_ns, s.utilization), statistics.fmean
        ),
        dram_utilization=_joined(samples, "dram", lambda s: _present(s.dram), statistics.fmean),
        tensor_utilization=_joined(samples, "tensor", lambda s: _present(s.tensor), statistics.fmean),
        memory_used=_joined(samples, "memory_used", lambda s: _most(inside(s.slow_at_ns, s.memory_used)), sum),
        sm_activity=_joined(samples, "sm", lambda s: _present(s.sm), statistics.fmean),
    )


def _energy(samples: BoardSamples, start_ns: int, end_ns: int) -> BoardEnergy:
    counter, power = samples.counter(), samples.power()
    if not counter and not power:
        why = (samples.refused.get(name, f"{name} was not read") for name in ("energy", "power"))
        nothing = NoEnergy("; ".join(why))
        return BoardEnergy(samples.uuid, nothing, nothing)
    limit_w = samples.power_limit_w
    energy = across(counter, power, start_ns, end_ns, worst=_WORST, limit_w=limit_w)
    return BoardEnergy(samples.uuid, energy, plausible(integrated(power, start_ns, end_ns), limit_w))


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
            refused = one.refused.get(name) or one.refused.get("activity" if name in ("dram", "tensor", "sm") else name)
            return Unreadable(refused or "no sample of it falls into the window")
        found += of_board
    return float(join(found))


def _present(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _most(values: Sequence[float]) -> list[float]:
    return [max(values)] if values else []
