"""vLLM's API server for one engine specification, on a port that is free."""

from __future__ import annotations

import asyncio
import re
import socket

from pytest_llmperf.engines.server.command import command, environment
from pytest_llmperf.engines.server.process import ServerProcess
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.vllm_arguments import start_error
from pytest_llmperf.errors import EngineError

__all__ = ["VllmServer", "free_port"]

#: How many ports are tried.
_ATTEMPTS = 3
_PORT_TAKEN = re.compile(r"address already in use|error while attempting to bind", re.IGNORECASE)


class VllmServer:
    """One vLLM server that the plugin starts and stops.

    Args:
        spec: The model and the engine arguments.
        log_path: Where the server's output goes.
    """

    def __init__(self, spec: EngineSpec, log_path: str | None) -> None:
        self._spec = spec
        self._log_path = log_path
        self._process: ServerProcess | None = None

    async def start(self, *, timeout: float) -> str:  # noqa: ASYNC109 - as ServerProcess.start
        """Start it and wait until it serves; takes from 15 s on.

        Args:
            timeout: Seconds that it may take.

        Returns:
            Its address, such as ``http://127.0.0.1:40123``.

        Raises:
            OptionError: an engine argument does not exist.
            EngineError: it did not start; the message holds the root cause from its log.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            port = free_port()
            server = ServerProcess(
                command(self._spec, port), port=port, log_path=self._log_path, environment=environment(self._spec)
            )
            self._process = server
            try:
                await server.start(timeout=timeout)
            except EngineError as error:
                # A port that is free when we look may be taken when vLLM, seconds later, binds it.
                taken = server.died().is_set() and _PORT_TAKEN.search(server.log.text())
                if taken and attempt < _ATTEMPTS:
                    await self.stop()
                    continue
                raise self._start_error(server, error) from None
            server.log.skip()
            return f"http://127.0.0.1:{port}"
        raise AssertionError("the last attempt returns or raises")

    def _start_error(self, server: ServerProcess, error: EngineError) -> EngineError:
        cause = server.cause() if server.died().is_set() else error.problem
        log = server.log.whereabouts()
        return start_error(self._spec, cause or error.problem, what="vLLM's server", log=log)

    def died(self) -> asyncio.Event:
        """Set within milliseconds when the server has ended by itself; only after :meth:`start`."""
        return self._running().died()

    def death(self) -> EngineError:
        """How and why it ended; only after :meth:`died` is set."""
        return self._running().death()

    def disturbances(self) -> list[str]:
        """Lines of the server's log since the last call that tell of compiling, capturing or tuning."""
        return self._running().log.disturbances()

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise EngineError("The server was not started, or was stopped.")
        return self._process

    async def stop(self) -> None:
        """End it with all its processes; safe to call twice and after a failed start."""
        if self._process is not None:
            await self._process.stop()


def free_port() -> int:
    """A port of the loopback address that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
