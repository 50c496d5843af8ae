"""Which processes belong to an engine: told by descent, by session and by a mark in their environment.

Descent alone is lost when a process in the middle dies: its children are then somebody else's. Those of a server
that leads a session of its own are still in it, unless they have left it; and all inherit its environment, unless
they have overwritten it, as processes do that set their own title. vLLM's do the one and not the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

__all__ = ["MARK", "kin"]

#: The environment variable that holds a family's mark.
MARK = "PYTEST_LLMPERF_FAMILY"


def kin(
    members: Sequence[psutil.Process], candidates: Iterable[psutil.Process], *, mark: str | None
) -> list[psutil.Process]:
    """The members and all that belong to them, each once.

    Args:
        members: Known to belong; they may have ended.
        candidates: Where to look for those whose descent was lost.
        mark: What the environment of the family's processes holds; ``None`` when it holds none.
    """
    sessions = {member.pid for member in members if not _replaced(member)}
    found = dict.fromkeys(members)
    found |= dict.fromkeys(p for p in candidates if _session(p) in sessions or (mark and _mark(p) == mark))
    for process in list(found):
        with suppress(psutil.Error):
            found |= dict.fromkeys(process.children(recursive=True))
    return list(found)


def _replaced(process: psutil.Process) -> bool:
    """Whether its id was given out again: a session of that number would be a stranger's."""
    return psutil.pid_exists(process.pid) and not process.is_running()


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _mark(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
    return mark
