"""Writes the files of a report: results.json first, because everything else can be made of it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.report.html import render
from pytest_llmperf.report.results import ClockRecord, Results, TestRecord, read_results

__all__ = ["assemble", "load_run", "read_journals", "write_report"]


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
    head, journaled = read_journals(folder)
    if head is None:
        raise ResultsError(f"{folder} holds neither results.json nor a journal.", remedy="Give a run's report folder.")
    return assemble(head, [], journaled)


def read_journals(folder: Path) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """The head of a run (``None`` without a journal) and its last record of each test, from the journals of a folder.

    Lines that are no records are left out: the last one may be cut off by a kill.
    """
    head: dict[str, Any] | None = None
    tests: dict[str, dict[str, Any]] = {}
    for journal in sorted(folder.glob("journal*.jsonl")):
        for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
            record = _parsed(line)
            if record is None:
                continue
            if "run" in record:
                head = record
            elif isinstance(record.get("nodeid"), str):
                tests[record["nodeid"]] = record
    return head, tests


def assemble(head: dict[str, Any], records: list[dict[str, Any]], journaled: dict[str, dict[str, Any]]) -> Results:
    """Results of the final records, and of what was journaled of tests that have none.

    A record that does not fit the schema is replaced by one that says so: one odd number must not lose a whole run.

    Raises:
        ResultsError: the head does not fit the schema.
    """
    final = {record["nodeid"] for record in records}
    tests = [_fitting(record) for record in records]
    for nodeid, record in journaled.items():
        if nodeid not in final:
            ended = "The run ended before this test was decided."
            tests.append(_fitting({**record, "warnings": [*record.get("warnings", []), ended]}))
    try:
        return Results.model_validate({"schema_version": 1, **head, "tests": tests})
    except ValidationError as error:
        raise ResultsError(f"The run's record does not fit the schema: {error.errors()[0]['msg']}.") from None


def _fitting(record: dict[str, Any]) -> TestRecord:
    try:
        return TestRecord.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return TestRecord(
            nodeid=record["nodeid"], verdict="invalid", outcome="failed", workload=None, engine=None,
            clock=ClockRecord(), metrics={}, verdicts=[], requests=None, client_overhead=None, warnings=[],
            invalid=f"its record does not fit the schema: {where}: {first['msg']}",
        )  # fmt: skip


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
