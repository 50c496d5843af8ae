"""Power over time that is known exactly: what a scenario plays, and the joules that it takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

__all__ = ["Curve", "bursts", "ramp", "steps"]


@dataclass(frozen=True)
class Curve:
    """Power in straight lines from point to point, again and again; a step is two points at one time.

    Attributes:
        points: Seconds from 0, and watts.
    """

    points: tuple[tuple[float, float], ...]

    @property
    def period_s(self) -> float:
        return self.points[-1][0]

    def joules(self, start_s: float, end_s: float) -> float:
        """Energy from one time to another."""
        return self._until(end_s) - self._until(start_s)

    def watts(self, at_s: float) -> float:
        _, (t0, w0), (t1, w1) = self._piece(at_s % self.period_s)
        return w0 + (w1 - w0) * (at_s % self.period_s - t0) / (t1 - t0)

    def scenario(self, board: int | None = None) -> str:
        """The section that plays it."""
        words = [f"0:{self.points[0][1]:g}"]
        for (t0, w0), (t1, w1) in pairwise(self.points):
            if w1 != w0:
                words.append(f"{t1:g}:{w1:g}" if t1 == t0 else f"{t1:g}/{w1:g}")
            elif t1 > t0:
                words.append(f"{t1:g}:{w1:g}")
        section = "[boards]" if board is None else f"[board {board}]"
        return f"{section}\npower = {' '.join(words)}\npower_repeat_s = {self.period_s:g}\n"

    def _until(self, at_s: float) -> float:
        rounds, rest = divmod(at_s, self.period_s)
        place, (t0, w0), (t1, w1) = self._piece(rest)
        watts = w0 + (w1 - w0) * (rest - t0) / (t1 - t0)
        return rounds * self._sums[-1] + self._sums[place] + (w0 + watts) / 2 * (rest - t0)

    def _piece(self, at_s: float) -> tuple[int, tuple[float, float], tuple[float, float]]:
        place = max(0, min(bisect_right(self._times, at_s), len(self.points) - 1) - 1)
        while self.points[place + 1][0] == self.points[place][0]:
            place -= 1
        return place, self.points[place], self.points[place + 1]

    @cached_property
    def _times(self) -> list[float]:
        return [t for t, _ in self.points]

    @cached_property
    def _sums(self) -> list[float]:
        areas = [(w0 + w1) / 2 * (t1 - t0) for (t0, w0), (t1, w1) in pairwise(self.points)]
        return [0.0, *accumulate(areas)]


def steps(period_s: float, watts: Sequence[float]) -> Curve:
    """Plateaus of equal length."""
    points: list[tuple[float, float]] = []
    for n, power in enumerate(watts):
        points += [(n * period_s, power), ((n + 1) * period_s, power)]
    return Curve(tuple(points))


def ramp(period_s: float, low: float, high: float) -> Curve:
    """Up, and down again."""
    return Curve(((0.0, low), (period_s / 2, high), (period_s, low)))


def bursts(period_s: float, flat: float, burst: float, burst_s: float) -> Curve:
    """Flat as decoding is, with a prefill's spike once a period."""
    return Curve(((0.0, burst), (burst_s, burst), (burst_s, flat), (period_s, flat), (period_s, burst)))
