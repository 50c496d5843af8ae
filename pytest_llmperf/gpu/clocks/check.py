"""Whether a clock was held while something was measured: a pure judgement of samples.

That the driver accepted a lock says nothing: power and heat go before it. So the clocks are sampled during every
measurement, and the board's own throttle times are read before and after: these see what happened between two samples.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_llmperf.gpu import Reading, Unreadable

__all__ = ["THROTTLING", "ClockSample", "ClockVerdict", "verify"]

#: Reasons that take away from the clock, in words. The others say what the board was told, or that it has no work.
THROTTLING = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost with slower boards",
    "thermal": "thermal policy",
    "sw_thermal_slowdown": "thermal slowdown by the driver",
    "hw_thermal_slowdown": "thermal slowdown by the hardware",
    "hw_power_brake_slowdown": "power brake",
    "board_limit": "board limit",
    "reliability": "reliability limit",
}

#: How many samples of a busy board gave which reasons.
_Told = Counter[frozenset[str]]
#: Clocks are told in whole MHz.
_MEMORY_ROUNDING_MHZ = 1


@dataclass(frozen=True)
class ClockSample:
    """One look at a board's clock.

    Attributes:
        at_ns: When, in monotonic nanoseconds.
        sm_mhz: The SM clock in MHz.
        reasons: Why it was what it was, as :meth:`pytest_llmperf.gpu.Device.clock_reasons` names them.
        memory_mhz: The memory clock in MHz; ``None`` where it was not looked at.
    """

    at_ns: int
    sm_mhz: Reading[int]
    reasons: Reading[frozenset[str]]
    memory_mhz: Reading[int] | None = None

    @property
    def busy(self) -> bool:
        """Whether the board had work, for all that is known: an idle one lowers its clock whatever it is locked at."""
        return isinstance(self.reasons, Unreadable) or "gpu_idle" not in self.reasons

    @property
    def throttled_by(self) -> frozenset[str]:
        """What took away from the clock."""
        return frozenset() if isinstance(self.reasons, Unreadable) else _throttling(self.reasons)


def _throttling(reasons: frozenset[str]) -> frozenset[str]:
    return reasons & frozenset(THROTTLING)


@dataclass(frozen=True)
class ClockVerdict:
    """What became of the clock during a measurement.

    Attributes:
        observed_mhz: Minimum, median and maximum while the board was busy, in MHz; ``None`` without such a sample.
        throttled_fraction: The share of the time in which something took away from the clock, 0 to 1: of the busy
            samples or, if that is more, of the time by the board's own account. ``None`` when nothing tells.
        invalid: Why the measurement is not one at the requested clocks.
        warnings: What a reader should know all the same.
        observed_memory_mhz: As ``observed_mhz``, of the memory clock.
        throttled_by: As ``throttled_fraction``, cause by cause; only the causes that the board tells of. They overlap.
    """

    observed_mhz: tuple[int, float, int] | None
    throttled_fraction: float | None
    invalid: str | None = None
    warnings: tuple[str, ...] = ()
    observed_memory_mhz: tuple[int, float, int] | None = None
    throttled_by: Mapping[str, float] = field(default_factory=dict)


def verify(
    samples: Sequence[ClockSample],
    throttle_before: Mapping[str, Reading[int]],
    throttle_after: Mapping[str, Reading[int]],
    requested_mhz: int | None,
    *,
    step_mhz: int = 15,
    memory_mhz: int | None = None,
    expected: bool = False,
) -> ClockVerdict:
    """Judge whether one board held its clocks.

    Args:
        samples: Taken while something was measured, in the order of time.
        throttle_before: By cause the nanoseconds of throttling before it.
        throttle_after: The same after it.
        requested_mhz: The SM clock it was locked at, or expected at; ``None`` when nobody asked for one: then
            throttling is normal and a warning.
        step_mhz: The distance of neighbouring SM clocks of the board: a difference of one is how it rounds.
        memory_mhz: The memory clock it was locked at, or expected at; ``None`` when nobody asked for one. It has few
            values, far apart, and none of them is another one's rounding.
        expected: Whether somebody else has to have locked them: where they were not seen, the command is named.
    """
    sm = [(sample, sample.sm_mhz) for sample in samples]
    memory = [(sample, sample.memory_mhz) for sample in samples if sample.memory_mhz is not None]
    clocks, memory_clocks = _while_busy(sm), _while_busy(memory)
    busy = [sample for sample in samples if sample.busy and not isinstance(sample.sm_mhz, Unreadable)]
    # A long measurement has a sample each 10 ms, and a handful of different reasons in all of them.
    told = Counter(sample.reasons for sample in busy if not isinstance(sample.reasons, Unreadable))
    span_ns = samples[-1].at_ns - samples[0].at_ns if samples else 0
    times, unknown = _throttle_times(throttle_before, throttle_after)
    found = _faults(_useless(sm), _throttled(told, len(busy), times))
    invalid, unlocked = [], []
    if requested_mhz is not None:
        elsewhere = _elsewhere(clocks, requested_mhz, step_mhz)
        unlocked += [f"sudo nvidia-smi -lgc {requested_mhz},{requested_mhz}"] if elsewhere else []
        found += _faults(elsewhere)
        invalid += _refuted("SM", requested_mhz, found)
    if memory_mhz is not None:
        elsewhere = _elsewhere(memory_clocks, memory_mhz, _MEMORY_ROUNDING_MHZ)
        unlocked += [f"sudo nvidia-smi -lmc {memory_mhz},{memory_mhz}"] if elsewhere else []
        invalid += _refuted("memory", memory_mhz, _faults(_useless(memory), elsewhere))
    if expected and unlocked:
        invalid.append(f"if nobody has locked it: {'; '.join(unlocked)}")
    return ClockVerdict(
        _range(clocks),
        _fraction(told, times, span_ns),
        "; ".join(invalid) or None,
        unknown if requested_mhz is not None else (*found, *unknown),
        _range(memory_clocks),
        {cause: share for cause in THROTTLING if (share := _share_of(cause, told, times, span_ns)) is not None},
    )


def _while_busy(seen: Sequence[tuple[ClockSample, Reading[int]]]) -> list[int]:
    return [mhz for sample, mhz in seen if sample.busy and not isinstance(mhz, Unreadable)]


def _range(clocks: Sequence[int]) -> tuple[int, float, int] | None:
    return (min(clocks), statistics.median(clocks), max(clocks)) if clocks else None


def _faults(*found: str | None) -> list[str]:
    return [fault for fault in found if fault is not None]


def _refuted(name: str, mhz: int, faults: Sequence[str]) -> list[str]:
    if not faults:
        return []
    return [f"that the {name} clock was held at {mhz} MHz is refuted or unproven: {'; '.join(faults)}"]


def _useless(seen: Sequence[tuple[ClockSample, Reading[int]]]) -> str | None:
    """Why the samples of a clock say nothing, when they do not."""
    if not seen:
        return "no sample of it was taken"
    usable = [sample for sample, mhz in seen if not isinstance(mhz, Unreadable)]
    if not usable:
        why = next(mhz.reason for _, mhz in seen if isinstance(mhz, Unreadable))
        return f"none of {len(seen)} samples could be read ({why})"
    if not any(sample.busy for sample in usable):
        return f"the board was idle in all of {len(usable)} samples, and an idle board shows any clock"
    return None


def _throttled(told: _Told, busy: int, times: Mapping[str, int]) -> str | None:
    """What took away from the clock, by the samples and by the board's own account."""
    parts = []
    if hit := _hit(told, _throttling):
        names = sorted({THROTTLING[name] for reasons in told for name in _throttling(reasons)})
        parts.append(f"{hit} of {busy} samples throttled ({', '.join(names)})")
    counted = [f"{THROTTLING[cause]} {_milliseconds(time)}" for cause, time in times.items() if time > 0]
    if counted:
        parts.append(f"throttled by the board's own account ({', '.join(counted)})")
    return "; ".join(parts) or None


