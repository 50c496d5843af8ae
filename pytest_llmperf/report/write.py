"""Writes the files of a report: results.json first, because everything else can be made of it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.report.failures import told
from pytest_llmperf.report.upkeep import merged
from pytest_llmperf.results import ClockRecord, Results, TestRecord, read_results, wrong_field

__all__ = ["Journals", "assemble", "load_run", "read_journals", "write_pages", "write_record", "write_report"]


def write_report(results: Results, folder: Path, template: Path | None = None) -> None:
    """Write results.json, summary.md with its charts, benchmark.json and report.html into ``folder``.

    Raises:
        ResultsError: the folder cannot be written, the template cannot be used, or a part could not be made; all
            others are written then.
    """
    write_record(results, folder)
    if failures := write_pages(results, folder, template):
        raise ResultsError(" ".join(failures))


def write_record(results: Results, folder: Path) -> None:
    """Write results.json, of which all else can be made again.

    Raises:
        ResultsError: the folder cannot be written.
    """
    try:
        write_atomically(folder / "results.json", results.to_json())
    except OSError as error:
        raise ResultsError(
            f"The report in {folder} cannot be written ({error}).",
            remedy="Make the folder writable, or give another with --llmperf-report.",
        ) from None


def write_pages(results: Results, folder: Path, template: Path | None = None) -> list[str]:
    """Write what results.json is shown by, each part on its own: a file that cannot be made takes no other with it.

    Returns:
        Which could not be written and why, a sentence each; an earlier one of that name stays as it was.
    """
    # Imported part by part: what one of them needs and is not there, the others do without.
    parts: dict[str, Callable[[], str]] = {
        "summary.md": lambda: _summary(results, folder),
        "benchmark.json": lambda: _benchmark(results),
        "report.html": lambda: _page(results, template),
    }
    failures = []
    for name, make in parts.items():
        try:
            write_atomically(folder / name, make())
        except ResultsError as error:
            failures.append(str(error))
        except Exception as error:
            failures.append(f"{folder / name} could not be written: {told(error)}.")
    return failures


def _summary(results: Results, folder: Path) -> str:
    from pytest_llmperf.report.exporters.summary import summary

    try:
        from pytest_llmperf.report.exporters.pictures import pictures, write_pictures

        drawn, undrawn = write_pictures(pictures(results), folder)
    except OSError:
        raise
    except Exception as error:
        drawn, undrawn = [], f"The charts could not be made: {told(error)}."
    return summary(results, drawn, undrawn)


def _benchmark(results: Results) -> str:
    from pytest_llmperf.report.exporters.benchmark import benchmark

    return benchmark(results)


def _page(results: Results, template: Path | None) -> str:
    from pytest_llmperf.report.html import render

    return render(results, template)


def load_run(folder: Path) -> Results:
    """The results of a run: of its results.json, or of the journal that a killed run leaves.

    Raises:
        ResultsError: there is neither, or it cannot be used.
    """
    if (folder / "results.json").exists():
        return read_results(folder / "results.json")
    journals = read_journals(folder)
    head = journals.head
    if head is None:
        raise ResultsError(f"{folder} holds neither results.json nor a journal.", remedy="Give a run's report folder.")
    head = {
        **head,
        "gate": journals.gate,
        "environment": {**head["environment"], **journals.found},
        "baselines": merged(journals.accounts),
    }
    return assemble(head, [], journals.tests)


@dataclass
class Journals:
    """What the journals of a run hold: its own, or one of each worker of xdist.

    Attributes:
        head: The run, its environment and the metrics' definitions; ``None`` without a journal.
        gate: What its verdicts were drawn by; ``None`` when nothing was gated.
        found: What was found out about the machine while it ran, of all processes together.
        tests: The last record of each test, by its id.
        accounts: What each process has found out about the stored baselines.
    """

    head: dict[str, Any] | None = None
    gate: dict[str, Any] | None = None
    found: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: list[dict[str, Any]] = field(default_factory=list)


def read_journals(folder: Path) -> Journals:
    """Read the journals of a report's folder.

    Lines that are no records are left out: the last one may be cut off by a kill.
    """
    read = Journals()
    for journal in sorted(folder.glob("journal*.jsonl")):
        found: dict[str, Any] = {}
        for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
            record = _parsed(line)
            if record is None:
                continue
            if "run" in record:
                read.head = record
            elif isinstance(record.get("nodeid"), str):
                read.tests[record["nodeid"]] = record
            elif isinstance(record.get("gate"), dict):
                read.gate = record["gate"]
            elif isinstance(record.get("baselines"), dict):
                read.accounts.append(record["baselines"])
            elif isinstance(record.get("environment"), dict):
                found |= record["environment"]  # a process's later word on something replaces its former one
        read.found = _merged(read.found, found)
    return read


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both, objects within objects too; where they differ a value goes before none, and else the latter."""
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        elif value is not None or key not in merged:
            merged[key] = value
    return merged


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
        raise ResultsError(f"The run's record does not fit the schema: {wrong_field(error)}.") from None


def _fitting(record: dict[str, Any]) -> TestRecord:
    try:
        return TestRecord.model_validate(record)
    except ValidationError as error:
        return TestRecord(
            nodeid=record["nodeid"], verdict="invalid", outcome="failed", workload=None, engine=None,
            clock=ClockRecord(), metrics={}, verdicts=[], requests=None, client_overhead=None, warnings=[],
            invalid=f"its record does not fit the schema: {wrong_field(error)}",
        )  # fmt: skip


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
