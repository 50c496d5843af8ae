"""The processes that an engine starts: known from their start, and seen to their end.

An engine's workers set their own process titles (which overwrites the environment that others could read) and
outlive a parent that dies early. So they are told by descent: whatever appeared below this process while the
engine started is the engine's, and so is whatever belongs to one that we have started ourselves. For that to hold
also when a middle process dies, this process adopts orphans (``PR_SET_CHILD_SUBREAPER``, Linux) as long as an
engine is open.
"""

from __future__ import annotations

import ctypes
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from pytest_llmperf.engines.descent import kin
from pytest_llmperf.engines.watchdog import Watchdog

__all__ = ["ProcessFamily"]

_PR_SET_CHILD_SUBREAPER = 36
#: Seconds that a process gets to end by itself before it is killed.
_GRACE = 10


class ProcessFamily:
    """The processes of one engine.

    Attributes:
        mark: To be put into the environment, as :data:`~pytest_llmperf.engines.descent.MARK`, of a process that we
            start ourselves: what it starts is then known even when it has left the session and lost its parent.
    """

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._members: list[psutil.Process] = []
        self._watchdog: Watchdog | None = None

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Everything that starts below this process meanwhile is a member, also when the block fails."""
        before = set(psutil.Process().children(recursive=True))
        _adopt_orphans(True)
        try:
            yield
        finally:
            now = psutil.Process().children(recursive=True)
            self._members += [p for p in now if p not in before and not _is_ours(p)]
            self._watch()

    def add(self, pid: int) -> None:
        """Take in a child that we have started ourselves, and all that it will start."""
        _adopt_orphans(True)
        self._members.append(psutil.Process(pid))
        self._watch()

    def _watch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.dismiss()
        self._watchdog = Watchdog(self._members, mark=self.mark)

    def update(self) -> None:
        """Take in what the members have started since."""
        self._members = kin(self._members, psutil.Process().children(), mark=self.mark)

    def members(self) -> list[psutil.Process]:
        """All that are known by now, also those that have ended."""
        self.update()
        return list(self._members)

    def end(self, *, at_once: bool) -> None:
        """Wait for every member to end, and kill what has not after 10 s.

        Args:
            at_once: Nobody has asked them to end yet.
        """
        self.update()
        if at_once:
            for member in self._members:
                with suppress(psutil.Error):
                    member.terminate()
        psutil.wait_procs(self._members, timeout=_GRACE)
        self.update()  # what they have started instead of ending
        _, alive = psutil.wait_procs(self._members, timeout=0)
        for member in alive:
            with suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(alive, timeout=_GRACE)
        self._members.clear()
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None
        _adopt_orphans(False)


def _is_ours(process: psutil.Process) -> bool:
    """Whether it is Python's resource tracker, which serves this whole process and not only the engine."""
    with suppress(psutil.Error):
        return "resource_tracker" in " ".join(process.cmdline())
    return False


def _adopt_orphans(adopt: bool) -> None:
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
