"""The measuring process's session: which engine serves which test, and what was measured so far."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf import baselines, peaks
from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.pool import EnginePool, RunningEngine
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec, build, choose, simulated_gpus, specify
from pytest_llmperf.errors import BaselineError, EngineError, HardwareError, MachineError, OptionError
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.gate import Comparison
from pytest_llmperf.gpu.nvml import Board, visible_boards
from pytest_llmperf.gpu.sampling.file import dump_samples
from pytest_llmperf.gpu.sampling.watch import Watch
from pytest_llmperf.machine import cpu_name, environment
from pytest_llmperf.measurement import BaseMeasurement, GaugeMeasurement, HardwareMeasurement, Measurement
from pytest_llmperf.metrics import REGISTRY, Summary
from pytest_llmperf.options import MarkerOptions, SessionOptions, outputs_tolerances, tolerance_for_all, tolerances
from pytest_llmperf.plugin import outputs
from pytest_llmperf.plugin.baselining import Shelf
from pytest_llmperf.plugin.fixtures import uses_llmperf
from pytest_llmperf.plugin.gating import Judge
from pytest_llmperf.plugin.gauging import Gauges, rank, starts_engine
from pytest_llmperf.plugin.instruments import Instruments
from pytest_llmperf.plugin.keys import BOARDS, STATE
from pytest_llmperf.plugin.progress import Progress
from pytest_llmperf.plugin.replay import ReplayClock, add_timer
from pytest_llmperf.plugin.rounds import MoreLaunches
from pytest_llmperf.recording import cut_short_record, failure_record, record_of
from pytest_llmperf.report.exporters.junit import properties
from pytest_llmperf.report.wording import plural
from pytest_llmperf.runner import Launch, measure_launch
from pytest_llmperf.trace import dump_repeat
from pytest_llmperf.workload import Workload

if TYPE_CHECKING:
    from pytest_llmperf.gpu.simulated import BoardGroup
    from pytest_llmperf.plugin.recorder import Recorder

__all__ = ["Enough", "LlmperfSession", "TestState"]

Enough = Callable[[BaseMeasurement, Mapping[str, Summary]], bool]


@dataclass
class TestState:
    """What is known of one test; outlives the rounds.

    Attributes:
        spec: The engine it runs on.
        tolerances: Its gated metrics.
        asked_for: Metrics that its marker or the ini file names.
        tolerance_for_all: The one tolerance that these give for all metrics, if they do.
        outputs: How far the engine's answers may differ from the baseline's; ``None``: they are not compared.
        measurements: By id of the measurement.
        records: Those that are final, in the order in which they were made.
        failures: Why it has to fail, by id of the measurement.
        decided: Verdicts that further launches do not change, by measurement, metric and what it was compared with.
        finished: Measurements that need no further launch.
        staged: Baselines to store if the test passes.
        failed: Whether any part of the test failed in the last run of its body.
        failed_by_us: Whether that was an error of ours, and none of the body's own.
        wants_launch: Whether the last run of its body ended in need of another launch.
        properties: Those that the test had before its body first ran.
    """

    __test__ = False  # the name is pytest's pattern for test classes

    spec: EngineSpec
    tolerances: Mapping[str, float]
    asked_for: frozenset[str] = frozenset()
    tolerance_for_all: float | None = None
    outputs: Mapping[str, float] | None = None
    measurements: dict[str, BaseMeasurement] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    decided: dict[tuple[str, str, str], Comparison] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    staged: list[tuple[Path, baselines.Baseline]] = field(default_factory=list)
    failed: bool = False
    failed_by_us: bool = False
    wants_launch: bool = False
    properties: list[tuple[str, object]] | None = None


class LlmperfSession:
    """Made at collection, when there is at least one performance test.

    Raises:
        OptionError: an option or an ini value is wrong.
        MachineError: the engine that was asked for is not to be had here.
    """

    def __init__(self, config: pytest.Config, recorder: Recorder) -> None:
        self.config = config
        self.recorder = recorder
        self.options, self.boards, self.choice = check_options(config)
        self.in_worker = hasattr(config, "workerinput")
        if not config.option.collectonly:
            recorder.begin()
            self._note_boards()
        self.undecided: list[pytest.Item] = []
        self.replay_clock = ReplayClock()
        self.progress = Progress(config, self.options.launches if self.options.save else None)
        self._site = Site(
            boards=tuple(board.name for board in self.boards),
            connect_timeout=self.options.connect_timeout,
            read_timeout=self.options.read_timeout,
            simulated_boards=self._simulated_boards,
        )
        self.pool = EnginePool(self._build, self._starting)
        self._starts = 0
        #: By the key of the engine.
        self._outputs: dict[str, Outputs | Unavailable] = {}
        self._peaks: list[peaks.DevicePeaks] | None = None
        self.instruments = Instruments(config.stash[BOARDS], self.choice, recorder, self.progress.show)
        config.stash[BOARDS].before_hold = self._before_hold
        self.gauges = Gauges(self.choice, config.stash[BOARDS], self.pool, self.instruments, self.progress.show)
        self.shelf = Shelf(self.options, self.boards, recorder)
        self.judge = Judge(self.options, self.shelf, recorder)
        self._handlers = _interrupt_on(signal.SIGTERM, signal.SIGHUP)

    def _note_boards(self) -> None:
        """Tell the record of simulated boards; where xdist's workers chose the engine, their controller knows none."""
        if self.config.stash[BOARDS].simulated is not None:
            self.recorder.note(gpus=environment(self.boards, None)["gpus"])

    def _simulated_boards(self, count: int) -> BoardGroup:
        """Those that an engine needs; all that any test needs are there before the first one begins, as real ones are.

        Raises:
            EngineError: there are never so many.
        """
        held = self.config.stash[BOARDS]
        group, known = held.simulated_group(count), len(self.boards)
        if len(boards := held.boards()) > known:
            self.boards[:] = boards
            if not self.config.option.collectonly:
                self._note_boards()
        return group

    def arrange(self, items: list[pytest.Item]) -> None:
        """Resolve every test's engine, and bring tests of one engine and clock together; others keep their places.

        Tests that need boards without an engine come first, before one starts.
        """
        places = [i for i, item in enumerate(items) if uses_llmperf(item)]
        ours = [items[i] for i in places]
        for item in ours:
            marker = MarkerOptions.from_node(item)
            check_metric_names(marker.tolerance, f"@pytest.mark.llmperf of {item.nodeid}")
            spec = specify(self.choice, marker.model or self.options.model, marker.engine)
            item.stash[STATE] = TestState(
                spec,
                tolerances(self.options, marker),
                frozenset({*self.options.tolerance, *marker.tolerance}),
                tolerance_for_all(self.options, marker),
                outputs_tolerances(self.options, marker),
            )
            if self.config.pluginmanager.hasplugin("benchmark"):
                add_timer(item, self.replay_clock)
            if self.choice.platform == "sim":
                with suppress(EngineError):  # the engine of that test will not start
                    self._simulated_boards(simulated_gpus(spec))
        ours.sort(key=rank)
        first: dict[Any, int] = {}
        # Where an idle measurement has left its engine up, its other tests come next; that of the hardware starts none.
        starting = [item for item in ours if starts_engine(item)]
        for number, item in enumerate([*starting, *ours]):
            first.setdefault(item.stash[STATE].spec.key, number)
            first.setdefault(_engine_and_clock(item), number)
        ours.sort(key=lambda item: (rank(item), first[item.stash[STATE].spec.key], first[_engine_and_clock(item)]))
        for place, item in zip(places, ours, strict=True):
            items[place] = item
        self.judge.expect([(item.nodeid, item.stash[STATE].tolerances) for item in ours])
        self.progress.expect(len(ours))

    def header(self) -> list[str]:
        """Which engine, which model, and why; and how many launches there are to be, as far as that is known."""
        models = sorted({item.stash[STATE].spec.model.name or "the model it serves" for item in self._items()})
        return [
            f"llmperf: {self.choice.name} on {', '.join(models)} ({self.choice.reason})",
            f"llmperf: {self._plan()}, {plural(self.options.repeats, 'repeat')} each",
        ]

    def _plan(self) -> str:
        """What is to happen: which tests gate, and which only measure, their bodies alone know."""
        options = self.options
        if options.save:
            return f"saving baselines of {plural(options.launches, 'launch')}"
        measuring = f"{options.measure_launches} where only measured"
        if not any(options.baselines.rglob("*.json")):
            return f"no baselines to gate against; launches: 1 where gated, {measuring}"
        return f"launches: up to {options.launches} where gated, {measuring}"

    def _items(self) -> list[pytest.Item]:
        session: Any = self.config.pluginmanager.getplugin("session")
        return [item for item in session.items if STATE in item.stash]

    def engine(self, item: pytest.Item) -> RunningEngine:
        """The running engine of a test.

        Raises:
            EngineError: it did not start.
            pytest.exit.Exception: the command line asks for what no engine here can do; exit status 4.
        """
        state = item.stash[STATE]
        try:
            return self.pool.get(state.spec)
        except (OptionError, MachineError) as error:
            if state.spec.args:
                raise  # the test's own arguments may be at fault; the others can still run
            pytest.exit(f"llmperf: {error}", returncode=4)

    def _build(self, spec: EngineSpec, launch: int) -> Any:
        self._starts += 1
        log = self.recorder.folder / "logs" / f"engine-{self.recorder.worker}{self._starts}.log"
        return build(spec, launch=launch, log_path=str(log), site=self._site)

    def _before_hold(self) -> None:
        self.instruments.prepare()
        self.progress.clear()

    def _starting(self, spec: EngineSpec, launch: int) -> None:
        self.instruments.prepare()
        held = self.config.stash[BOARDS]
        if self._peaks is None and held.simulated is not None:
            self._take_note(held.simulated_peaks())
        if self._peaks is None and self._knows_device(spec.choice):
            # Before the first engine: nothing else runs yet, and all memory is free.
            self.progress.show("measuring the peaks of this machine")
            try:
                found = peaks.in_own_process(on_gpu=spec.choice.platform == "cuda")
            except HardwareError as error:
                found = []
                warnings.warn(f"llmperf: {error}", stacklevel=1)
            self._take_note(found)
        what = f" with {spec.model.name}" if spec.model.name else ""
        self.progress.show(f"starting {spec.choice.name}{what}, launch {launch + 1}")

    def _take_note(self, found: list[peaks.DevicePeaks]) -> None:
        """Keep the peaks of this machine's devices."""
        self._peaks = found
        self.recorder.note(peaks=[asdict(one) for one in found])

    def _knows_device(self, choice: EngineChoice) -> bool:
        """Whether the engine's device is this machine's, and has its memory free."""
        if choice.platform == "url":
            return not self.boards and Address.parse(choice.url or "").is_loopback
        return choice.platform != "sim"

    def measure(
        self, item: pytest.Item, state: TestState, wanted: BaseMeasurement, *, enough: Enough
    ) -> tuple[BaseMeasurement, dict[str, Summary]]:
        """Measure one launch, unless enough are there; return when the verdict can be drawn.

        Args:
            item: The test.
            state: What is known of it.
            wanted: An empty measurement of what it asks for.
            enough: Whether a measurement with these metrics needs no further launch.

        Raises:
            MoreLaunches: another launch is needed first.
        """
        test = wanted.test
        measurement = state.measurements.setdefault(test, wanted)
        if measurement.workload != wanted.workload or measurement.digest != wanted.digest:
            # The body of a test runs once a launch and has to ask for the same work each time.
            raise OptionError(f"{test} asked for another workload than in its launch before.")
        if test not in state.finished:
            self._check_clock(item)
            self.progress.begin()
            self._take(item, state, measurement)
            self.progress.done()
            for name, launch in measurement.windows():
                self.recorder.write_traces(name, [dump_repeat(repeat) for repeat in launch.watched])
                if launch.samples:
                    self.recorder.write_samples(name, [dump_samples(one, launch.index) for one in launch.samples])
        summaries = measurement.summaries()
        if test not in state.finished and (measurement.invalid is not None or enough(measurement, summaries)):
            state.finished.add(test)
        if test not in state.finished:
            self.recorder.journal(record_of(measurement, summaries, None))
            state.wants_launch = True
            raise MoreLaunches(f"{test} needs another launch")
        return measurement, summaries

    def _take(self, item: pytest.Item, state: TestState, measurement: BaseMeasurement) -> None:
        """Measure one more launch."""
        if isinstance(measurement, GaugeMeasurement):
            self.gauges.take(measurement, state.spec, lambda: self.engine(item))
            if isinstance(measurement, HardwareMeasurement) and self._peaks is None:
                held = self.config.stash[BOARDS]
                found = held.simulated_peaks() if held.simulated is not None else list(measurement.found[-1])
                self._take_note(found)
            return
        assert isinstance(measurement, Measurement)
        running = self.engine(item)
        if state.outputs is not None:
            measurement.outputs = self._outputs_of(running, item.name)
            running = self.engine(item)  # asking may have cost it its life

        def launch_of(
            workload: Workload, *, test: str, repeats: int, allowed_failures: int | None, doing: str = ""
        ) -> Launch:
            what = f"{item.name}: launch {len(measurement.launches) + 1} {doing}".rstrip()

            def measure(watch: Watch | None, fill_s: float) -> Launch:
                return measure_launch(
                    running,
                    workload,
                    test=test,
                    repeats=repeats,
                    read_timeout=self.options.read_timeout,
                    allowed_failures=allowed_failures,
                    watch=watch,
                    fill_s=fill_s,
                    progress=lambda text: self.progress.show(f"{what}, {text}"),
                )

            return self.instruments.measured(running, measure)

        measurement.take(launch_of, repeats=self.options.repeats, allowed_failures=self.options.allowed_failures)
        if self._peaks and running.info.device == cpu_name():
            measurement.peaks = peaks.hardware_of(self._peaks[0])
        measurement.reached = self._reached(running)

    def _reached(self, running: RunningEngine) -> list[peaks.DevicePeaks]:
        """What the devices of an engine reached at best; a simulated board tells it for the clock that is held now."""
        simulated = self.config.stash[BOARDS].simulated
        found = (self._peaks or []) if simulated is None else simulated.peaks()
        return [one for one in found if one.device == running.info.device]

    def _outputs_of(self, running: RunningEngine, name: str) -> Outputs | Unavailable:
        """What an engine answers to fixed prompts: asked once in a session, before it carries any load."""
        key = running.spec.key
        if key not in self._outputs:
            self.progress.show(f"{name}: asking for the answers to fixed prompts")
            self._outputs[key] = outputs.take(running, timeout=self.options.read_timeout)
            if not running.interrupted:
                running.engine.disturbances()  # what it compiled for them is none of a measurement's
        return self._outputs[key]

    def _check_clock(self, item: pytest.Item) -> None:
        """Refuse to measure a sweep whose parameter goes past the fixture, and sets nothing.

        Raises:
            OptionError: the boards are not held at the test's ``gpu_clock``.
        """
        wanted, held = _swept_clock(item), self.config.stash[BOARDS].clock
        if wanted is not None and wanted != (held and held.requested_mhz):
            raise OptionError(
                f"The parameter gpu_clock of {item.nodeid} is {wanted!r}, and the boards are not held at it.",
                remedy='Give it to the fixture: parametrize("gpu_clock", ..., indirect=True).',
            )

    def keep(self, state: TestState, record: dict[str, Any]) -> None:
        """Take a record that will not change any more, but for the test's outcome."""
        state.records[record["nodeid"]] = record
        self.recorder.journal(record)

    def begin(self, item: pytest.Item) -> None:
        """A test's body is about to run, for the first time or for another launch."""
        state = item.stash[STATE]
        state.wants_launch = state.failed = state.failed_by_us = False
        item._report_sections.clear()  # what an earlier launch printed is in that engine's log
        state.staged.clear()
        if state.properties is None:
            state.properties = list(item.user_properties)
        item.user_properties[:] = state.properties  # each launch runs the body, and its record_property, again

    def wants_launch(self, item: pytest.Item) -> bool:
        """Whether the test has asked for another launch, whatever its body made of that."""
        return item.stash[STATE].wants_launch

    def conclude(self, item: pytest.Item, reports: list[pytest.TestReport]) -> None:
        """Make the reports of a decided test say what was decided, store its baselines, and hang the records on.

        A failing verdict fails the test even when its body swallowed the failure, and a baseline is stored only when
        everything about the test has passed.
        """
        state = item.stash[STATE]
        call = next((r for r in reports if r.when == "call"), None)
        if call is not None and call.passed and (failures := self._unheeded(item, state)):
            _fail(call, "\n".join(failures))
        if call is not None and not state.failed and all(r.passed and not hasattr(r, "wasxfail") for r in reports):
            try:
                self.shelf.store(state)
            except BaselineError as error:
                _fail(call, str(error))
        self._keep_undecided(state, reports)
        worst = next((r for r in reports if r.failed), call)
        if worst is not None and worst.failed and not state.records:
            state.records[item.nodeid] = failure_record(item.nodeid, _reason(worst))
        failed = state.failed or any(r.failed for r in reports)
        outcome = "failed" if failed else "passed" if call and call.passed else "skipped"
        for record in state.records.values():
            record["outcome"] = outcome
        told = properties(item.nodeid, state.records.values())
        for report in reports:
            if report.when != "setup":
                report.user_properties = [*report.user_properties, *told]
        if state.records and reports:
            reports[-1].llmperf = list(state.records.values())  # type: ignore[attr-defined]  # travels with the report

    def _keep_undecided(self, state: TestState, reports: list[pytest.TestReport]) -> None:
        """Keep what was measured of a test that has failed or skipped itself before a later launch was measured."""
        ends = sorted((r for r in reports if r.failed or r.skipped), key=lambda r: not r.failed)
        for test, measurement in state.measurements.items():
            if ends and test not in state.records and measurement.launches:
                how = "failed" if ends[0].failed else "failed as expected"
                if ends[0].skipped and not hasattr(ends[0], "wasxfail"):
                    how = "was skipped"
                reason, trusted = _reason(ends[0]).removeprefix("Failed: "), not state.failed_by_us
                self.keep(state, cut_short_record(measurement, how, reason, trusted=trusted))

    def _unheeded(self, item: pytest.Item, state: TestState) -> list[str]:
        """What should have failed the test, and did not because its body went on."""
        undecided = [test for test in state.measurements if test not in state.records]
        silent = "llmperf" in getattr(item, "fixturenames", ()) and not state.records and not undecided
        return [
            *state.failures.values(),
            *(f"{test} was measured, but not in every launch: its body takes another way then." for test in undecided),
            *([f"{item.nodeid} asks for the llmperf fixture and measures nothing."] if silent else []),
        ]

    def close(self) -> None:
        """Shut the engine down; safe to call twice."""
        self.progress.clear()
        self.instruments.close()
        self.pool.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()


