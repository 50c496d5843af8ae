"""What the boards draw while they do nothing: the floor that net energy takes off.

A board that waits does not draw nothing, and how much it draws has four rungs: bare, with a CUDA context (which keeps
the clock from falling), with a model in its memory (the memory is powered up), and with the clock held as well. What an
inference adds is what lies above the rung that it ran on, so each is measured where it stands.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu import Reading, Unreadable, value_or_none
from pytest_llmperf.gpu.energy import Joules, NoEnergy, by_counter, by_integral, plausible, steps
from pytest_llmperf.gpu.energy.sensor import Gauge, Sensor
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.gpu.sampling.watch import Watch

__all__ = [
    "SETTLE_S",
    "BoardIdle",
    "Floor",
    "IdleLadder",
    "IdlePower",
    "Waits",
    "idle_of",
    "idle_power",
    "idle_window_s",
]

#: Seconds that boards get to calm down; so long their utilisation may tell what was before.
SETTLE_S = 1.0
#: Boards whose power differs by more between the two halves of a reading have not come to rest, and are read again. An
#: H200 was seen at 82 to 100 W in the 1.6 s that began a second after a CUDA process had left it, and at 79 W later.
_AT_REST = 0.02
#: Likewise between one reading and the next, where boards are waited for: what falls slowly hardly differs within one.
_STILL = 0.005
#: Readings at most; what has not come to rest by then is told with an error that says so.
_READINGS = 15
#: The share of samples in which an idle board may work: what remains of a utilisation that lags, and no more.
_MAY_WORK = 0.1
_IDLE = 1 << REASONS.index("gpu_idle")
#: Utilisation from which a board works; below it a desktop is drawn.
_WORKING = 0.05
_SHORTEST_S = 1.0
#: Idle power hardly moves: so many readings of it do where there is no counter.
_POWER_READINGS = 20
_NOT_YET = Unreadable("it was not measured")
_NOT_ASKED_FOR = Unreadable("only check_idle measures it")


class Waits(Protocol):
    """The time that boards are read in: a clock, or a simulated board that no engine drives."""

    def now(self) -> int:
        """Nanoseconds."""
        ...

    async def sleep_until(self, at_ns: int) -> None:
        """Let time pass until then."""
        ...


@dataclass(frozen=True)
class BoardIdle:
    """What one board drew.

    Attributes:
        watts: Mean power, W.
        error: Its standard error, W; without the sensor's gain.
        source: ``"counter"`` or ``"integral"``.
    """

    watts: float
    error: float
    source: str


@dataclass(frozen=True)
class IdlePower:
    """What all boards in use drew together.

    Attributes:
        boards: Each board, by its UUID.
        restless: UUIDs of those that had not come to rest when the last reading was taken.
    """

    boards: Mapping[str, BoardIdle]
    restless: tuple[str, ...] = ()

    @property
    def watts(self) -> float:
        """Their sum, W."""
        return self.watts_of(self.boards)

    def watts_of(self, uuids: Iterable[str]) -> float:
        """The sum of some of them, W."""
        return sum(self.boards[uuid].watts for uuid in uuids)

    @property
    def error(self) -> float:
        """Its standard error, W."""
        return math.hypot(*(board.error for board in self.boards.values()))


def idle_window_s(sensors: Iterable[Sensor]) -> float:
    """How long boards have to be read for their idle power, in seconds: for the slowest sensor, and at least 1 s."""
    return max([_SHORTEST_S, *map(_window_s, sensors)])


def _window_s(sensor: Sensor) -> float:
    if isinstance(sensor.counter, Gauge):
        return sensor.shortest_window_s()
    return _POWER_READINGS * sensor.power.period_s if isinstance(sensor.power, Gauge) else 0.0


async def idle_power(
    watch: Watch, clock: Waits, *, settle_s: float, window_s: float, patiently: bool = False
) -> Reading[IdlePower]:
    """Read idle boards for a while.

    A board comes to rest some seconds after its last process has ended, and not all at once; so it is read until the
    two halves of a reading agree.

    Args:
        watch: Reads them.
        clock: The time that it reads them in.
        settle_s: Seconds to wait before it begins.
        window_s: Seconds of one reading.
        patiently: Whether two readings in a row have to agree as well.

    Returns:
        What they drew in the last reading; unreadable if one of them was busy, or has neither counter nor power.

    Raises:
        LlmperfError: the watch failed.
    """
    await clock.sleep_until(clock.now() + round(settle_s * NS_PER_S))
    found: Reading[IdlePower] = _NOT_YET
    before: IdlePower | None = None
    for _ in range(_READINGS):
        await watch.begin()
        await clock.sleep_until(clock.now() + round(window_s * NS_PER_S))
        samples = await watch.end()
        power = idle_of(samples)
        if isinstance(power, Unreadable):
            return power
        found = _with_drift(power, {board.uuid: _halves(board) for board in samples}, before)
        if not found.restless and not (patiently and before is None):
            return found
        before = power
    return found


def _with_drift(
    power: IdlePower, halves: Mapping[str, tuple[float, float] | None], before: IdlePower | None
) -> IdlePower:
    """A reading with what its boards moved by in their error, and with those that had not come to rest."""
    boards, restless = {}, []
    for uuid, board in power.boards.items():
        moved, uncertain = halves[uuid] or (0.0, 0.0)
        moving = moved > max(_AT_REST * board.watts, uncertain)
        if before is not None and uuid in before.boards:
            since = abs(board.watts - before.boards[uuid].watts)
            own = math.hypot(board.error, before.boards[uuid].error)
            moving |= since > max(_STILL * board.watts, own)
            moved = max(moved, since)
        boards[uuid] = replace(board, error=max(board.error, moved / 2)) if moving else board
        restless += [uuid] if moving else []
    return IdlePower(boards, tuple(restless))


def _halves(samples: BoardSamples) -> tuple[float, float] | None:
    """By how many watts the two halves of a reading differ, and how well that is known; ``None`` where it is not."""
    for readings, energy in ((samples.counter(), by_counter), (samples.power(), by_integral)):
        if not readings:
            continue
        start, end = readings[0][0], readings[-1][0]
        parts = [energy(readings, *part) for part in ((start, (start + end) // 2), ((start + end) // 2, end))]
        told = [part for part in parts if isinstance(part, Joules)]
        if len(told) == len(parts):
            return abs(told[0].watts - told[1].watts), sum(part.error / part.seconds for part in told)
    return None


def idle_of(samples: Sequence[BoardSamples]) -> Reading[IdlePower]:
    """The idle power in samples that were taken while nothing should have run."""
    boards: dict[str, BoardIdle] = {}
    for board in samples:
        power = _idle_of_board(board)
        if isinstance(power, Unreadable):
            return power
        boards[board.uuid] = power
    return IdlePower(boards) if boards else Unreadable("no board was read")


def _idle_of_board(samples: BoardSamples) -> Reading[BoardIdle]:
    if isinstance(busy := _busy(samples), Unreadable):
        return busy
    counter, power = samples.counter(), samples.power()
    # A counter without steps (absent, stalled), or that jumped, leaves the power readings.
    counted = by_counter(counter, counter[0][0], counter[-1][0]) if counter else NoEnergy(_why(samples, "energy"))
    counted = plausible(counted, samples.power_limit_w)
    if isinstance(counted, Joules):
        return BoardIdle(counted.watts, counted.error / counted.seconds, counted.source)
    integral = by_integral(power, power[0][0], power[-1][0]) if power else NoEnergy(_why(samples, "power"))
    if isinstance(integral, Joules):
        error = math.hypot(integral.error / integral.seconds, _scatter(power))
        return BoardIdle(integral.watts, error, integral.source)
    return Unreadable(f"{samples.uuid} tells neither energy ({counted.reason}) nor power ({integral.reason})")


def _why(samples: BoardSamples, name: str) -> str:
    return samples.refused.get(name, "it was never read")


def _scatter(power: Sequence[tuple[int, float]]) -> float:
    """Standard error of the mean, W, of as many independent readings as there were changes."""
    return statistics.pstdev(watts for _, watts in power) / math.sqrt(1 + len(steps(power)))


def _busy(samples: BoardSamples) -> Unreadable | None:
    """Whether something ran: by the utilisation, or where it is not told, by the reasons for the clock.

    The reasons come second because a driver need not call a board idle whose clock is held.
    """
    shares = [share for share in samples.utilization if share == share]
    working = [share >= _WORKING for share in shares]
    if not shares:
        working = [not bits & _IDLE for bits in samples.reasons if bits >= 0]
    if sum(working) <= _MAY_WORK * len(working):
        return None
    return Unreadable(
        f"the board was busy while its idle power was to be measured: {samples.uuid} worked in {sum(working)} of "
        f"{len(working)} samples",
        "busy",
    )


@dataclass(frozen=True)
class Floor:
    """What the boards of one engine drew in one launch while nothing was asked of them, each rung read anew.

    Attributes:
        uuids: The engine's boards; the readings may hold others beside them.
        bare: Without any engine and context, the clock free.
        context: With a CUDA context on every board and nothing else, the clock free.
        loaded: With the engine up and its model loaded, the clock free.
        locked: The same at the clock that is held.
    """

    uuids: tuple[str, ...]
    bare: Reading[IdlePower]
    context: Reading[IdlePower]
    loaded: Reading[IdlePower]
    locked: Reading[IdlePower]

    @property
    def restless(self) -> list[str]:
        """What has to be known of rungs at which a board had not come to rest."""
        rungs = {"bare": self.bare, "context": self.context, "loaded": self.loaded, "locked": self.locked}
        return [
            f"{name}: {uuid} had not come to rest when it was read ({power.boards[uuid].watts:.4g} W, +- "
            f"{power.boards[uuid].error:.2g} W)."
            for name, power in rungs.items()
            if isinstance(power, IdlePower)
            for uuid in power.restless
        ]

    @property
    def invalid(self) -> str | None:
        """Why it cannot be trusted: a board was not idle, or was lost."""
        rungs = {"bare": self.bare, "context": self.context, "loaded": self.loaded, "locked": self.locked}
        why = [
            f"{name}: {power.reason}"
            for name, power in rungs.items()
            if isinstance(power, Unreadable) and power.cause in ("busy", "lost")
        ]
        return "; ".join(why) or None


@dataclass
class IdleLadder:
    """What the boards of a session draw when idle, without and with one engine, as far as it was measured.

    Attributes:
        bare: Without any engine.
        loaded: With a model loaded, the clock free.
        held: With a model loaded and a clock held, by :attr:`pytest_llmperf.gpu.clocks.HeldClock.key`.
        bare_at_mhz: The clock that was held when ``bare`` was measured; ``None`` when it was free.
        context: With a CUDA context on every board and nothing else, the clock free.
    """

    bare: Reading[IdlePower] = _NOT_YET
    loaded: Reading[IdlePower] = _NOT_YET
    held: dict[str, Reading[IdlePower]] = field(default_factory=dict)
    bare_at_mhz: int | None = None
    context: Reading[IdlePower] = _NOT_ASKED_FOR

    def floor(self, held: str | None) -> Reading[IdlePower]:
        """What net energy takes off: the power with the model loaded, at the clock that is held if one is.

        Args:
            held: The key of that clock; ``None`` when all run free.
        """
        if held is None:
            return self.loaded
        return self.held.get(held, Unreadable(f"idle power was not measured at the clock that is held ({held})"))

    def to_json(self) -> dict[str, Any]:
        """For the record: watts by rung, ``None`` with a reason where there are none."""
        rungs = {"bare": self.bare, "context": self.context, "loaded": self.loaded}
        held = dict(sorted(self.held.items(), key=lambda rung: (len(rung[0]), rung[0])))
        rungs |= {f"held {key}": power for key, power in held.items()}
        known = {name: power for name, power in rungs.items() if not isinstance(power, Unreadable)}
        boards = dict.fromkeys(uuid for power in known.values() for uuid in power.boards)
        return {
            "bare_w": _watts(self.bare),
            "bare_at_mhz": self.bare_at_mhz,
            "context_w": _watts(self.context),
            "loaded_w": _watts(self.loaded),
            "held_w": {key: _watts(power) for key, power in held.items()},
            "standard_error_w": {name: power.error for name, power in known.items()},
            "boards_w": {
                uuid: {name: power.boards[uuid].watts for name, power in known.items() if uuid in power.boards}
                for uuid in boards
            },
            "reasons": {name: power.reason for name, power in rungs.items() if isinstance(power, Unreadable)},
        }


def _watts(power: Reading[IdlePower]) -> float | None:
    known = value_or_none(power)
    return None if known is None else known.watts
