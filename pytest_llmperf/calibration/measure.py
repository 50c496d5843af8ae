"""Runs a suite once, with as many launches as are to be divided."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_llmperf.errors import OptionError, ResultsError

__all__ = ["measure"]

#: What a calibration sets itself.
_OURS = ("--llmperf-save", "--llmperf-launches", "--llmperf-baselines", "--llmperf-report")


def measure(arguments: Sequence[str], launches: int, report: Path) -> None:
    """Run pytest in a process of its own, saving baselines that are thrown away.

    What it prints goes to stderr: stdout is for the figures.

    Args:
        arguments: For pytest.
        launches: Engine launches of every test.
        report: The folder of the report; it stays.

    Raises:
        OptionError: an argument is one that a calibration sets itself.
        ResultsError: pytest ended without a report.
    """
    for word in arguments:
        if word.partition("=")[0] in _OURS:
            raise OptionError(
                f"calibrate sets {word.partition('=')[0]} itself.",
                remedy="Leave it out; --launches says how many launches to measure, and --report where they are kept.",
            )
    with tempfile.TemporaryDirectory(prefix="llmperf-calibrate-") as scratch:
        command = [sys.executable, "-m", "pytest", *arguments, "--llmperf-save", f"--llmperf-launches={launches}"]
        command += [f"--llmperf-baselines={scratch}", f"--llmperf-report={report.absolute()}"]
        status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    # 1: some test failed; it is left out by name.
    if status not in (0, 1) or not (report / "results.json").exists():
        raise ResultsError(
            f"pytest ended with exit status {status} and left nothing to calibrate with.",
            remedy="Its own message stands above.",
        )
