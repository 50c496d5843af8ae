"""Collects the records of a run, from this process or from xdist's workers, and writes the report.

What is measured is journaled at once, one line a record, so that a run that is killed loses nothing:
``python -m pytest_llmperf report DIR`` makes the report from the journal. A run that ends writes results.json
and removes it.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.errors import GpuError, OptionError
from pytest_llmperf.plugin.keys import BOARDS
from pytest_llmperf.plugin.shortening import shorten

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_llmperf.report.rows import Line
    from pytest_llmperf.results import Results

__all__ = ["Recorder"]


#: Of the report what a reader is sent to: the first that was made.
_MADE = ("report.html", "summary.md", "results.json")


class Recorder:
    """One a process; only the one outside xdist's workers writes the report.

    Args:
        config: pytest's.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        inherited = getattr(config, "workerinput", {}).get("llmperf")
        now = datetime.now(UTC)
        self._started_at = now.isoformat(timespec="seconds")
        self._in_worker = hasattr(config, "workerinput")
        self.worker = f"{config.workerinput['workerid']}-" if self._in_worker else ""  # type: ignore[attr-defined]
        self.run_id = inherited["run_id"] if inherited else f"{now:%Y%m%d-%H%M%S}-{os.getpid()}"
        self.folder = Path(inherited["folder"]) if inherited else self._folder()
        self._command = inherited["command"] if inherited else None
        self.saved = 0
        self._found: dict[str, Any] = {}
        self._machine: dict[str, Any] | None = None
        self._records: list[dict[str, Any]] = []
        self._results: Results | None = None
        self._journaling = False
        self._began = False
        self._has_workers = False
        self._failures: list[str] = []
        self._nothing: str | None = None
        self._alone = False

    def _folder(self) -> Path:
        given = self._config.getoption("--llmperf-report")
        if given:
            return self._config.invocation_params.dir / str(given)
        return self._config.rootpath / "reports" / self.run_id

    @property
    def command(self) -> str:
        """The session's command line, without secrets; in a worker of xdist that of its controller."""
        from pytest_llmperf.engines.openai.address import redacted

        if self._command is None:
            self._command = redacted(shlex.join(["pytest", *map(str, self._config.invocation_params.args)]))
        return self._command

    def for_worker(self) -> dict[str, Any]:
        """What an xdist worker has to know."""
        self._has_workers = True
        return {"run_id": self.run_id, "folder": str(self.folder), "pid": os.getpid(), "command": self.command}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the other xdist workers of this run from measuring meanwhile; blocks may be nested."""
        if not self._in_worker or self._alone:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".measuring.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    def begin(self) -> None:
        """A run with performance tests begins: what an earlier run left in the same folder is not its own."""
        if not self._began and not self._in_worker:
            self._began = True
            self._check_folder()
            self.clear()

    def _check_folder(self) -> None:
        """Find out before anything is measured that the report can be written.

        Raises:
            OptionError: it cannot.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise OptionError(
                f"The report in {self.folder} cannot be written ({error.strerror or error}).",
                remedy="Make the folder writable, or give another with --llmperf-report=DIR.",
            ) from None

    def clear(self) -> None:
        """Take away what an earlier run has left in the folder, if it is a report's folder."""
        if (self.folder / "results.json").exists() or any(self.folder.glob("journal*.jsonl")):
            traces = ("traces/*.jsonl", "traces/*.samples.jsonl.gz")
            made = ("results.json", "report.html", "summary.md", "benchmark.json", "journal*.jsonl")
            for pattern in (*made, *traces, "logs/engine-*.log", "charts/*.png"):
                for left in self.folder.glob(pattern):
                    left.unlink()

    def note(self, **found: Any) -> None:
        """Keep what was found out about this machine, for the record's ``environment``.

        It goes through the journal, so that what a worker of xdist found reaches the report as well.
        """
        self._found.update(printable(found))
        self.journal({"environment": found})

    def note_gate(self, **rules: Any) -> None:
        """Keep what the verdicts of this run are drawn by, for the record's ``gate``."""
        self.journal({"gate": rules})

    def journal(self, record: dict[str, Any]) -> None:
        """Keep a record, final or not, against the death of this process."""
        record = printable(record)
        path = self.folder / f"journal{'-' if self.worker else ''}{self.worker.rstrip('-')}.jsonl"
        if not self._journaling:
            self._journaling = True
            self.folder.mkdir(parents=True, exist_ok=True)
            # An earlier run's journal in the same folder is not ours to continue.
            path.write_text(json.dumps(self._head()) + "\n", "utf-8")
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write_traces(self, test: str, lines: list[str]) -> None:
        """Append the traces of one launch."""
        from pytest_llmperf.baselines import slug

        path = self.folder / "traces" / f"{slug(test)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            for line in lines:
                file.write(line)
                file.write("\n")

    def write_samples(self, test: str, lines: list[str]) -> None:
        """Append what was read of the boards in one launch."""
        from pytest_llmperf.baselines import slug

        path = self.folder / "traces" / f"{slug(test)}.samples.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "at", compresslevel=6, encoding="utf-8") as file:
            for line in lines:
                file.write(line)
                file.write("\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the records that hang on a report."""
        if not self._in_worker:
            self._records += printable(getattr(report, "llmperf", []))

    def _head(self) -> dict[str, Any]:
        from pytest_llmperf.recording import definitions

        return {"run": self._run(), "environment": self._environment(), "definitions": definitions()}

    def _run(self) -> dict[str, Any]:
        from pytest_llmperf import __version__
        from pytest_llmperf.machine import repository

        commit, dirty = repository(self._config.rootpath)
        return {
            "id": self.run_id,
            "started_at": self._started_at,
            "command": self.command,
            "commit": commit,
            "dirty": dirty,
            "plugin_version": __version__,
        }

    def _environment(self) -> dict[str, Any]:
        from pytest_llmperf.gpu.nvml import cuda_version, visible_boards
        from pytest_llmperf.machine import environment

        if self._machine is None:
            held = self._config.stash[BOARDS]
            try:
                boards = held.boards() if held.simulated is not None else visible_boards()
                self._machine = environment(boards, None if held.simulated is not None else cuda_version())
            except GpuError:  # a board that got lost: what was measured before is kept all the same
                return {**environment((), None), **self._found}
        return {**self._machine, **self._found}

    def provenance(self, uuids: Collection[str]) -> dict[str, Any]:
        """What a baseline should remember of the run that made it, and of the boards that it was measured on.

        ``run`` tells which baselines have shared the launches of an engine.
        """
        run, machine = self._run(), self._environment()
        boards = [board for board in machine["gpus"] if board["uuid"] in uuids]
        return {
            "run": self.run_id,
            **{name: run[name] for name in ("commit", "dirty", "plugin_version")},
            "python": sys.version.split()[0],
            "cpu": machine["cpu"],
            "cuda": machine["cuda"],
            "driver": next((board["driver"] for board in boards), None),
            "boards": [{name: board[name] for name in ("name", "uuid", "power_limit_w")} for board in boards],
        }

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write results.json and the page, and let nothing compared be no success."""
        # Of xdist's workers that have measured nothing their controller has the journals alone.
        by_workers = self._has_workers and any(self.folder.glob("journal-*.jsonl"))
        if self._in_worker or not (self._began or self._records or by_workers):
            return
        # Raised from here it would end the session in a traceback, and the terminal would tell no verdict.
        with self._failing_alone(session, "The report could not be made"):
            self._write(session)

    @contextmanager
    def _failing_alone(self, session: pytest.Session, what: str) -> Iterator[None]:
        """Keep what is raised within the block for the terminal; a run in which no test failed fails by it."""
        from pytest_llmperf.errors import ResultsError
        from pytest_llmperf.report.failures import told

        try:
            yield
        except ResultsError as error:
            self._fail(session, str(error))
        except Exception as error:
            self._fail(session, f"{what}: {told(error)}.")

    def _fail(self, session: pytest.Session, failure: str) -> None:
        self._failures.append(failure)
        session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR

    def _write(self, session: pytest.Session) -> None:
        from pytest_llmperf.report.upkeep import merged
        from pytest_llmperf.report.write import assemble, read_journals, write_pages, write_record

        journals = read_journals(self.folder)
        self._found = journals.found
        if self._has_workers:
            self._records.sort(key=lambda record: record["nodeid"])  # who was done first is chance
        head = {**self._head(), "gate": journals.gate, "baselines": merged(journals.accounts)}
        self._results = assemble(head, self._records, journals.tests)
        with self._failing_alone(session, "What the tests say together could not be found"):
            from pytest_llmperf.findings import with_findings

            self._results = with_findings(self._results)
        selected = max((account["selected"] for account in journals.accounts), default=0)
        measuring = any(account["measuring"] for account in journals.accounts)
        why = None if measuring else nothing_compared(self._results, selected)
        if session.exitstatus == pytest.ExitCode.OK and why is not None:
            self._nothing = why
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        write_record(self._results, self.folder)  # until this is done the journal keeps what was measured
        for failure in write_pages(self._results, self.folder):
            self._fail(session, failure)
        for journal in self.folder.glob("journal*.jsonl"):
            journal.unlink()
        (self.folder / ".measuring.lock").unlink(missing_ok=True)
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            with self._failing_alone(session, "What failures have in common could not be told once"):
                shorten(terminal.stats.get("failed", ()), self._results, self.command)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the table of the run."""
        if self._results is None and not self._failures:
            return
        session = terminalreporter._session
        assert session is not None
        terminalreporter.section("llmperf")
        if self._results is not None:
            self._tell(self._results, session, terminalreporter)
        if self._nothing:
            terminalreporter.write_line(f"error: {self._nothing}", red=True)
        last: list[Line] = []
        if self._results is not None:
            with self._failing_alone(session, "How the tests were judged could not be printed"):
                from pytest_llmperf.report.terminal import verdict_lines

                last += verdict_lines(self._results, terminalreporter._tw.fullwidth)
        for failure in self._failures:
            terminalreporter.write_line(f"error: {failure}", red=True)
        if self.saved:
            terminalreporter.write_line(f"baselines: {self.saved} saved")
        for line, markup in last:
            terminalreporter.write_line(line, **markup)
        made = next((path for name in _MADE if (path := self.folder / name).exists()), None)
        if made is not None:
            terminalreporter.write_line(f"report: {made}")

    def _tell(self, results: Results, session: pytest.Session, terminalreporter: TerminalReporter) -> None:
        """Print what the run found, or where that fails how its tests were judged."""
        width = terminalreporter._tw.fullwidth
        before = len(self._failures)
        with self._failing_alone(session, "The table of tests could not be printed"):
            from pytest_llmperf.plugin.replay import spare_table
            from pytest_llmperf.report.terminal import table

            spare_table(self._config)
            for line, markup in table(results, width):
                terminalreporter.write_line(line, **markup)
        if len(self._failures) > before:
            for test in results.worst_first():
                terminalreporter.write_line(ascii(f"{test.verdict}: {test.nodeid}")[1:-1][:width])
        with self._failing_alone(session, "What became of the baselines could not be printed"):
            from pytest_llmperf.report.upkeep import wrapped

            for line in wrapped(results.baselines, width, self.command):
                terminalreporter.write_line(line, yellow=True)


def nothing_compared(results: Results, selected: int) -> str | None:
    """Why a gating run that has failed nowhere, and only measured nowhere, is no success; ``None`` when it is one.

    Args:
        results: Of the run.
        selected: Tests with the ``llmperf`` fixture that were to run.
    """
    compared = {"pass", "improved", "regressed", "inconclusive"}
    if not selected or any(verdict.verdict in compared for test in results.tests for verdict in test.verdicts):
        return None
    tests = "The one performance test" if selected == 1 else f"None of the {selected} performance tests"
    return (
        f"{tests} was {'not ' if selected == 1 else ''}compared with a baseline, and a gate that compares nothing does "
        "not pass: see with -rsx why, or deselect what cannot run here."
    )


def printable(value: Any) -> Any:
    """The same JSON value with every text such that UTF-8 can hold it (file names may bring lone surrogates)."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value
