"""What makes a measurement on a board doubtful: others on it, heat, memory errors, faults.

A board that somebody else uses too, that slows down because it is hot, or that computes wrongly still gives figures,
and they look like any others. So before and after every launch it is asked for what would give that away. A board
that does not know of such a thing (no ECC, no Xid events) is not suspicious for it; one that surprisingly refuses to
tell is, and that is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pytest_llmperf.gpu import Device, EccErrors, FaultWatch, Reading, Unreadable
from pytest_llmperf.gpu.guards.tenants import Tenants
from pytest_llmperf.gpu.guards.xid import in_words
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples

__all__ = ["Findings", "Guards", "idle_throughout"]

_NS = 1_000_000_000
#: Degrees below the slowdown temperature from which on a reader should know.
_WARM_C = 3
#: Shorter times say nothing: the driver's utilisation lags by up to a second, and an energy counter steps rarely.
_LONG_ENOUGH_S = 1.0
#: A board that works rests now and then: so many looks cannot all have met a rest.
_ENOUGH_LOOKS = 10
_IDLE = 1 << REASONS.index("gpu_idle")


@dataclass(frozen=True)
class Findings:
    """What the guards of one launch found.

    Attributes:
        invalid: Why what was measured cannot be trusted, or ``None``.
        warnings: What a reader should know all the same, in sentences.
    """

    invalid: str | None = None
    warnings: tuple[str, ...] = ()


class Guards:
    """Guards some boards during one launch after the other. No refused reading raises.

    Args:
        devices: The boards in use, open; they must stay open until this is closed.
        own: The numbers of the processes that may compute on them: those of the engine, and of who measures it.
    """

    def __init__(self, devices: Sequence[Device], own: Callable[[], Collection[int]]) -> None:
        self._devices = tuple(devices)
        self._boards = [_BoardGuard(device) for device in devices]
        self._tenants = Tenants(own)
        self._hidden: list[Unreadable] = []
        self._told: set[str] = set()

    def begin(self) -> None:
        """Remember how the boards are, right before a launch is measured."""
        for board in self._boards:
            board.begin()
        self._tenants.forget()
        self._hidden = self._tenants.look(self._devices)

    def end(self, samples: Sequence[BoardSamples] = ()) -> Findings:
        """Judge what happened since :meth:`begin`, right after the launch was measured.

        Args:
            samples: What was read of the boards meanwhile; empty when nobody sampled them.
        """
        by_uuid = {one.uuid: one for one in samples}
        found = _Found()
        for board in self._boards:
            board.end(by_uuid.get(board.uuid), found)
        found.unknown += self._hidden + self._tenants.look(self._devices)
        faults, doubts = self._tenants.judge()
        found.faults += faults
        found.doubts += doubts
        if idle_throughout(samples):
            found.doubts.append("The boards were idle while requests were served: the server does not run on them.")
        found.doubts += self._surprises(found.unknown)
        return Findings("; ".join(dict.fromkeys(found.faults)) or None, tuple(dict.fromkeys(found.doubts)))

    def close(self) -> None:
        """Stop to watch the boards; it may be closed again."""
        for board in self._boards:
            board.close()

    def _surprises(self, unknown: Iterable[Unreadable]) -> list[str]:
        """What surprisingly could not be looked at, each only the first time."""
        reasons = [one.reason for one in unknown if one.cause == "other"]
        new = [reason for reason in dict.fromkeys(reasons) if reason not in self._told]
        self._told.update(new)
        return [f"What would make a measurement doubtful could not be looked at: {'; '.join(new)}."] if new else []


@dataclass
class _Found:
    """What is being gathered: parts of the reason for ``invalid``, warnings, and readings that were refused."""

    faults: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    unknown: list[Unreadable] = field(default_factory=list)


class _BoardGuard:
    """What a board tells about itself."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._name = f"GPU {device.board.index}"
        self._errors: Reading[EccErrors] | None = None
        self._watch: Reading[FaultWatch] | None = None
        self._slowdown_c: Reading[int] | None = None

    @property
    def uuid(self) -> str:
        return self._device.board.uuid

    def begin(self) -> None:
        if self._watch is None or isinstance(self._watch, Unreadable):
            self._watch = self._device.fault_watch()
        if not isinstance(self._watch, Unreadable):
            self._watch.read()  # what was reported since the launch before is not this one's
        self._slowdown_c = self._device.slowdown_temperature_c()
        self._errors = self._device.ecc_errors()

    def end(self, samples: BoardSamples | None, found: _Found) -> None:
        before = len(found.unknown)
        self._reported(found)
        self._memory(found)
        self._persistence(found)
        # The samples tell the degrees; that the board does not is told by the board, with its cause.
        degrees = (self._slowdown_c, self._device.temperature_c())
        found.unknown += [one for one in degrees if isinstance(one, Unreadable)]
        lost = [one.reason for one in found.unknown[before:] if one.cause == "lost"]
        if lost:
            found.faults.append(f"{self._name} was lost: it does not answer any more ({lost[0]})")
        if samples is not None:
            self._heat(samples, found)
            if _stuck(samples):
                found.doubts.append(f"The energy counter of {self._name} did not move while it was measured.")

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None and not isinstance(watch, Unreadable):
            watch.close()

    def _reported(self, found: _Found) -> None:
        if self._watch is None:
            return
        numbers = self._watch if isinstance(self._watch, Unreadable) else self._watch.read()
        if isinstance(numbers, Unreadable):
            found.unknown.append(numbers)
        elif numbers:
            found.faults.append(f"{self._name} reported {in_words(numbers)}")

    def _memory(self, found: _Found) -> None:
        before, after = self._errors, self._device.ecc_errors()
        found.unknown += [one for one in (before, after) if isinstance(one, Unreadable)]
        if isinstance(before, EccErrors) and isinstance(after, EccErrors):
            if (wrong := after.uncorrected - before.uncorrected) > 0:
                found.faults.append(f"the memory of {self._name} had {wrong} errors that could not be corrected")
            if (mended := after.corrected - before.corrected) > 0:
                found.doubts.append(f"The memory of {self._name} had {mended} errors, which were corrected.")
        rows = self._device.remapped_rows()
        if isinstance(rows, Unreadable):
            found.unknown.append(rows)
            return
        if rows.failed:
            found.doubts.append(f"The memory of {self._name} has a bad row that could not be replaced.")
        if rows.pending:
            found.doubts.append(
                f"The memory of {self._name} has a bad row that is replaced only when the board is reset: "
                f"sudo nvidia-smi -i {self._device.board.index} -r"
            )

    def _persistence(self, found: _Found) -> None:
        persistent = self._device.persistent()
        if isinstance(persistent, Unreadable):
            found.unknown.append(persistent)
        elif not persistent:
            found.doubts.append(
                f"Persistence mode of {self._name} is off: the driver forgets its counters and clocks when nobody uses "
                f"it. Switch it on: sudo nvidia-smi -i {self._device.board.index} -pm 1"
            )

    def _heat(self, samples: BoardSamples, found: _Found) -> None:
        limit = self._slowdown_c
        read = [degrees for degrees in samples.temperature_c if degrees == degrees]
        if isinstance(limit, Unreadable) or not limit or not read:
            return
        hottest = max(read)
        what = f"{self._name} was at {hottest:.0f} °C, and it slows down at {limit} °C"
        if hottest >= limit:
            found.faults.append(what)
        elif hottest >= limit - _WARM_C:
            found.doubts.append(f"{what}: cool it better, or lower its power limit.")


def idle_throughout(samples: Sequence[BoardSamples]) -> bool:
    """Whether no board did anything all the time, as far as that was read; ``False`` when nothing was."""
    return bool(samples) and all(map(_idle, samples))


def _idle(samples: BoardSamples) -> bool:
    reasons = [bits for bits in samples.reasons if bits >= 0]
    if len(reasons) >= _ENOUGH_LOOKS and all(bits & _IDLE for bits in reasons):
        return True
    shares = [share for share in samples.utilization if share == share]
    return bool(shares) and _seconds(samples.slow_at_ns) >= _LONG_ENOUGH_S and not any(shares)


def _stuck(samples: BoardSamples) -> bool:
    """Whether the energy counter stood still, which no powered board's does."""
    return _seconds(samples.counter_at_ns) >= _LONG_ENOUGH_S and len(set(samples.counter_j)) == 1


def _seconds(times: Sequence[int]) -> float:
    return (times[-1] - times[0]) / _NS if times else 0.0
