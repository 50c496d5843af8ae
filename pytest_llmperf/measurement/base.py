"""What every measurement is: launches of something in one test, and what they come to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.baselines import Identity
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.metrics import Summary
from pytest_llmperf.runner import Launch
from pytest_llmperf.workload import Workload

__all__ = ["BaseMeasurement", "identity_of"]


class BaseMeasurement(ABC):
    """What the gate, the baselines and the record ask of a measurement, whatever was measured.

    Attributes:
        test: The test's id, with ``#name`` for a named measurement.
        launches: What was measured, launch by launch.
        workload: What was sent; ``None`` of a measurement that sends nothing.
        peaks: The device's peaks as measured, where no data sheet gives them.
        outputs: What the engine answered to fixed prompts, or why there is nothing; ``None`` when it was not asked.
    """

    test: str
    launches: list[Launch]
    workload: Workload | None = None
    peaks: Hardware | None = None
    outputs: Outputs | Unavailable | None = None

    @property
    @abstractmethod
    def digest(self) -> str:
        """Equal for equal work."""

    @abstractmethod
    def summaries(self) -> dict[str, Summary]:
        """Every metric that belongs to this kind of measurement, over all launches."""

    @abstractmethod
    def gated(self, tolerances: Mapping[str, float], for_all: float | None = None) -> dict[str, float]:
        """The metrics that this measurement is judged by, with the tolerance of each; empty: it is judged by none.

        Args:
            tolerances: Of the metrics that any measurement of the test is judged by.
            for_all: The one that was given for all metrics, if one was.
        """

    @abstractmethod
    def wall_seconds(self) -> list[float]:
        """How long each part took, over all launches."""

    def windows(self) -> list[tuple[str, Launch]]:
        """What the last launch measured, by the id that its prompts were made for."""
        return [(self.test, self.launches[-1])]

    def record(self) -> dict[str, Any]:
        """What the test's record says of this kind of measurement alone, by the record's field."""
        return {}

    @property
    def work(self) -> dict[str, Any]:
        """The workload as a baseline keeps it; empty without one."""
        return {} if self.workload is None else self.workload.to_json()

    @property
    def slo(self) -> dict[str, float] | None:
        """The limits that goodput is counted against; ``None`` without a workload."""
        return None if self.workload is None else dict(self.workload.slo)

    @property
    def info(self) -> EngineInfo:
        """The engine that ran, or what measured in place of one."""
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
