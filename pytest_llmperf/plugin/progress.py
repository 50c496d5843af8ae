"""One line on a terminal that says what is under way and how long it may still take; silent elsewhere."""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["Progress"]


class Progress:
    """A line that is rewritten in place.

    Args:
        config: For the terminal reporter and the capture manager.
        launches: Engine launches per test, for the time left; ``None`` when a test takes as many as its verdict needs.
    """

    def __init__(self, config: pytest.Config, launches: int | None) -> None:
        # The capture manager is absent with -p no:capture, the reporter with -p no:terminal.
        self._reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager") or _NoCapture()
        self._shown = self._reporter is not None and self._reporter.isatty and config.get_verbosity() >= 0
        self._launches = launches
        self._durations: list[float] = []
        self._tests = 0
        self._round = 0
        self._done = 0
        self._began = time.monotonic()
        self._visible = False

    def expect(self, tests: int) -> None:
        """Say how many tests there are."""
        self._tests = self._round = tests

    def launch(self, number: int, tests: int) -> None:
        """Another launch of so many tests begins: one line where there is no terminal to rewrite a line on."""
        self._round, self._done = tests, 0
        if self._reporter is not None and not self._shown and self._reporter.verbosity >= 0:
            with self._capture.global_and_fixture_disabled():
                self._reporter.ensure_newline()
                # A test that measures several things takes as many launches for each.
                of = "" if self._launches is None or number > self._launches else f" of {self._launches}"
                undecided = f", for {tests} undecided test{'s' if tests > 1 else ''}" if self._launches is None else ""
                self._reporter.write_line(f"llmperf: launch {number}{of}{undecided}")

    def begin(self) -> None:
        """A test's launch begins."""
        self._began = time.monotonic()

    def done(self) -> None:
        """A test's launch is over: one more to judge the time left by."""
        self._durations.append(time.monotonic() - self._began)
        self._done += 1

    def show(self, text: str) -> None:
        """Replace the line."""
        if not self._shown:
            return
        left = self._left()
        self._write(f"llmperf: {text}" + (f"  (about {left} left)" if left else ""))

    def clear(self) -> None:
        """Take the line away before something else is printed."""
        if self._visible:
            self._write("")
            self._visible = False

    def make_way(self) -> None:
        """Take the line away for a test's result, which pytest begins with a line end."""
        if self._visible:
            self._write("")
            self._reporter.rewrite("\x1b[A")  # back to the line above, which that line end will leave again
            self._visible = False

    def _write(self, text: str) -> None:
        width = self._reporter._tw.fullwidth - 1
        with self._capture.global_and_fixture_disabled():
            if not self._visible:
                self._reporter.ensure_newline()
                self._visible = True
            self._reporter.rewrite(text[:width], erase=True)
            if not text:
                self._reporter.rewrite("")
            self._reporter.flush()

    def _left(self) -> str | None:
        if not self._durations:
            return None
        # How many rounds follow is not known before the verdicts: then it is the time left of this one.
        units = self._round - self._done
        if self._launches is not None:
            units = self._tests * self._launches - len(self._durations)
        seconds = round(statistics.mean(self._durations) * max(0, units))
        return f"{seconds // 60}:{seconds % 60:02d}" if seconds else None


class _NoCapture:
    def global_and_fixture_disabled(self) -> AbstractContextManager[None]:
        return nullcontext()
