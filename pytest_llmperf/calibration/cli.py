"""``python -m pytest_llmperf calibrate``: how often the gate is wrong on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from pytest_llmperf.calibration.findings import calibrate
from pytest_llmperf.calibration.material import read_material
from pytest_llmperf.calibration.measure import measure
from pytest_llmperf.calibration.splits import split
from pytest_llmperf.calibration.text import as_json, render
from pytest_llmperf.errors import LlmperfError, OptionError

__all__ = ["main"]

#: With five of them for the baseline there are 252 splits; 13 would leave a run all its looks.
_LAUNCHES = 10


def main(argv: list[str], *, save_launches: int, gate_launches: int) -> int:
    """Measure, or read a report, and print what was found.

    Args:
        argv: What stands after ``calibrate``.
        save_launches: How many launches a baseline has unless told otherwise.
        gate_launches: How many a gated test takes at most unless told otherwise.

    Returns:
        0 on success, 1 on an error of ours.
    """
    options, words = _parser(save_launches).parse_known_args(argv)
    try:
        if not words:
            raise OptionError(
                "calibrate needs tests to measure, or the report folder of a run that measured them.",
                remedy="For example: python -m pytest_llmperf calibrate suites/ --llmperf-engine sim:h200,seed=1",
            )
        folder = Path(words[0])
        if len(words) == 1 and ((folder / "results.json").exists() or any(folder.glob("journal*.jsonl"))):
            if options.launches is not None or options.report is not None:
                raise OptionError(f"{folder} is a report: nothing is measured, and --launches and --report do nothing.")
        else:
            folder = options.report or Path("reports") / f"calibration-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
            launches = options.launches or _LAUNCHES
            split(launches, options.baseline_launches, at_most=1)  # refuses before hours of measuring
            measure(words, launches, folder)
        material = read_material(folder)
        splits = split(material.launches, options.baseline_launches, at_most=gate_launches, seed=options.seed)
        findings = calibrate(material, splits, at_most=gate_launches)
    except LlmperfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(as_json(findings) if options.json else f"{render(findings)}\n\nlaunches: {folder}")
    return 0


def _parser(save_launches: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf calibrate",
        usage="%(prog)s [--launches K] [--baseline-launches N] [--json] (TESTS [PYTEST ARGUMENTS] | REPORT)",
        description="Measure launches of one engine, divide them into baselines and runs in every way, and count how "
        "often the gate is wrong. Everything that is not named here is handed to pytest.",
        allow_abbrev=False,
    )
    parser.add_argument("--launches", type=int, metavar="K", help=f"engine launches to measure ({_LAUNCHES})")
    parser.add_argument(
        "--baseline-launches", type=int, metavar="N", default=save_launches,
        help=f"of these, how many a baseline takes ({save_launches})",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="DIR", help="where the launches are kept")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of splits, where there are too many")
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser
