"""Which stored baselines belong to a test, and which tests to a baseline: found out after a gating run.

A baseline is stale when the run shows that no test compares with it any more; one whose test was deselected, skipped,
or not selected was not run, and nothing is known of it. Where the run cannot tell the two apart (its file was
collected in part, or not at all), the baseline was not run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.plugin.fixtures import uses_llmperf
from pytest_llmperf.plugin.keys import RECORDER, SESSION
from pytest_llmperf.plugin.recorder import printable

if TYPE_CHECKING:
    from pytest_llmperf.plugin.baselining import Shelf

__all__ = ["Census"]

#: Options of pytest's with which no test's body runs.
_RUN_NOTHING = ("collectonly", "setuponly", "setupplan")


class Census:
    """Watches what a process collects and runs, and leaves its account of the baselines in the run's journal.

    Args:
        config: pytest's.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._collected: set[str] = set()
        self._files: set[str] = set()
        self._ran: set[str] = set()
        self._ended_early: set[str] = set()
        self._expected_to_fail: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Know every performance test, whoever deselects it later."""
        if uses_llmperf(item):
            self._collected.add(printable(item.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Know the files that could be read."""
        if report.passed:
            self._files.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Know the tests that ran to their end, and those of which a part (a subtest, say) did not."""
        if hasattr(report, "wasxfail"):
            self._expected_to_fail.add(printable(report.nodeid))
        if report.failed or report.skipped:
            self._ended_early.add(printable(report.nodeid))
        elif report.when == "call" and report.passed:
            self._ran.add(printable(report.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Give account of the baselines, if this process was to gate."""
        ours = self._config.stash.get(SESSION, None)
        runs_nothing = any(getattr(self._config.option, name, False) for name in _RUN_NOTHING)
        if ours is None or ours.options.save or runs_nothing:
            return
        selected = [item for item in session.items if "llmperf" in getattr(item, "fixturenames", ())]
        account = {"selected": len(selected), "measuring": ours.shelf.passed_by, **self._account(ours.shelf)}
        self._config.stash[RECORDER].journal({"baselines": account})

    def _account(self, shelf: Shelf) -> dict[str, Any]:
        from pytest_llmperf.baselines import Baseline, read_all

        sought = set(shelf.sought.values())
        stale, idle = [], []
        for group in sorted(shelf.groups):
            for path, baseline in read_all(group):
                if not isinstance(baseline, Baseline) or path in sought:
                    continue
                if self._is_stale(baseline.test):
                    stale.append({"test": baseline.test, "path": self._shown(path)})
                else:
                    idle.append(baseline.test)
        # A test that is expected to fail never stores one, whatever came of it.
        missing = [test for test in shelf.missing if self._expected_to_fail.isdisjoint(_owners(test))]
        return {"stale": stale, "missing": missing, "idle": idle, "sought": list(shelf.sought)}

    def _is_stale(self, test: str) -> bool:
        """Whether nothing compares with the baseline of a test that this run has not looked for."""
        owner = next((owner for owner in _owners(test) if owner in self._collected), None)
        if owner is not None:
            return owner in self._ran - self._ended_early  # it came to its end without asking for the measurement
        file = test.partition("::")[0]
        if not (self._config.rootpath / file).exists():
            return True
        return file in self._files and self._collected_whole(file)

    def _collected_whole(self, file: str) -> bool:
        """Whether a file was collected with all of its tests, and not only those that were named or failed last."""
        if getattr(self._config.option, "lf", False):
            return False
        path = _real(self._config.rootpath / file)
        base = self._config.invocation_params.dir
        whole = [_real(base / argument) for argument in self._config.args if "::" not in argument]
        return any(path == given or given in path.parents for given in whole)

    def _shown(self, path: Path) -> str:
        root = self._config.rootpath
        shown: str = printable(path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path))
        return shown


def _owners(test: str) -> list[str]:
    """The tests that a measurement may belong to: ``a#b`` is the one called b of test a, or a test called a#b."""
    ends = [place for place, character in enumerate(test) if character == "#"]
    return [test, *(test[:end] for end in reversed(ends))]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
