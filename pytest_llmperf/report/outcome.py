"""What a run came to in one line, and what all the tests that did not pass have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_llmperf.report.cells import deciding, labels
from pytest_llmperf.report.units import format_change, printable, shortened
from pytest_llmperf.report.wording import badness, better_of, failed_otherwise, plural, verdict_word, worst_regression
from pytest_llmperf.results import WORST_FIRST, Results, TestRecord, VerdictRecord

__all__ = ["common_cause", "verdict_line", "without_cause"]

_WORDS: Mapping[str, str] = {
    "no-baseline": "without a baseline",
    "pass": "passed",
    "not-applicable": "with nothing to gate",
}
#: The verdicts after which pytest's own ending is all there is to say.
_WELL = ("pass", "improved", "not-applicable", "measured")
#: Where a sentence of an explanation says in what the run differs from its baseline.
_CAUSE = re.compile(r"(?:^|; )[Uu]nder test: (.+)\.$", re.DOTALL)


def verdict_line(results: Results) -> tuple[str, dict[str, bool]]:
    """``"12 tests: 1 regressed, 8 inconclusive, 3 passed; worst: tpot of decode[16] +7.2 %"``, with its markup."""
    tests = results.tests
    counts = Counter(_word(test) for test in tests)
    rest = [_WORDS.get(verdict, verdict) for verdict in WORST_FIRST if verdict != "regressed"]
    order = ["regressed", "failed for another reason", "not finished", *rest, "simulated"]
    told = ", ".join(f"{counts[word]} {word}" for word in sorted(counts, key=order.index))
    text = f"{plural(len(tests), 'test')}{': ' if told else ''}{told}"
    if (worst := _worst(tests)) is not None:
        test, verdict = worst
        name = dict(zip((t.nodeid for t in tests), labels([t.nodeid for t in tests]), strict=True))[test.nodeid]
        anchor = " (anchor)" if verdict.against == "anchor" else ""
        text += f"; worst: {verdict.metric} of {shortened(name)} {format_change(verdict.change)}{anchor}"
    well = all(test.verdict in _WELL and not failed_otherwise(test) and test.outcome != "unfinished" for test in tests)
    judged = any(test.verdict in ("pass", "improved") for test in tests)
    return printable(text), {"bold": True, **({"red": True} if not well else {"green": True} if judged else {})}


def _word(test: TestRecord) -> str:
    if test.outcome == "unfinished":
        return "not finished"
    if failed_otherwise(test):
        return "failed for another reason"
    word = verdict_word(test)
    return _WORDS.get(word, word)


def _worst(tests: Sequence[TestRecord]) -> tuple[TestRecord, VerdictRecord] | None:
    """The regression furthest beyond its tolerance; where nothing regressed, what is inconclusive likewise."""
    if (regressed := worst_regression(tests)) is not None:
        return regressed
    undecided = [(test, found) for test in tests if test.verdict == "inconclusive" and (found := deciding(test))]
    return max(undecided, key=lambda one: badness(one[1], better_of(one[0].metrics, one[1].metric)), default=None)


def common_cause(results: Results) -> tuple[str, int] | None:
    """In what the run differs from its baselines, and of how many tests that did not pass this is told.

    ``None`` where fewer than two tests tell it, or not all of them the same.
    """
    told = [cause for test in results.tests if test.verdict not in _WELL and (cause := _cause(test.explanation))]
    return (told[0], len(told)) if len(told) > 1 and len(set(told)) == 1 else None


def _cause(explanation: Sequence[str]) -> str | None:
    return next((match[1] for sentence in explanation if (match := _CAUSE.search(sentence))), None)


def without_cause(explanation: Sequence[str], cause: str) -> list[str]:
    """The sentences of an explanation without what is told of all tests at once."""
    kept = []
    for sentence in explanation:
        match = _CAUSE.search(sentence)
        left = sentence if match is None or match[1] != cause else sentence[: match.start()]
        if left:
            kept.append(left if left == sentence else f"{left}.")
    return kept
