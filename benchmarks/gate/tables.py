"""The figures in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from benchmarks.gate.bounds import fewest, passing, power
from benchmarks.gate.contestants import GATE
from benchmarks.gate.goals import Goal
from benchmarks.gate.scenarios import BASELINE, LAUNCHES, METRICS, TESTS, WORSENINGS, Scenario, launch_sd
from benchmarks.gate.tallies import Tallies
from pytest_llmperf.gate import Rules

__all__ = ["Found", "document", "section"]

#: Of a scenario.
Found = tuple[Scenario, Tallies, Sequence[Goal]]

_RULES = Rules.of_run(TESTS * METRICS, LAUNCHES)
#: Of one comparison, for a change of exactly the tolerance.
_AT_LIMIT = _RULES.limit_alpha / _RULES.gated
#: Degrees of freedom of a test's own launches, baseline and run.
_OF_SERIES = BASELINE + LAUNCHES - 2
#: Of the tests' noises, for the mean of the bounds.
_STEPS = 41

_HEAD = (
    "| judged by | runs with a false alarm | unchanged passed | +3 % passed | +5 % passed | +5 % inconclusive | "
    "+5 % regressed | +10 % regressed | launches |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)
_OVERVIEW_HEAD = (
    "| scenario | a launch's median differs by | runs with a false alarm | unchanged passed | "
    "launches of a metric / of a test | fewest possible | all +3 %: runs with any regressed | +3 % passed | "
    "+5 % passed | +5 % regressed | the same, best possible | with 11 degrees of freedom |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


@dataclass(frozen=True)
class Bounds:
    """The best that is to be had with so many launches; shares are means over tests that differ in their noise.

    Attributes:
        sd: Of a launch's median (of the middle test's).
        called: In what share one look at all launches calls +5 %, with the noise known for sure.
        called_t: The same with the degrees of freedom of one series.
        passed: In what share one launch of an unchanged engine passes, with the noise known for sure.
        passed_t: The same with the degrees of freedom of one baseline.
        fewest: Launches that a metric of an unchanged engine takes on average, with the noise known for sure.
    """

    sd: float
    called: float
    called_t: float
    passed: float
    passed_t: float
    fewest: float

    @classmethod
    def of(cls, scenario: Scenario) -> Bounds:
        """Were the scenario's noise Gaussian."""
        sd = launch_sd(replace(scenario, spread=0.0), draws=300)
        sds = sd * np.exp(scenario.spread * norm.ppf((np.arange(_STEPS) + 0.5) / _STEPS))

        def mean(bound: Callable[[float], float]) -> float:
            return float(np.mean([bound(one) for one in sds]))

        return cls(
            sd,
            mean(lambda sd: power(0.05, sd, _AT_LIMIT)),
            mean(lambda sd: power(0.05, sd, _AT_LIMIT, df=_OF_SERIES)),
            mean(lambda sd: passing(sd, _RULES.pass_alpha)),
            mean(lambda sd: passing(sd, _RULES.pass_alpha, df=BASELINE - 1)),
            mean(lambda sd: fewest(sd, _RULES.pass_alpha)),
        )


def document(runs: int, found: Sequence[Found]) -> str:
    """All tables: this gate's in short, the goals', and a section a scenario."""
    head = (
        "# Figures of every scenario\n\n"
        f"As `python -m benchmarks.gate.compare --runs {runs} --markdown FILE` wrote them; [README.md](README.md) says "
        "how to read them.\n"
    )
    parts = [head, "## This gate\n", _overview(found), "## Goals\n", _goals_reached(found), "## Beside others\n"]
    return "\n".join([*parts, *(section(*one) for one in found)])


def section(scenario: Scenario, tallies: Tallies, goals: Sequence[Goal]) -> str:
    """Every contestant in a scenario, and the goals."""
    lines = [f"### {scenario.name}", "", _sentence(scenario), "", _HEAD, *_rows(tallies), ""]
    lines += [f"- {'met' if goal.met else 'MISSED'}: {goal.what} ({goal.found})" for goal in goals]
    return "\n".join(lines) + "\n"


def _sentence(scenario: Scenario) -> str:
    best = Bounds.of(scenario)
    return (
        f"A launch's median differs by {best.sd:.2%}{' in the middle test' if scenario.spread else ''}. Were that "
        f"Gaussian, one look at {LAUNCHES} launches against {BASELINE} at {_AT_LIMIT:.5f} would call +5 % in "
        f"{best.called:.1%} with the noise known for sure, and in {best.called_t:.1%} with the {_OF_SERIES} degrees of "
        f"freedom of one series; one launch would pass at {_RULES.pass_alpha:.2f} in {best.passed:.1%}, and in "
        f"{best.passed_t:.1%} with {BASELINE - 1}."
    )


def _rows(tallies: Tallies) -> Iterator[str]:
    """A contestant a row."""
    for name in dict.fromkeys(name for name, _ in tallies):
        same, three, five, ten = (tallies[name, worse] for worse in WORSENINGS)
        low, high = same.alarms.interval
        yield (
            f"| {name} | {same.alarms.value or 0:.1%} ({low:.1%} to {high:.1%}) | {same.passed.value:.1%} | "
            f"{three.passed.value:.1%} | {five.passed.value:.1%} | {five.inconclusive.value:.1%} | "
            f"{five.regressed.value:.1%} | {ten.regressed.value:.1%} | {same.launches.value:.2f} |"
        )


def _overview(found: Sequence[Found]) -> str:
    """This gate alone, a scenario a row."""
    lines = [_OVERVIEW_HEAD]
    for scenario, tallies, _ in found:
        best = Bounds.of(scenario)
        same, three, five, _ = (tallies[GATE, worse] for worse in WORSENINGS)
        low, high = three.alarms.interval
        lines.append(
            f"| {scenario.name} | {best.sd:.2%} | {same.alarms.hits} of {same.alarms.trials} | "
            f"{same.passed.value:.1%} | {same.launches.value:.2f} / {same.test_launches.value:.2f} | "
            f"{best.fewest:.2f} | {three.alarms.value or 0:.1%} ({low:.1%} to {high:.1%}) | "
            f"{three.passed.value:.1%} ± {three.passed.error:.1%} | {five.passed.value:.2%} | "
            f"{five.regressed.value:.1%} ± {five.regressed.error:.1%} | {best.called:.1%} | {best.called_t:.1%} |"
        )
    return "\n".join(lines) + "\n"


def _goals_reached(found: Sequence[Found]) -> str:
    """In which scenarios each goal is met, a goal a row."""
    lines = ["| goal | met in | missed in |", "|---|---:|---|"]
    names = [scenario.name for scenario, _, _ in found]
    for goals in zip(*(goals for _, _, goals in found), strict=True):
        missed = [f"{name} ({goal.found})" for name, goal in zip(names, goals, strict=True) if not goal.met]
        lines.append(f"| {goals[0].what} | {len(names) - len(missed)} of {len(names)} | {'; '.join(missed) or '-'} |")
    return "\n".join(lines) + "\n"
