"""Unlocks the boards of a process that was killed outright.

Nothing can be undone after SIGKILL, and a locked clock stays locked for everybody who comes after. So a small process
of its own waits for the end of the one that locked, and then does what its record says. It waits for the process
itself and not for a pipe to close: an engine's forked children keep the pipes of their parent open.

It does not hear the terminal (Ctrl-C, hang-up), and being asked to end it does not: it ends when the other does. Should
it be killed too, the record is found by the next session.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from pytest_llmperf.errors import GpuError
from pytest_llmperf.gpu.clocks.record import Owner, RecordFolder

__all__ = ["Keeper"]

#: How often it looks where the kernel cannot tell of the end (before Linux 5.3).
_POLL_S = 0.2


class Keeper:
    """Watches this process; :meth:`dismiss` it once the boards are unlocked.

    Args:
        folder: Where the record of the lock is.
    """

    def __init__(self, folder: Path) -> None:
        me = Owner.of(os.getpid())
        # A lock file's descriptor must not end up in it, nor anything else: subprocess closes all but the first three.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_llmperf.gpu.clocks.keeper", str(folder), str(me.pid), str(me.started)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def dismiss(self) -> None:
        """End the watching."""
        self._process.kill()
        self._process.wait()


def wait_for_end(owner: Owner) -> None:
    """Return when a process has ended, also when it did long ago and its id is somebody else's now."""
    try:
        descriptor = os.pidfd_open(owner.pid)
    except (AttributeError, OSError):
        while owner.alive:
            time.sleep(_POLL_S)
        return
    try:
        # Looked at after the descriptor was opened: now that stands for the right process or for nothing.
        if owner.alive:
            select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


def main(folder: str, pid: str, started: str) -> None:
    """Wait for the process to end, then undo the lock that it has left behind, if any."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = Owner(int(pid), int(started))
    wait_for_end(owner)
    from pytest_llmperf.gpu.clocks.recovery import release_recorded

    with suppress(GpuError):  # nobody listens; the record stays for the next session
        records = RecordFolder(Path(folder))
        with records.exclusive():
            for record in records.all():
                if record.owner == owner:
                    release_recorded(records, record)


if __name__ == "__main__":
    main(*sys.argv[1:4])
