"""All launches of one workload in one test, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.baselines import Identity
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.engines.account import Calibration
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.metrics import REGISTRY, Context, Summary, roof_of, summarize
from pytest_llmperf.overhead import beyond_floor
from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.runner import Launch
from pytest_llmperf.workload import Workload

__all__ = ["LaunchOf", "Measurement", "identity_of"]


class LaunchOf(Protocol):
    """Measures a workload on the engine that runs, once, with everything that belongs to a launch."""

    def __call__(
        self, workload: Workload, *, test: str, repeats: int, allowed_failures: int | None, doing: str = ""
    ) -> Launch:
        """One launch; ``doing`` says in a few words which part of the measurement it is."""
        ...


@dataclass
class Measurement:
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

    def windows(self) -> list[tuple[str, Launch]]:
        """What the last launch measured, by the id that its prompts were made for."""
        return [(self.test, self.launches[-1])]

    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """The metrics that this measurement is judged by, with the tolerance of each.

        Args:
            tolerances: Of the metrics that any measurement of the test is judged by.
            for_all: The one that was given for all metrics, if one was.
        """
        del for_all
        return dict(tolerances)

    def record(self) -> dict[str, Any]:
        """What the test's record says of this kind of measurement alone, by the record's field."""
        return {}

    @property
    def digest(self) -> str:
        """Equal for equal work."""
        return self.workload.digest

    @property
    def info(self) -> EngineInfo:
        """The engine that ran."""
        return self.launches[-1].info

    @property
    def clock(self) -> int | None:
        """The SM clock in MHz that the boards were locked at; ``None`` when it ran free."""
        clock = self.launches[-1].clock
        return None if clock is None or clock.held is None else clock.held.locked_mhz

    @property
    def memory_clock(self) -> int | None:
        """The memory clock in MHz that the boards were locked at; ``None`` when it ran free."""
        clock = self.launches[-1].clock
        return None if clock is None or clock.held is None else clock.held.memory_mhz

    @property
    def boards(self) -> str | None:
        """The boards that were read, as a baseline names them; ``None`` when none was."""
        uuids = {samples.uuid for launch in self.launches for samples in launch.samples}
        return "+".join(sorted(uuids)) or None

    @property
    def invalid(self) -> str | None:
        """Why the measurement cannot be trusted, or ``None``."""
        return next((launch.invalid for launch in self.launches if launch.invalid), None)

    @property
    def warnings(self) -> list[str]:
        """Each warning once."""
        return list(dict.fromkeys(w for launch in self.launches for w in launch.warnings))

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
        """Every metric of the registry over all launches."""
        context = self.context
        launches = [launch.repeats for launch in self.launches]
        readings = [launch.readings for launch in self.launches]
        return {
            name: beyond_floor(name, summarize(metric, launches, context, readings), self._calibration, launches)
            for name, metric in REGISTRY.items()
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


def identity_of(
    info: EngineInfo,
    digest: str,
    *,
    clock_mhz: int | None,
    power_limit_w: float | None,
    memory_clock_mhz: int | None = None,
) -> Identity:
    """What a baseline of this measurement holds for."""
    return Identity(
        hardware=info.device,
        device_count=info.device_count,
        power_limit_w=power_limit_w,
        simulated=info.simulated,
        clock_mhz=clock_mhz,
        memory_clock_mhz=memory_clock_mhz,
        model=info.model,
        model_digest=info.model_digest,
        dtype=info.dtype,
        quantization=info.quantization,
        kv_cache_dtype=info.kv_cache_dtype,
        tensor_parallel_size=info.tensor_parallel_size,
        pipeline_parallel_size=info.pipeline_parallel_size,
        workload=digest,
    )
