"""The verdicts of a session: which comparisons there are, with what noise, and when a test is decided."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmperf import baselines
from pytest_llmperf.baselines import Baseline, Identity
from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.gate import Comparison, Noise, NoisePool, Rules, Series, below_noise, compare, logs
from pytest_llmperf.measurement import BaseMeasurement
from pytest_llmperf.metrics import HARDWARE, IDLE, REGISTRY, Summary
from pytest_llmperf.options import GATE_LAUNCHES, SessionOptions, budgets
from pytest_llmperf.plugin.outputs import Judged, judge
from pytest_llmperf.plugin.recorder import printable

if TYPE_CHECKING:
    from pytest_llmperf.plugin.baselining import Shelf
    from pytest_llmperf.plugin.recorder import Recorder
    from pytest_llmperf.plugin.session import TestState

__all__ = ["Judge", "comparisons"]

_NO_BOARD = "advisory: the baseline holds the energy of no board (store this one's with --llmperf-save)"
#: Kinds of engines that are reached through an API.
_OVER_HTTP = ("openai", "serve")
#: With one of these a test fails whatever its other metrics are: they are not measured on.
_HOPELESS = frozenset({"invalid", "regressed", "incomparable", "no-baseline"})


class Judge:
    """Gates the measurements of one session.

    Args:
        options: Of the session.
        shelf: Its stored baselines.
        recorder: Keeps what the verdicts are drawn by.
    """

    def __init__(self, options: SessionOptions, shelf: Shelf, recorder: Recorder) -> None:
        self._options = options
        self._shelf = shelf
        self._recorder = recorder
        self._tests: Sequence[tuple[str, Mapping[str, float]]] = ()
        self._pools: dict[tuple[Identity, str | None, str], NoisePool] = {}
        self._groups: dict[Identity, list[Baseline]] = {}

    def expect(self, tests: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """Take note of the tests among which the session's error is shared.

        Args:
            tests: The ids of the collected ones, with the tolerances of their gated metrics.
        """
        self._tests = [(printable(test), tolerances) for test, tolerances in tests]

    @cached_property
    def rules(self) -> Rules:
        """What the verdicts of this session are drawn by."""
        root = self._options.baselines
        read = [(path, found) for path, found in baselines.read_all(root) if isinstance(found, Baseline)]
        stored = [(Path(*path.relative_to(root).parts[2:]), found) for path, found in read]
        rules = Rules.of_run(comparisons(self._tests, stored), self._options.launches)
        self._recorder.note_gate(**asdict(rules), launches=rules.launches)
        return rules

    def decided(self, state: TestState, measurement: BaseMeasurement, summaries: Mapping[str, Summary]) -> bool:
        """Whether no further launch would change the test's verdict.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        if len(measurement.launches) not in self.rules.looks:
            return False
        verdicts, _ = self.gate(state, measurement, summaries)
        return all(one.decided for one in verdicts) or any(one.verdict in _HOPELESS for one in verdicts)

    def gated(self, state: TestState, measurement: BaseMeasurement) -> dict[str, float]:
        """The metrics that a measurement is judged by, with the tolerance of each."""
        gated = measurement.gated(state.tolerances, state.tolerance_for_all)
        if measurement.peaks is not None and "mbu" not in state.asked_for:
            # Its peak was measured in this very run: TPOT gates the same thing without that second noise.
            gated.pop("mbu", None)
        return gated

    def gate(
        self, state: TestState, measurement: BaseMeasurement, summaries: Mapping[str, Summary]
    ) -> tuple[list[Comparison], list[str]]:
        """The verdicts on a test's gated metrics, and in what the baseline differs, as sentences.

        A verdict that was reached at an earlier look stays as it was.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        identity = self._shelf.identity(measurement)
        path, baseline, differing = self._shelf.find(identity, measurement.test)
        gated = self.gated(state, measurement)
        stored = {} if baseline is None else baseline.summaries(measurement.boards)
        anchored = {} if baseline is None or differing else _anchored(baseline, measurement)
        others = None if baseline is None else baseline.of_other_boards(measurement.boards)
        # Not where the folder lies: records of one run on two machines are to be equal.
        where = path.relative_to(self._options.baselines.parent)
        absent = f"none is stored in {where}" if baseline is None else f"{where} does not hold this metric"
        incomparable = f"{where} was measured on something else: {'; '.join(differing)}" if differing else None
        other_slo = None
        if baseline is not None and (before := baseline.workload.get("slo")) != measurement.slo:
            other_slo = f"{where} counts goodput against other limits: {before} in the baseline"

        def verdict(name: str, tolerance: float) -> Comparison:
            current = summaries.get(name) or Summary(None, (), None, "not measured")
            if others is not None and name in others[1] and not incomparable:
                return _advisory(name, tolerance, *others, measurement.boards, current)
            if _knows_no_board(name, baseline, current) and not incomparable:
                return Comparison(name, "not-applicable", tolerance, current=current.value, reason=_NO_BOARD)
            if why := incomparable or (other_slo if name == "goodput" else None):
                if current.value is None:
                    return Comparison(name, "not-applicable", tolerance, reason=current.reason)
                return Comparison(name, "incomparable", tolerance, current=current.value, reason=why)
            return against("baseline", name, tolerance, stored.get(name), current)

        def against(which: str, name: str, tolerance: float, before: Summary | None, current: Summary) -> Comparison:
            key = (measurement.test, name, which)
            if key not in state.decided or current.value is None:  # what a later launch could not measure is no pass
                found = compare(
                    name,
                    before,
                    current,
                    better=REGISTRY[name].better if name in REGISTRY else "higher",
                    tolerance=tolerance,
                    absent=absent,
                    rules=self.rules,
                    pool=self._pool(identity, measurement.boards, name),
                    test=printable(measurement.test) if baseline is None else baseline.test,
                    against=which,
                )
                if baseline is not None:
                    source = baseline if which == "baseline" or baseline.anchor is None else baseline.anchor
                    found = replace(found, saved_at=source.saved_at)
                if not found.decided:
                    return found
                state.decided[key] = found
            return state.decided[key]

        verdicts = [verdict(name, tolerance) for name, tolerance in gated.items()]
        for name, budget in budgets(self._options, gated).items():
            current, anchor = summaries.get(name), anchored.get(name)
            if current is not None and current.value is not None and anchor is not None and anchor.value is not None:
                verdicts.append(against("anchor", name, budget, anchor, current))
        doubts = [*_taken_otherwise(baseline, measurement.info), *self._shelf.doubts(path, baseline, measurement)]
        return _stopped(verdicts), [*differing, *doubts]

    def too_noisy(self, state: TestState, measurement: BaseMeasurement, summaries: Mapping[str, Summary]) -> list[str]:
        """Of what is about to be stored, the metrics whose launches differ too much to be gated, as sentences."""
        gated = self.gated(state, measurement)
        rules = Rules.of_run(len(gated), GATE_LAUNCHES)
        found = []
        for name, tolerance in gated.items():
            summary = summaries.get(name)
            values = [] if summary is None else [value for launch in summary.launches for value in launch]
            if summary is None or len(summary.launches) < 2 or not values or min(values) <= 0:
                continue
            noise = Noise.judged((logs(summary.launches),))
            if (told := below_noise(noise, rules, baseline=len(summary.launches), tolerance=tolerance)) is not None:
                found.append(f"{name}: {told}")
        return found

    def answers(self, state: TestState, measurement: BaseMeasurement) -> Judged | None:
        """The verdicts on what the engine answered; ``None`` when its answers were not to be compared.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        if measurement.outputs is None or state.outputs is None:
            return None
        _, baseline, differing = self._shelf.find(self._shelf.identity(measurement), measurement.test)
        stored = None if baseline is None or differing or baseline.outputs is None else baseline.outputs.outputs()
        if baseline is None:
            absent = "no baseline is stored"
        elif differing:
            absent = "the baseline was measured on something else"
        else:
            absent = "the baseline holds no answers (store them with --llmperf-save)"
        return judge(state.outputs, stored, measurement.outputs, absent=absent)

    def advisory(
        self, state: TestState, measurement: BaseMeasurement, summaries: Mapping[str, Summary]
    ) -> list[dict[str, float | str]]:
        """How the metrics that gate nothing changed since the baseline, for the record.

        Of a search for a rate there are none where it found another one: its metrics are those at the rate found.

        Raises:
            BaselineError: the stored baseline is unusable.
        """
        _, baseline, differing = self._shelf.find(self._shelf.identity(measurement), measurement.test)
        if baseline is None or differing:
            return []
        stored = baseline.summaries(measurement.boards)
        if _at_another_rate(stored.get("max_rate"), summaries.get("max_rate")):
            return []
        gated = self.gated(state, measurement)
        pairs = [
            (name, before.value, now.value)
            for name, before in stored.items()
            if name not in gated and (now := summaries.get(name)) is not None
        ]
        return [
            {"metric": name, "baseline": before, "current": now, "change": now / before - 1}
            for name, before, now in pairs
            if before and now is not None
        ]

    def _pool(self, identity: Identity, boards: str | None, metric: str) -> NoisePool:
        """What the stored baselines of the same engine know of a metric's noise."""
        group = identity.model_copy(update={"workload": ""})
        key = (group, boards if metric in REGISTRY and REGISTRY[metric].bound_to_board else None, metric)
        if key not in self._pools:
            series = []
            if group not in self._groups:
                self._groups[group] = baselines.of_group(self._options.baselines, identity)
            for one in self._groups[group]:
                summary = one.summaries(boards).get(metric)
                values = [] if summary is None else [v for launch in summary.launches for v in launch]
                if summary is not None and values and min(values) > 0 and all(summary.launches):
                    series.append(Series(one.test, _engine_starts(one), logs(summary.launches)))
            self._pools[key] = NoisePool(series)
        return self._pools[key]


