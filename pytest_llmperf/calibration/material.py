"""The gated comparisons of a run and all their launches, from its results.json."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.gate import Better, logs
from pytest_llmperf.report.units import shortened
from pytest_llmperf.report.write import load_run
from pytest_llmperf.results import Results, TestRecord

__all__ = ["Gated", "Material", "material_of", "read_material"]


@dataclass(frozen=True)
class Gated:
    """One metric of one test.

    Attributes:
        test: The test's id.
        group: What its engine is; noise is pooled within it.
        metric: The metric's name.
        better: Which direction is the better one.
        tolerance: Relative.
        logs: The logarithm of each launch's median.
    """

    test: str
    group: str
    metric: str
    better: Better
    tolerance: float
    logs: tuple[float, ...]


@dataclass(frozen=True)
class Material:
    """What can be divided into baselines and runs.

    Attributes:
        engines: The engines, in words.
        simulated: Whether any of them is.
        launches: How many launches every comparison has.
        gated: The comparisons.
        left_out: Why tests are not among them, as sentences.
    """

    engines: tuple[str, ...]
    simulated: bool
    launches: int
    gated: tuple[Gated, ...]
    left_out: tuple[str, ...]

    @property
    def tests(self) -> list[str]:
        """Their ids."""
        return list(dict.fromkeys(one.test for one in self.gated))


def read_material(folder: Path) -> Material:
    """What a report's folder holds.

    Raises:
        ResultsError: it holds no results, or none that can be used.
    """
    return material_of(load_run(folder), folder)


def material_of(results: Results, where: Path) -> Material:
    """The gated comparisons of a run.

    Raises:
        ResultsError: there is none; names ``where``.
    """
    left_out = []
    usable: list[TestRecord] = []
    for test in results.tests:
        if reason := _unusable(test):
            left_out.append(f"{shortened(test.nodeid)}: {reason}")
        else:
            usable.append(test)
    counts = Counter(_launches(test) for test in usable)
    if not counts:
        raise ResultsError(
            f"{where} holds no test whose launches could be compared" + (f" ({left_out[0]})." if left_out else "."),
            remedy="Measure with: python -m pytest_llmperf calibrate TESTS --launches 10",
        )
    launches = max(counts, key=lambda count: (counts[count], count))
    gated = []
    for test in usable:
        if _launches(test) != launches:
            left_out.append(f"{shortened(test.nodeid)}: it has {_launches(test)} launches, and most have {launches}")
            continue
        for name, tolerance in test.tolerances.items():
            metric = test.metrics.get(name)
            if metric is None or metric.value is None:
                continue
            if len(metric.launches) != launches or not all(launch and min(launch) > 0 for launch in metric.launches):
                left_out.append(f"{shortened(test.nodeid)}: {name} has launches without a value above 0")
                continue
            gated.append(Gated(test.nodeid, _group(test), name, metric.better, tolerance, logs(metric.launches)))
    engines = {f"{test.engine.version} on {test.engine.device}, {test.engine.model}" for test in usable if test.engine}
    simulated = any(test.engine.simulated for test in usable if test.engine)
    return Material(tuple(sorted(engines)), simulated, launches, tuple(gated), tuple(left_out))


def _unusable(test: TestRecord) -> str | None:
    if test.invalid is not None:
        return test.invalid
    if test.engine is None or not test.metrics:
        return "nothing was measured"
    if not test.tolerances:
        return "nothing of it is gated"
    if not _launches(test):
        return "no gated metric has a value"
    return None


def _launches(test: TestRecord) -> int:
    """Of the gated metrics that have a value."""
    values = [test.metrics[name] for name in test.tolerances if name in test.metrics]
    return max((len(metric.launches) for metric in values if metric.value is not None), default=0)


def _group(test: TestRecord) -> str:
    """As baselines are grouped: by everything but the workload."""
    engine, clock = test.engine, test.clock
    assert engine is not None
    what = (engine.device, engine.model, engine.dtype, engine.quantization, engine.kv_cache_dtype)
    memory = clock.memory_mhz and clock.memory_mhz.locked
    return repr((*what, engine.tensor_parallel_size, engine.simulated, clock.locked_mhz, memory))
