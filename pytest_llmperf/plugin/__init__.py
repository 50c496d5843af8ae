"""pytest hooks: thin, no measuring.

Nothing heavy is imported here: every pytest session of every user with the plugin installed loads this module,
and few have a performance test in it. The session's state is made at collection, when the first is found.
"""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_llmperf.errors import LlmperfError
from pytest_llmperf.options import MARKER, add_options
from pytest_llmperf.plugin.boards import SessionBoards
from pytest_llmperf.plugin.census import Census
from pytest_llmperf.plugin.fixtures import (
    NoBenchmark,
    _power_watch,
    gpu_clock,
    gpus,
    llm_engine,
    llm_model,
    llm_requirements,
    llmperf,
    power_sampler,
    uses_boards,
    uses_llmperf,
)
from pytest_llmperf.plugin.grid import clock_grid
from pytest_llmperf.plugin.keys import BOARDS, RECORDER, SESSION, STATE
from pytest_llmperf.plugin.recorder import Recorder
from pytest_llmperf.plugin.rounds import UNDECIDED, MoreLaunches, run_again, run_in_rounds

__all__ = [
    "_power_watch",
    "clock_grid",
    "gpu_clock",
    "gpus",
    "llm_engine",
    "llm_model",
    "llm_requirements",
    "llmperf",
    "power_sampler",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and refuse what cannot be done."""
    config.addinivalue_line("markers", MARKER)
    config.stash[BOARDS] = SessionBoards(config)
    if not config.pluginmanager.hasplugin("benchmark"):
        config.pluginmanager.register(NoBenchmark(), "llmperf-no-benchmark")
    config.stash[RECORDER] = recorder = Recorder(config)
    config.pluginmanager.register(recorder, "llmperf-recorder")
    config.pluginmanager.register(Census(config), "llmperf-census")
    controls_workers = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not controls_workers:
        return
    with usage_errors():
        # xdist's workers cannot end a session with exit status 4; so what was asked for is checked before they start.
        if any("llmperf" in str(argument) for argument in config.invocation_params.args):
            from pytest_llmperf.plugin.session import check_options

            check_options(config)
        if not config.option.collectonly:
            config.stash[BOARDS].begin()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to."""
    recorder = node.config.stash[RECORDER]
    if not node.config.option.collectonly:
        recorder.clear()
    node.workerinput["llmperf"] = recorder.for_worker()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the session up when there is a performance test, order these by engine, and hold the clock."""
    if any(uses_llmperf(item) for item in items):
        from pytest_llmperf.plugin.session import LlmperfSession

        with usage_errors():
            session = LlmperfSession(config, config.stash[RECORDER])
            session.arrange(items)
        config.stash[SESSION] = session
    if any(uses_boards(item) for item in items) and not config.option.collectonly:
        with usage_errors():
            config.stash[BOARDS].begin()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say at which clock, where it is held already: xdist's controller collects nothing."""
    return config.stash[BOARDS].header()


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say in the header which engine measures, and why, and at which clock."""
    session = config.stash.get(SESSION, None)
    width = config.get_terminal_writer().fullwidth
    told = [
        part
        for line in ([] if session is None else session.header())
        # Paths and names can be copied: they are not cut in two.
        for part in textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    ]
    return [*told, *config.stash[BOARDS].header()]  # scripts read a clock's line


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a performance test until its verdict is reached; leave every other test alone."""
    session = item.config.stash.get(SESSION, None)
    if session is None or not uses_llmperf(item):
        return None
    return run_in_rounds(session, item, nextitem)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """After the first pass, launch again for the tests that are not decided yet."""
    result = yield
    ours = session.config.stash.get(SESSION, None)
    if ours is not None:
        run_again(ours, session)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Let a test fail in words where the error is ours."""
    with plain_failures():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Let a fixture of ours fail in words."""
    with plain_failures():
        return (yield)


@contextmanager
def usage_errors() -> Iterator[None]:
    """End the session with exit status 4 and the sentence of an error of ours."""
    try:
        yield
    except LlmperfError as error:
        raise pytest.UsageError(str(error)) from None


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn an error of ours into a failure that consists of its sentence, without a traceback."""
    try:
        yield
    except LlmperfError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark what waits for another launch, and remember every failing part of a test, subtests too."""
    report = yield
    if report.failed and STATE in item.stash:
        item.stash[STATE].failed = True
        error = None if call.excinfo is None else call.excinfo.value
        # Within the body it has become a failure in words.
        item.stash[STATE].failed_by_us |= any(
            isinstance(e, LlmperfError) for e in (error, getattr(error, "__context__", None))
        )
    if call.excinfo is not None and call.excinfo.errisinstance(MoreLaunches):
        report.outcome = UNDECIDED  # type: ignore[assignment]  # never counted as any of pytest's own
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count and show nothing for a part of a test (a subtest) that waits for another launch."""
    return ("", "", "") if report.outcome == UNDECIDED else None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the engine, then give the clock back."""
    ours = session.config.stash.get(SESSION, None)
    try:
        if ours is not None:
            ours.close()
    finally:
        session.config.stash[BOARDS].close()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the engine and give the clock back, whatever happened before."""
    session = config.stash.get(SESSION, None)
    try:
        if session is not None:
            session.close()
    finally:
        if BOARDS in config.stash:
            config.stash[BOARDS].close()
