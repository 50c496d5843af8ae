from __future__ import annotations

import asyncio
import warnings

import pytest

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines.pool import EnginePool
from pytest_llmperf.errors import EngineError, OptionError

from ..fakes import INFO, SPEC, ScriptedEngine, spec_with, tokens

OTHER = spec_with(seed=1)


class Factory:
    """Builds engines that write what happens to them into one log; some fail at a certain step."""

    def __init__(self, **failing):
        self.log = []
        self.loops = []
        self.failing = failing

    def __call__(self, spec, launch):
        if "build" in self.failing:
            raise self.failing["build"]
        engine = ScriptedEngine(tokens(0.1, 0.1))
        name = f"{dict(spec.args)}#{launch}"

        async def open_():
            self.log.append(f"open {name}")
            if "open" in self.failing:
                raise self.failing["open"]
            return INFO

        async def close():
            self.log.append(f"close {name}")
            if "close" in self.failing:
                raise self.failing["close"]

        def runner():
            self.loops.append(type(engine.clock).runner(engine.clock))
            return self.loops[-1]

        engine.open, engine.close, engine.clock.runner = open_, close, runner
        return engine

    def all_loops_closed(self):
        return all(self._closed(runner) for runner in self.loops)

    @staticmethod
    def _closed(runner):
        try:
            return runner.get_loop().is_closed()
        except RuntimeError:  # the runner itself is closed
            return True


class TestKeeping:
    def test_tests_of_one_engine_share_it(self):
        factory = Factory()
        pool = EnginePool(factory)
        assert pool.get(SPEC) is pool.get(spec_with())
        assert pool.starts == 1
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0"]

    def test_one_is_closed_before_another_is_opened(self):
        factory = Factory()
        pool = EnginePool(factory)
        for spec in (SPEC, OTHER, SPEC):
            pool.get(spec)
        pool.close()
        assert factory.log == [
            "open {}#0", "close {}#0", "open {'seed': 1}#0", "close {'seed': 1}#0", "open {}#0", "close {}#0"
        ]  # fmt: skip
        assert pool.starts == 3

    def test_another_launch_is_a_fresh_engine(self):
        factory = Factory()
        pool = EnginePool(factory)
        assert pool.get(SPEC).launch == 0
        pool.next_launch()
        assert factory.log == ["open {}#0", "close {}#0"]
        assert (pool.launch, pool.get(SPEC).launch) == (1, 1)
        pool.close()
        assert factory.log[2:] == ["open {}#1", "close {}#1"]

    def test_closing_twice_closes_once(self):
        factory = Factory()
        pool = EnginePool(factory)
        pool.close()
        pool.get(SPEC)
        pool.close()
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0"]
        assert factory.all_loops_closed()

    def test_a_closed_pool_opens_again_when_asked(self):
        pool = EnginePool(Factory())
        first = pool.get(SPEC)
        pool.close()
        assert pool.get(SPEC) is not first
        pool.close()

    def test_starting_is_told_before_it_happens(self):
        factory = Factory()
        pool = EnginePool(factory, lambda spec, launch: factory.log.append(f"starting {dict(spec.args)}#{launch}"))
        pool.get(SPEC)
        pool.get(SPEC)
        pool.close()
        assert factory.log == ["starting {}#0", "open {}#0", "close {}#0"]


class TestRunning:
    def test_work_runs_on_the_clock_of_the_engine(self):
        pool = EnginePool(Factory())
        running = pool.get(SPEC)
        assert running.info is INFO
        running.run(running.engine.clock.sleep_until(3600 * NS_PER_S))
        assert running.engine.clock.now() == 3600 * NS_PER_S
        pool.close()

    def test_warnings_of_the_engine_are_not_the_projects(self):
        async def work():
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            return "done"

        pool = EnginePool(Factory())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert pool.get(SPEC).run(work()) == "done"
        pool.close()


