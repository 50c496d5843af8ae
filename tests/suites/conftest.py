"""The shipped suites, copied, collected and run on simulated boards; each run once for all tests that look at it."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Run:
    """What a run of suites has left.

    Attributes:
        status: pytest's exit status.
        text: What it printed.
        tests: The records, by the id's part after ``suites/``.
    """

    def __init__(self, status, text, report):
        self.status = status
        self.text = text
        found = json.loads((report / "results.json").read_text())["tests"] if report.is_dir() else []
        self.tests = {record["nodeid"].removeprefix("suites/"): record for record in found}

    def value(self, test, metric):
        """The value of a metric of a test, in SI units."""
        return self.tests[test]["metrics"][metric]["value"]

    def curve(self, test, metric, points):
        """The values at points that stand in the place of ``{}`` in the test's id."""
        return [self.value(test.format(point), metric) for point in points]


@pytest.fixture(scope="session")
def run_suites(tmp_path_factory):
    """``run_suites(*arguments)``: one launch and repeat, saved and not gated; the same arguments run once."""

    @cache
    def run(*arguments):
        folder = tmp_path_factory.mktemp("suites")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--rootdir", str(ROOT)]
        command += ["--llmperf-save", "--llmperf-launches=1", "--llmperf-repeats=1"]
        command += [f"--llmperf-baselines={folder / 'baselines'}", f"--llmperf-report={folder / 'report'}"]
        if not any(one.startswith("--llmperf-engine") for one in arguments):
            command.append("--llmperf-engine=sim:v100")
        # One run serves several tests, and is no worker of the session that they are in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        done = subprocess.run(
            [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        return Run(done.returncode, done.stdout + done.stderr, folder / "report")

    return run
