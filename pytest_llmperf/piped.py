"""A process of our own at the other end of a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing.connection
import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from pytest_llmperf.errors import EngineError

__all__ = ["PipedProcess"]


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

    def tell(self, message: Any) -> None:
        """Send something.

        Raises:
            EngineError: the process has ended.
        """
        try:
            self._pipe.send(message)
        except OSError:
            raise self._ended() from None

    async def reply(self) -> Any:
        """Wait for what comes back.

        Raises:
            EngineError: the process has ended.
        """
        try:
            await _readable(self._pipe.fileno())
            return self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def wait(self) -> Any:
        """Wait for what comes back, without an event loop: it blocks.

        Raises:
            EngineError: the process has ended.
        """
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> EngineError:
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
        self._process.wait()
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
