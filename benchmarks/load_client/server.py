"""The reference server from Python: compile it, run it, read its log."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["SOURCE", "RunningServer", "ServerLog", "Truth", "compile_server", "read_log", "running"]

SOURCE = Path(__file__).with_name("reference_server.c")
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Truth:
    """One streamed request as the server saw it, in nanoseconds of CLOCK_MONOTONIC.

    Attributes:
        request_id: The client's ``X-Request-Id``, else a number of the server's; the answer's id ends with it.
        asked_tokens: How many the client asked for.
        received_ns: When the last byte of the request came.
        sent_ns: Of each token, read immediately before its ``send()``.
        blocked: How many tokens the client's socket did not take at once: their true times are later.
    """

    request_id: str
    asked_tokens: int
    received_ns: int
    sent_ns: tuple[int, ...]
    blocked: int

    @property
    def ttft_s(self) -> float:
        """From the last byte of the request to the send of the first token, in seconds."""
        return (self.sent_ns[0] - self.received_ns) / _NS_PER_S

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Gaps between the sends of successive tokens, in seconds."""
        return tuple((later - earlier) / _NS_PER_S for earlier, later in pairwise(self.sent_ns))


@dataclass(frozen=True, slots=True)
class ServerLog:
    """What the server says of a run.

    Attributes:
        summary: Its first line: lateness against its own plan, duration of ``send()``, preemptions.
        requests: Those that it answered to the end.
        unfinished: How many it did not, because the client hung up.
    """

    summary: dict[str, Any]
    requests: tuple[Truth, ...]
    unfinished: int

    @property
    def late_p99_s(self) -> float:
        """How late the server sent, 99th percentile over tokens, in seconds."""
        return float(self.summary["late_ns"]["p99"]) / _NS_PER_S if self.summary["late_ns"] else 0.0


class RunningServer:
    """A server that answers.

    Attributes:
        url: Its base address, without a path.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening "):
            process.wait()
            raise RuntimeError("The reference server did not start; what it said is above.")
        self.url = f"http://127.0.0.1:{int(line.split()[1])}"

    def stop(self) -> ServerLog:
        """End it and return its log."""
        self._process.terminate()
        self._process.wait(timeout=60)
        return read_log(self._log.read_text())

    def kill(self) -> None:
        """End it whatever it does; harmless when it has ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def compile_server(folder: Path) -> Path:
    """Compile the server into a folder and return the program's path.

    Raises:
        RuntimeError: there is no C compiler, or it refused.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("There is no C compiler named cc. Install one: apt-get install gcc")
    program = folder / "reference_server"
    built = subprocess.run(
        [compiler, "-O2", "-Wall", "-o", str(program), str(SOURCE)], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise RuntimeError(f"{SOURCE.name} does not compile:\n{built.stderr}")
    return program


@contextmanager
def running(program: Path, log: Path, options: Sequence[str]) -> Iterator[RunningServer]:
    """Run the server for the length of a ``with``; ``stop`` it inside to get its log."""
    command = [str(program), "--log", str(log), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    server = None
    try:
        server = RunningServer(process, log)
        yield server
    finally:
        if server is not None:
            server.kill()
        else:
            process.kill()
            process.wait()


def read_log(text: str) -> ServerLog:
    """Parse what the server wrote on SIGTERM, or answered to ``GET /dump``."""
    summary, *records = [json.loads(line) for line in text.splitlines()]
    requests = tuple(
        Truth(r["id"], r["tokens"], r["received_ns"], tuple(r["sent_ns"]), r["blocked"])
        for r in records
        if len(r["sent_ns"]) == r["tokens"]
    )
    return ServerLog(summary, requests, len(records) - len(requests))
