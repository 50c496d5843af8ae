"""All splits of the launches through the gate: an unchanged engine, and slower ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmperf.calibration.material import Gated, Material
from pytest_llmperf.calibration.splits import Splits
from pytest_llmperf.calibration.tally import Share
from pytest_llmperf.calibration.trials import Fate, Trial, fates, of_test
from pytest_llmperf.gate import NoisePool, Rules, Series
from pytest_llmperf.gate.power import below_noise

__all__ = ["WORSENINGS", "Detection", "Findings", "MetricNoise", "Outcome", "calibrate"]

#: Injected: by what fraction the value is made worse. The first is the unchanged engine.
WORSENINGS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.10, 0.15)
#: Of each metric, the tests whose noise is named.
_NOISIEST = 3


@dataclass(frozen=True)
class Outcome:
    """What became of some comparisons.

    Attributes:
        comparisons: How many there were.
        passed: Share that passed, the improved among them.
        inconclusive: Share that no look decided.
        regressed: Share that was called regressed.
        launches: Mean number of launches until a comparison was decided, or the last had been taken.
    """

    comparisons: int
    passed: float
    inconclusive: float
    regressed: float
    launches: float

    @classmethod
    def of(cls, seen: Sequence[Fate]) -> Outcome:
        """Of at least one."""
        shares = [
            statistics.fmean(one.verdict in verdicts for one in seen)
            for verdicts in (("pass", "improved"), ("inconclusive",), ("regressed",))
        ]
        return cls(len(seen), shares[0], shares[1], shares[2], statistics.fmean(one.launches for one in seen))


@dataclass(frozen=True)
class Detection:
    """A metric on an engine that is slower.

    Attributes:
        metric: Its name.
        worsening: By what fraction its value was made worse.
        outcome: Of all its comparisons.
    """

    metric: str
    worsening: float
    outcome: Outcome


@dataclass(frozen=True)
class MetricNoise:
    """How much a metric differs between launches, by all launches there are; relative standard deviations.

    Attributes:
        metric: Its name.
        pooled: Over the tests of one engine; ``None`` with too few of them.
        df: What that is worth, in degrees of freedom.
        tests: How many tests it is pooled over.
        noisiest: The tests with the most noise, and theirs.
    """

    metric: str
    pooled: float | None
    df: float
    tests: int
    noisiest: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Findings:
    """What a calibration found.

    Attributes:
        material: What was divided.
        splits: How.
        rules: By what the verdicts were drawn.
        false_alarms: Splits in which the unchanged engine was called regressed.
        test_launches: Mean number of launches that a test took while the engine was unchanged.
        detections: By metric and slowdown.
        noises: By metric and engine.
        below: Tolerances that an unchanged engine cannot keep: test, metric and a sentence.
    """

    material: Material
    splits: Splits
    rules: Rules
    false_alarms: Share
    test_launches: float
    detections: tuple[Detection, ...]
    noises: tuple[MetricNoise, ...]
    below: tuple[tuple[str, str, str], ...]


def calibrate(
    material: Material, splits: Splits, *, at_most: int, worsenings: Sequence[float] = WORSENINGS
) -> Findings:
    """Put every split through the gate.

    Args:
        material: The comparisons and their launches.
        splits: Of these launches.
        at_most: How many launches a gated session may take, for what is said of tolerances; a split may leave fewer.
        worsenings: The injected slowdowns, the unchanged engine first.
    """
    rules = Rules.of_run(len(material.gated), splits.run)
    seen: dict[tuple[str, float], list[Fate]] = {
        (metric, worsening): [] for metric in _metrics(material) for worsening in worsenings
    }
    alarms, launches = [], []
    for baseline in splits.baselines:
        run = splits.runs(baseline)
        pools = _pools(material, baseline)
        unchanged: dict[str, list[Fate]] = {}
        for one in material.gated:
            trial = Trial(
                one.test, one.better, one.tolerance, [one.logs[i] for i in baseline], [one.logs[i] for i in run]
            )
            found = fates(trial, pools[one.group, one.metric], rules, worsenings)
            for worsening, fate in zip(worsenings, found, strict=True):
                seen[one.metric, worsening].append(fate)
            unchanged.setdefault(one.test, []).append(found[0])
        alarms.append(any(fate.verdict == "regressed" for test in unchanged.values() for fate in test))
        launches += [of_test(test) for test in unchanged.values()]
    everything = _pools(material, range(material.launches))
    return Findings(
        material,
        splits,
        rules,
        Share.of(alarms),
        statistics.fmean(launches),
        tuple(Detection(metric, worsening, Outcome.of(found)) for (metric, worsening), found in seen.items()),
        tuple(_noise(group, metric, material, pool) for (group, metric), pool in everything.items()),
        tuple(_below(material, everything, Rules.of_run(len(material.gated), at_most), splits.baseline)),
    )


def _metrics(material: Material) -> list[str]:
    return list(dict.fromkeys(one.metric for one in material.gated))


def _pools(material: Material, launches: Sequence[int]) -> dict[tuple[str, str], NoisePool]:
    """By engine and metric, as a session whose baselines are these launches would have them."""
    series: dict[tuple[str, str], list[Series]] = {}
    for one in material.gated:
        logs = tuple(one.logs[i] for i in launches)
        series.setdefault((one.group, one.metric), []).append(Series(one.test, "this", logs))
    return {key: NoisePool(members) for key, members in series.items()}


def _noise(group: str, metric: str, material: Material, pool: NoisePool) -> MetricNoise:
    members = [one for one in material.gated if (one.group, one.metric) == (group, metric)]
    own = sorted(((one.test, statistics.stdev(one.logs)) for one in members), key=lambda pair: -pair[1])
    pooled = pool.of("", (), ())  # of no test: of all of them
    return MetricNoise(metric, pooled.pooled_sd, pooled.pooled_df, len(members), tuple(own[:_NOISIEST]))


def _below(
    material: Material, pools: dict[tuple[str, str], NoisePool], rules: Rules, baseline: int
) -> list[tuple[str, str, str]]:
    found = []
    for one in material.gated:
        noise = pools[one.group, one.metric].of(one.test, one.logs, ())
        sentence = below_noise(noise, rules, baseline=baseline, tolerance=one.tolerance)
        if sentence:
            found.append((one.test, one.metric, sentence))
    return found


def tolerances(members: Sequence[Gated]) -> tuple[float, float]:
    """The smallest and the largest tolerance of some comparisons."""
    all_of_them = [one.tolerance for one in members]
    return min(all_of_them), max(all_of_them)
