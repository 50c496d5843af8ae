"""Signals, where boards are locked: none may come between, and the deadly ones must still be survived for a moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["as_interrupts", "uninterrupted"]


@contextmanager
def as_interrupts(*signals: signal.Signals) -> Iterator[None]:
    """Let these signals interrupt the block as Ctrl-C does, so that what has to be undone is undone.

    A signal that somebody else handles or ignores is left alone. A forked child dies of them as it did before.
    """
    me = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() != me:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off SIGINT, SIGTERM and SIGHUP until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python's handlers run in the main thread only
        return
    came: list[int] = []
    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler is not None and handler is not signal.SIG_IGN:  # None: not Python's own
            handlers[number] = handler
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)
