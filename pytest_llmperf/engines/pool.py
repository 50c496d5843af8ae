"""The engines that a session has open: started as seldom as possible, and always closed.

One engine is open at a time: two would share the board that is being measured. It is kept while the next test
wants the same one, and closed when another is wanted or when a new launch is due.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pytest_llmperf.engines import Engine, EngineInfo
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.errors import LlmperfError

__all__ = ["EnginePool", "RunningEngine"]

T = TypeVar("T")

#: Seconds that the tasks of an interrupted engine get to end.
_PATIENCE_S = 5


@dataclass
class RunningEngine:
    """An open engine with the event loop it lives on."""

    spec: EngineSpec
    engine: Engine
    info: EngineInfo
    runner: asyncio.Runner
    launch: int
    interrupted: bool = False
    #: What ended the work before its time, as often as it did.
    interruptions: list[BaseException] = field(default_factory=list)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on the engine's loop; Ctrl-C cancels it.

        When anything but a result comes out, requests may still be under way, and the engine may be dead: it is not
        used again.
        """
        try:
            return _run(self.runner, work)
        except BaseException as error:
            self.interrupted = True
            self.interruptions.append(error)
            raise

    def close(self) -> None:
        """Close the engine and its loop, whatever an interruption has left on that loop."""
        try:
            if self.interrupted:
                _insist(self.runner, self.engine.close(), self.interruptions)
            else:
                self.run(self.engine.close())
        finally:
            if self.interrupted:
                _abandon(self.runner, self.interruptions)
            else:
                self.runner.close()


def _run(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    # pytest turns warnings of the code under test into errors where a project asks for it. An engine's own
    # deprecation warnings are none of that project's business.
    thrown: list[BaseException] = []

    def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A signal handler (a test's timeout) may raise while the loop runs a callback, which asyncio only logs.
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, Exception | asyncio.CancelledError):
            thrown.append(error)
            # The callback may have been a task's wake-up, and that task will never wake: nothing is waited for.
            loop.stop()
        else:
            loop.default_exception_handler(context)

    runner.get_loop().set_exception_handler(on_exception)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return runner.run(work)
        except RuntimeError:  # the loop was stopped
            if not thrown:
                raise
    raise thrown[0]


def _insist(runner: asyncio.Runner, work: Coroutine[Any, Any, Any], known: list[BaseException]) -> None:
    """Run a coroutine to its end on an interrupted loop.

    A task that a signal's exception ended hands it to the tasks that wait for it, and each of them stops the loop once
    more; a stop that was asked for before the interruption may be due as well. Neither is news, and the work goes on;
    an interruption of its own (a second Ctrl-C) is.
    """
    loop = runner.get_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(work)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except BaseException as error:
            stopped = isinstance(error, RuntimeError) and not task.done()
            if not stopped and not any(error is one for one in known):
                raise
    task.result()


def _abandon(runner: asyncio.Runner, known: list[BaseException]) -> None:
    """Close an event loop on which tasks may hang for ever."""
    loop = runner.get_loop()
    if tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        _insist(runner, _wait(tasks), known)
    loop.close()
    asyncio.set_event_loop(None)  # as the runner's own closing does


async def _wait(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=_PATIENCE_S)


class EnginePool:
    """Opens engines on demand and keeps one.

    Args:
        build: Makes an engine from its description and the number of its launch.
        starting: Called before an engine starts, for the progress line.
    """

    def __init__(
        self, build: Callable[[EngineSpec, int], Engine], starting: Callable[[EngineSpec, int], None] | None = None
    ) -> None:
        self._build = build
        self._starting = starting
        self._running: RunningEngine | None = None
        self._failed: dict[tuple[str, int], LlmperfError] = {}
        self._launch = 0
        self.starts = 0

    @property
    def launch(self) -> int:
        """The number of the launch that is under way, from 0."""
        return self._launch

    def get(self, spec: EngineSpec) -> RunningEngine:
        """The engine that ``spec`` describes, started if it is not the one that is open.

        Raises:
            LlmperfError: it does not start. Within one launch the same error is raised again without a second
                attempt, so that a broken engine costs one start, not one a test.
        """
        key = (spec.key, self._launch)
        if key in self._failed:
            raise self._failed[key].with_traceback(None)
        running = self._running
        if running is not None and running.spec.key == spec.key and not running.interrupted:
            return running
        self.close()
        if self._starting is not None:
            self._starting(spec, self._launch)
        try:
            self._running = self._open(spec)
        except LlmperfError as error:
            self._failed[key] = error
            raise
        self.starts += 1
        return self._running

    def _open(self, spec: EngineSpec) -> RunningEngine:
        engine = self._build(spec, self._launch)
        runner = engine.clock.runner()
        try:
            info = _run(runner, engine.open())
        except BaseException as error:
            try:
                _run(runner, engine.close())
            except Exception as another:
                # Why it did not start is what the user has to know.
                error.add_note(f"Closing it failed as well: {another}")
            finally:
                runner.close()
            raise
        return RunningEngine(spec, engine, info, runner, self._launch)

    def next_launch(self) -> None:
        """Begin another launch: whatever is open is closed, the next test starts a fresh engine."""
        self.close()
        self._launch += 1

    def close(self) -> None:
        """Close the open engine, if any."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