def _at_another_rate(before: Summary | None, now: Summary | None) -> bool:
    """Whether two searches have found different rates; false of what is no search."""
    if before is None or now is None or before.value is None or now.value is None:
        return False
    return not math.isclose(before.value, now.value, rel_tol=1e-5)  # a baseline keeps seven digits


def _engine_starts(baseline: Baseline) -> str | None:
    """Tells the baselines whose launches were on the same engine starts, one by one; ``None`` where nothing says it.

    The second measurement of a test begins where the launches of its first have ended.
    """
    run, first = (baseline.provenance.get(name) for name in ("run", "first_launch"))
    return f"{run} from launch {first or 0}" if isinstance(run, str) else None


def comparisons(tests: Sequence[tuple[str, Mapping[str, float]]], stored: Sequence[tuple[Path, Baseline]]) -> int:
    """How many comparisons a run of these tests can make at most, by the baselines that there are.

    A test with baselines for several machines or models is counted where most of its metrics are.

    Args:
        tests: Their ids, with the tolerances of the metrics that gate any test.
        stored: All baselines under the root, with where in the folder of its group each lies. It is the place that
            makes one a test's; those of named measurements, whose places only they know, say themselves whose they are.
    """
    by_test: dict[str, dict[str, int]] = {}
    tolerances = dict(tests)
    places = {baselines.within_group(test): test for test in tolerances}
    for place, one in stored:
        test = places.get(place) or _test_of(one.test, tolerances)
        if test is None:
            continue
        group = one.identity.model_copy(update={"workload": ""}).model_dump_json()
        boards = next(iter(one.boards), None)
        for summaries in (one.summaries(boards), one.anchor_summaries(boards)):
            known = {name for name, summary in summaries.items() if summary.value is not None}
            count = len(known & _gated(one, known, tolerances[test]))
            groups = by_test.setdefault(test, {})
            groups[group] = groups.get(group, 0) + count
    return sum(max(groups.values()) for groups in by_test.values())


