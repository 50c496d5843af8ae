"""What a measurement of its peaks would come to on a simulated board."""

from __future__ import annotations

from pytest_llmperf.peaks import DevicePeaks
from pytest_llmperf.simulation.board import BoardModel

__all__ = ["peaks_of"]

#: The dtypes that are measured on a real board.
_DTYPES = ("float16", "bfloat16")


def peaks_of(model: BoardModel, index: int, count: int, *, sm_mhz: float, memory_mhz: float) -> DevicePeaks:
    """One board's at given clocks.

    A copy is slower at a lower memory clock and, below the knee, at a lower SM clock; a product goes with the SM clock.
    The power limit does not come in: ten products are over before it acts.

    Args:
        model: Of the board.
        index: Of the board.
        count: Of the boards that there are, joined by links.
        sm_mhz: The SM clock.
        memory_mhz: The memory clock.
    """
    product, hardware = model.product, model.hardware
    memory = memory_mhz / product.memory_clocks_mhz[-1] * min(1.0, sm_mhz / model.memory.knee_mhz)
    clock = sm_mhz / product.supported_sm_clocks_mhz[-1]
    return DevicePeaks(
        product.name,
        model.memory.copy_bandwidth * memory,
        peer_to_peer={str(other): model.links.bandwidth for other in range(count) if other != index},
        matmul_flops={
            dtype: hardware.flops[dtype] * model.compute.matmul_share * clock
            for dtype in _DTYPES
            if dtype in hardware.flops
        },
        method=f"not measured: of the simulated board {model.key}, at {sm_mhz:g} MHz (memory {memory_mhz:g} MHz)",
    )
