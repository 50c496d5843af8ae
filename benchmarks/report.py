"""How long a report takes to make, and how large its page is: of 200 and of 1,000 tests, gated, with timelines.

The tests are those of one real record, each varied in every figure, so that compression finds no copies. The goals are
below 3 MB for 200 tests, and below 5 s for 1,000 with everything that is written beside the page.

    python benchmarks/report.py                       # of a run of suites/ on a simulated H200, made first
    python benchmarks/report.py reports/RUN/results.json
"""

import cProfile
import math
import platform
import pstats
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_llmperf.machine import cpu_name
from pytest_llmperf.report.html import render
from pytest_llmperf.report.write import write_report
from pytest_llmperf.results import Results, TestRecord, read_results

SIZES = (200, 1_000)
#: Readings of a timeline, where the record has none.
READINGS = 120
#: What differs between two runs of one test; identities and counts do not.
VARIED = ("metrics", "verdicts", "advisory", "energy", "phases", "conditions", "timeline", "explanation")


def measured(folder: Path) -> Path:
    """results.json of a run of the shipped suite, gated by baselines of an earlier one."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "suites",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--llmperf-baselines={folder}",
    ]
    noisy = "launch_noise=0.005,repeat_noise=0.003"
    for engine, extra in ((noisy, ["--llmperf-save"]), (f"{noisy},slowdown=1.07,seed=1", [])):
        options = [f"--llmperf-engine=sim:h200,{engine}", f"--llmperf-report={folder / 'report'}", *extra]
        subprocess.run(command + options, stdout=subprocess.DEVNULL, check=False)
    return folder / "report" / "results.json"


def varied(value: Any, chance: random.Random, digits: int = 17) -> Any:
    """The same with every number a little off; text and counts stay."""
    if isinstance(value, float):
        # Most figures of a record have all their digits, those of a timeline four; the page shows no more of either.
        return float(f"{value * (1 + chance.gauss(0, 0.01)):.{digits}g}")
    if isinstance(value, list):
        return [varied(item, chance, digits) for item in value]
    if isinstance(value, dict):
        return {key: varied(item, chance, digits) for key, item in value.items()}
    return value


def timeline(chance: random.Random) -> dict[str, Any]:
    """A launch of ten seconds: a ramp, a plateau that is capped now and then, and a ramp down."""
    seconds = [round(10 * n / READINGS, 3) for n in range(READINGS)]
    power = [120 + 480 * math.sin(math.pi * s / 10) ** 0.3 * chance.gauss(1, 0.02) for s in seconds]
    return {
        "launch": 0,
        "seconds": seconds,
        "power": [float(f"{watts:.4g}") for watts in power],
        "sm_clock": [float(f"{1.98e9 - 3e7 * chance.randrange(12):.4g}") for _ in seconds],
        "sm_activity": [round(chance.uniform(0.4, 1), 3) for _ in seconds],
        "capped": [{"start": 2.0 + n, "end": 2.3 + n, "reason": "sw_power_cap"} for n in range(5)],
        "phases": [
            {"phase": phase, "start": n + at, "end": n + at + 0.5}
            for n in range(10)
            for phase, at in (("prefill", 0.0), ("decode", 0.5))
        ],
    }


def run_of(count: int, real: Results) -> Results:
    """A run of so many tests, none like another."""
    chance = random.Random(0)
    sources = [test.model_dump(mode="json") for test in real.tests]
    tests = []
    for number in range(count):
        record = dict(sources[number % len(sources)])
        record["nodeid"] = f"{record['nodeid']}-{number}"
        record |= {
            name: varied(record[name], chance, 4 if name == "timeline" else 17) for name in VARIED if name in record
        }
        for condition in record["verdicts"]:
            condition["interval"] = condition["interval"] and sorted(condition["interval"])
        if not record.get("timeline"):
            record["timeline"] = timeline(chance)
        tests.append(TestRecord.model_validate(record))
    return real.model_copy(update={"tests": tests})


def timed(task: Callable[[], Any]) -> tuple[Any, str]:
    """What a task returns, and its seconds: by the clock, and of the processor alone where others work beside it."""
    wall, processor = time.perf_counter(), time.process_time()
    returned = task()
    return returned, f"{time.perf_counter() - wall:.2f} s ({time.process_time() - processor:.2f} s of processor)"


def main(path: Path | None) -> None:
    """Print seconds and bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = read_results(path or measured(folder))
        print(f"{cpu_name()}, Python {platform.python_version()}; {len(real.tests)} real tests")
        _, first = timed(lambda: render(real.model_copy(update={"tests": real.tests[:1]})))
        print(f"first page of a process: {first}")
        for count in SIZES:
            results = run_of(count, real)
            page, rendered = timed(lambda results=results: render(results))
            _, written = timed(lambda results=results: write_report(results, folder / f"report-{len(results.tests)}"))
            print(f"{count:,} tests: page of {len(page.encode()) / 1e6:.2f} MB in {rendered}; all files in {written}")
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(render, results)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main(Path(given[0]) if given else None)
