"""Of two runs what changed most: of each metric the test that became worst, and the one that became best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_llmperf.explanation.comparison import ComparedMetric, ComparedTest

__all__ = ["Extremes", "extremes", "told_by_another"]

#: The metrics that a reader asks for first; what the others say follows from them.
_ASKED = (
    "ttft", "tpot", "itl", "e2e_latency", "throughput", "goodput", "max_rate", "power", "tpj", "mbu", "mfu",
    "copy_bandwidth", "matmul_flops", "peer_to_peer", "bare_power", "context_power", "loaded_power", "locked_power",
)  # fmt: skip
#: Two times are one where they differ by less, on the log scale.
_SAME = 0.005
#: Of these the later ones are left out where they say of every token what an earlier one says.
_GAPS = ("tpot", "itl", "chunk_gap")


@dataclass(frozen=True)
class Extremes:
    """How a metric changed over the tests.

    Attributes:
        metric: Its name.
        tests: In how many tests it changed: outside its noise, or by more than nothing where the noise is not known.
        worst: The change furthest to the side of worse, with the test; ``None`` where none became worse.
        best: Likewise to the side of better.
    """

    metric: str
    tests: int
    worst: tuple[str, float] | None
    best: tuple[str, float] | None

    @property
    def size(self) -> float:
        """The larger of both, on the log scale."""
        return max(abs(math.log1p(one[1])) for one in (self.worst, self.best) if one is not None)


def extremes(tests: Iterable[ComparedTest]) -> list[Extremes]:
    """The metrics that a reader asks for first and that changed, those that changed most first.

    Args:
        tests: In both runs, and alike in whether they are comparable.
    """
    changes: dict[str, list[tuple[str, float, bool]]] = {}
    for test in tests:
        left_out = told_by_another(test.metrics)
        for metric in test.metrics:
            if metric.change is not None and metric.moved and metric.name in _ASKED and metric.name not in left_out:
                worse = (metric.change > 0) == (metric.better == "lower")
                changes.setdefault(metric.name, []).append((test.nodeid, metric.change, worse))
    found = []
    for name, told in changes.items():
        worst, best = (
            max(((test, change) for test, change, worse in told if worse == side), key=_by_size, default=None)
            for side in (True, False)
        )
        found.append(Extremes(name, len(told), worst, best))
    return sorted(found, key=lambda one: (-round(one.size, 3), _ASKED.index(one.metric)))


def _by_size(one: tuple[str, float]) -> float:
    return abs(math.log1p(one[1]))


def told_by_another(metrics: Sequence[ComparedMetric]) -> dict[str, str]:
    """Metrics of the time between tokens that are in both runs what another one is, with its name."""
    by_name = {metric.name: metric for metric in metrics}
    found: dict[str, str] = {}
    for place, name in enumerate(_GAPS):
        for other in _GAPS[:place]:
            if name in by_name and other in by_name and other not in found and _alike(by_name[name], by_name[other]):
                found.setdefault(name, other)
    return found


def _alike(one: ComparedMetric, other: ComparedMetric) -> bool:
    pairs = ((one.before, other.before), (one.now, other.now))
    return all(min(pair) > 0 and abs(math.log(pair[0] / pair[1])) < _SAME for pair in pairs)
