"""Failures in the terminal without what its summary tells of all of them at once; everywhere else they stay whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_llmperf.report.commands import item_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from _pytest._io import TerminalWriter

    from pytest_llmperf.results import Results

__all__ = ["ShortenedFailure", "shorten"]


class ShortenedFailure:
    """A failure as pytest has it, but for what the terminal shows of it.

    Args:
        whole: The report's ``longrepr``.
        text: What the terminal shows in its place.
    """

    def __init__(self, whole: Any, text: str) -> None:
        self._whole = whole
        self._text = text
        if (crash := getattr(whole, "reprcrash", None)) is not None:
            self.reprcrash = crash  # the line of the short summary is made of it

    def __str__(self) -> str:
        return str(self._whole)

    def toterminal(self, tw: TerminalWriter) -> None:
        """Called by pytest in its section of failures."""
        for line in self._text.splitlines():
            tw.line(line)


def shorten(reports: Iterable[pytest.TestReport], results: Results, command: str | None) -> None:
    """Leave out of the failures what the summary of a run tells once: the common cause, and an advice given to several.

    Args:
        reports: Of the failed tests; JUnit has had them before.
        results: Of the run.
        command: That of the run, as the failures name it.
    """
    from pytest_llmperf.report.notices import repeated_advice
    from pytest_llmperf.report.outcome import common_cause
    from pytest_llmperf.report.terminal import failure_paragraph

    cause, _ = common_cause(results) or ("", 0)
    advised = repeated_advice(results)
    if not cause and not advised:
        return
    by_item: dict[str, list[tuple[str, str]]] = {}
    for test in results.tests:
        record = test.model_dump(mode="json")
        whole, short = (
            failure_paragraph(record, command),
            failure_paragraph(record, command, cause=cause, advised=advised),
        )
        if whole != short:
            by_item.setdefault(item_of(test.nodeid), []).append((whole, short))
    for report in reports:
        text = str(report.longrepr)
        for whole, short in by_item.get(report.nodeid, ()):
            text = text.replace(whole, short)
        if text != str(report.longrepr):
            report.longrepr = ShortenedFailure(report.longrepr, text)  # type: ignore[assignment]
