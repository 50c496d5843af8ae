"""A server's process: started, watched, and ended with everything that it started.

That it has died is noticed at once: on Linux the kernel announces it on a descriptor (pidfd) of the event loop,
elsewhere a thread waits for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from pytest_llmperf.engines.descent import MARK
from pytest_llmperf.engines.logs import EngineLog, last_lines, likely_cause
from pytest_llmperf.engines.processes import ProcessFamily
from pytest_llmperf.errors import EngineError

__all__ = ["ServerProcess"]

#: Seconds that the server gets to end after SIGTERM; what it has started gets as long again.
_GRACE_S = 10
#: Seconds between two looks at whether the server is up, and until one of them is given up.
_LOOK_EVERY_S = 0.1
_LOOK_S = 5


class ServerProcess:
    """One HTTP server that answers ``GET /health``, as a child process in a session of its own.

    It lives on the event loop on which it was started. Whoever made it stops it, also after a failed start.

    Args:
        command: The program and its arguments.
        port: The port of the loopback address on which it will listen.
        log_path: Where its output goes; ``None`` keeps it only until it is stopped.
        environment: The whole environment; ``None`` hands on this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        log_path: str | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self.log = EngineLog(log_path)
        self._command = list(command)
        self._environment = environment
        self._family = ProcessFamily()
        self._process: subprocess.Popen[bytes] | None = None
        self._descriptor: int | None = None
        self._died = asyncio.Event()
        self._stopped = False
        self._death: EngineError | None = None

    async def start(self, *, timeout: float) -> None:  # noqa: ASYNC109 - the caller has to know what it ran into
        """Start it and wait until it is healthy.

        Args:
            timeout: Seconds that it may take.

        Raises:
            EngineError: the program does not exist, it died (which is told at once), or it was not healthy in time.
        """
        self._spawn()
        try:
            async with asyncio.timeout(timeout):
                await self._until_healthy()
        except TimeoutError:
            said = last_lines(self.log.text())
            last = f"; it said last: {said.rstrip('.')}" if said else " and said nothing"
            raise EngineError(
                f"The server was not healthy within {timeout:g} s{last}.", remedy=self.log.whereabouts()
            ) from None

    def _spawn(self) -> None:
        inherited = os.environ if self._environment is None else self._environment
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self.log.stream,
                stderr=subprocess.STDOUT,
                env={**inherited, MARK: self._family.mark},
                start_new_session=True,  # Ctrl-C on the terminal is ours to hand on
            )
        except OSError as error:
            raise EngineError(f"The server cannot be started: {error}.") from None
        self._watch(self._process)
        with suppress(psutil.NoSuchProcess):  # it has ended already
            self._family.add(self._process.pid)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        self._descriptor = _end_descriptor(process.pid)
        if self._descriptor is not None:
            loop.add_reader(self._descriptor, self._ended)
            return
        threading.Thread(target=self._wait_for_end, args=(process, loop), daemon=True).start()

    def _wait_for_end(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._unwatch()
        if self._process is not None:
            self._process.wait()  # it has ended: this only fetches the status
        self._died.set()

    def _unwatch(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(RuntimeError):  # no loop runs any more
                asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    async def _until_healthy(self) -> None:
        while not self._died.is_set():
            if await self._is_healthy():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._died.wait(), _LOOK_EVERY_S)
        raise self.death()

    async def _is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(_LOOK_S):
                status = await self._ask_for_health()
        except (OSError, TimeoutError):
            return False
        # Another program may have taken the port before ours could, and may be healthy.
        return status == b"200" and not self._died.is_set() and self._listens()

    async def _ask_for_health(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            words = (await reader.readline()).split()
        finally:
            writer.close()
        return words[1] if len(words) > 1 else b""

    def _listens(self) -> bool:
        """Whether a process of the family is the one that listens; also where that cannot be found out."""
        for member in self._family.members():
            with suppress(psutil.NoSuchProcess):
                try:
                    sockets = member.net_connections("tcp")
                except (psutil.AccessDenied, AttributeError):  # psutil before 6.0 knows another name
                    return True
                if any(s.status == psutil.CONN_LISTEN and s.laddr.port == self.port for s in sockets):
                    return True
        return False

    def died(self) -> asyncio.Event:
        """Set within milliseconds when the server's own process has ended, for whatever reason."""
        return self._died

    def cause(self) -> str | None:
        """What the server's log gives as the reason of a failure: an exception, or what was printed last."""
        return likely_cause(self.log.text())

    def death(self) -> EngineError:
        """How the server ended, and why as far as its log tells; only after :meth:`died` is set."""
        if self._death is None:
            cause = self.cause()
            why = f": {cause.rstrip('.')[:600]}" if cause else " without a word"
            self._death = EngineError(f"The server ended {self._manner()}{why}.", remedy=self.log.whereabouts())
        return self._death

    def _manner(self) -> str:
        status = self._process.returncode if self._process is not None else None
        if status is None:
            return "before it was started"
        if status >= 0:
            return f"with exit status {status}"
        try:
            return f"by the signal {signal.Signals(-status).name}"
        except ValueError:
            return f"by the signal {-status}"

    async def stop(self) -> None:
        """End it and all that it started, politely first; safe to call twice and after a failed start."""
        if self._stopped:
            return
        self._stopped = True
        process = self._process
        try:
            if process is not None:
                self._family.update()  # before those in the middle go
                process.terminate()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._died.wait(), _GRACE_S)
        finally:
            # Also when this task was cancelled meanwhile: nothing may be left.
            self._unwatch()
            if process is not None:
                process.kill()
                process.wait()
                self._died.set()
            self._family.end(at_once=True)
            self.log.close()


def _end_descriptor(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the kernel has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux; a kernel or a sandbox without it
        return None