def _interrupt_on(*signals: signal.Signals) -> dict[signal.Signals, Any]:
    """End the session on these signals as Ctrl-C does, so that engines are shut down and results written.

    Returns:
        The handlers that were there before; a signal that somebody else handles or ignores is left alone.
    """

    def interrupt(number: int, _: Any) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        return {}
    replaced = {s: signal.getsignal(s) for s in signals if signal.getsignal(s) is signal.SIG_DFL}
    for number in replaced:
        signal.signal(number, interrupt)
    return replaced


def _engine_and_clock(item: pytest.Item) -> tuple[str, str]:
    return item.stash[STATE].spec.key, repr(_swept_clock(item))


def _swept_clock(item: pytest.Item) -> Any:
    """The parameter ``gpu_clock`` of a test; ``None`` where it has none."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("gpu_clock")


def _fail(report: pytest.TestReport, reason: str) -> None:
    report.outcome = "failed"
    report.longrepr = reason


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed or was skipped, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    if isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix("Skipped: ")
    return " ".join(text.split())[:2000] or "failed without a message"


def check_options(config: pytest.Config) -> tuple[SessionOptions, list[Board], EngineChoice]:
    """The session's options, the boards that it may use, and its engine; nothing is started.

    Raises:
        OptionError: an option or an ini value is wrong.
        MachineError: the engine that was asked for is not to be had here.
    """
    options = SessionOptions.from_config(config)
    check_metric_names(options.tolerance, "llmperf_tolerance in the ini file")
    check_metric_names(options.budget, "llmperf_budget in the ini file")
    held = config.stash[BOARDS]
    boards = [] if held.simulated is not None else visible_boards()
    choice = choose(options.engine, gpus=[b.name for b in boards], gate_needs_gpu=options.in_ci or held.asked_for)
    held.simulate(choice)
    return options, list(held.boards()) if held.simulated is not None else boards, choice


def check_metric_names(given: Mapping[str, float], where: str) -> None:
    """Refuse a tolerance for a metric that does not exist."""
    for name in given:
        if name != "*" and name not in REGISTRY:
            raise OptionError(
                f"{where} names the metric {name!r}, which does not exist.",
                remedy=f"Metrics are: {', '.join(REGISTRY)}.",
            )
