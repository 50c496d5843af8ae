"""Every verdict of a run derived again from its record alone, and whether it is the one that was stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.explanation.contradictions import contradictions, same, told, tolerance_differs
from pytest_llmperf.explanation.sentences import Explanation, explain
from pytest_llmperf.explanation.statistics import again
from pytest_llmperf.fingerprint import DEFINITIONS
from pytest_llmperf.gate import PASSING, Comparison, worst
from pytest_llmperf.report.units import shortened
from pytest_llmperf.results import Results, TestRecord, VerdictRecord

__all__ = ["DerivedTest", "DerivedVerdict", "chosen", "derive", "plain"]

#: Verdicts that launches were compared for.
_DECIDED = ("pass", "regressed", "improved", "inconclusive")
#: Of a verdict, what has to be drawn again as it is stored.
_NUMBERS = (
    "baseline", "current", "change", "interval", "alpha", "looks", "launches", "minimum_detectable", "prediction",
)  # fmt: skip
_OF_NOISE = ("sd", "df", "own_sd", "own_df", "source")


@dataclass(frozen=True)
class DerivedVerdict:
    """One verdict of a test, drawn again.

    Attributes:
        stored: As the record holds it.
        again: As it is drawn from the record's launches; ``None`` when there is nothing to draw.
        reason: Why there is nothing to draw.
        differs: In what the two differ, in words; ``None`` when they agree.
    """

    stored: VerdictRecord
    again: Comparison | None
    reason: str | None = None
    differs: str | None = None


@dataclass(frozen=True)
class DerivedTest:
    """One test.

    Attributes:
        record: Of the run.
        verdicts: In its order.
        verdict: The worst of them, or ``"invalid"`` or ``"measured"``.
        explanation: What moved.
        contradictions: In what the record contradicts itself beside its verdicts, in words.
    """

    record: TestRecord
    verdicts: tuple[DerivedVerdict, ...]
    verdict: str
    explanation: Explanation
    contradictions: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything that is stored is not what follows from the record."""
        verdicts = self.verdict != self.record.verdict or any(one.differs for one in self.verdicts)
        return verdicts or bool(self.contradictions)

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "nodeid": self.record.nodeid,
            "stored": self.record.verdict,
            "derived": self.verdict,
            "differs": self.differs,
            "contradictions": list(self.contradictions),
            "verdicts": [
                {
                    **one.stored.model_dump(mode="json"),
                    "launches_now": self._launches(one),
                    "derived": None if one.again is None else plain(asdict(one.again)),
                    "not_derived": one.reason,
                    "differs": one.differs,
                }
                for one in self.verdicts
            ],
            "explanation": asdict(self.explanation),
        }

    def _launches(self, verdict: DerivedVerdict) -> list[list[float]]:
        metric = self.record.metrics.get(verdict.stored.metric)
        return [] if metric is None else metric.launches


def chosen(results: Results, test: str | None) -> list[TestRecord]:
    """The tests that are meant, the worst first.

    Args:
        results: Of the run.
        test: A test's id, or a part of some; ``None`` for all.

    Raises:
        ResultsError: the run has no such test.
    """
    tests = results.worst_first()
    if test is None:
        return tests
    found = [one for one in tests if one.nodeid == test] or [one for one in tests if test in one.nodeid]
    if not found:
        names = ", ".join(shortened(one.nodeid) for one in tests[:3]) or "none at all"
        raise ResultsError(
            f"The run has no test whose id is or contains {shortened(test)!r}.",
            remedy=f"It has {len(tests)}, the first of which: {names}.",
        )
    return found


def derive(test: TestRecord, results: Results) -> DerivedTest:
    """Draw a test's verdicts again.

    Args:
        test: Its record.
        results: Of the run, for the error rates.
    """
    verdicts = tuple(_derived(one, test, results) for one in test.verdicts)
    return DerivedTest(test, verdicts, _of_test(test, verdicts), explain(test), contradictions(test, results))


def _of_test(test: TestRecord, verdicts: Sequence[DerivedVerdict]) -> str:
    if test.invalid is not None:
        return "invalid"
    if not verdicts:
        # Without verdicts a gated test would have no baseline, and would say so.
        return test.verdict if test.verdict == "no-baseline" else "measured"
    drawn = [(one.stored.metric, (one.stored if one.again is None else one.again).verdict) for one in verdicts]
    # Answers can spoil a verdict, and never make one.
    return worst(verdict for metric, verdict in drawn if metric not in DEFINITIONS or verdict not in PASSING)


def _derived(stored: VerdictRecord, test: TestRecord, results: Results) -> DerivedVerdict:
    drawn = _drawn(stored, test, results)
    return drawn if drawn.differs else replace(drawn, differs=tolerance_differs(stored, test))


def _drawn(stored: VerdictRecord, test: TestRecord, results: Results) -> DerivedVerdict:
    if (of_answers := _of_answers(stored)) is not None:
        return DerivedVerdict(stored, of_answers, None, _difference(stored, of_answers, ("baseline", "current")))
    if stored.verdict not in _DECIDED and not _compared(stored):
        return DerivedVerdict(stored, None, stored.reason or "nothing was compared")
    metric = test.metrics.get(stored.metric)
    if metric is None:
        return DerivedVerdict(stored, None, "the record does not hold the metric", "the metric is missing")
    if results.gate is None and not _compared(stored):
        return DerivedVerdict(stored, None, "it was recorded by a version that did not keep error rates")
    rules = None if results.gate is None else results.gate.model_dump()
    try:
        drawn = again(stored, rules, metric)
    except ValueError as error:
        return DerivedVerdict(stored, None, str(error), f"stored as {stored.verdict}, which does not follow: {error}")
    return DerivedVerdict(stored, drawn, None, _difference(stored, drawn, _NUMBERS) or _of_noise(stored, drawn))


def _compared(stored: VerdictRecord) -> bool:
    """Whether a verdict holds anything of the statistics, as none does for which no launches were compared."""
    return any(found is not None for found in (stored.alpha, stored.looks, stored.noise))


def _of_answers(stored: VerdictRecord) -> Comparison | None:
    """What engines answered is held to its tolerance as it is; ``None`` of any other metric."""
    if stored.verdict not in _DECIDED or stored.current is None or stored.metric not in DEFINITIONS:
        return None
    # The share that agrees, or what is to stay below the tolerance; the last bit of a division does not decide.
    beyond = 1 - stored.current - 1e-9 if stored.metric == "token_agreement" else stored.current
    verdict = "pass" if beyond <= stored.tolerance else "regressed"
    return Comparison(stored.metric, verdict, stored.tolerance, stored.baseline, stored.current, stored.change)


def _difference(stored: VerdictRecord, drawn: Comparison, names: Sequence[str]) -> str | None:
    if stored.verdict != drawn.verdict:
        return f"stored as {stored.verdict}, derived as {drawn.verdict}"
    for name in names:
        before, now = getattr(stored, name), getattr(drawn, name)
        if not same(before, now):
            return f"its {name} is stored as {told(before)} and derived as {told(now)}"
    return None


def _of_noise(stored: VerdictRecord, drawn: Comparison) -> str | None:
    if stored.noise is None and drawn.noise is None:
        return None
    if stored.noise is None or drawn.noise is None:
        return "only one of the stored and the derived verdict knows the noise"
    for name in _OF_NOISE:
        before, now = getattr(stored.noise, name), getattr(drawn.noise, name)
        if not same(before, now):
            return f"its noise.{name} is stored as {told(before)} and derived as {told(now)}"
    return None


def plain(value: Any) -> Any:
    """JSON types, with nothing that strict JSON cannot hold."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
