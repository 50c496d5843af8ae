"""The energy window of a launch: one, over all its repeats."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu import Reading
from pytest_llmperf.gpu.energy import DISAGREEMENT, Joules, disagreement
from pytest_llmperf.gpu.energy.window import WindowReadings, read_window
from pytest_llmperf.gpu.guards import idle_throughout
from pytest_llmperf.metrics import LaunchReadings
from pytest_llmperf.runner.launch import Launch

__all__ = ["with_readings"]

#: A larger share of the window than this between the repeats is worth a word.
_IDLE_BETWEEN = 0.05


def with_readings(launch: Launch, idle_w: Reading[float], failure: str | None = None) -> Launch:
    """The launch with what its boards said from its first due request to its last token.

    Args:
        launch: With the samples of its boards.
        idle_w: What these boards draw with the model loaded and nothing to do, in watts.
        failure: Why the boards were not read, if they should have been.
    """
    if failure is not None:
        return replace(launch, readings=LaunchReadings(WindowReadings.missing(failure), idle_w))
    spans = [span for repeat in launch.watched if (span := repeat.span) is not None]
    if not spans or not launch.samples:
        return launch
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    busy = sum(last - first for first, last in spans) / (end - start)
    failed = sum(not request.completed for repeat in launch.watched for request in repeat.requests)
    if failed:
        window = WindowReadings.missing(f"{failed} requests failed, and what they took cannot be told from the others'")
    elif idle_throughout(launch.samples):
        window = WindowReadings.missing("the boards were idle while requests were served")
    else:
        window = read_window(launch.samples, start, end)
    readings = LaunchReadings(window, idle_w, launch.watched, seconds=(end - start) / NS_PER_S, busy=busy)
    return replace(launch, readings=readings, warnings=(*launch.warnings, *_doubts(readings)))


def _doubts(readings: LaunchReadings) -> list[str]:
    doubts = []
    counter, integral = readings.window.energy, readings.window.integral
    if isinstance(counter, Joules) and isinstance(integral, Joules) and counter.source == "counter":
        off = disagreement(counter, integral)
        unsure = 2 * math.hypot(counter.error / counter.value, integral.error / integral.value)
        if abs(off) > DISAGREEMENT + unsure:
            doubts.append(
                f"The energy counter and the power readings disagree by {off:+.1%}: {counter.watts:.1f} W by the "
                f"counter, {integral.watts:.1f} W by the readings."
            )
    for board in readings.window.boards:
        doubts += board.energy.notes if isinstance(board.energy, Joules) else ()
    if isinstance(counter, Joules) and 1 - readings.busy > _IDLE_BETWEEN:
        doubts.append(
            f"{1 - readings.busy:.0%} of the energy window lie between the repeats, in which the boards idled: "
            "a larger batch or longer outputs make the repeats longer."
        )
    return doubts