class TestFailing:
    @pytest.mark.parametrize("step", ["build", "open"])
    def test_a_start_that_failed_is_not_tried_again_within_the_launch(self, step):
        factory = Factory(**{step: EngineError("no memory")})
        pool = EnginePool(factory)
        for _ in range(3):
            with pytest.raises(EngineError, match="no memory"):
                pool.get(SPEC)
        assert factory.log.count("open {}#0") <= 1
        assert pool.starts == 0
        factory.failing.clear()
        with pytest.raises(EngineError, match="no memory"):
            pool.get(SPEC)
        pool.next_launch()
        assert pool.get(SPEC).launch == 1
        pool.close()

    def test_another_engine_is_still_tried(self):
        factory = Factory(open=OptionError("no such argument"))
        pool = EnginePool(factory)
        with pytest.raises(OptionError):
            pool.get(SPEC)
        factory.failing.clear()
        pool.get(OTHER)
        with pytest.raises(OptionError):
            pool.get(SPEC)
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0", "open {'seed': 1}#0", "close {'seed': 1}#0"]

    @pytest.mark.parametrize("error", [EngineError("x"), ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
    def test_an_engine_that_did_not_open_is_closed_with_its_loop(self, error):
        factory = Factory(open=error)
        pool = EnginePool(factory)
        with pytest.raises(type(error)):
            pool.get(SPEC)
        assert factory.log == ["open {}#0", "close {}#0"]
        assert factory.all_loops_closed()
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0"]

    def test_an_interrupted_start_is_tried_again(self):
        factory = Factory(open=KeyboardInterrupt())
        pool = EnginePool(factory)
        with pytest.raises(KeyboardInterrupt):
            pool.get(SPEC)
        factory.failing.clear()
        assert pool.get(SPEC).info is INFO
        pool.close()

    def test_closing_that_fails_after_a_failed_start_leaves_no_loop_and_hides_nothing(self):
        factory = Factory(open=EngineError("no memory"), close=OSError("cannot end a process"))
        with pytest.raises(EngineError, match="no memory"):
            EnginePool(factory).get(SPEC)
        assert factory.all_loops_closed()

    def test_closing_that_fails_is_reported_once_and_leaves_no_loop(self):
        factory = Factory(close=OSError("cannot end a process"))
        pool = EnginePool(factory)
        pool.get(SPEC)
        with pytest.raises(OSError, match="cannot end"):
            pool.close()
        assert factory.all_loops_closed()
        pool.close()

    @pytest.mark.parametrize("waiting", [1, 2, 5])
    def test_an_interruption_that_waiting_tasks_hand_on_does_not_keep_the_engine_open(self, waiting):
        async def strike():
            raise KeyboardInterrupt("SIGTERM")

        async def wait_for(another):
            await asyncio.gather(another)

        async def offer():
            task = asyncio.ensure_future(strike())
            tasks = [task]
            for _ in range(waiting):
                tasks.append(asyncio.ensure_future(wait_for(tasks[-1])))
            await asyncio.gather(*tasks)

        factory = Factory()
        pool = EnginePool(factory)
        running = pool.get(SPEC)
        close = running.engine.close

        async def close_slowly():
            for _ in range(10):
                await asyncio.sleep(0)
            await close()

        running.engine.close = close_slowly
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            running.run(offer())
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0"]
        assert factory.all_loops_closed()

    def test_a_stop_that_was_due_when_the_interruption_came_does_not_keep_the_engine_open(self):
        async def strike():
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
            raise KeyboardInterrupt("SIGTERM")

        factory = Factory()
        pool = EnginePool(factory)
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            pool.get(SPEC).run(strike())
        pool.close()
        assert factory.log == ["open {}#0", "close {}#0"]
        assert factory.all_loops_closed()

    def test_an_interruption_of_the_closing_itself_is_heard(self):
        async def strike():
            raise KeyboardInterrupt("SIGTERM")

        factory = Factory(close=KeyboardInterrupt("again"))
        pool = EnginePool(factory)
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            pool.get(SPEC).run(strike())
        with pytest.raises(KeyboardInterrupt, match="again"):
            pool.close()
        assert factory.all_loops_closed()

    def test_after_work_that_fails_another_engine_is_started(self):
        async def fail():
            raise EngineError("died")

        pool = EnginePool(Factory())
        running = pool.get(SPEC)
        with pytest.raises(EngineError):
            running.run(fail())
        assert pool.get(SPEC) is not running, "its requests may still be under way, or it is dead"
        pool.close()
