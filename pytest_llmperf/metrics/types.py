"""What a metric is: its entry in the registry, what it is computed from, and what comes out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy.window import NOBODY_READ, WindowReadings
from pytest_llmperf.metrics.roof import Roof
from pytest_llmperf.trace import RepeatTrace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

__all__ = [
    "UNREAD",
    "Context",
    "LaunchReadings",
    "Metric",
    "Missing",
    "Outcome",
    "Sampled",
    "Summary",
    "ranked",
    "sampled",
    "sampled_array",
]


@dataclass(frozen=True)
class Missing:
    """A quantity that was not measured.

    Attributes:
        reason: Why not, in words; equal reasons in baseline and run make the metric not applicable.
    """

    reason: str


@dataclass(frozen=True)
class Context:
    """What a metric may need besides the trace.

    Attributes:
        slo: Limits in seconds by latency metric.
        roof: The model on its hardware.
        sm_clock_hz: The SM clock that the GPUs are locked at; ``None`` when they are not.
        keeps_prefixes: Whether requests share a prefix that the engine keeps: it computes a part of each prompt only,
            and does not tell which.
    """

    slo: Mapping[str, float] = field(default_factory=dict)
    roof: Roof = field(default_factory=Roof)
    sm_clock_hz: float | None = None
    keeps_prefixes: bool = False


@dataclass(frozen=True)
class Sampled:
    """One repeat's value with the samples it is the median of."""

    value: float
    samples: Sequence[float] | Floats


Outcome = float | Sampled | Missing


@dataclass(frozen=True)
class LaunchReadings:
    """What the boards of an engine said while a launch was measured.

    Attributes:
        window: Over all repeats of the launch, from the first due request to the last token.
        idle_w: What these boards draw with the model loaded, at the clock in force, and nothing to do, in watts.
        repeats: Those repeats; more than were asked for where these were too short for the sensors.
        seconds: Length of that window.
        busy: Share of it that lies within the repeats, and not between two of them.
    """

    window: WindowReadings
    idle_w: Reading[float]
    repeats: tuple[RepeatTrace, ...] = ()
    seconds: float = 0.0
    busy: float = 1.0


#: Of a launch whose boards nobody read.
UNREAD = LaunchReadings(NOBODY_READ, Unreadable("the idle power was not measured"))

OfRepeat = Callable[[RepeatTrace, Context], Outcome]
OfLaunch = Callable[[LaunchReadings], Outcome]


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    Attributes:
        name: As in records and options.
        unit: SI, as printed.
        better: ``"lower"`` or ``"higher"``.
        formula: In words and symbols, for the report.
        source: What the inputs are read from.
        of_repeat: The computation from one repeat with at least one completed request;
        of_launch: or from what the boards said over all repeats of a launch. One of the two is given; neither of what
            is measured without a workload.
        bound_to_board: Whether it compares on the very same board only: sensors differ by several percent from board
            to board, and so do boards of one product.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    formula: str
    source: str
    of_repeat: OfRepeat | None = None
    of_launch: OfLaunch | None = None
    bound_to_board: bool = False


@dataclass(frozen=True)
class Summary:
    """A metric over all launches of a test.

    Attributes:
        value: Median over launches of the median over repeats; ``None`` when it was not measured.
        launches: The repeats' values, launch by launch; one a launch for what is measured over all its repeats.
        percentiles: p50, p90 and p99 over every request of every launch (over repeats for a metric that has no
            samples of its own); ``None`` when it was not measured.
        reason: Why there is no value.
    """

    value: float | None
    launches: tuple[tuple[float, ...], ...]
    percentiles: Mapping[str, float] | None
    reason: str | None


def sampled(samples: Iterable[float | None], missing: str) -> Sampled | Missing:
    """The median of what there is, with its samples; ``missing`` says why there may be nothing."""
    present = tuple(s for s in samples if s is not None)
    return Sampled(statistics.median(present), present) if present else Missing(missing)


def sampled_array(samples: Floats, missing: str) -> Sampled | Missing:
    """The same of an array: the median is :func:`statistics.median`'s to the bit, without sorting them all."""
    count = len(samples)
    if not count:
        return Missing(missing)
    middle = ranked(samples, {(count - 1) // 2, count // 2})
    low, high = middle[(count - 1) // 2], middle[count // 2]
    return Sampled(low if count % 2 else (low + high) / 2, samples)


def ranked(samples: Floats, ranks: Iterable[int]) -> dict[int, float]:
    """The values at these places of the ascending order, by place; takes time in proportion to the samples."""
    import numpy as np

    places = sorted(ranks)
    parted = np.partition(samples, places)
    return {place: float(parted[place]) for place in places}
