"""Splitting a decode's energy by what the bytes were moved for."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmperf.arithmetic.checks import check_not_negative, check_positive


@dataclass(frozen=True, slots=True)
class EnergySplit:
    """An energy, split by what the bytes were moved for. In joules.

    Args:
        weight_j: Weights (E_weight).
        kv_j: KV cache (E_kv).
        activation_j: Activations (E_act).
    """

    weight_j: float
    kv_j: float
    activation_j: float


def energy_split(energy_j: float, *, weight_bytes: float, kv_bytes: float, activation_bytes: float) -> EnergySplit:
    """Split an energy into E_weight, E_kv and E_act, in proportion to the bytes moved.

    A model, not a measurement: it takes a byte to cost the same whatever it belongs to, and computing to cost
    nothing of its own, which is near the truth for a decode at small batches.

    Args:
        energy_j: The energy in joules.
        weight_bytes: Bytes of weights moved.
        kv_bytes: Bytes of KV cache moved.
        activation_bytes: Bytes of activations moved, see :meth:`Architecture.activation_bytes`.
    """
    check_not_negative(
        energy_j=energy_j, weight_bytes=weight_bytes, kv_bytes=kv_bytes, activation_bytes=activation_bytes
    )
    total = weight_bytes + kv_bytes + activation_bytes
    check_positive(bytes_moved=total)
    return EnergySplit(
        energy_j * weight_bytes / total, energy_j * kv_bytes / total, energy_j * activation_bytes / total
    )
