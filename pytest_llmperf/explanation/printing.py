"""Derived verdicts as lines of at most 80 columns."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Sequence

from pytest_llmperf.explanation.derivation import DerivedTest, DerivedVerdict
from pytest_llmperf.report.units import format_change, format_value, printable, shortened
from pytest_llmperf.report.wording import plural
from pytest_llmperf.results import MetricValue

__all__ = ["WIDTH", "derived_lines", "ungated", "ungated_lines", "wrapped"]

WIDTH = 80


def wrapped(text: str, indent: int = 0, hanging: int = 2) -> list[str]:
    """Text without control characters, in lines of at most 80 columns."""
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + hanging),
        break_on_hyphens=False,
    ) or [""]  # fmt: skip


def ungated(test: DerivedTest) -> bool:
    """Whether there is nothing to say of a test but that nothing was gated."""
    said = test.verdicts or test.record.invalid or test.explanation.sentences
    return not said and not test.differs and test.record.verdict == "measured"


def ungated_lines(tests: int, of: int) -> list[str]:
    """Of all tests of which there is nothing else to say.

    Args:
        tests: How many they are.
        of: Tests of the run, more than one.
    """
    return wrapped(f"Nothing was gated in {'all' if tests == of else f'{tests} of'} {plural(of, 'test')}.")


def derived_lines(test: DerivedTest) -> Iterator[str]:
    """One test: every verdict with the numbers it stands on, and what moved with it."""
    record = test.record
    yield from wrapped(f"{record.verdict}: {shortened(record.nodeid)}")
    if record.verdict != test.verdict:
        yield from wrapped(f"DIFFERS: the test is stored as {record.verdict}, derived as {test.verdict}", 2)
    for contradiction in test.contradictions:
        yield from wrapped(f"DIFFERS: {contradiction}", 2)
    if record.invalid:
        yield from wrapped(f"The measurement cannot be trusted: {record.invalid}", 2)
    for verdict in test.verdicts:
        yield from _verdict(verdict, record.metrics.get(verdict.stored.metric))
    for sentence in test.explanation.sentences:
        yield from wrapped(sentence, 2)
    if not test.verdicts and not record.invalid:
        yield from wrapped("Nothing was gated.", 2)


def _verdict(derived: DerivedVerdict, metric: MetricValue | None) -> Iterator[str]:
    stored = derived.stored
    unit = metric.unit if metric is not None else ""
    head = f"{stored.metric}: {stored.verdict}"
    against = stored.against
    if against != "baseline":
        head += f" (against the {against})"
    if derived.again is not None and stored.change is None and stored.current is not None:
        yield from wrapped(f"{head}: {stored.current:.4g}, tolerance {stored.tolerance:g}", 2, 4)
    elif stored.change is None or derived.again is None:
        yield from wrapped(f"{head}: not derived: {derived.reason}", 2, 4)
    else:
        yield from wrapped(
            f"{head}: {format_value(stored.baseline, unit)} in the {against}, "
            f"{format_value(stored.current, unit)} now: {format_change(stored.change)}{_interval(derived)}, "
            f"tolerance {stored.tolerance:.1%}",
            2,
            4,
        )
        now = [] if metric is None else metric.launches[: stored.launches or None]
        yield from wrapped(_launches(against, stored.baseline_launches, unit), 6)
        yield from wrapped(_launches("now", now, unit), 6)
        for line in _statistics(derived):
            yield from wrapped(line, 6)
    if derived.differs:
        yield from wrapped(f"DIFFERS: {derived.differs}", 6)
    if stored.advice:
        yield from wrapped(stored.advice, 6)


def _interval(derived: DerivedVerdict) -> str:
    interval = derived.stored.interval
    if interval is None:
        return ""
    kind = "prediction interval" if derived.stored.prediction else "interval"
    return f" ({kind} {format_change(interval[0])} to {format_change(interval[1])})"


def _launches(side: str, launches: Sequence[Sequence[float]], unit: str) -> str:
    values = ", ".join(format_value(statistics.median(launch), unit) for launch in launches if launch)
    return f"{side}, {len(launches)} launch{'' if len(launches) == 1 else 'es'}: {values or 'none'}"


def _statistics(derived: DerivedVerdict) -> Iterator[str]:
    stored = derived.stored
    noise = stored.noise
    if noise is not None:
        text = f"noise between launches {noise.sd:.2%} with {noise.df:.0f} degrees of freedom"
        if noise.source == "pooled":
            yield f"{text}, pooled over {noise.tests} other tests"
        else:
            yield f"{text}, of this test alone"
    if stored.alpha is not None:
        looks = f", {stored.looks} look{'' if stored.looks == 1 else 's'} made" if stored.looks is not None else ""
        yield f"error rate of this comparison {stored.alpha:.2g}{looks}"
    if stored.minimum_detectable is not None:
        yield f"a worsening from {stored.minimum_detectable:.1%} on would have been called regressed"