def _test_of(measured: str, tests: Collection[str]) -> str | None:
    """The test that a measurement belongs to; the id of a test and the name of a measurement may hold a ``#``."""
    while measured and measured not in tests:
        measured = measured.rpartition("#")[0]
    return measured or None


def _gated(baseline: Baseline, known: Collection[str], tolerances: Mapping[str, float]) -> set[str]:
    """The metrics that a measurement like that of a baseline is judged by, as its kind can be told from the file."""
    if "max_rate" in known:
        return {"max_rate"}
    if gauges := {*IDLE, *HARDWARE}.intersection(known):
        return gauges
    if 1 in (baseline.workload.get("input_len"), baseline.workload.get("output_len")):
        return set(tolerances)  # has one phase only, and is no measurement of both
    return {*tolerances, "prefill_jpt", "decode_jpt"}


def _anchored(baseline: Baseline, measurement: BaseMeasurement) -> dict[str, Summary]:
    """What the anchor holds that a measurement can be compared with."""
    found = baseline.anchor_summaries(measurement.boards)
    if baseline.anchor is not None and baseline.anchor.workload.get("slo") != measurement.slo:
        found.pop("goodput", None)  # counted against other limits
    return found


def _stopped(verdicts: list[Comparison]) -> list[Comparison]:
    """Say of what is open beside a verdict that fails the test anyway why nobody went on."""
    if not any(one.verdict in _HOPELESS for one in verdicts):
        return verdicts
    why = "not followed up: another metric had decided the test"
    return [one if one.decided else replace(one, reason=why, advice=None) for one in verdicts]


