"""Simulated boards while something is measured: read afterwards, at the moments at which a sampler would have read."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.sampler import BoardSamples, collect
from pytest_llmperf.gpu.simulated.device import SimulatedDevice

__all__ = ["SimulatedWatch"]

#: Seconds of virtual time from one reading to the next.
INTERVAL_S = 0.01


class SimulatedWatch:
    """Samples simulated boards as :class:`~pytest_llmperf.gpu.watch.BoardWatch` samples real ones.

    Times are those of the engine that drives them. Nothing runs between begin and end, so nothing is disturbed.

    Args:
        devices: The boards.
        interval_s: Seconds of virtual time from one reading to the next.
    """

    def __init__(self, devices: Sequence[SimulatedDevice], interval_s: float = INTERVAL_S) -> None:
        self._devices = tuple(devices)
        self._interval_s = interval_s
        self._begun: list[int] = []

    async def begin(self) -> None:
        """Begin a span."""
        self._begun = [device.keep(self) for device in self._devices]

    async def end(self) -> list[BoardSamples]:
        """End it; what was to be read in it, board by board."""
        samples = [self._read(device, begun) for device, begun in zip(self._devices, self._begun, strict=True)]
        self.close()
        return samples

    def close(self) -> None:
        """Give up a span that was begun; it may be closed again."""
        for device in self._devices:
            device.release(self)

    def _read(self, device: SimulatedDevice, begun_ns: int) -> BoardSamples:
        replay = _Replay(begun_ns, device.timeline.now())
        (samples,) = collect(
            [device.as_of(replay.moment)],
            self._interval_s,
            replay.ended,
            now=lambda: device.timeline.outside(replay.moment()),
        )
        return samples


class _Replay:
    """A span of the past, gone through again."""

    def __init__(self, start_ns: int, end_ns: int) -> None:
        self._at_ns = start_ns
        self._end_ns = end_ns

    def moment(self) -> int:
        return self._at_ns

    def ended(self, seconds: float) -> bool:
        """Go on by so many seconds, not beyond the end; whether that is reached."""
        self._at_ns = min(self._end_ns, self._at_ns + round(seconds * NS_PER_S))
        return self._at_ns >= self._end_ns