def _milliseconds(time_ns: int) -> str:
    milliseconds = time_ns / 1e6
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"


def _elsewhere(clocks: Sequence[int], requested_mhz: int, step_mhz: int) -> str | None:
    """How far the clock was from the one requested."""
    other = [mhz for mhz in clocks if abs(mhz - requested_mhz) > step_mhz]
    if not other:
        return None
    shown = f"{min(other)}" if min(other) == max(other) else f"{min(other)} to {max(other)}"
    return f"{len(other)} of {len(clocks)} samples at {shown} MHz"


def _throttle_times(
    before: Mapping[str, Reading[int]], after: Mapping[str, Reading[int]]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """By cause the nanoseconds in between, and what is to be said of those that cannot be told."""
    times: dict[str, int] = {}
    fallen = []
    for cause in THROTTLING:
        first, last = before.get(cause), after.get(cause)
        if first is None or last is None or isinstance(first, Unreadable) or isinstance(last, Unreadable):
            continue
        if last < first:
            fallen.append(cause)
        else:
            times[cause] = last - first
    if not fallen:
        return times, ()
    return times, (f"the board's throttle times fell ({', '.join(fallen)}): was the driver loaded again?",)


def _hit(told: _Told, by: Callable[[frozenset[str]], object]) -> int:
    """How many samples have reasons for which this is true."""
    return sum(count for reasons, count in told.items() if by(reasons))


def _fraction(told: _Told, times: Mapping[str, int], span_ns: int) -> float | None:
    # Causes overlap: the sum of their times may exceed the time there was.
    return _most(told, _throttling, max(times.values(), default=None), span_ns)


def _share_of(cause: str, told: _Told, times: Mapping[str, int], span_ns: int) -> float | None:
    return _most(told, lambda reasons: cause in reasons, times.get(cause), span_ns)


def _most(told: _Told, by: Callable[[frozenset[str]], object], counted_ns: int | None, span_ns: int) -> float | None:
    """The share of the busy samples that were hit or, if that is more, of the time by the board's own account."""
    shares = [_hit(told, by) / told.total()] if told else []
    if counted_ns is not None and span_ns > 0:
        shares.append(min(1.0, counted_ns / span_ns))
    return max(shares, default=None)
