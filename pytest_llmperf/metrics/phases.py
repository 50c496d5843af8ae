"""Prefill and decode told apart by a regression: E = fixed + prefill x prompt tokens + decode x (output tokens - 1).

The first output token comes out of the prefill; every other one is a step of decoding.

Each point is a window of its own, in which one shape of request ran again and again. A window of long outputs holds
far more joules than one of prefills, and its uncertainty alone may exceed all that a prefill takes; so each point has
the weight that its uncertainty gives it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.metrics.types import Missing

__all__ = ["PhaseFit", "PhasePoint", "fit_phases"]

#: No window is better known than this, relative: the load itself is not steadier.
_STEADINESS = 0.005
#: Coefficients to be found.
_UNKNOWNS = 3


@dataclass(frozen=True)
class PhasePoint:
    """One shape of request and what it took.

    Attributes:
        input_len: Prompt tokens a request.
        output_len: Output tokens a request.
        joules: A request.
        error: Standard uncertainty of that, joules.
    """

    input_len: int
    output_len: int
    joules: float
    error: float


@dataclass(frozen=True)
class PhaseFit:
    """What the regression found; joules.

    Attributes:
        fixed: A request, whatever its lengths.
        prefill_jpt: A prompt token.
        decode_jpt: An output token after the first.
        fixed_error: Standard uncertainty of each, as the points' own give it.
        prefill_error: Likewise.
        decode_error: Likewise.
        worst: The largest relative distance of a point to the plane.
    """

    fixed: float
    prefill_jpt: float
    decode_jpt: float
    fixed_error: float
    prefill_error: float
    decode_error: float
    worst: float


def fit_phases(points: Sequence[PhasePoint]) -> PhaseFit | Missing:
    """The plane through some points, by weighted least squares.

    Args:
        points: Of at least three shapes that do not lie on one line.
    """
    if len({(p.input_len, p.output_len) for p in points}) < _UNKNOWNS:
        return Missing("a regression needs windows of three shapes")
    # In units of the largest lengths, so that the matrix is not ill-conditioned by the unit alone.
    scales = (1.0, float(max(p.input_len for p in points)), float(max(p.output_len for p in points)))
    matrix = [[0.0] * _UNKNOWNS for _ in range(_UNKNOWNS)]
    right = [0.0] * _UNKNOWNS
    for point in points:
        weight = 1 / max(point.error, _STEADINESS * abs(point.joules), 1e-12) ** 2
        row = [1.0, point.input_len / scales[1], (point.output_len - 1) / scales[2]]
        for i in range(_UNKNOWNS):
            right[i] += weight * row[i] * point.joules
            for j in range(_UNKNOWNS):
                matrix[i][j] += weight * row[i] * row[j]
    inverse = _inverse(matrix)
    if inverse is None:
        return Missing("the windows' shapes lie on one line, and no regression can tell the phases apart")
    found = [sum(inverse[i][j] * right[j] for j in range(_UNKNOWNS)) / scales[i] for i in range(_UNKNOWNS)]
    errors = [math.sqrt(inverse[i][i]) / scales[i] for i in range(_UNKNOWNS)]
    worst = max(
        abs(found[0] + found[1] * p.input_len + found[2] * (p.output_len - 1) - p.joules) / max(abs(p.joules), 1e-12)
        for p in points
    )
    return PhaseFit(found[0], found[1], found[2], errors[0], errors[1], errors[2], worst)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """By Gauss and Jordan with pivoting; ``None`` of a singular one."""
    size = len(matrix)
    largest = max(abs(value) for row in matrix for value in row)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) <= 1e-12 * largest:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for i in range(size):
            if i != column:
                rows[i] = [a - rows[i][column] * b for a, b in zip(rows[i], rows[column], strict=True)]
    return [row[size:] for row in rows]
