"""The mathematics that questions share: pure, in plain numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Corner", "Line", "corner", "knee", "least_squares", "pooled_spread", "student"]

#: Exponents that are tried for a smooth turn; infinity is the sharp one.
_TURNS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, math.inf)
#: A turn describes the points about as well as the best one within this factor, or this error.
_AS_WELL, _WELL = 1.5, 0.005
#: Two parameters and the turn.
_LEAST_OF_A_CORNER = 4
#: Values further apart have powers that no number holds.
_WIDEST = 1e9
#: The points have to go this far beyond a corner to show it.
_BEYOND = 1.1
#: Fewer points can put a knee nowhere but between their ends.
_LEAST_OF_A_KNEE = 5
#: Throughput that grows by less than this part of what latency grows by, in logarithms, grows clearly less.
_CLEARLY = 0.8


def student(probability: float, freedom: float) -> float:
    """The quantile of Student's distribution.

    Args:
        probability: From 0 to 1.
        freedom: Degrees of freedom, above 0.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def pooled_spread(series: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation of logarithms within series, and its degrees of freedom.

    Args:
        series: Values above 0, one of each launch; those with fewer than two tell nothing.
    """
    squares, freedom = 0.0, 0
    for values in series:
        if len(values) > 1:
            logs = [math.log(value) for value in values]
            middle = statistics.fmean(logs)
            squares += sum((one - middle) ** 2 for one in logs)
            freedom += len(logs) - 1
    return (math.sqrt(squares / freedom), freedom) if freedom else (0.0, 0)


@dataclass(frozen=True)
class Line:
    """What least squares found.

    Attributes:
        coefficients: One a column.
        worst: The largest relative distance of a point to the fit.
    """

    coefficients: tuple[float, ...]
    worst: float


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> Line | None:
    """Coefficients c of ``row · c = value``, by least squares of the relative distances.

    Args:
        rows: One a point, each as long as there are coefficients.
        values: One a point, above 0.

    Returns:
        ``None`` when the rows do not determine them.
    """
    size = len(rows[0]) if rows else 0
    if not size or len(rows) < size:
        return None
    weighted = [[one / value for one in row] for row, value in zip(rows, values, strict=True)]
    # Each column in units of its largest weight, so that no unit makes the matrix look singular.
    scales = [max(abs(row[i]) for row in weighted) or 1.0 for i in range(size)]
    scaled = [[one / scale for one, scale in zip(row, scales, strict=True)] for row in weighted]
    matrix = [
        [*(sum(row[i] * row[j] for row in scaled) for j in range(size)), sum(row[i] for row in scaled)]
        for i in range(size)
    ]
    solved = _solved(matrix)
    if solved is None:
        return None
    found = tuple(one / scale for one, scale in zip(solved, scales, strict=True))
    worst = max(
        abs(sum(c * x for c, x in zip(found, row, strict=True)) / value - 1)
        for row, value in zip(rows, values, strict=True)
    )
    return Line(found, worst)


def _solved(matrix: list[list[float]]) -> list[float] | None:
    """By Gauss and Jordan with pivoting; ``None`` of a singular one. The last column is the right side."""
    size = len(matrix)
    largest = max(abs(value) for row in matrix for value in row[:size])
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(matrix[i][column]))
        if abs(matrix[pivot][column]) <= 1e-12 * largest:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        matrix[column] = [value / matrix[column][column] for value in matrix[column]]
        for i in range(size):
            if i != column:
                factor = matrix[i][column]
                matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[column], strict=True)]
    return [row[size] for row in matrix]


@dataclass(frozen=True)
class Corner:
    """Where a flat curve turns into one that rises in proportion.

    Attributes:
        at: Where what is fixed equals what is in proportion.
        low: The least such place by any turn that describes the points about as well.
        high: The greatest.
        flat: The height of the flat part.
        slope: Of the rising part, through the origin.
        turn: The exponent p in y^p = flat^p + (slope x)^p; infinity is a sharp corner.
        error: Root mean square of the relative distances.
    """

    at: float
    low: float
    high: float
    flat: float
    slope: float
    turn: float
    error: float


def corner(xs: Sequence[float], ys: Sequence[float]) -> Corner | None:
    """Fit y^p = flat^p + (slope x)^p, from a plain sum (p = 1) to a sharp corner (p = infinity).

    Two limits of which the slower one counts make a sharp corner, two that do not overlap at all a sum, and those of a
    GPU something between. All have their corner at ``flat / slope``, where both take equally long.

    Args:
        xs: Above 0, each once.
        ys: Above 0.

    Returns:
        ``None`` with fewer than four points, and when the curve has not left its flat part by the last of them.
    """
    if len(xs) < _LEAST_OF_A_CORNER or not max(ys) <= _WIDEST * min(ys):
        return None
    # In units of the largest x and the smallest y no power leaves the range of numbers.
    width, height = max(xs), min(ys)
    scaled = [x / width for x in xs], [y / height for y in ys]
    fits = [fit for turn in _TURNS if (fit := _turned(*scaled, turn)) is not None]
    if not fits:
        return None
    best = min(fits, key=lambda fit: (fit.error, fit.turn))
    if best.at * _BEYOND > 1:
        return None
    as_well = [fit.at for fit in fits if fit.error <= max(_AS_WELL * best.error, _WELL)]
    places = [*as_well, best.at]
    return Corner(
        at=best.at * width, low=min(places) * width, high=max(places) * width, flat=best.flat * height,
        slope=best.slope * height / width, turn=best.turn, error=best.error,
    )  # fmt: skip


def _turned(xs: Sequence[float], ys: Sequence[float], turn: float) -> Corner | None:
    if math.isinf(turn):
        return _sharp(xs, ys)
    found = least_squares([(1.0, x**turn) for x in xs], [y**turn for y in ys])
    if found is None or min(found.coefficients) <= 0:
        return None
    flat, slope = (one ** (1 / turn) for one in found.coefficients)
    return _corner(flat, slope, turn, [_blended(flat, slope * x, turn) for x in xs], ys)


def _blended(one: float, other: float, turn: float) -> float:
    larger, smaller = max(one, other), min(one, other)
    return float(larger * (1 + (smaller / larger) ** turn) ** (1 / turn))


def _sharp(xs: Sequence[float], ys: Sequence[float]) -> Corner | None:
    points = sorted(zip(xs, ys, strict=True))
    fits = []
    for split in range(1, len(points)):
        flat_part, rising = points[:split], points[split:]
        flat = sum(1 / y for _, y in flat_part) / sum(1 / y**2 for _, y in flat_part)
        slope = sum(x / y for x, y in rising) / sum((x / y) ** 2 for x, y in rising)
        told = [max(flat, slope * x) for x, _ in points]
        fits.append(_corner(flat, slope, math.inf, told, [y for _, y in points]))
    return min(fits, key=lambda fit: fit.error)


def _corner(flat: float, slope: float, turn: float, told: Sequence[float], ys: Sequence[float]) -> Corner:
    error = math.sqrt(statistics.fmean((t / y - 1) ** 2 for t, y in zip(told, ys, strict=True)))
    at = flat / slope
    return Corner(at, at, at, flat, slope, turn, error)


def knee(latencies: Sequence[float], throughputs: Sequence[float]) -> int | None:
    """Up to where more load pays: beyond it throughput grows clearly less than latency, both in proportion.

    That is where their ratio, Kleinrock's power, is greatest ("Power and deterministic rules of thumb for probabilistic
    problems in computer communications", 1979); unlike a distance to a chord it does not depend on how far the loads
    reach.

    Args:
        latencies: By rising load, above 0.
        throughputs: Likewise.

    Returns:
        The index of the point; ``None`` where more load pays up to the last of them, or never did.
    """
    if len(latencies) < _LEAST_OF_A_KNEE:
        return None
    steps = [
        (math.log(gain), math.log(cost))
        for gain, cost in zip(_ratios(throughputs), _ratios(latencies), strict=True)
    ]  # fmt: skip
    powers = [math.log(gain / cost) for gain, cost in zip(throughputs, latencies, strict=True)]
    at = max(range(len(powers)), key=lambda i: (powers[i], -i))
    while at < len(steps) and not (steps[at][1] > 0 and steps[at][0] < _CLEARLY * steps[at][1]):
        at += 1
    return at if 0 < at < len(steps) else None


def _ratios(values: Sequence[float]) -> list[float]:
    return [after / before for before, after in pairwise(values)]
