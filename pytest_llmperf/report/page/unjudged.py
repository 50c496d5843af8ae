"""Why tests could not be judged, in as few sentences as there are reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_llmperf.report.wording import by_kind
from pytest_llmperf.results import TestRecord

__all__ = ["Unjudged", "unjudged"]

_VERDICTS = ("invalid", "incomparable", "no-baseline")
#: So many reasons are told on the first screen.
_MOST = 4


@dataclass(frozen=True)
class Unjudged:
    """One reason.

    Attributes:
        verdict: ``invalid``, ``incomparable`` or ``no-baseline``.
        test: The first test of which it is so.
        text: Why, of that test.
        others: How many more tests share the reason, but for their figures.
    """

    verdict: str
    test: TestRecord
    text: str
    others: int


def unjudged(tests: Iterable[TestRecord]) -> list[Unjudged]:
    """The reasons of the tests that are invalid, incomparable or without a baseline, in this order."""
    tests = list(tests)
    found: list[Unjudged] = []
    for verdict in _VERDICTS:
        told = [(test, _reason(test)) for test in tests if test.verdict == verdict]
        first = {text: test for test, text in reversed(told)}
        kinds = by_kind((_alike(test, text), text) for test, text in told)
        found += [Unjudged(verdict, first[text], text, others) for text, others in kinds]
    return found[:_MOST]


def _alike(test: TestRecord, text: str) -> str:
    """A reason without what is the test's own: the file that does not hold its baseline."""
    return text.partition(" in ")[0] if test.verdict == "no-baseline" else text


def _reason(test: TestRecord) -> str:
    reasons = (verdict.reason for verdict in test.verdicts if verdict.verdict == test.verdict)
    return test.invalid or next(filter(None, reasons), None) or "no reason was kept"
