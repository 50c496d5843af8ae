"""Several launches within one pytest session.

A test whose verdict needs another launch raises :class:`MoreLaunches`. Its reports are withheld, and it runs
again, with all other undecided tests, on a fresh engine after the others have run, until it is decided. So a
test has one id, one report and one JUnit entry, and a test that is decided at once costs one launch.

Under pytest-xdist the controller owns the loop; a worker launches again within the test, and only one worker
measures at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.outcomes import Skipped
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    import pytest

    from pytest_llmperf.plugin.session import LlmperfSession

__all__ = ["UNDECIDED", "MoreLaunches", "run_again", "run_in_rounds"]

#: The outcome of a report that is withheld.
UNDECIDED = "undecided"


class MoreLaunches(Skipped):
    """The gate wants another launch before it decides.

    A kind of skip, so that no debugger stops at it. A test may swallow it (a subtest does, a bare ``except``):
    whether another launch is due is therefore kept with the test, not read from this exception.
    """


def run_in_rounds(session: LlmperfSession, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run one test once, and report it if it was decided; always handles the item."""
    if session.in_worker:
        with session.recorder.alone():
            while not _run_once(session, item, nextitem):
                session.pool.next_launch()
            session.pool.close()
    elif not _run_once(session, item, nextitem):
        session.undecided.append(item)
    return True


def run_again(session: LlmperfSession, pytest_session: pytest.Session) -> None:
    """Launch after launch, run the tests that are not decided yet."""
    while session.undecided:
        batch = session.undecided[:]
        session.undecided.clear()
        session.pool.next_launch()
        session.progress.launch(session.pool.launch + 1, len(batch))
        for item, following in zip(batch, [*batch[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if pytest_session.shouldfail:
                raise pytest_session.Failed(pytest_session.shouldfail)
            if pytest_session.shouldstop:
                raise pytest_session.Interrupted(pytest_session.shouldstop)


def _run_once(session: LlmperfSession, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run setup, call and teardown; report them unless the test wants another launch."""
    session.begin(item)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if session.wants_launch(item):
        return False
    session.conclude(item, reports)
    hook = item.ihook
    session.progress.make_way()
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
