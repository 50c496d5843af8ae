"""Whole sessions on the simulated engine: baselines saved, and runs judged against them, as a user's would be."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ENGINE", "SUITE", "Run", "carry_out"]

#: Ten tests of four gated metrics.
SUITE = """
import pytest
from pytest_llmperf import Workload

pytestmark = pytest.mark.llmperf(tolerance="3%")


@pytest.mark.parametrize("batch", range(1, 11))
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=8, output_len=4, batch=batch))
"""
ENGINE = "sim:h200,launch_noise=0.007,repeat_noise=0.003"


@dataclass(frozen=True)
class Run:
    """One session to carry out.

    Attributes:
        baseline: The seed that its baseline was saved with.
        number: Of the run; with the slowdown it makes its seed.
        slowdown: The factor on every time.
    """

    baseline: int
    number: int
    slowdown: float

    @property
    def engine(self) -> str:
        """Its --llmperf-engine."""
        seed = 1_000_000 * self.baseline + 10_000 * round(100 * (self.slowdown - 1)) + self.number + 1000
        return f"{ENGINE},seed={seed},slowdown={self.slowdown}"

    @property
    def key(self) -> list[float]:
        """What tells it from the others."""
        return [self.baseline, self.number, self.slowdown]


def carry_out(runs: Iterable[Run], folder: Path, results: Path, *, processes: int) -> Iterator[dict[str, Any]]:
    """Carry out those runs that ``results`` does not hold, append what they found, and yield all that was found.

    Args:
        runs: Any number.
        folder: For baselines; they are kept between calls.
        results: One JSON object a line.
        processes: How many at once.
    """
    runs = list(runs)
    done = [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []
    keys = [run.key for run in runs]
    yield from (one for one in done if one["key"] in keys)
    known = [one["key"] for one in done]
    wanted = [run for run in runs if run.key not in known]
    if not wanted:
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool, results.open("a", encoding="utf-8") as file:
        for _ in pool.imap_unordered(_save, [(folder, seed) for seed in sorted({run.baseline for run in wanted})]):
            pass
        for found in pool.imap_unordered(_gate, [(folder, run) for run in wanted]):
            file.write(json.dumps(found) + "\n")
            file.flush()
            yield found


def _save(task: tuple[Path, int]) -> None:
    folder, seed = task
    if not (_home(folder, seed) / "saved").exists():
        shutil.rmtree(_home(folder, seed), ignore_errors=True)
        _session(_home(folder, seed), f"{ENGINE},seed={seed}", "--llmperf-save")
        (_home(folder, seed) / "saved").touch()


def _gate(task: tuple[Path, Run]) -> dict[str, Any]:
    folder, run = task
    tests = _session(_home(folder, run.baseline), run.engine)
    return {
        "key": run.key,
        "tests": [
            {
                "verdict": test["verdict"],
                "launches": max(len(metric["launches"]) for metric in test["metrics"].values()),
                "verdicts": {verdict["metric"]: verdict["verdict"] for verdict in test["verdicts"]},
            }
            for test in tests
        ],
    }


def _home(folder: Path, seed: int) -> Path:
    return folder / f"baseline-{seed}"


def _session(home: Path, engine: str, *arguments: str) -> list[dict[str, Any]]:
    """The tests of a session's results.json."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "test_gated.py").write_text(SUITE, "utf-8")
    (home / "pytest.ini").touch()
    report = home / f"report-{os.getpid()}"
    words = [str(home), f"--rootdir={home}", "-q", "--import-mode=importlib"]
    words += ["-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "tests.plugin.quick"]
    words += [f"--llmperf-engine={engine}", f"--llmperf-report={report}", f"--llmperf-baselines={home / 'baselines'}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = pytest.main([*words, *arguments])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(printed.getvalue())
    gc.freeze()  # each launch collects garbage first: what is imported need not be looked through again
    results = json.loads((report / "results.json").read_text("utf-8"))
    shutil.rmtree(report)
    tests: list[dict[str, Any]] = results["tests"]
    if any(test["verdict"] in ("invalid", "no-baseline", "incomparable") for test in tests):
        raise RuntimeError(printed.getvalue())
    return tests
