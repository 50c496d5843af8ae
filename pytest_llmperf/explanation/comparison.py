"""Two runs side by side: values, changes with their intervals, and in what the runs differ. Never a verdict."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_llmperf.explanation.circumstances import differing_arguments
from pytest_llmperf.explanation.movement import Movement, movements
from pytest_llmperf.explanation.statistics import centre, ratio_interval, usable
from pytest_llmperf.results import Engine, MetricValue, Results, TestRecord

__all__ = ["BOUND_TO_BOARD", "ComparedMetric", "ComparedRuns", "ComparedTest", "compare_runs"]

#: Metrics of joules and watts: two boards of one product differ in them by 8 to 12 % at the same work.
BOUND_TO_BOARD = frozenset(
    [
        *("power", "energy", "tpj", "jpt", "net_tpj", "net_jpt", "prefill_jpt", "decode_jpt"),
        *("bare_power", "context_power", "loaded_power", "locked_power"),
    ]
)
#: A change that would be printed as none is none, however little noise there is.
_LEAST = 0.0005
_ENGINE = ("kind", "version", "model", "device", "dtype", "quantization", "kv_cache_dtype", "tensor_parallel_size")
#: Of these, what has to be the same for two measurements to be of the same thing.
_IDENTITY = frozenset(_ENGINE) - {"kind", "version"}


@dataclass(frozen=True)
class ComparedMetric:
    """One metric in both runs.

    Attributes:
        name: Of the metric.
        unit: Its unit.
        better: Which direction is the better one.
        before: In A: the geometric mean over launches of the median over repeats.
        now: In B.
        change: now / before - 1; ``None`` where a value is 0, or no number holds it.
        interval: Of the change, at 95 %; ``None`` when nothing tells the noise.
        without_interval: Why there is none; ``None`` where there is one.
        outside_noise: Whether B is ``"better"`` or ``"worse"``, the interval lying on one side of 0; ``None`` when it
            does not, and of tests that are not comparable.
        other_board: Whether it is a figure of boards, and the boards differ, of one product.
        other_rate: Whether it was taken at another rate: of a search, beside the rate itself.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    before: float
    now: float
    change: float | None
    interval: tuple[float, float] | None
    without_interval: str | None
    outside_noise: Literal["better", "worse"] | None
    other_board: bool
    other_rate: bool

    @property
    def moved(self) -> bool:
        """Whether it changed: outside its noise, or by more than nothing where the noise is not known."""
        if self.change is None or abs(self.change) < _LEAST or self.other_board or self.other_rate:
            return False
        return self.interval is None or self.interval[0] * self.interval[1] > 0


@dataclass(frozen=True)
class ComparedTest:
    """One test that is in both runs.

    Attributes:
        nodeid: Its id.
        differences: In what the two differ without being incomparable: the engine's version, arguments.
        incomparable: In what they measured something else; empty when they are comparable.
        metrics: Those that have a value in both.
        only_one: Metrics that have a value in one of them, and why not in the other.
        conditions: Those that moved from A to B.
    """

    nodeid: str
    differences: tuple[str, ...]
    incomparable: tuple[str, ...]
    metrics: tuple[ComparedMetric, ...]
    only_one: tuple[tuple[str, str], ...]
    conditions: tuple[Movement, ...]


@dataclass(frozen=True)
class ComparedRuns:
    """Two runs.

    Attributes:
        environment: In what the machines differ.
        tests: In both, in A's order.
        only_a: Ids of tests that only A has.
        only_b: Likewise.
    """

    environment: tuple[str, ...]
    tests: tuple[ComparedTest, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def compare_runs(a: Results, b: Results) -> ComparedRuns:
    """Put two runs side by side.

    Args:
        a: What is compared with.
        b: What is compared.
    """
    before = {test.nodeid: test for test in a.tests}
    now = {test.nodeid: test for test in b.tests}
    limits = tuple(_limits(run) for run in (a, b))
    return ComparedRuns(
        tuple(_environment(a, b)),
        tuple(_test(before[name], now[name], limits, (a, b)) for name in before if name in now),
        tuple(name for name in before if name not in now),
        tuple(name for name in now if name not in before),
    )


def _environment(a: Results, b: Results) -> list[str]:
    def facts(run: Results) -> dict[str, str | None]:
        gpus = run.environment.gpus
        return {
            "platform": run.environment.platform,
            "processor": run.environment.cpu,
            "CUDA": run.environment.cuda,
            "GPUs": _counted([gpu.name for gpu in gpus]),
            "boards": ", ".join(gpu.uuid for gpu in gpus) or None,
            "driver": ", ".join(sorted({gpu.driver for gpu in gpus})) or None,
            "power limit": _limits(run),
            "Python": run.environment.python,
            "pytest-llmperf": run.run.plugin_version,
            "commit": run.run.commit,
        }

    return _differing(facts(a), facts(b))


def _limits(run: Results) -> str | None:
    # Not how many boards have it: a test does not use all that a machine has.
    limits = {gpu.power_limit_w for gpu in run.environment.gpus if gpu.power_limit_w is not None}
    return ", ".join(f"{watts:g} W" for watts in sorted(limits)) or None


def _counted(names: Sequence[str]) -> str | None:
    """``"8 x NVIDIA H200"``; ``None`` of nothing."""
    counts = Counter(names)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items()) or None


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {_told(before[name])} in A, {_told(now[name])} in B" for name in before if before[name] != now[name]
    ]


