"""Measurements without a workload: the floor of the boards in use, and what the devices reach at best.

A launch of them is one fresh reading. They are gated, stored and recorded as any other measurement; nothing is sent, so
that there are no requests, no traces and no conditions of a load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy.idle import Floor
from pytest_llmperf.measurement.base import BaseMeasurement
from pytest_llmperf.metrics import HARDWARE, IDLE, Missing, Summary, summarize_launches
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.runner import Launch

__all__ = [
    "HARDWARE_TOLERANCE",
    "IDLE_TOLERANCE",
    "GaugeMeasurement",
    "HardwareMeasurement",
    "IdleMeasurement",
]

#: A board's temperature and what a driver does when idle move the floor by some percent.
IDLE_TOLERANCE = 0.10
#: The best of several rounds hardly moves on a GPU.
HARDWARE_TOLERANCE = 0.05


class GaugeMeasurement(BaseMeasurement):
    """What measurements without a workload have in common.

    Attributes:
        seconds: How long each launch was measured.
    """

    kind: str
    seconds: list[float]

    @property
    def digest(self) -> str:
        """Equal for one kind."""
        return hashlib.sha256(self.kind.encode()).hexdigest()[:16]

    def wall_seconds(self) -> list[float]:
        """How long each launch was measured."""
        return list(self.seconds)

    def windows(self) -> list[tuple[str, Launch]]:
        """None: no request was sent."""
        return []

    def record(self) -> dict[str, Any]:
        """That nothing was sent."""
        return {"requests": None, "conditions": {}}


@dataclass
class IdleMeasurement(GaugeMeasurement):
    """What the boards of an engine draw when idle, rung by rung.

    Attributes:
        test: The test's id, with ``#name`` for a named measurement.
        launches: The engine and the clock of each launch.
        seconds: How long each launch was measured.
        floors: What was read, launch by launch.
    """

    test: str
    launches: list[Launch] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    kind = "idle"

    def add(self, floor: Floor, launch: Launch, seconds: float) -> None:
        """Take one more launch."""
        self.floors.append(floor)
        self.launches.append(launch)
        self.seconds.append(seconds)

    @property
    def boards(self) -> str | None:
        """The engine's boards, as a baseline names them."""
        return "+".join(sorted({uuid for floor in self.floors for uuid in floor.uuids})) or None

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """Every rung."""
        return {name: tolerances.get(name, IDLE_TOLERANCE if for_all is None else for_all) for name in IDLE}

    def summaries(self) -> dict[str, Summary]:
        """Every rung, in watts."""
        return {
            name: summarize_launches([_watts(floor, name.removesuffix("_power")) for floor in self.floors])
            for name in IDLE
        }


def _watts(floor: Floor, rung: str) -> float | Missing:
    power = getattr(floor, rung)
    return Missing(power.reason) if isinstance(power, Unreadable) else float(power.watts_of(floor.uuids))


@dataclass
class HardwareMeasurement(GaugeMeasurement):
    """What the devices in use reach at best.

    Attributes:
        test: The test's id, with ``#name`` for a named measurement.
        processor: Whether the device is this machine's processor. Its memory is everybody's: between two runs of one
            machine the copy was seen 16 to 49 GB/s, so that it is shown and gates nothing unless a tolerance names it.
        launches: What measured, and the clock, of each launch.
        seconds: How long each launch was measured.
        found: The peaks of every device, launch by launch.
    """

    test: str
    processor: bool = False
    launches: list[Launch] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    found: list[Sequence[DevicePeaks]] = field(default_factory=list)
    kind = "hardware"

    def add(self, found: Sequence[DevicePeaks], launch: Launch, seconds: float) -> None:
        """Take one more launch."""
        self.found.append(found)
        self.launches.append(launch)
        self.seconds.append(seconds)

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """Every figure; of a processor those alone that a tolerance names."""
        if self.processor:
            return {name: tolerances[name] for name in HARDWARE if name in tolerances}
        return {name: tolerances.get(name, HARDWARE_TOLERANCE if for_all is None else for_all) for name in HARDWARE}

    def summaries(self) -> dict[str, Summary]:
        """Every figure, in B/s and FLOP/s."""
        return {
            name: summarize_launches([_FIGURES[name](one, self._no_link) for one in self.found]) for name in HARDWARE
        }

    @property
    def _no_link(self) -> str:
        """Why nothing is known of a link between the host and the devices, where that is so."""
        if self.processor:
            return "a processor's memory is the host's own"
        return "the link to the host is not simulated" if self.info.simulated else "it was not measured"


def _lowest(values: Sequence[float | None], why: str) -> float | Missing:
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else Missing(why)


def _peer_to_peer(found: Sequence[DevicePeaks], _: str) -> float | Missing:
    if len(found) < 2:
        return Missing("there is one device only")
    return _lowest([rate for one in found for rate in one.peer_to_peer.values()], "no device reaches another")


def _matmul(found: Sequence[DevicePeaks], _: str) -> float | Missing:
    common = [name for name in found[0].matmul_flops if all(name in one.matmul_flops for one in found)]
    rates = [min(one.matmul_flops[name] for one in found) for name in common]
    return max(rates) if rates else Missing("matrix products are measured on GPUs only")


_FIGURES: Mapping[str, Callable[[Sequence[DevicePeaks], str], float | Missing]] = {
    "copy_bandwidth": lambda found, _: _lowest([one.copy_bandwidth for one in found], "no device was measured"),
    "host_to_device": lambda found, why: _lowest([one.host_to_device for one in found], why),
    "device_to_host": lambda found, why: _lowest([one.device_to_host for one in found], why),
    "peer_to_peer": _peer_to_peer,
    "matmul_flops": _matmul,
}
