"""Whether the boards held their clock while a launch was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.clock_check import ClockSample, ClockVerdict, verify
from pytest_llmperf.gpu.clocks import HeldClock
from pytest_llmperf.gpu.sampler import REASONS, BoardSamples
from pytest_llmperf.runner.launch import Launch

__all__ = ["LaunchClock", "judged"]

#: A board needs a moment to go from idle to the clock that it is locked at.
_RAMP_NS = 50_000_000


@dataclass(frozen=True)
class LaunchClock:
    """The SM clock of all boards during the repeats of a launch.

    Attributes:
        held: What was asked for.
        observed_mhz: Minimum, median and maximum in MHz while busy; ``None`` without such a sample.
        throttled_fraction: Share of the time in which something took away from it, on the board where it was most.
    """

    held: HeldClock
    observed_mhz: tuple[float, float, float] | None
    throttled_fraction: float | None


def judged(launch: Launch, held: HeldClock) -> Launch:
    """The launch with its clock: invalid when a board did not hold it, or was not seen to.

    Args:
        launch: With the samples of the boards.
        held: The clock that was asked for.
    """
    spans = [span for repeat in launch.repeats if (span := repeat.span) is not None]
    verdicts = [_verdict(samples, spans, held) for samples in launch.samples]
    invalid = "the boards were not read" if not verdicts else next((v.invalid for v in verdicts if v.invalid), None)
    warnings = dict.fromkeys(warning for verdict in verdicts for warning in verdict.warnings)
    return replace(
        launch,
        clock=LaunchClock(held, _observed(verdicts), _throttled(verdicts)),
        warnings=(*launch.warnings, *warnings),
        invalid=launch.invalid or invalid,
    )


def _verdict(samples: BoardSamples, spans: Sequence[tuple[int, int]], held: HeldClock) -> ClockVerdict:
    nothing = dict.fromkeys(samples.throttle_ns, 0)
    seen = list(_within(samples, spans))
    return verify(seen, nothing, samples.throttle_ns, held.locked_mhz, step_mhz=held.step_mhz)


def _within(samples: BoardSamples, spans: Sequence[tuple[int, int]]) -> Iterable[ClockSample]:
    """The looks at the clock while requests were under way."""
    for at, mhz, bits in zip(samples.at_ns, samples.sm_clock_mhz, samples.reasons, strict=True):
        if any(start + min(_RAMP_NS, (end - start) // 2) <= at <= end for start, end in spans):
            clock = int(mhz) if mhz == mhz else Unreadable(samples.refused.get("sm_clock", "it was not read"))
            reasons = frozenset(name for bit, name in enumerate(REASONS) if bits >= 0 and bits >> bit & 1)
            refused = Unreadable(samples.refused.get("clock_reasons", "they were not read"))
            yield ClockSample(at, clock, reasons if bits >= 0 else refused)


def _observed(verdicts: Sequence[ClockVerdict]) -> tuple[float, float, float] | None:
    seen = [verdict.observed_mhz for verdict in verdicts if verdict.observed_mhz is not None]
    if not seen:
        return None
    return min(s[0] for s in seen), statistics.median(s[1] for s in seen), max(s[2] for s in seen)


def _throttled(verdicts: Sequence[ClockVerdict]) -> float | None:
    return max((v.throttled_fraction for v in verdicts if v.throttled_fraction is not None), default=None)
