"""What the terminal, the page and the summary say in the same words."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pytest_llmperf.report.commands import item_of, saving
from pytest_llmperf.report.units import format_change, format_value, percent, shortened
from pytest_llmperf.results import WORST_FIRST, Engine, Results, TestRecord, VerdictRecord

__all__ = [
    "acceptance",
    "against",
    "badness",
    "better_of",
    "by_kind",
    "by_word",
    "echoed",
    "engine_name",
    "evidence",
    "failed_otherwise",
    "format_interval",
    "format_tolerance",
    "improved",
    "judged",
    "launches_used",
    "likewise",
    "plural",
    "serving_engines",
    "short_name",
    "under_test",
    "unit_of",
    "value_of",
    "values",
    "verdict_word",
    "worst_regression",
]

#: So many tests are named in the command that accepts their improvements; of more it runs all.
_NAMED = 5
#: As many characters as their names may have together there.
_COMMAND = 1000
#: TPOT and MBU changed by inverse ratios where the logarithms of these add up to less.
_SAME = 0.005
#: Texts that begin with so many equal characters, but for their figures, are of one kind.
_SAME_KIND = 40


def engine_name(engine: Engine) -> str:
    """``"vllm 0.23.0"``; of a simulated one its name: ``"sim:h200"``."""
    return engine.version if engine.version.startswith(f"{engine.kind}:") else f"{engine.kind} {engine.version}"


def serving_engines(tests: Iterable[TestRecord]) -> list[Engine]:
    """The engines that served requests; what measures a device by itself stands in an engine's place and is none."""
    return [test.engine for test in tests if test.engine is not None and test.engine.kind != "hardware"]


def under_test(tests: Iterable[TestRecord], most: int = 2) -> list[str]:
    """The different sets of engine arguments under test, as JSON, and of how many tests where not of all.

    Args:
        tests: Of the run.
        most: So many are told; of more their number.
    """
    given = [t.engine.treatment for t in tests if t.engine is not None and t.engine.kind != "hardware"]
    counts = Counter(json.dumps(treatment, default=str, ensure_ascii=False) for treatment in given if treatment)
    told = [
        text if count == len(given) else f"{text} in {count} of {plural(len(given), 'test')}"
        for text, count in counts.items()
    ]
    more = len(told) - most
    return [*told[:most], *([f"{more} more"] if more > 0 else [])]


def plural(count: int, noun: str, plural: str = "") -> str:
    """``"1 launch"``, ``"3 launches"``.

    Args:
        count: How many.
        noun: Of one.
        plural: Of several, where it is not made with an s or, after ch, es.
    """
    many = plural or noun + ("es" if noun.endswith("ch") else "s")
    return f"{count} {noun if count == 1 else many}"


def short_name(nodeid: str) -> str:
    """A test's id without its file, as long as a sentence can hold it."""
    return shortened(nodeid.partition("::")[2] or nodeid)


def format_interval(interval: Sequence[float] | None) -> str:
    """An interval of a relative change: ``"+6.1 to +8.4 %"``."""
    if interval is None:
        return "-"
    low, high = interval
    return f"{percent(low)} to {percent(high)} %"


def format_tolerance(tolerance: float, better: str) -> str:
    """A tolerance is a ratio in the direction of worse: 5 % more time, or 1/1.05 of the throughput."""
    limit = f"{tolerance * 100:.1f} %"
    if better == "lower" or tolerance <= -1:
        return limit
    return f"{limit} (down to {format_change(1 / (1 + tolerance) - 1)})"


def unit_of(metrics: Mapping[str, object], name: str) -> str:
    """The unit of a metric of a test; a ratio where the record does not hold it (agreement of answers)."""
    return _entry(metrics, name, "unit", "1")


def better_of(metrics: Mapping[str, object], name: str) -> str:
    """Which direction of a metric is the better one; likewise."""
    return _entry(metrics, name, "better", "higher")


def _entry(metrics: Mapping[str, object], name: str, key: str, default: str) -> str:
    metric = metrics.get(name)
    found = getattr(metric, key, None)
    if found is None and isinstance(metric, Mapping):
        found = metric.get(key)
    return default if found is None else str(found)


def verdict_word(test: TestRecord) -> str:
    """A test's verdict; what a simulated engine computed is nowhere called measured."""
    return "simulated" if test.verdict == "measured" and test.engine and test.engine.simulated else test.verdict


def by_word(tests: Sequence[TestRecord]) -> dict[str, int]:
    """How many tests have which verdict, the worst first."""
    words = [verdict_word(test) for test in sorted(tests, key=lambda test: WORST_FIRST.index(test.verdict))]
    return {word: words.count(word) for word in dict.fromkeys(words)}


def against(verdict: VerdictRecord) -> str:
    """What it was compared with: ``"the baseline"``, or ``"the anchor of 2026-03-01"``."""
    date = f" of {verdict.saved_at[:10]}" if verdict.saved_at else ""
    return f"the anchor{date}" if verdict.against == "anchor" else f"the baseline{date}"


def values(verdict: VerdictRecord, unit: str) -> str:
    """Both values: ``"4.824 ms in the baseline, 5.789 ms now"``."""
    place = "in the baseline" if verdict.against == "baseline" else f"in {against(verdict)}"
    return f"{format_value(verdict.baseline, unit)} {place}, {format_value(verdict.current, unit)} now"


