"""Being woken in time.

A client beside a busy server (vLLM's CPU build keeps every processor busy, and so do tokenizers) may wait tens of
milliseconds for a processor. The kernel's stamps survive that, but what arrives meanwhile on one connection is merged
into one segment with one stamp. A process of the real-time class is woken at once; it uses a few per cent of a
processor, in pieces of microseconds. The class needs a privilege (root, CAP_SYS_NICE, or ``ulimit -r``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["realtime"]


@contextmanager
def realtime(wanted: bool) -> Iterator[bool]:
    """Run the block in the real-time class if that is wanted and allowed; tells whether it does."""
    granted = wanted and _enter()
    try:
        yield granted
    finally:
        if granted:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _enter() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (OSError, AttributeError):  # not allowed, or not a system with such classes
        return False
    return True
