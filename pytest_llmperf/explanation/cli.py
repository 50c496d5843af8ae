"""``python -m pytest_llmperf explain`` and ``compare``: reports that runs have written, read again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pytest_llmperf.explanation.comparison import compare_runs
from pytest_llmperf.explanation.derivation import chosen, derive, plain
from pytest_llmperf.explanation.printing import derived_lines, ungated, ungated_lines
from pytest_llmperf.explanation.side_by_side import compared_lines
from pytest_llmperf.report.write import load_run
from pytest_llmperf.results import Results, read_results

__all__ = ["compare", "explain"]


def explain(report: Path, test: str | None, *, as_json: bool) -> int:
    """Print every verdict derived again, and what moved with it.

    Returns:
        0 when every stored verdict follows from the record, else 1.

    Raises:
        ResultsError: the report cannot be read, or has no such test.
    """
    results = _load(report)
    derived = [derive(record, results) for record in chosen(results, test)]
    # Of many that were only measured there is nothing to say, but to one who asks for it.
    quiet = [one for one in derived if ungated(one)] if test is None and len(derived) > 1 else []
    if as_json:
        print(_strict({"run": results.run.id, "tests": [one.to_json() for one in derived]}))
    else:
        for number, one in enumerate(one for one in derived if one not in quiet):
            _print([*([""] if number else []), *derived_lines(one)])
        if quiet:
            _print([*([""] if len(quiet) < len(derived) else []), *ungated_lines(len(quiet), len(derived))])
        if not derived:
            print("The run holds no test.")
    return int(any(one.differs for one in derived))


def compare(a: Path, b: Path, *, as_json: bool) -> int:
    """Print two runs side by side.

    Returns:
        0 when at least one test is in both, else 1.

    Raises:
        ResultsError: one of them cannot be read.
    """
    before, now = _load(a), _load(b)
    compared = compare_runs(before, now)
    if as_json:
        print(_strict({"a": before.run.id, "b": now.run.id, **plain(asdict(compared))}))
    else:
        _print(compared_lines(before, now, compared))
    return int(not compared.tests)


def _load(report: Path) -> Results:
    return read_results(report) if report.is_file() else load_run(report)


def _strict(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