def _taken_otherwise(baseline: Baseline | None, info: EngineInfo) -> list[str]:
    """What is comparable and yet concerns more than the engine: another way to it, or other requests."""
    if baseline is None:
        return []
    before, now = baseline.provenance.get("engine"), info.kind
    over_http = before in _OVER_HTTP
    if isinstance(before, str) and not info.simulated and over_http != (now in _OVER_HTTP):
        return [
            f"The baseline was measured {'over HTTP' if over_http else 'in process'} ({before}), this run "
            f"{'in process' if over_http else 'over HTTP'} ({now}): the difference includes the API."
        ]
    asked, asking = baseline.provenance.get("request"), info.args.get("request")
    if isinstance(asked, str) and isinstance(asking, str) and asked != asking:
        return [f"The baseline's requests were {asked}, this run's {asking}: the difference includes theirs."]
    return []


def _knows_no_board(name: str, baseline: Baseline | None, current: Summary) -> bool:
    """Whether a baseline was stored where no board could be read, and says nothing of this figure of a board."""
    if baseline is None or baseline.boards or current.value is None or not REGISTRY[name].bound_to_board:
        return False
    stored = baseline.metrics.get(name)
    return stored is None or stored.value is None


def _advisory(
    name: str, tolerance: float, others: str, stored: Mapping[str, Summary], boards: str | None, current: Summary
) -> Comparison:
    """What a metric that compares on the same boards only says on other ones: it gates nothing, and is shown."""
    before = stored[name]
    if current.value is None or before.value is None:
        return compare(name, before, current, better=REGISTRY[name].better, tolerance=tolerance)
    why = (
        f"advisory: the baseline holds the energy of {others} and not of {boards}, and boards of one product differ "
        "by 10 % (store this board's beside it with --llmperf-save)"
    )
    change = current.value / before.value - 1 if before.value > 0 else None
    return Comparison(
        name, "not-applicable", tolerance, before.value, current.value, change, before.launches, reason=why
    )
