"""Which conditions moved, and which part of the latency: numbers from a test's record, no words yet."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from pytest_llmperf.explanation.circumstances import boards_of
from pytest_llmperf.explanation.rules import PARTS, RULES
from pytest_llmperf.results import ConditionRecord, TestRecord

__all__ = ["EnergySplit", "Movement", "Part", "energy_split", "movements", "over_http", "parts"]

#: Metrics that hold one part of the latency only, and the parts that they hold.
_HOLDS = {
    "ttft": ("send_delay", "queue_time", "prefill_time", "client_overhead"),
    "tpot": ("decode_time",),
    "itl": ("decode_time",),
    "chunk_gap": ("decode_time",),
    "mbu": ("decode_time",),
}
#: Metrics of time or of its inverse that hold all of it.
_WHOLE = (
    "e2e_latency", "throughput", "total_throughput", "request_throughput", "goodput", "mfu", "roofline_efficiency",
)  # fmt: skip
#: A part that is less of what was added is not worth a word.
_WORTH_A_WORD = 0.1
#: Of energy, those that are the window's joules: power times time, each over the tokens.
_PRODUCTS = {"tpj": -1, "jpt": 1, "energy": 1}
_HTTP = ("openai", "serve")


@dataclass(frozen=True)
class Movement:
    """One condition in the baseline and now, medians over launches.

    Attributes:
        name: Of the condition.
        unit: Its unit.
        before: In the baseline.
        now: In this run.
        spread: How far the baseline's launches lie apart.
        moved: Whether it counts as moved.
    """

    name: str
    unit: str
    before: float
    now: float
    spread: float
    moved: bool

    @property
    def direction(self) -> str:
        """``"lower"`` or ``"higher"``."""
        return "lower" if self.now < self.before else "higher"


@dataclass(frozen=True)
class Part:
    """One part of a request's latency, in seconds.

    Attributes:
        name: Of the condition.
        before: In the baseline.
        now: In this run.
        share: Of everything that changed in the verdict's direction over all parts looked at, 0 to 1.
    """

    name: str
    before: float
    now: float
    share: float


@dataclass(frozen=True)
class EnergySplit:
    """Energy over the work done, as power times time; ratios to the baseline.

    Attributes:
        metric: Whose verdict it is.
        energy: Joules for the same work.
        power: Watts.
        time: Seconds for the same work.
        by_power: Power's share of the change, of logarithms; ``None`` when power and time went opposite ways.
    """

    metric: str
    energy: float
    power: float
    time: float
    by_power: float | None


def movements(test: TestRecord) -> list[Movement]:
    """Every condition that is known on both sides, in the order of the rules; the parts of the latency are not here."""
    found = []
    for name, rule in RULES.items():
        record = test.conditions.get(name)
        if record is None or record.value is None or record.baseline is None:
            continue
        if _of_board(name) and _other_board(test):
            continue
        difference = abs(record.value - record.baseline)
        least = rule.least * abs(record.baseline) if rule.relative else rule.least
        spread = _spread(record)
        # Readings come in steps: a difference of exactly the least one counts.
        moved = difference > spread and difference >= least * (1 - 1e-9) and difference > 0
        found.append(Movement(name, record.unit, record.baseline, record.value, spread, moved))
    return found


def parts(test: TestRecord, metrics: Collection[str], *, worse: bool = True) -> list[Part]:
    """The parts of the latency that moved in the verdict's direction, the one with the largest share first.

    Args:
        test: With its conditions.
        metrics: Whose verdicts are to be explained; a metric that holds one part of the latency asks for that alone.
        worse: Whether longer times are looked for, or shorter ones.
    """
    if test.search is not None or over_http(test) is not None:
        return []  # at another rate, or by other clocks: not like with like
    wanted = [name for name in PARTS if any(name in _parts_of(metric) for metric in metrics)]
    records = {name: test.conditions[name] for name in wanted if name in test.conditions}
    known = {
        name: (record, record.baseline, record.value)
        for name, record in records.items()
        if record.value is not None and record.baseline is not None
    }
    sign = 1 if worse else -1
    added = {name: max(0.0, sign * (now - before)) for name, (_, before, now) in known.items()}
    total = sum(added.values())
    found = [
        Part(name, before, now, added[name] / total)
        for name, (record, before, now) in known.items()
        if added[name] > _spread(record) and added[name] / total >= _WORTH_A_WORD and _visible(before, now)
    ]
    # Its own metric says that decoding moved: a longer queue beside it does not push it from the first place.
    decodes = any(_parts_of(metric) == ("decode_time",) for metric in metrics)
    return sorted(found, key=lambda part: (decodes and part.name != "decode_time", -part.share))


def energy_split(test: TestRecord, metrics: Collection[str]) -> EnergySplit | None:
    """Whether power or time made the joules; ``None`` where it cannot be told or no energy is asked for."""
    power = test.conditions.get("power")
    if power is None or power.value is None or not power.baseline or power.value <= 0 or _other_board(test):
        return None
    for verdict in test.verdicts:
        exponent = _PRODUCTS.get(verdict.metric) if verdict.against == "baseline" else None
        if exponent is None or verdict.metric not in metrics or not verdict.baseline or not verdict.current:
            continue
        energy = (verdict.current / verdict.baseline) ** exponent
        watts = power.value / power.baseline
        by_power, by_time = math.log(watts), math.log(energy / watts)
        whole = by_power + by_time
        together = by_power * by_time >= 0 and whole != 0
        return EnergySplit(verdict.metric, energy, watts, energy / watts, by_power / whole if together else None)
    return None


def over_http(test: TestRecord) -> bool | None:
    """Whether this run reached the engine over HTTP and the baseline did not (or the reverse: false); else ``None``."""
    before = (test.baseline_provenance or {}).get("engine")
    if test.engine is None or not isinstance(before, str):
        return None
    now = test.engine.kind in _HTTP
    return None if now == (before in _HTTP) else now


def _parts_of(metric: str) -> tuple[str, ...]:
    return tuple(PARTS) if metric in _WHOLE else _HOLDS.get(metric, ())


def _spread(record: ConditionRecord) -> float:
    return max(record.baseline_launches) - min(record.baseline_launches) if record.baseline_launches else 0.0


def _visible(before: float, now: float) -> bool:
    """Whether a change of a duration is more than rounding: 0.5 % of it, and a microsecond."""
    return abs(now - before) >= max(0.005 * max(before, now), 1e-6)


def _of_board(name: str) -> bool:
    """What differs between two boards of one product as much as between two conditions of one board."""
    return name in ("power", "temperature")


def _other_board(test: TestRecord) -> bool:
    now, before = boards_of(test.provenance), boards_of(test.baseline_provenance)
    return now is not None and before is not None and now != before
