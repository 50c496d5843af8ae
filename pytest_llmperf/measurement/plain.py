"""All launches of one workload in one test, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines.account import Calibration
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.measurement.base import BaseMeasurement
from pytest_llmperf.metrics import HARDWARE, IDLE, REGISTRY, Context, Summary, roof_of, summarize
from pytest_llmperf.overhead import beyond_floor
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.runner import Launch
from pytest_llmperf.workload import Workload

__all__ = ["LaunchOf", "Measurement"]


class LaunchOf(Protocol):
    """Measures a workload on the engine that runs, once, with everything that belongs to a launch."""

    def __call__(
        self, workload: Workload, *, test: str, repeats: int, allowed_failures: int | None, doing: str = ""
    ) -> Launch:
        """One launch; ``doing`` says in a few words which part of the measurement it is."""
        ...


@dataclass
class Measurement(BaseMeasurement):
    """All launches of one workload in one test.

    Attributes:
        test: The test's id, with ``#name`` for a named measurement.
        workload: What was sent.
        launches: What came back, launch by launch.
        peaks: The device's peaks as measured, where no data sheet gives them.
        reached: What each device of the engine reached at best, where that was measured.
        outputs: What the engine answered to fixed prompts, or why there is nothing; ``None`` when it was not asked.
    """

    test: str
    workload: Workload
    launches: list[Launch] = field(default_factory=list)
    peaks: Hardware | None = None
    reached: Sequence[DevicePeaks] = ()
    outputs: Outputs | Unavailable | None = None

    def take(self, launch_of: LaunchOf, *, repeats: int, allowed_failures: int) -> None:
        """Measure one more launch.

        Args:
            launch_of: Measures a workload.
            repeats: How often.
            allowed_failures: Failed requests that a launch may have and still be valid.
        """
        self.launches.append(
            launch_of(self.workload, test=self.test, repeats=repeats, allowed_failures=allowed_failures)
        )

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """Those that the test names, or that gate any test."""
        del for_all
        return dict(tolerances)

    @property
    def digest(self) -> str:
        """Equal for equal work."""
        return self.workload.digest

    @property
    def context(self) -> Context:
        """What metrics are computed with, besides the traces."""
        info = self.info
        roof = roof_of(
            info.model_config,
            device=info.device,
            dtype=info.dtype,
            quantization=info.quantization,
            kv_cache_dtype=info.kv_cache_dtype,
            gpus=info.device_count,
            measured=self.peaks,
        )
        clock = self.clock
        return Context(
            slo=self.workload.slo,
            roof=roof,
            sm_clock_hz=None if clock is None else clock * 1e6,
            keeps_prefixes=self.workload.shared_prefix > 0 and bool(info.args.get("enable_prefix_caching")),
        )

    def summaries(self) -> dict[str, Summary]:
        """Every metric of a workload over all launches."""
        context = self.context
        launches = [launch.repeats for launch in self.launches]
        readings = [launch.readings for launch in self.launches]
        return {
            name: beyond_floor(name, summarize(metric, launches, context, readings), self._calibration, launches)
            for name, metric in REGISTRY.items()
            if name not in IDLE and name not in HARDWARE
        }

    @property
    def _calibration(self) -> Calibration | None:
        clients = [launch.account.client for launch in self.launches if launch.account.client is not None]
        return clients[-1].calibration if clients else None

    def wall_seconds(self) -> list[float]:
        """How long each repeat took from its first due time to its last token, over all launches."""
        return [
            (span[1] - span[0]) / NS_PER_S
            for launch in self.launches
            for repeat in launch.repeats
            if (span := repeat.span) is not None
        ]
