"""A process of our own at the other end of a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pytest_llmperf.errors import EngineError

__all__ = ["PipedProcess"]

#: A process that was killed and has not ended after so many seconds hangs in the kernel, and is left to it.
_KILLED_S = 5.0


class PipedProcess:
    """Runs a module's ``main`` with the descriptor of its end of a pipe.

    Args:
        module: Its ``main`` reads and writes pickled objects; when our end is gone, it ends.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # Imported by name, not run as __main__: what it sends is unpickled by that name.
                [sys.executable, "-c", f"from {module} import main; main({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the process that measures, which then ends this one
            )
        self._pipe = multiprocessing.connection.Connection(ours.detach())
        self._late: float | None = None

    def tell(self, message: Any) -> None:
        """Send something.

        Raises:
            EngineError: the process has ended.
        """
        try:
            self._pipe.send(message)
        except OSError:
            raise self._ended() from None

    async def reply(self, limit_s: float | None = None) -> Any:
        """Wait for what comes back.

        Args:
            limit_s: After so many seconds the process is killed.

        Raises:
            EngineError: the process has ended, or did not answer in time.
        """
        with self._limited(limit_s):
            await _readable(self._pipe.fileno())
            return self._pipe.recv()

    def wait(self, limit_s: float | None = None) -> Any:
        """Wait for what comes back, without an event loop: it blocks.

        Args:
            limit_s: After so many seconds the process is killed.

        Raises:
            EngineError: the process has ended, or did not answer in time.
        """
        with self._limited(limit_s):
            return self._pipe.recv()

    @contextmanager
    def _limited(self, limit_s: float | None) -> Iterator[None]:
        """A thread keeps the limit: a process may stop in the middle of an answer too, where receiving blocks."""
        timer = None if limit_s is None else threading.Timer(limit_s, self._give_up, [limit_s])
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        except (EOFError, OSError):
            raise self._ended() from None
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # what it has begun is done before anybody closes the pipe

    def _give_up(self, limit_s: float) -> None:
        self._late = limit_s
        self._process.kill()
        # The process may hang in the kernel and keep its end; who waits at ours is to be woken all the same.
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def _ended(self) -> EngineError:
        if self._late is not None:
            return EngineError(f"The process {self._module} did not answer within {self._late:g} s: it was killed.")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        words = _ending(self._process.poll()) + (f", {text.splitlines()[-1]}" if text else "")
        return EngineError(f"The process {self._module} ended: {words}.")

    def kill(self) -> None:
        """End it at once; the kernel closes its connections."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)
        self._pipe.close()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _ending(status: int | None) -> str:
    if status is None:
        return "it closed its end of the pipe"
    if status < 0:
        return f"killed by signal {-status}"
    return f"exit status {status}"


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
