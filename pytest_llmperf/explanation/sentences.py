"""What moved with a verdict, in sentences: first the part of the latency and what went with it, then the rest.

That two things moved together says nothing of cause, and no sentence does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_llmperf.explanation.circumstances import under_test
from pytest_llmperf.explanation.movement import (
    EnergySplit,
    Movement,
    Part,
    energy_split,
    movements,
    over_http,
    parts,
)
from pytest_llmperf.explanation.rules import CONSEQUENCES, ESSENTIAL, GROUPS, OF_SERVERS, PARTS, RULES
from pytest_llmperf.report.units import format_value
from pytest_llmperf.report.wording import against
from pytest_llmperf.results import TestRecord, VerdictRecord

__all__ = ["Explanation", "explain"]

#: Verdicts that ask for an explanation, the more urgent first; a test is explained by the first that it holds.
_EXPLAINED = ("regressed", "inconclusive", "improved")
#: Causes that are told together with the SM clock.
_HOLDS_BACK = {"power_cap_share": "the power cap", "thermal_share": "heat", "other_throttle_share": "another limit"}
_DECODES = ("tpot", "itl", "chunk_gap")
#: A change of the engine's own decode time, of power or of time below this is none, beside one that a gate sees.
_AS_BEFORE = 0.01


@dataclass(frozen=True)
class Explanation:
    """What moved with a test's verdict.

    Attributes:
        verdict: Which verdict it is about; ``None`` when the test has none that asks for it.
        metrics: Whose.
        parts: Of the latency, those that moved in its direction.
        energy: Power and time, when joules are asked for.
        moved: Conditions that moved.
        still: Those that did not.
        unknown: Why an important condition is not known, by its name.
        under_test: In what engine, arguments, driver and board differ from the baseline's; ``None``: not known.
        sentences: All this in words, by weight.
    """

    verdict: str | None
    metrics: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    energy: EnergySplit | None = None
    moved: tuple[Movement, ...] = ()
    still: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    under_test: tuple[str, ...] | None = None
    sentences: tuple[str, ...] = ()


def explain(test: TestRecord) -> Explanation:
    """What moved with a test's verdict, from its record alone; without sentences when nothing asks for them.

    Args:
        test: Its record, which holds the baseline's conditions and provenance beside the run's.
    """
    # What engines answered has no launches and no change: nothing of a latency moves with it.
    # Nor does anything move with a change that may be none.
    compared = [
        one for one in test.verdicts if one.against == "baseline" and one.change is not None and not _may_be_none(one)
    ]
    verdict = next((v for v in _EXPLAINED if any(one.verdict == v for one in compared)), None)
    if test.invalid is not None:
        return Explanation(None)
    if verdict != "regressed" and (drifted := _drifted(test)):
        return Explanation("regressed", sentences=(drifted,))
    if verdict is None:
        return Explanation(None)
    verdicts = [one for one in compared if one.verdict == verdict and one.change is not None]
    metrics = tuple(one.metric for one in verdicts)
    # An inconclusive change may point either way: it is explained in the direction in which it points.
    worse = verdict != "improved" and not _points_to_better(test, metrics)
    conditions = movements(test)
    moved = tuple(m for m in conditions if m.moved)
    found = Explanation(
        verdict,
        metrics,
        tuple(parts(test, metrics, worse=worse)),
        energy_split(test, metrics),
        moved,
        tuple(m.name for m in conditions if not m.moved),
        tuple(_unknown(test)),
        None if (differences := under_test(test)) is None else tuple(differences),
    )
    return Explanation(**{**vars(found), "sentences": tuple(_sentences(test, found, worse))})


def _may_be_none(verdict: VerdictRecord) -> bool:
    """Whether what an inconclusive verdict stands on leaves open that nothing changed."""
    return (
        verdict.verdict == "inconclusive"
        and verdict.interval is not None
        and min(verdict.interval) <= 0 <= max(verdict.interval)
    )


def _drifted(test: TestRecord) -> str | None:
    """That it regressed from its anchor, as a sentence; ``None`` when it did not."""
    anchored = [one for one in test.verdicts if one.verdict == "regressed" and one.against == "anchor"]
    if not anchored:
        return None
    return f"It has become worse since {against(anchored[0])}: beside the anchor no conditions are kept."


def _points_to_better(test: TestRecord, metrics: Collection[str]) -> bool:
    changes = [
        one.change if test.metrics[one.metric].better == "lower" else -one.change
        for one in test.verdicts
        if one.metric in metrics and one.change is not None and one.metric in test.metrics
    ]
    return bool(changes) and sum(changes) < 0


def _unknown(test: TestRecord) -> list[tuple[str, str]]:
    if test.workload is None:
        return []  # nothing was sent, and no condition of a load was there to be known
    served = test.engine is not None and test.engine.kind in ("openai", "serve")
    found = []
    for name in (*ESSENTIAL, *(OF_SERVERS if served else ())):
        record = test.conditions.get(name)
        if record is None:
            found.append((name, "it was not recorded"))
        elif record.value is None:
            found.append((name, record.reason or "not measured"))
        elif record.baseline is None:
            found.append((name, "the baseline does not hold it"))
    return found


def _sentences(test: TestRecord, found: Explanation, worse: bool) -> list[str]:
    lead = _lead(test, found, worse)
    known = {part.name for part in found.parts} | ({"power"} if found.energy is not None else set())
    moved = [m for m in found.moved if m.name not in known]
    goes = [m for m in moved if _goes_with(m, lead, found, worse)]
    beside = _beside(test, found, goes)
    under = f"under test: {'; '.join(found.under_test)}" if found.under_test else None
    sentences = []
    if lead:
        first, *rest = lead
        if beside:
            first += f"; with it {_clause(test, beside)}"
        elif under:
            first, under = f"{first}; {under}", None
        sentences = [f"{_capital(text)}." for text in (first, *rest)]
    also = [m for m in goes if m not in beside]
    otherwise = [m for m in moved if m not in goes]
    if also:
        sentences.append(f"Also with it: {'; '.join(_change(m) for m in also)}.")
    if otherwise:
        sentences.append(f"Different as well: {'; '.join(_change(m) for m in otherwise)}.")
    if lead and not moved and not found.under_test and test.workload is not None:
        sentences.append("Of what was recorded, nothing else moved with it.")
    if under:
        sentences.append(f"{_capital(under)}.")
    if (crossed := over_http(test)) is not None:
        now, before = ("over HTTP", "in process") if crossed else ("in process", "over HTTP")
        sentences.append(f"The parts of the latency were measured {now}, in the baseline {before}: not like with like.")
    return [*sentences, *_unmoved(found), *_not_known(found)]


def _beside(test: TestRecord, found: Explanation, goes: Sequence[Movement]) -> list[Movement]:
    """What is told in the first sentence: the clock and what held it back, which are one thing; else one condition."""
    clock = [m for m in goes if m.name == "sm_clock" or m.name in _HOLDS_BACK]
    if clock and "sm_clock" not in found.still:
        return clock
    # A limit that took nothing from the clock comes after what else there is. A part of the latency that is told here
    # was too small to be told as one, and the repeats of a slower engine may well differ more.
    follows = CONSEQUENCES | PARTS.keys() | {"repeat_spread"}
    follows |= {"batch_occupancy"} if _piles_up(test, found) else set()
    return [m for m in goes if m not in clock and m.name not in follows][:1]


def _piles_up(test: TestRecord, found: Explanation) -> bool:
    """Whether more requests run just for each taking longer: they come at a rate of their own (Little's law)."""
    workload = test.workload or {}
    own_rate = bool(workload.get("rate") or workload.get("trace"))
    return own_rate and bool(found.parts) and found.parts[0].name == "decode_time"


def _lead(test: TestRecord, found: Explanation, worse: bool) -> list[str]:
    """What moved itself: the parts of the latency, then power and time."""
    told = _part_sentences(found.parts, worse)
    if not told:
        told = _metric_sentences(test, found, worse)
    energy = [_energy_sentence(found.energy)] if found.energy is not None else []
    return [*told, *energy]


def _part_sentences(moved: Sequence[Part], worse: bool) -> list[str]:
    if not moved:
        return []
    first = _part(moved[0], worse)
    if len(moved) == 1:
        return [first]
    changed = "added to" if worse else "saved of"
    more = ", ".join(f"{part.share:.0%} in {_with_times(part)}" for part in moved[1:])
    return [f"{first}, {moved[0].share:.0%} of what was {changed} a request", f"of the rest, {more}"]


def _with_times(part: Part) -> str:
    return f"{PARTS[part.name]} (from {format_value(part.before, 's')} to {format_value(part.now, 's')})"


def _part(part: Part, worse: bool) -> str:
    times = f"(from {format_value(part.before, 's')} to {format_value(part.now, 's')} a request)"
    title = PARTS[part.name]
    if part.name in ("decode_time", "prefill_time") and part.before > 0:
        return f"{title} is {_percent(part.now / part.before - 1)} {'slower' if worse else 'faster'} {times}"
    difference = format_value(abs(part.now - part.before), "s")
    return f"{title} takes {difference} {'longer' if worse else 'less'} {times}"


def _metric_sentences(test: TestRecord, found: Explanation, worse: bool) -> list[str]:
    """Where no part of the latency is known to have moved: what the metric itself says."""
    by_name = {v.metric: v for v in test.verdicts if v.metric in found.metrics and v.change is not None}
    word = "slower" if worse else "faster"
    for name in _DECODES:
        if name in by_name:
            verdict = by_name[name]
            values = f"({name.upper() if name != 'chunk_gap' else name} from {format_value(verdict.baseline, 's')} to "
            values += f"{format_value(verdict.current, 's')})"
            text = f"decode is {_percent(verdict.change or 0.0)} {word} {values}"
            if _engine_decodes_as_before(test):
                text += " as the client saw it, and as in the baseline by the engine's own account"
            return [text]
    if "ttft" in by_name:
        verdict = by_name["ttft"]
        word = "later" if worse else "earlier"
        values = f"(from {format_value(verdict.baseline, 's')} to {format_value(verdict.current, 's')})"
        return [f"the first token came {_percent(verdict.change or 0.0)} {word} {values}, in no part that is known"]
    if found.energy is not None or not by_name:
        return []
    name, verdict = next(iter(by_name.items()))
    unit = test.metrics[name].unit if name in test.metrics else ""
    values = f"from {format_value(verdict.baseline, unit)} to {format_value(verdict.current, unit)}"
    partless = test.search is not None or test.workload is None
    where = "" if partless or name in ("power", "memory_used") else ", in no part that is known"
    return [f"{name} went {values}{where}"]


def _engine_decodes_as_before(test: TestRecord) -> bool:
    record = test.conditions.get("decode_time")
    if record is None or not record.value or not record.baseline or over_http(test) is not None:
        return False
    return abs(record.value / record.baseline - 1) < _AS_BEFORE


def _energy_sentence(split: EnergySplit) -> str:
    what = "energy for the same work" if split.metric == "energy" else "energy a token"
    text = f"{what} is {_percent(split.energy - 1)} {_more(split.energy)}"
    factors = [
        ("power", split.power, _more(split.power), split.by_power),
        ("time", split.time, "longer" if split.time >= 1 else "shorter", _rest(split.by_power)),
    ]
    moved = [factor for factor in factors if abs(factor[1] - 1) >= _AS_BEFORE]
    words = [f"{name} {_percent(ratio - 1)} {direction}" for name, ratio, direction, _ in moved]
    if len(moved) < 2:
        same = [name for name, ratio, *_ in factors if abs(ratio - 1) < _AS_BEFORE]
        return f"{text}: {', '.join(words)}{', ' if words else ''}{' and '.join(same)} as in the baseline"
    if split.by_power is None:
        return f"{text}: {', '.join(words)}"
    shares = sorted(zip(words, (share or 0.0 for *_, share in moved), strict=True), key=lambda entry: -entry[1])
    return f"{text}: " + " and ".join(f"{told} ({share:.0%} of it)" for told, share in shares)


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _goes_with(movement: Movement, lead: Sequence[str], found: Explanation, worse: bool) -> bool:
    if not lead:
        return False
    slower = RULES[movement.name].slower
    if found.energy is not None and not found.parts:
        # More joules go with more power as well as with more time, and so with either direction of a clock.
        return movement.name != "power"
    if slower is None:
        return movement.name == "batch_occupancy"
    return (movement.direction == slower) == worse


def _clause(test: TestRecord, beside: Sequence[Movement]) -> str:
    limits = [m for m in beside if m.name in _HOLDS_BACK]
    shares = [f"{_HOLDS_BACK[m.name]} for {m.now:.0%} of the time ({m.before:.0%} in the baseline)" for m in limits]
    if beside[0].name != "sm_clock":
        return f"the clock was held back by {' and by '.join(shares)}" if limits else _change(beside[0], was=True)
    text = _change(beside[0], was=True)
    if limits:
        return f"{text}, held back by {' and by '.join(shares)}"
    known = [test.conditions.get(name) for name in ("power_cap_share", "thermal_share")]
    if all(record is not None and record.value == 0 for record in known):
        return f"{text}, held back by neither the power cap nor heat"
    return text


def _change(movement: Movement, *, was: bool = False) -> str:
    rule = RULES[movement.name]
    before, now = (_value(movement, value) for value in (movement.before, movement.now))
    verb = "was " if was else ""
    title = rule.title if was else rule.title.removeprefix("the ")
    if rule.relative and movement.before:
        by = _percent(movement.now / movement.before - 1)
        return f"{title} {verb}{by} {movement.direction} ({now}, {before} in the baseline)"
    return f"{title} {verb}{movement.direction} ({now}, {before} in the baseline)"


def _value(movement: Movement, value: float) -> str:
    if movement.name == "preemptions":
        return f"{value:g}"
    if movement.unit == "requests":
        return f"{value:.3g}"
    if movement.name == "temperature":
        return f"{value:.0f} °C"
    if movement.unit == "1":
        return f"{value:.1%}"
    return format_value(value, movement.unit)


def _unmoved(found: Explanation) -> list[str]:
    moved = {m.name for m in found.moved}
    titles = []
    for group, names in GROUPS.items():
        still = [name for name in names if name in found.still]
        if still and not moved.intersection(names):
            alone = len(still) < len(names) and len(still) == 1
            titles.append(RULES[still[0]].title.removeprefix("the ") if alone else group)
    if found.under_test == ():
        titles += ["engine", "arguments"]
    return [f"As in the baseline: {_listed(titles)}."] if titles else []


def _not_known(found: Explanation) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in found.unknown:
        reasons.setdefault(reason, []).append(RULES[name].title.removeprefix("the "))
    if found.under_test is None:
        reasons.setdefault("the baseline's provenance is not recorded", []).append("engine and arguments")
    told = [f"{_listed(titles)} ({reason})" for reason, titles in reasons.items()]
    return [f"Unknown: {'; '.join(told)}."] if told else []


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _percent(change: float) -> str:
    return f"{abs(change) * 100:.1f} %"


def _more(ratio: float) -> str:
    return "higher" if ratio >= 1 else "lower"


def _capital(text: str) -> str:
    """The beginning of a sentence; a metric's name (``copy_bandwidth``) stays as it is written everywhere."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]
