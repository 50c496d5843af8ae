"""Whole sessions of the plugin beside samples of the same noise: do their errors agree?

    python -m benchmarks.gate.through_plugin --folder SCRATCH

from the root of the repository. Twenty baselines are saved on the simulated engine, each with a seed of its own, and
against each ten runs of the unchanged engine and ten of one that is 8 % slower are gated. What is done is kept in
SCRATCH; a call that was interrupted goes on where it was.

Runs against one baseline depend on each other. So the same design (as many baselines, as many runs against each) is
drawn again and again from samples, and the sessions' figure is placed among those: an exact test by simulation.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gate.scenarios import BASELINE, LAUNCHES, METRICS, TESTS, TOLERANCE, Scenario, draw
from benchmarks.gate.sessions import Run, carry_out
from pytest_llmperf.calibration.trials import Fate, Trial, fates
from pytest_llmperf.gate import NoisePool, Rules, Series

#: The simulated engine's noise is one factor on all times of a launch, and one on all of a repeat.
SAME_NOISE = Scenario("as simulated", between=0.007, ratio=0.003 / 0.007, shared=1.0, alike=True, repeats=3)
BASELINES, RUNS, SLOWER = 20, 10, 1.08
DRAWS = 99


@dataclass(frozen=True)
class Figures:
    """Of all runs of a design.

    Attributes:
        alarmed: Share of the runs in which any test was called regressed.
        regressed: Share of the tests.
        passed: Share of the tests.
        inconclusive: Share of the tests.
        launches: Mean number of launches of a test.
    """

    alarmed: float
    regressed: float
    passed: float
    inconclusive: float
    launches: float

    @classmethod
    def of(cls, runs: Sequence[Sequence[Fate]]) -> Figures:
        """From the fates of each run's tests."""
        tests = [test for run in runs for test in run]
        shares = [
            statistics.fmean(test.verdict in verdicts for test in tests)
            for verdicts in (("regressed",), ("pass", "improved"), ("inconclusive",))
        ]
        alarmed = statistics.fmean(any(test.verdict == "regressed" for test in run) for run in runs)
        return cls(alarmed, shares[0], shares[1], shares[2], statistics.fmean(test.launches for test in tests))


def drawn(worsenings: Sequence[float], baselines: int, runs: int, random: np.random.Generator) -> list[Figures]:
    """The same design from samples: the figures for each worsening."""
    rules = Rules.of_run(TESTS * METRICS, LAUNCHES)
    found: list[list[list[Fate]]] = [[] for _ in worsenings]
    for _ in range(baselines):
        before = _logs(draw(SAME_NOISE, random)[0])
        pool = NoisePool([Series(str(test), "saved", tuple(logs)) for test, logs in enumerate(before)])
        for _ in range(runs):
            after = _logs(draw(SAME_NOISE, random)[1])
            tests = [
                fates(Trial(str(test), "lower", TOLERANCE, before[test], after[test]), pool, rules, worsenings)
                for test in range(TESTS)
            ]
            for kept, run in zip(found, zip(*tests, strict=True), strict=True):
                kept.append(list(run))
    return [Figures.of(kept) for kept in found]


def _logs(values: Any) -> list[list[float]]:
    """Of one metric of each test: all of a test are the same."""
    logs: list[list[float]] = np.log(np.median(values[::METRICS], axis=-1)).tolist()
    return logs


def of_sessions(found: Sequence[dict[str, Any]], slowdown: float) -> Figures:
    """Of those sessions that ran with a slowdown."""
    return Figures.of(
        [
            [Fate(test["verdict"], test["launches"]) for test in one["tests"]]
            for one in found
            if one["key"][2] == slowdown
        ]
    )


def placed(value: float, among: Sequence[float]) -> float:
    """The two-sided probability of a figure at least as far out, if it comes from where the others do."""
    low = 1 + sum(other <= value for other in among)
    high = 1 + sum(other >= value for other in among)
    return min(1.0, 2 * min(low, high) / (len(among) + 1))


def table(sessions: dict[float, Figures], samples: dict[float, list[Figures]]) -> Iterator[str]:
    """In Markdown."""
    yield "| engine | figure | whole sessions | the same samples, middle 95 % of draws | p |"
    yield "|---|---|---:|---:|---:|"
    names = {
        "alarmed": "runs with any regressed", "regressed": "tests regressed", "passed": "tests passed",
        "inconclusive": "tests inconclusive", "launches": "launches of a test",
    }  # fmt: skip
    for slowdown, figures in sessions.items():
        engine = "unchanged" if slowdown == 1 else f"{slowdown - 1:.0%} slower"
        for name, title in names.items():
            value = getattr(figures, name)
            among = sorted(getattr(one, name) for one in samples[slowdown])
            low, high = np.quantile(among, [0.025, 0.975])
            form = ".2f" if name == "launches" else ".1%"
            yield (
                f"| {engine} | {title} | {value:{form}} | {low:{form}} to {high:{form}} | {placed(value, among):.2f} |"
            )


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for baselines and what was found")
    parser.add_argument("--baselines", type=int, default=BASELINES)
    parser.add_argument("--runs", type=int, default=RUNS, help="against each baseline, of either engine")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        Run(baseline, number, slowdown)
        for number in range(options.runs)
        for baseline in range(1, options.baselines + 1)
        for slowdown in (1.0, SLOWER)
    ]
    results = options.folder / "sessions.jsonl"
    found = list(carry_out(wanted, options.folder, results, processes=options.processes))
    random = np.random.default_rng(1)
    samples: dict[float, list[Figures]] = {1.0: [], SLOWER: []}
    for _ in range(options.draws):
        same, slower = drawn((0.0, SLOWER - 1), options.baselines, options.runs, random)
        samples[1.0].append(same)
        samples[SLOWER].append(slower)
    print(
        f"{options.baselines} baselines of {BASELINE} launches, {options.runs} runs of either engine against each; "
        f"{options.draws} draws.\n"
    )
    for line in table({slowdown: of_sessions(found, slowdown) for slowdown in samples}, samples):
        print(line)


if __name__ == "__main__":
    main()
