"""Whether the boards held their clock while a launch was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.clocks import HeldClock
from pytest_llmperf.gpu.clocks.check import ClockSample, ClockVerdict, verify
from pytest_llmperf.gpu.sampling.sampler import REASONS, BoardSamples
from pytest_llmperf.runner.launch import Launch, joined

__all__ = ["LaunchClock", "judged"]

#: A board needs a moment to go from idle to the clock that it is locked at.
_RAMP_NS = 50_000_000
#: A free clock that gives way for a smaller share of the time is not worth a word.
_WORTH_A_WORD = 0.01


@dataclass(frozen=True)
class LaunchClock:
    """The clocks of all boards during the repeats of a launch.

    Attributes:
        held: What was asked for; ``None`` when the clock ran free.
        observed_mhz: Minimum, median and maximum of the SM clock in MHz while busy; ``None`` without such a sample.
        throttled_fraction: Share of the time in which something took away from it, on the board where it was most.
        observed_memory_mhz: As ``observed_mhz``, of the memory clock.
        throttled_by: As ``throttled_fraction``, for each cause that the boards tell of.
    """

    held: HeldClock | None
    observed_mhz: tuple[float, float, float] | None
    throttled_fraction: float | None
    observed_memory_mhz: tuple[float, float, float] | None = None
    throttled_by: Mapping[str, float] = field(default_factory=dict)


def judged(launch: Launch, held: HeldClock | None) -> Launch:
    """The launch with its clock: invalid when a board did not hold what was asked for, or was not seen to.

    Args:
        launch: With the samples of the boards.
        held: The clock that was asked for; ``None`` when it ran free: then throttling is a warning.
    """
    if held is None and not launch.samples:
        return launch
    spans = [span for repeat in launch.watched if (span := repeat.span) is not None]
    verdicts = [_verdict(samples, spans, held) for samples in launch.samples]
    invalid = "the boards were not read" if not verdicts else next((v.invalid for v in verdicts if v.invalid), None)
    warnings = dict.fromkeys(warning for verdict in verdicts for warning in verdict.warnings)
    if held is None:
        warnings = dict.fromkeys(_gave_way(_throttled(verdicts), warnings))
    return replace(
        launch,
        clock=LaunchClock(
            held,
            _observed(verdict.observed_mhz for verdict in verdicts),
            _throttled(verdicts),
            _observed(verdict.observed_memory_mhz for verdict in verdicts),
            _throttled_by(verdicts),
        ),
        warnings=(*launch.warnings, *warnings),
        invalid=joined(launch.invalid, invalid),
    )


def _gave_way(fraction: float | None, causes: Iterable[str]) -> list[str]:
    """What is to be said of a clock that nobody asked for: that a big board is capped by its power is normal."""
    if fraction is None or fraction < _WORTH_A_WORD:
        return []
    return [f"The clock ran free and gave way for {fraction:.0%} of the time: {'; '.join(causes)}."]


def _verdict(samples: BoardSamples, spans: Sequence[tuple[int, int]], held: HeldClock | None) -> ClockVerdict:
    nothing = dict.fromkeys(samples.throttle_ns, 0)
    seen = list(_within(samples, spans))
    if held is None:
        return verify(seen, nothing, samples.throttle_ns, None)
    step = 0 if held.sm is None else held.sm.step_mhz
    return verify(
        seen,
        nothing,
        samples.throttle_ns,
        held.locked_mhz,
        step_mhz=step,
        memory_mhz=held.memory_mhz,
        expected=held.expected,
    )


def _within(samples: BoardSamples, spans: Sequence[tuple[int, int]]) -> Iterable[ClockSample]:
    """The looks at the clocks while requests were under way."""
    refused = samples.refused
    unknown = Unreadable(refused.get("clock_reasons", "they were not read"))

    @cache
    def reasons(bits: int) -> Reading[frozenset[str]]:
        if bits < 0:
            return unknown
        return frozenset(name for bit, name in enumerate(REASONS) if bits >> bit & 1)

    looks = zip(samples.at_ns, samples.sm_clock_mhz, samples.memory_clock_mhz, samples.reasons, strict=True)
    watched = sorted((start + min(_RAMP_NS, (end - start) // 2), end) for start, end in spans)
    place, last_end = 0, -math.inf
    for at, mhz, memory, bits in looks:
        while place < len(watched) and watched[place][0] <= at:
            last_end = max(last_end, watched[place][1])
            place += 1
        if place and at <= last_end:
            seldom = memory != memory and "memory_clock" not in refused
            yield ClockSample(
                at,
                _clock(mhz, refused, "sm_clock"),
                reasons(bits),
                None if seldom else _clock(memory, refused, "memory_clock"),
            )


def _clock(mhz: float, refused: Mapping[str, str], name: str) -> Reading[int]:
    return int(mhz) if mhz == mhz else Unreadable(refused.get(name, "it was not read"))


def _observed(seen: Iterable[tuple[int, float, int] | None]) -> tuple[float, float, float] | None:
    known = [values for values in seen if values is not None]
    if not known:
        return None
    return min(s[0] for s in known), statistics.median(s[1] for s in known), max(s[2] for s in known)


def _throttled(verdicts: Sequence[ClockVerdict]) -> float | None:
    return max((v.throttled_fraction for v in verdicts if v.throttled_fraction is not None), default=None)


def _throttled_by(verdicts: Sequence[ClockVerdict]) -> dict[str, float]:
    causes = dict.fromkeys(cause for verdict in verdicts for cause in verdict.throttled_by)
    return {cause: max(v.throttled_by[cause] for v in verdicts if cause in v.throttled_by) for cause in causes}
