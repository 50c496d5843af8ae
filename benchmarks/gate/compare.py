"""How often this gate is wrong, and what else is in use, on the same samples whose noise is known.

    python -m benchmarks.gate.compare

from the root of the repository; ``--quick`` draws few runs. benchmarks/gate/README.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path

import numpy as np
from scipy.stats import norm

from benchmarks.gate.bounds import passing, power
from benchmarks.gate.contestants import CONTESTANTS, GATE
from benchmarks.gate.scenarios import BASELINE, LAUNCHES, METRICS, SCENARIOS, TESTS, Scenario, draw, launch_sd
from benchmarks.gate.tallies import Tally
from pytest_llmperf.gate import Rules

#: By how much the run's values are made worse; the first is the unchanged engine.
WORSENINGS = (0.0, 0.03, 0.05, 0.10)
RUNS, QUICK = 1000, 4
#: Runs drawn from one seed.
_CHUNK = 20
#: Of the tests' noises, for the mean of the bounds.
_STEPS = 41

Tallies = dict[tuple[str, float], Tally]


def judged(
    scenario: Scenario, seed: int, runs: int, worsenings: Sequence[float] = WORSENINGS, names: Sequence[str] = ()
) -> Tallies:
    """Draw runs and have them judged.

    Args:
        scenario: How they are drawn.
        seed: Of the draw.
        runs: How many.
        worsenings: Injected, each into the same samples.
        names: Of the contestants; without any all of them.
    """
    tallies = {(name, worse): Tally() for name in names or CONTESTANTS for worse in worsenings}
    random = np.random.default_rng(seed)
    for _ in range(runs):
        baseline, current = draw(scenario, random)
        for name in names or CONTESTANTS:
            for worse, fates in zip(worsenings, CONTESTANTS[name](baseline, current, worsenings), strict=True):
                tallies[name, worse].take(fates)
    return tallies


def compare(
    scenarios: Sequence[Scenario],
    runs: int,
    *,
    processes: int = 2,
    seed: int = 1,
    worsenings: Sequence[float] = WORSENINGS,
    names: Sequence[str] = (),
) -> Iterator[tuple[Scenario, Tallies]]:
    """All scenarios, one after the other."""  # fmt: skip
    with ExitStack() as stack:
        spread: Callable[..., Iterable[Tallies]] = starmap
        if processes > 1:
            spread = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes)).starmap
        for number, scenario in enumerate(scenarios):
            chunks = [min(_CHUNK, runs - start) for start in range(0, runs, _CHUNK)]
            tasks = [
                (scenario, 1_000_000 * seed + 10_000 * number + i, size, worsenings, names)
                for i, size in enumerate(chunks)
            ]
            total: Tallies = {}
            for tallies in spread(judged, tasks):
                for key, tally in tallies.items():
                    total.setdefault(key, Tally()).merge(tally)
            yield scenario, total


@dataclass(frozen=True)
class Goal:
    """What the gate is held to in a scenario.

    Attributes:
        what: In words.
        found: The figures.
        met: Whether they reach it.
    """

    what: str
    found: str
    met: bool


def goals(tallies: Tallies) -> list[Goal]:
    """What the gate should reach, and whether it does."""
    same, at_tolerance, slower = (tallies[GATE, worse] for worse in (0.0, 0.03, 0.05))
    alarms = same.alarms
    share, high = alarms.value or 0.0, alarms.interval[1]
    return [
        Goal(
            "false regressed in at most 1 % of runs, upper bound below 2 %",
            f"{alarms.hits} of {alarms.trials}, upper bound {high:.1%}",
            share <= 0.01 and high < 0.02,
        ),
        Goal(
            "95 % of an unchanged engine's metrics pass, 1.2 launches on average",
            f"{same.passed.value:.1%}, {same.launches.value:.2f}; a test {same.test_launches.value:.2f}",
            same.passed.value >= 0.95 and same.launches.value <= 1.2,
        ),
        Goal("+5 % passes in at most 1 %", f"{slower.passed.value:.2%}", slower.passed.value <= 0.01),
        Goal("+5 % is called regressed in 90 %", f"{slower.regressed.value:.1%}", slower.regressed.value >= 0.90),
        Goal("+3 % passes in at most 5 %", f"{at_tolerance.passed.value:.1%}", at_tolerance.passed.value <= 0.05),
    ]


HEAD = (
    "| judged by | runs with a false alarm | unchanged passed | +3 % passed | +5 % passed | +5 % inconclusive | "
    "+5 % regressed | +10 % regressed | launches |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def rows(tallies: Tallies) -> Iterator[str]:
    """A contestant a row."""
    for name in dict.fromkeys(name for name, _ in tallies):
        same, three, five, ten = (tallies[name, worse] for worse in WORSENINGS)
        low, high = same.alarms.interval
        yield (
            f"| {name} | {same.alarms.value or 0:.1%} ({low:.1%} to {high:.1%}) | {same.passed.value:.1%} | "
            f"{three.passed.value:.1%} | {five.passed.value:.1%} | {five.inconclusive.value:.1%} | "
            f"{five.regressed.value:.1%} | {ten.regressed.value:.1%} | {same.launches.value:.2f} |"
        )


def bounds(scenario: Scenario) -> str:
    """The best that is to be had with so many launches, in one sentence."""
    sd = launch_sd(replace(scenario, spread=0.0), draws=300)
    # Tests whose noise differs have each its own bound: the mean over them.
    sds = sd * np.exp(scenario.spread * norm.ppf((np.arange(_STEPS) + 0.5) / _STEPS))
    rules = Rules.of_run(TESTS * METRICS, LAUNCHES)
    alpha = rules.limit_alpha / rules.gated

    def mean(bound: Callable[[float], float]) -> str:
        return f"{np.mean([bound(one) for one in sds]):.1%}"

    known = mean(lambda sd: power(0.05, sd, alpha))
    of_t = mean(lambda sd: power(0.05, sd, alpha, df=BASELINE + LAUNCHES - 2))
    once = mean(lambda sd: passing(sd, rules.pass_alpha))
    once_t = mean(lambda sd: passing(sd, rules.pass_alpha, df=BASELINE - 1))
    return (
        f"A launch's median differs by {sd:.2%}{' in the middle test' if scenario.spread else ''}. Were that Gaussian, "
        f"one look at {LAUNCHES} launches against {BASELINE} at {alpha:.5f} would call +5 % in {known} with the "
        f"noise known for sure, and in {of_t} with the {BASELINE + LAUNCHES - 2} degrees of freedom of one series; one "
        f"launch would pass at {rules.pass_alpha:.2f} in {once}, and in {once_t} with {BASELINE - 1}."
    )


def main(argv: list[str] | None = None) -> None:
    """Print a table a scenario, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs a scenario instead of {RUNS}")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, for scripts")
    options = parser.parse_args(argv)
    runs = options.runs or (QUICK if options.quick else RUNS)
    figures = []
    for scenario, tallies in compare(SCENARIOS, runs, processes=options.processes, seed=options.seed):
        print(f"\n### {scenario.name}\n\n{bounds(scenario)}\n\n{HEAD}")
        for row in rows(tallies):
            print(row)
        print()
        for goal in goals(tallies):
            print(f"- {'met' if goal.met else 'MISSED'}: {goal.what} ({goal.found})")
        print(flush=True)
        figures += [
            {
                "scenario": scenario.name, "by": name, "worsening": worse, "runs": tally.passed.runs,
                "alarmed": tally.alarmed, "passed": tally.passed.value, "passed_error": tally.passed.error,
                "inconclusive": tally.inconclusive.value, "regressed": tally.regressed.value,
                "regressed_error": tally.regressed.error, "launches": tally.launches.value,
                "test_launches": tally.test_launches.value,
            }
            for (name, worse), tally in tallies.items()
        ]  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
