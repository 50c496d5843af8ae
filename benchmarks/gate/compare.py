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
from itertools import starmap
from pathlib import Path

import numpy as np

from benchmarks.gate.contestants import CONTESTANTS
from benchmarks.gate.goals import goals
from benchmarks.gate.scenarios import SCENARIOS, WORSENINGS, Scenario, draw
from benchmarks.gate.tables import document, section
from benchmarks.gate.tallies import Tallies, Tally

RUNS, QUICK = 1000, 4
#: Runs drawn from one seed.
_CHUNK = 20


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


def main(argv: list[str] | None = None) -> None:
    """Print a table a scenario, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs a scenario instead of {RUNS}")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="all tables, as figures.md has them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, for scripts")
    options = parser.parse_args(argv)
    runs = options.runs or (QUICK if options.quick else RUNS)
    found, figures = [], []
    for scenario, tallies in compare(SCENARIOS, runs, processes=options.processes, seed=options.seed):
        found.append((scenario, tallies, goals(tallies)))
        print(section(*found[-1]), flush=True)
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
    if options.markdown is not None:
        options.markdown.write_text(document(runs, found), "utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