def evidence(verdict: VerdictRecord, better: str) -> str:
    """On what a verdict stands: ``"+7.2 % (+6.1 to +8.4 %), tolerance 5.0 %, 3 launches against 5"``.

    With one launch against several the interval is a prediction interval, and that is said.
    """
    change = format_change(verdict.change)
    if verdict.interval is not None:
        change += f" ({format_interval(verdict.interval)})"
    # Against an anchor the tolerance is the budget of all changes since then.
    word = "budget" if verdict.against == "anchor" else "tolerance"
    parts = [change, f"{word} {format_tolerance(verdict.tolerance, better)}"]
    if verdict.launches:
        count = f"{plural(verdict.launches, 'launch')} against {len(verdict.baseline_launches)}"
        parts.append(f"{count} (prediction interval)" if verdict.prediction else count)
    return ", ".join(parts)


def badness(verdict: VerdictRecord, better: str) -> float:
    """How many times its tolerance a value became worse, on the log scale; negative when it became better.

    To a tenth, so that of two metrics that say the same, such as TPOT and MBU, the one listed first counts.
    """
    if verdict.change is None or verdict.change <= -1:
        return 0.0
    worse = math.log1p(verdict.change) * (1 if better == "lower" else -1)
    return round(worse / max(math.log1p(max(verdict.tolerance, 0.0)), 1e-9), 1)


def worst_regression(tests: Iterable[TestRecord]) -> tuple[TestRecord, VerdictRecord] | None:
    """The regressed metric that is furthest beyond its tolerance, with its test."""
    regressed = [(test, verdict) for test in tests for verdict in test.verdicts if verdict.verdict == "regressed"]
    return max(regressed, key=lambda one: badness(one[1], better_of(one[0].metrics, one[1].metric)), default=None)


def value_of(test: TestRecord, name: str) -> float | None:
    """The value of a metric that stands beside its change: that of the launches on which the verdict stands.

    Where there is no verdict against the baseline, the median over all launches; ``None`` where there is no value.
    """
    judged_by = next((v for v in test.verdicts if v.metric == name and v.against == "baseline"), None)
    if judged_by is not None and judged_by.current is not None:
        return judged_by.current
    metric = test.metrics.get(name)
    return None if metric is None else metric.value


def improved(test: TestRecord) -> VerdictRecord | None:
    """Of a test that passes, the metric that improved most; ``None`` where none did, or another one failed."""
    if test.verdict not in ("pass", "improved") or failed_otherwise(test):
        return None
    better = [verdict for verdict in test.verdicts if verdict.verdict == "improved" and verdict.against == "baseline"]
    return min(better, key=lambda verdict: badness(verdict, better_of(test.metrics, verdict.metric)), default=None)


def acceptance(results: Results) -> tuple[str, str] | None:
    """How improvements become the baseline: a sentence, and the command; ``None`` where nothing improved.

    It is for a person to decide, and no run does it by itself.
    """
    better = list(dict.fromkeys(item_of(test.nodeid) for test in results.tests if improved(test) is not None))
    if not better:
        return None
    few = better if len(better) <= _NAMED and len(" ".join(better)) <= _COMMAND else []
    what = "all tests of this run" if not few else "this test" if len(few) == 1 else "these tests"
    said = f"Improvements change no baseline. To accept them, measure {what} again and store:"
    return said, saving(results.run.command, few)


def echoed(verdicts: Iterable[VerdictRecord]) -> VerdictRecord | None:
    """The verdict on MBU where it says of the same time what that on TPOT says; ``None`` where it adds to it.

    A step of decoding reads so many bytes, so MBU is a constant over TPOT as long as these do not change.
    """
    of = {verdict.metric: verdict for verdict in verdicts if verdict.against == "baseline"}
    tpot, mbu = of.get("tpot"), of.get("mbu")
    if tpot is None or mbu is None or tpot.verdict != mbu.verdict or tpot.change is None or mbu.change is None:
        return None
    if min(tpot.change, mbu.change) <= -1 or abs(math.log1p(tpot.change) + math.log1p(mbu.change)) > _SAME:
        return None
    return mbu


def failed_otherwise(test: TestRecord) -> bool:
    """Whether a test failed for another reason than its verdict."""
    return test.outcome == "failed" and test.verdict in ("pass", "improved", "measured")


def launches_used(results: Results) -> float | None:
    """How many launches a test took on average; ``None`` when nothing was measured."""
    counts = [max((len(metric.launches) for metric in test.metrics.values()), default=0) for test in results.tests]
    counts = [count for count in counts if count]
    return sum(counts) / len(counts) if counts else None


def judged(results: Results) -> str | None:
    """How a run was judged, in one line; ``None`` when nothing was gated."""
    gate = results.gate
    if gate is None or not any(verdict.looks for test in results.tests for verdict in test.verdicts):
        return None
    text = plural(gate.gated, "comparison")
    if gate.family_alpha > 0:
        runs = math.floor(1 / gate.family_alpha + 1e-9)
        text += f"; an unchanged engine is called regressed in at most 1 run of {runs}"
    if used := launches_used(results):
        text += f"; launches used {used:.1f} on average, of {gate.launches} at most"
    return text


def likewise(others: int, noun: str = "more test") -> str:
    """Of how many more the sentence before is true but for its figures: ``"The same, ... holds for 7 more tests."``."""
    return f"The same, with other figures, holds for {plural(others, noun)}."


def by_kind(texts: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
    """The first text of each kind, and how many others differ in their figures only.

    Args:
        texts: What tells kinds apart (it may be the text itself), and the text.
    """
    kinds: dict[str, list[str]] = {}
    for kind, text in texts:
        kinds.setdefault(re.sub(r"[\d.,+-]+", "#", kind)[:_SAME_KIND], []).append(text)
    return [(alike[0], len(alike) - 1) for alike in kinds.values()]
