"""Lengths in tokens: numbers, or distributions from which each request draws its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.workload.checks import check_count, is_number

__all__ = ["Distribution", "length_of"]

_SHAPES = {
    "uniform": ("low", "high"),
    "normal": ("mean", "stdev", "low", "high"),
    "lognormal": ("median", "sigma", "low", "high"),
    "choice": None,
}


@dataclass(frozen=True)
class Distribution:
    """A length that differs from request to request.

    Args:
        kind: ``"uniform"`` (low, high), ``"normal"`` (mean, stdev, low, high), ``"lognormal"`` (median, sigma of
            the logarithm, low, high) or ``"choice"`` (the lengths, each equally likely). Bounds are inclusive;
            normal and lognormal draws outside them are drawn again.
        values: The parameters, in that order; lengths are tokens.
    """

    kind: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _SHAPES:
            raise WorkloadError(
                f"A length distribution of kind {self.kind!r} is not known.",
                remedy=f"Use one of: {', '.join(_SHAPES)}.",
            )
        names = _SHAPES[self.kind]
        if not isinstance(self.values, list | tuple):
            raise WorkloadError(f"The length distribution {self.kind!r} takes a list of values, not {self.values!r}.")
        values = tuple(self.values)
        if names is not None and len(values) != len(names):
            raise WorkloadError(
                f"The length distribution {self.kind!r} takes {len(names)} values and was given {len(values)}.",
                remedy=f"Give {', '.join(names)}.",
            )
        if not values or not all(is_number(v) for v in values):
            raise WorkloadError(f"The length distribution {self.kind!r} needs numbers, not {values!r}.")
        bounds = values if self.kind == "choice" else values[-2:]
        if not all(isinstance(v, int) and v >= 1 for v in bounds):
            raise WorkloadError(
                f"The lengths of the distribution {self.kind!r} are whole tokens from 1 up, not {bounds!r}."
            )
        if self.kind != "choice" and bounds[0] > bounds[1]:
            raise WorkloadError(f"The distribution {self.kind!r} has low {bounds[0]} above high {bounds[1]}.")
        if self.kind in ("normal", "lognormal"):
            centre, spread = values[0], values[1]
            if spread < 0 or not bounds[0] <= centre <= bounds[1]:
                raise WorkloadError(
                    f"The distribution {self.kind!r} needs a spread of at least 0 and a centre between low and high."
                )
            if self.kind == "lognormal" and spread > 10:
                raise WorkloadError("The distribution 'lognormal' takes the sigma of the logarithm: at most 10.")
            values = (float(centre), float(spread), *bounds)
        object.__setattr__(self, "values", values)

    @property
    def high(self) -> int:
        """The longest length that can be drawn, in tokens."""
        return int(max(self.values) if self.kind == "choice" else self.values[-1])

    def to_json(self) -> dict[str, list[float]]:
        """The form in which records keep it: ``{"uniform": [128, 1024]}``."""
        return {self.kind: list(self.values)}


def length_of(name: str, value: Any) -> int | Distribution:
    """A length as a workload keeps it, from a number, a distribution or its JSON form."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise WorkloadError(f"{name} takes one distribution, such as {{'uniform': [128, 1024]}}, not {value!r}.")
        ((kind, values),) = value.items()
        try:
            return Distribution(kind, values)
        except WorkloadError as error:
            raise WorkloadError(f"{name}: {error.problem}", remedy=error.remedy) from None
    check_count(name, value, least=1)
    return int(value)
