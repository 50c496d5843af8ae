"""Writes the files of a report: results.json first, because everything else can be made of it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.report.html import render
from pytest_llmperf.report.results import Results, read_results

__all__ = ["load_run", "write_report"]


def write_report(results: Results, folder: Path, template: Path | None = None) -> None:
    """Write results.json and report.html into ``folder``.

    Raises:
        ResultsError: the folder cannot be written, or the template cannot be used.
    """
    try:
        write_atomically(folder / "results.json", results.to_json())
        write_atomically(folder / "report.html", render(results, template))
    except OSError as error:
        raise ResultsError(
            f"The report in {folder} cannot be written ({error}).",
            remedy="Make the folder writable, or give another with --llmperf-report.",
        ) from None


def load_run(folder: Path) -> Results:
    """The results of a run: of its results.json, or of the journal that a killed run leaves.

    Raises:
        ResultsError: there is neither, or it cannot be used.
    """
    if (folder / "results.json").exists():
        return read_results(folder / "results.json")
    journals = sorted(folder.glob("journal*.jsonl"))
    if not journals:
        raise ResultsError(f"{folder} holds neither results.json nor a journal.", remedy="Give a run's report folder.")
    head: dict[str, Any] = {}
    tests: dict[str, dict[str, Any]] = {}
    for journal in journals:
        # The last line may be cut off by the kill.
        lines = [_parsed(line) for line in journal.read_text(encoding="utf-8", errors="replace").splitlines()]
        for record in lines:
            if record is None:
                continue
            if "run" in record:
                head = record
            else:
                tests[record["nodeid"]] = record
    if not head:
        raise ResultsError(f"The journal in {folder} has no head; nothing was measured yet.")
    for record in tests.values():
        record["warnings"] = [*record["warnings"], "The run ended before this test was decided."]
    return Results.model_validate({"schema_version": 1, **head, "tests": list(tests.values())})


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
