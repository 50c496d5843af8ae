"""The load generators that are compared: one small module each, all of one shape.

A client is a command that offers ``Load.streams`` requests at once, and a reader of what the command wrote. The
harness runs the command; an adapter neither starts processes nor judges figures.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["Client", "Load", "RequestTiming", "installed_version"]

#: Prints a package's name and version; run by the interpreter of the client's own environment.
_VERSION = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(name, importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""


class RequestTiming(NamedTuple):
    """What a client reports of one request.

    Attributes:
        ttft_s: Time to first token in seconds, as the client defines it.
        itl_s: Inter-token times in seconds; a single one, their mean, from a client that reports no more.
        request_id: What the client sent as ``X-Request-Id`` or read from the answer's id, if it tells.
    """

    ttft_s: float
    itl_s: list[float]
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a client is to offer.

    Attributes:
        url: The server's base address, without a path.
        streams: Requests, all sent at once.
        prompt_tokens: Of each.
        output_tokens: Of each.
        tokenizer: A folder with a tokenizer that clients can load without a network.
        folder: Where the client writes; empty at the start.
    """

    url: str
    streams: int
    prompt_tokens: int
    output_tokens: int
    tokenizer: Path
    folder: Path


class Client(Protocol):
    """One load generator.

    Attributes:
        name: For the table.
        mean_only: Whether it reports one inter-token time a request, the mean.
    """

    name: str
    mean_only: bool

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, or ``None``."""
        ...

    def version(self) -> str:
        """As its package says."""
        ...

    def command(self, load: Load) -> list[str]:
        """The command that offers the load and ends."""
        ...

    def read(self, load: Load) -> list[RequestTiming]:
        """What it wrote, one for each completed request."""
        ...


def installed_version(python: Path, *packages: str) -> str:
    """The version of the first of these packages that an environment has.

    Args:
        python: The environment's interpreter.
        packages: Distribution names, in order of preference.
    """
    done = subprocess.run([str(python), "-c", _VERSION, *packages], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
