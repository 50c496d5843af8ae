"""What the boards did: their clocks and their energy."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_llmperf.gpu import value_or_none, why_unreadable
from pytest_llmperf.gpu.energy import Joules, NoEnergy
from pytest_llmperf.runner import Launch

__all__ = ["clock_record", "energy_record"]


def clock_record(launches: Sequence[Launch]) -> dict[str, Any]:
    """Over all launches: the lowest, the median and the highest clock of SMs and memory, and the most throttling."""
    clocks = [launch.clock for launch in launches if launch.clock is not None]
    if not clocks:
        nothing = ("requested_mhz", "locked_mhz", "observed_mhz", "throttled_fraction", "memory_mhz")
        return dict.fromkeys(nothing)
    held = clocks[-1].held
    memory = held and held.memory
    return {
        "requested_mhz": held and held.requested_mhz,
        "locked_mhz": held and held.locked_mhz,
        "observed_mhz": _observed(clock.observed_mhz for clock in clocks),
        "throttled_fraction": max(
            (clock.throttled_fraction for clock in clocks if clock.throttled_fraction is not None), default=None
        ),
        "memory_mhz": None
        if memory is None
        else {
            "requested": memory.requested_mhz,
            "locked": memory.locked_mhz,
            "observed": _observed(clock.observed_memory_mhz for clock in clocks),
        },
    }


def _observed(seen: Iterable[tuple[float, float, float] | None]) -> dict[str, float] | None:
    known = [values for values in seen if values is not None]
    if not known:
        return None
    low, middle, high = zip(*known, strict=True)
    return {"min": min(low), "median": statistics.median(middle), "max": max(high)}


def energy_record(launch: Launch) -> dict[str, Any]:
    """The joules of one launch, of all boards together and of each."""
    window, idle = launch.readings.window, launch.readings.idle_w
    return {
        "seconds": launch.readings.seconds,
        "busy": launch.readings.busy,
        "repeats": len(launch.watched),
        "idle_power": value_or_none(idle),
        "idle_reason": why_unreadable(idle),
        **_joules(window.energy, window.integral),
        "boards": [{"uuid": board.uuid, **_joules(board.energy, board.integral)} for board in window.boards],
    }


def _joules(energy: Joules | NoEnergy, integral: Joules | NoEnergy) -> dict[str, Any]:
    known = energy if isinstance(energy, Joules) else None
    return {
        "joules": known and known.value,
        "error": known and known.error,
        "source": known and known.source,
        "power": known and known.watts,
        "integral_power": integral.watts if isinstance(integral, Joules) else None,
        "reason": energy.reason if isinstance(energy, NoEnergy) else None,
    }
