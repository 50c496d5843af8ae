"""How a session measures without a workload: what idle boards draw, and what devices reach at best.

Both need boards without an engine, so that an engine which is up is closed first; :func:`rank` lets such tests come
before the first one starts.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, TypeVar

from pytest_llmperf import __version__, peaks
from pytest_llmperf.clock import NS_PER_S, MonotonicClock
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.pool import EnginePool, RunningEngine
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec, simulated_gpus
from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.gpu.energy.idle import Floor, IdlePower
from pytest_llmperf.gpu.guards.tenants import strangers
from pytest_llmperf.measurement import GaugeMeasurement, HardwareMeasurement, IdleMeasurement
from pytest_llmperf.runner import Launch, LaunchClock

if TYPE_CHECKING:
    import pytest

    from pytest_llmperf.plugin.boards import SessionBoards
    from pytest_llmperf.plugin.instruments import Instruments

__all__ = ["Gauges", "rank", "starts_engine"]

T = TypeVar("T")

#: Methods of the fixture that need boards without an engine, in the order in which their tests come.
_FIRST = ("check_hardware", "check_idle")
#: Seconds that a simulated measurement of peaks is said to take: there is nothing that would pass.
_ROUNDS = 11
#: What is said of a server on a loopback address beside which no GPU is to be seen.
_OF_THE_SERVER = (
    "What was measured is this machine's processor: the server runs on it, by its address, and no GPU is visible here. "
    "If the address leads to another machine, nothing of it was measured."
)


def rank(item: pytest.Item) -> int:
    """How early a test comes within a launch, as the names in its body tell.

    Only a matter of time saved: a test that measures without an engine by a helper's hand has it closed.
    """
    function = inspect.unwrap(getattr(item, "function", rank))
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    return next((place for place, name in enumerate(_FIRST) if name in names), len(_FIRST))


def starts_engine(item: pytest.Item) -> bool:
    """Whether a test needs its engine, as far as the names in its body tell."""
    return rank(item) > _FIRST.index("check_hardware")


class Gauges:
    """Those of a session.

    Args:
        choice: The session's engine.
        held: Its boards, and the clock that they are held at.
        pool: Its engines.
        instruments: What reads the boards.
        show: Is told what is under way.
    """

    def __init__(
        self,
        choice: EngineChoice,
        held: SessionBoards,
        pool: EnginePool,
        instruments: Instruments,
        show: Callable[[str], None],
    ) -> None:
        self._choice = choice
        self._held = held
        self._pool = pool
        self._instruments = instruments
        self._show = show
        #: Of the launch that is under way; several tests may ask for it.
        self._alone: tuple[int, tuple[Reading[IdlePower], Reading[IdlePower]]] | None = None

    @property
    def on_processor(self) -> bool:
        """Whether the device whose peaks can be measured is this machine's processor."""
        return self._choice.platform not in ("cuda", "sim")

    def why_no_idle(self) -> str | None:
        """Why the floor of the boards cannot be measured in this session; ``None`` where it can."""
        return self._instruments.calibration.why_unreadable()

    def why_no_hardware(self) -> str | None:
        """Why the devices cannot be measured in this session; ``None`` where they can."""
        if self._choice.platform != "url":
            return None
        if not Address.parse(self._choice.url or "").is_loopback:
            return "the server's devices are not this machine's, from which nothing can be measured there"
        return "the server holds the memory of the GPUs" if self._held.boards() else None

    def take(self, measurement: GaugeMeasurement, spec: EngineSpec, engine: Callable[[], RunningEngine]) -> None:
        """Measure one more launch.

        Args:
            measurement: Takes it.
            spec: The test's engine.
            engine: Starts that engine.

        Raises:
            LlmperfError: the engine did not start, or the devices could not be measured.
        """
        if isinstance(measurement, IdleMeasurement):
            self._idle(measurement, spec, engine)
        else:
            assert isinstance(measurement, HardwareMeasurement)
            self._hardware(measurement, spec)

    def _idle(self, measurement: IdleMeasurement, spec: EngineSpec, engine: Callable[[], RunningEngine]) -> None:
        alone, alone_s = self._timed(self._without_engine)
        running = engine()
        (floor, found), standing_s = self._timed(lambda: self._instruments.floor(running, alone))
        floor = self._noisy_floor(floor, spec)
        invalid = "; ".join(filter(None, (floor.invalid, found.invalid))) or None
        launch = Launch(
            running.launch,
            running.info,
            (),
            clock=self._clock(),
            warnings=(*found.warnings, *floor.restless),
            invalid=invalid,
        )
        measurement.add(floor, launch, alone_s + standing_s)

    def _without_engine(self) -> tuple[Reading[IdlePower], Reading[IdlePower]]:
        number = self._pool.launch
        if self._alone is None or self._alone[0] != number:
            self._pool.close()
            self._alone = number, self._instruments.calibration.alone()
        return self._alone[1]

    def _hardware(self, measurement: HardwareMeasurement, spec: EngineSpec) -> None:
        self._pool.close()
        self._instruments.prepare()
        self._show("measuring what the devices reach")
        shared = None
        if self._held.simulated is not None:
            found = self._simulated(spec)
            seconds = sum(_ROUNDS * _seconds(one) for one in found)
        else:
            if not self.on_processor:
                shared = strangers(self._held.devices())
            found, seconds = self._timed(lambda: peaks.in_own_process(on_gpu=not self.on_processor))
        info = self._info(found)
        warnings = () if self._choice.platform != "url" else (_OF_THE_SERVER,)
        launch = Launch(self._pool.launch, info, (), clock=self._clock(), warnings=warnings, invalid=shared)
        measurement.add(found, launch, seconds)

    def _info(self, found: Sequence[peaks.DevicePeaks]) -> EngineInfo:
        """What measured, in the place of an engine: whatever its model and its dtype, the figures are the same."""
        simulated = self._held.simulated is not None
        return EngineInfo(
            kind="hardware",
            version=self._choice.name if simulated else __version__,
            device=found[0].device,
            device_count=len(found),
            simulated=simulated,
            model="hardware",
            model_digest=None,
            model_config=None,
            dtype="any",
            quantization=None,
            kv_cache_dtype="any",
            tensor_parallel_size=len(found),  # how many work together is part of what was measured
            pipeline_parallel_size=1,
            max_model_len=0,
            vocab_size=0,
            special_tokens=frozenset(),
            args={"method": found[0].method},
            treatment=dict(self._choice.treatment) if simulated else {},
        )

    def _clock(self) -> LaunchClock | None:
        held = self._held.clock
        return None if held is None else LaunchClock(held, None, None)

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        clock = self._held.simulated or MonotonicClock()
        begun = clock.now()
        result = work()
        return result, (clock.now() - begun) / NS_PER_S

    # What a simulated engine's settings do to figures of which each is one reading.

    def _simulated(self, spec: EngineSpec) -> list[peaks.DevicePeaks]:
        boards = self._held.simulated
        assert boards is not None
        count, noise = simulated_gpus(spec), _Noise(spec, self._pool.launch)

        def rate(value: float, what: str) -> float:
            return value / noise.time(what)

        return [
            replace(
                one,
                copy_bandwidth=rate(one.copy_bandwidth, f"copy/{index}"),
                peer_to_peer={
                    other: rate(value, f"peer/{index}/{other}")
                    for other, value in one.peer_to_peer.items()
                    if int(other) < count
                },
                matmul_flops={name: rate(value, f"{name}/{index}") for name, value in one.matmul_flops.items()},
            )
            for index, one in enumerate(boards.peaks()[:count])
        ]

    def _noisy_floor(self, floor: Floor, spec: EngineSpec) -> Floor:
        if self._held.simulated is None:
            return floor
        noise = _Noise(spec, self._pool.launch)

        def noisy(power: Reading[IdlePower], rung: str) -> Reading[IdlePower]:
            if isinstance(power, Unreadable):
                return power
            factor = noise.reading(rung)
            return IdlePower({u: replace(board, watts=board.watts * factor) for u, board in power.boards.items()})

        return Floor(
            floor.uuids,
            noisy(floor.bare, "bare"),
            noisy(floor.context, "context"),
            noisy(floor.loaded, "loaded"),
            noisy(floor.locked, "locked"),
        )


class _Noise:
    """A simulated engine's noise on a single reading: one factor of the launch, and one of the reading."""

    def __init__(self, spec: EngineSpec, launch: int) -> None:
        from pytest_llmperf.engines.simulated.settings import check_settings

        self._settings = check_settings(spec.choice.name, spec.arguments)
        self._launch = launch

    def reading(self, what: str) -> float:
        """On a figure of this launch."""
        name = f"{int(self._settings['seed'])}/gauges/{self._launch}"
        of_launch = random.Random(name).gauss(0, self._settings["launch_noise"])
        return exp(of_launch + random.Random(f"{name}/{what}").gauss(0, self._settings["repeat_noise"]))

    def time(self, what: str) -> float:
        """On a time, which the slowdown makes longer."""
        return self.reading(what) * self._settings["slowdown"]


def _seconds(found: peaks.DevicePeaks) -> float:
    """What one round of the copy and of the products takes."""
    products = (2 * peaks.MATRIX**3 / rate for rate in found.matmul_flops.values())
    return 2 * peaks.GPU_BYTES / found.copy_bandwidth + sum(products)
