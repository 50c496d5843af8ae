"""A GPU's peaks: the data sheet's, or measured ones in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_llmperf.arithmetic.config import brief
from pytest_llmperf.arithmetic.dtypes import canonical_dtype
from pytest_llmperf.arithmetic.gpus import DATA_SHEETS, DataSheet
from pytest_llmperf.errors import HardwareError

_BY_NAME: Mapping[str, DataSheet] = {name: sheet for sheet in DATA_SHEETS for name in sheet.names}


#: Words of a name that tell no product from another.
_BRANDS = frozenset({"nvidia", "tesla"})


def _words(name: str) -> frozenset[str]:
    """What tells a product apart: ``{"a100", "sxm4", "80gb"}``."""
    return frozenset(re.split(r"[\s_-]+", name.lower())) - _BRANDS - {""}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one GPU can do at most.

    Args:
        name: As its driver gives it.
        flops: Peak dense operations per second by dtype (``float16``, ``bfloat16``, ``float8``, ...).
        peak_bandwidth: Peak memory bandwidth in bytes/s.
        memory_bytes: Memory in bytes; ``None`` when no data sheet describes the hardware.
        power_limit_w: Default power limit in watts; ``None`` likewise.
        sm_clock_hz: SM clock at which ``flops`` hold; ``None`` likewise, and then they do not scale.
        source: Where the figures come from.
    """

    name: str
    flops: Mapping[str, float]
    peak_bandwidth: float
    memory_bytes: float | None
    power_limit_w: float | None
    sm_clock_hz: float | None
    source: str

    @classmethod
    def named(cls, name: str) -> Hardware:
        """A GPU by the exact name that NVML gives.

        Names are not matched in part: a "D", "Ti", laptop, MIG or vGPU variant is another product.

        Raises:
            HardwareError: The name is not in the table; the message gives the line to add.
        """
        sheet = _BY_NAME.get(name)
        if sheet is None:
            raise HardwareError(
                f"The peaks of {brief(name)} are not known.",
                remedy=(
                    "Add a line with the figures of its data sheet to DATA_SHEETS in"
                    f" pytest_llmperf/arithmetic/gpus.py: DataSheet(({brief(name)},),"
                    " _rates(half=<dense TFLOP/s>, float32=<TFLOP/s>), <bandwidth in B/s>, <memory in B>,"
                    ' <power limit in W>, <boost clock in Hz>, "<data sheet>").'
                ),
            )
        return cls(
            name=name,
            flops=sheet.flops,
            peak_bandwidth=sheet.bandwidth,
            memory_bytes=sheet.memory,
            power_limit_w=sheet.power_limit,
            sm_clock_hz=sheet.sm_clock,
            source=sheet.source,
        )

    @classmethod
    def matching(cls, name: str) -> Hardware:
        """A GPU by its name or by the words of it that tell it apart, in any case: ``"h200"``, ``"h100 nvl"``.

        It is for what a person types. What a driver reports goes to :meth:`named`.

        Raises:
            HardwareError: Several in the table may be meant, and are listed; or none, as for :meth:`named`.
        """
        wanted = _words(name)
        sheets = [sheet for sheet in DATA_SHEETS if any(wanted == _words(known) for known in sheet.names)]
        if not sheets:
            sheets = [sheet for sheet in DATA_SHEETS if any(wanted <= _words(known) for known in sheet.names)]
        if name in _BY_NAME or not wanted or not sheets:
            return cls.named(name)
        if len(sheets) > 1:
            raise HardwareError(
                f"{brief(name)} may be any of several GPUs.",
                remedy=f"Use one of: {', '.join(brief(sheet.names[0]) for sheet in sheets)}.",
            )
        return cls.named(sheets[0].names[0])

    def peak_flops(self, dtype: str, *, sm_clock_hz: float | None = None) -> float:
        """Peak dense operations per second.

        Args:
            dtype: What is multiplied, such as ``bfloat16`` or ``fp8``.
            sm_clock_hz: The SM clock that the GPU is locked at, in Hz. The peak is proportional to it; by
                default it is that of the data sheet's boost clock.

        Raises:
            HardwareError: The GPU has no such rate, or the clock makes no sense.
        """
        canonical = canonical_dtype(dtype)
        peak = self.flops.get(canonical) if canonical is not None else None
        if peak is None and not self.flops:
            raise HardwareError(
                f"The peak FLOPs of {self.name} are not known.", remedy="Give a measured peak, or use a known GPU."
            )
        if peak is None:
            raise HardwareError(
                f"The peak of {self.name} for {brief(dtype)} is not known: {self.source} gives"
                f" {', '.join(sorted(self.flops))}.",
                remedy="Use a dtype that the GPU has, or give a measured peak.",
            )
        if sm_clock_hz is None or self.sm_clock_hz is None:
            return peak
        return peak * _positive("The SM clock", sm_clock_hz) / self.sm_clock_hz

    def machine_balance(self, dtype: str, bandwidth: float | None = None, *, sm_clock_hz: float | None = None) -> float:
        """Peak FLOPs over peak bandwidth, in FLOPs per byte.

        With 16-bit weights it is also the batch at which decode turns compute-bound, KV traffic aside: a
        weight takes two bytes and two FLOPs per sequence.

        Args:
            dtype: What is multiplied.
            bandwidth: A bandwidth in bytes/s in place of :attr:`peak_bandwidth`.
            sm_clock_hz: The SM clock that the GPU is locked at, in Hz; memory bandwidth doesn't depend on it.

        Raises:
            HardwareError: The GPU has no such rate, or a number makes no sense.
        """
        if bandwidth is None:
            bandwidth = self.peak_bandwidth
        return self.peak_flops(dtype, sm_clock_hz=sm_clock_hz) / _positive("The bandwidth", bandwidth)

    def with_measured(
        self,
        *,
        bandwidth: float | None = None,
        flops: Mapping[str, float] | None = None,
        sm_clock_hz: float | None = None,
    ) -> Hardware:
        """The same GPU with measured peaks in place of the data sheet's.

        Args:
            bandwidth: Bytes/s of a device-to-device copy, read and written together.
            flops: Operations per second of a large matrix product, by dtype; the others are kept.
            sm_clock_hz: The SM clock at which ``flops`` were measured; by default the data sheet's boost
                clock.

        Raises:
            HardwareError: A number or a dtype makes no sense.
        """
        changed: dict[str, float] = dict(self.flops)
        for dtype, value in (flops or {}).items():
            canonical = canonical_dtype(dtype)
            if canonical is None:
                raise HardwareError(f"The measured peak's dtype {brief(dtype)} is not known.")
            scale = 1.0
            if sm_clock_hz is not None and self.sm_clock_hz is not None:
                scale = self.sm_clock_hz / _positive("The SM clock", sm_clock_hz)
            changed[canonical] = _positive(f"The measured peak for {dtype}", value) * scale
        parts = [name for name, given in (("bandwidth", bandwidth), ("FLOPs", flops)) if given]
        return replace(
            self,
            flops=changed,
            peak_bandwidth=self.peak_bandwidth if bandwidth is None else _positive("The measured bandwidth", bandwidth),
            source=f"{self.source}; {' and '.join(parts)} measured" if parts else self.source,
        )


def _positive(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise HardwareError(f"{what} must be a number above 0, not {brief(value)}.")
    return value