def _told(value: Any) -> str:
    return "none" if value is None else str(value)


def _test(a: TestRecord, b: TestRecord, limits: tuple[str | None, ...], runs: tuple[Results, Results]) -> ComparedTest:
    incomparable = _incomparable(a, b, limits)
    one_product = a.engine is not None and b.engine is not None and a.engine.device == b.engine.device
    other_board = one_product and _boards(a, runs[0]) != _boards(b, runs[1])
    other_rate = _found_another_rate(a, b)
    both = {name: (metric, b.metrics[name]) for name, metric in a.metrics.items() if name in b.metrics}
    found = [
        _metric(
            name,
            before,
            now,
            comparable=not incomparable,
            other_board=other_board and name in BOUND_TO_BOARD,
            other_rate=other_rate and name != "max_rate",
        )
        for name, (before, now) in both.items()
        if before.value is not None and now.value is not None and before.unit == now.unit
    ]
    only_one = [
        (
            name,
            f"no value in {'A' if before.value is None else 'B'} ({before.reason or now.reason or 'no reason kept'})",
        )
        for name, (before, now) in both.items()
        if (before.value is None) != (now.value is None)
    ]
    return ComparedTest(
        a.nodeid,
        tuple(_engine(a.engine, b.engine)),
        tuple(incomparable),
        tuple(found),
        tuple(only_one),
        tuple(m for m in movements(_beside(a, b)) if m.moved),
    )


def _found_another_rate(a: TestRecord, b: TestRecord) -> bool:
    """Whether two searches have ended at different rates, at which their other metrics were taken."""
    searches = [test.metrics["max_rate"].value for test in (a, b) if test.search and "max_rate" in test.metrics]
    rates = [rate for rate in searches if rate is not None]
    return len(rates) == 2 and not math.isclose(*rates)


def _metric(
    name: str, before: MetricValue, now: MetricValue, *, comparable: bool, other_board: bool, other_rate: bool
) -> ComparedMetric:
    assert before.value is not None
    assert now.value is not None
    interval, without = None, "a zero"
    values = before.value, now.value
    if usable(before.launches) and usable(now.launches):
        values = centre(before.launches), centre(now.launches)
        interval = ratio_interval(before.launches, now.launches)
        without = "1 launch" if max(len(before.launches), len(now.launches)) == 1 else "no bound"
    change = values[1] / values[0] - 1 if values[0] > 0 else None
    if change is not None and not math.isfinite(change):
        change = None
    outside: Literal["better", "worse"] | None = None
    beside_zero = interval is not None and interval[0] * interval[1] > 0
    comparable = comparable and not other_board and not other_rate
    if comparable and beside_zero and change is not None and abs(change) >= _LEAST:
        outside = "better" if (change > 0) == (now.better == "higher") else "worse"
    return ComparedMetric(
        name, now.unit, now.better, *values, change, interval, None if interval else without, outside, other_board,
        other_rate,
    )  # fmt: skip


def _incomparable(a: TestRecord, b: TestRecord, limits: tuple[str | None, ...]) -> list[str]:
    if a.invalid is not None or b.invalid is not None:
        return [f"the measurement in {side} is invalid: {t.invalid}" for side, t in (("A", a), ("B", b)) if t.invalid]
    if a.engine is None or b.engine is None:
        return [f"nothing was measured in {'A' if a.engine is None else 'B'}"]
    # A simulated engine gives way to no limit: what it is says that already.
    before, now = (None, None) if a.engine.simulated or b.engine.simulated else limits
    return _differing(_identity(a, a.engine, before), _identity(b, b.engine, now))


def _identity(test: TestRecord, engine: Engine, limit: str | None) -> dict[str, Any]:
    memory = test.clock.memory_mhz
    return {
        **{name: getattr(engine, name) for name in _ENGINE if name in _IDENTITY},
        "simulated": engine.simulated,
        "SM clock": _clock(test.clock.locked_mhz),
        "memory clock": _clock(None if memory is None else memory.locked),
        "power limit": limit,
        "workload": (test.workload or {}).get("digest"),
    }


def _clock(mhz: float | None) -> str:
    return "not locked" if mhz is None else f"locked at {mhz:g} MHz"


def _engine(a: Engine | None, b: Engine | None) -> list[str]:
    if a is None or b is None:
        return []
    told = [f"{name}: {getattr(a, name)} in A, {getattr(b, name)} in B" for name in ("kind", "version")
            if getattr(a, name) != getattr(b, name)]  # fmt: skip
    return [*told, *differing_arguments(a.treatment, b.treatment, "in A")]


def _boards(test: TestRecord, run: Results) -> tuple[str, ...]:
    read = {board.uuid for launch in test.energy for board in launch.boards}
    return tuple(sorted(read or {gpu.uuid for gpu in run.environment.gpus}))


def _beside(a: TestRecord, b: TestRecord) -> TestRecord:
    """B's record with A's conditions in the baseline's place."""
    conditions = {
        name: now.model_copy(
            update={
                "baseline": statistics.median(before.launches) if before.launches else None,
                "baseline_launches": before.launches,
            }
        )
        for name, now in b.conditions.items()
        if (before := a.conditions.get(name)) is not None
    }
    return b.model_copy(update={"conditions": conditions, "baseline_provenance": a.provenance})
