"""What a prompt token and what an output token costs: windows of prefill alone, decode alone, and both together."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.gpu.energy import Joules
from pytest_llmperf.measurement.plain import LaunchOf, Measurement
from pytest_llmperf.metrics import REGISTRY, Context, Missing, Summary, joules_of_repeat, summarize
from pytest_llmperf.metrics.phases import PhaseFit, PhasePoint, fit_phases
from pytest_llmperf.runner import Launch
from pytest_llmperf.workload import Workload

__all__ = ["TOLERANCE", "PhaseMeasurement", "phases_of"]

#: Of the joules a token of either phase; a prefill is short, and its batch joins the engine's steps in other ways.
TOLERANCE = 0.10
#: The regression and the windows of one phase alone should agree about this well.
_AGREE = 0.25
#: Whose metric each window of one phase alone is.
_ALONE = {"prefill_jpt": "prefill", "decode_jpt": "decode"}


def phases_of(workload: Workload) -> dict[str, Workload]:
    """The shapes that are measured beside the workload itself, by name.

    Raises:
        WorkloadError: its lengths cannot be taken apart.
    """
    input_len, output_len = workload.input_len, workload.output_len
    if not isinstance(input_len, int) or not isinstance(output_len, int) or workload.trace is not None:
        raise WorkloadError(
            "Phases are told apart by requests of one length.", remedy="Give input_len and output_len as numbers."
        )
    if input_len < 4 or output_len < 4:
        raise WorkloadError(
            f"Phases of {input_len} + {output_len} tokens cannot be told apart.",
            remedy="Give at least 4 prompt and 4 output tokens, better some hundred.",
        )
    return {
        "prefill": workload.replace(output_len=1),
        "decode": workload.replace(input_len=1),
        # Beside the prefill, to tell its tokens from what every request costs: windows of long outputs cannot.
        "half prefill": workload.replace(input_len=input_len // 2, output_len=1),
        "half output": workload.replace(output_len=output_len // 2),
    }


@dataclass
class PhaseMeasurement(Measurement):
    """All launches of a workload and of its phases; its launches are those of the whole workload.

    Attributes:
        phases: The other windows of each launch, by their names.
    """

    phases: list[dict[str, Launch]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find out before an engine starts whether the workload can be taken apart.

        Raises:
            WorkloadError: it cannot.
        """
        phases_of(self.workload)

    def take(self, launch_of: LaunchOf, *, repeats: int, allowed_failures: int) -> None:
        """Measure the workload and each of its phases."""

        def measured(workload: Workload, name: str) -> Launch:
            return launch_of(
                workload, test=f"{self.test}/{name}", repeats=repeats, allowed_failures=allowed_failures, doing=name
            )

        whole = measured(self.workload, "whole")
        parts = {name: measured(workload, name) for name, workload in phases_of(self.workload).items()}
        invalid = next((f"{name}: {part.invalid}" for name, part in parts.items() if part.invalid), None)
        told = [f"{name}: {warning}" for name, part in parts.items() for warning in part.warnings]
        self.phases.append(parts)
        self.launches.append(replace(whole, invalid=whole.invalid or invalid, warnings=(*whole.warnings, *told)))

    def windows(self) -> list[tuple[str, Launch]]:
        """The whole workload, and each phase under a name of its own."""
        return [*super().windows(), *((f"{self.test}/{name}", part) for name, part in self.phases[-1].items())]

    @property
    def digest(self) -> str:
        """Equal for equal work; never that of the workload alone."""
        return hashlib.sha256(f"phases/{self.workload.digest}".encode()).hexdigest()[:16]

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """What gates the workload, and what a token of each phase costs."""
        return {**dict.fromkeys(_ALONE, TOLERANCE if for_all is None else for_all), **tolerances}

    @property
    def warnings(self) -> list[str]:
        """Those of the launches, and whether the two ways to tell the phases apart disagree."""
        return [*super().warnings, *dict.fromkeys(text for fit in self._fits() for text in self._apart(fit))]

    def summaries(self) -> dict[str, Summary]:
        """The metrics of the whole workload, and of each phase alone what a token costs."""
        return {**super().summaries(), **{name: self._alone(name) for name in _ALONE}}

    def record(self) -> dict[str, Any]:
        """Every window a request, and what the regression says."""
        return {
            "phases": [
                {
                    "windows": [asdict(point) for point in self._points(launch, parts)],
                    "regression": asdict(fit) if isinstance(fit, PhaseFit) else None,
                    "reason": fit.reason if isinstance(fit, Missing) else None,
                }
                for launch, parts, fit in zip(self.launches, self.phases, self._fits(), strict=True)
            ]
        }

    def _alone(self, metric: str) -> Summary:
        parts = [launch[_ALONE[metric]] for launch in self.phases]
        return summarize(
            REGISTRY[metric], [part.repeats for part in parts], Context(), [part.readings for part in parts]
        )

    def _fits(self) -> list[PhaseFit | Missing]:
        found: list[PhaseFit | Missing] = []
        for launch, parts in zip(self.launches, self.phases, strict=True):
            energy = launch.readings.window.energy
            points = self._points(launch, parts)
            # Nothing at all is read: the energy's own reason says more than that there are too few windows.
            found.append(fit_phases(points) if points or isinstance(energy, Joules) else Missing(energy.reason))
        return found

    def _points(self, whole: Launch, parts: Mapping[str, Launch]) -> list[PhasePoint]:
        points = [_point(launch) for launch in (whole, *parts.values())]
        return [point for point in points if point is not None]

    def _apart(self, fit: PhaseFit | Missing) -> list[str]:
        if isinstance(fit, Missing):
            return []
        pairs: list[tuple[str, Callable[[PhaseFit], float]]] = [
            ("prefill_jpt", lambda f: f.prefill_jpt), ("decode_jpt", lambda f: f.decode_jpt),
        ]  # fmt: skip
        return [
            f"{name} is {alone:.4g} J/token by the phase alone and {by_fit(fit):.4g} by the regression: they depend on "
            "more than the number of tokens."
            for name, by_fit in pairs
            if (alone := self._alone(name).value) is not None and abs(by_fit(fit) / alone - 1) > _AGREE
        ]


def _point(launch: Launch) -> PhasePoint | None:
    """The window of one shape a request; ``None`` without energy."""
    energy = launch.readings.window.energy
    done = [request for repeat in launch.watched for request in repeat.completed]
    if not isinstance(energy, Joules) or not done or not all(repeat.completed for repeat in launch.watched):
        return None
    joules = joules_of_repeat(launch.readings)
    if isinstance(joules, Missing):
        return None
    a_request = joules * len(launch.watched) / len(done)
    return PhasePoint(
        input_len=round(statistics.fmean(request.input_tokens for request in done)),
        output_len=round(statistics.fmean(request.output_tokens for request in done)),
        joules=a_request,
        error=a_request * energy.error / energy.value if energy.value > 0 else 0.0,
    )
