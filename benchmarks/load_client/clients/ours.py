"""The client of pytest-llmperf, run as a command of its own so that it is confined like the others.

Usage: ``python -m benchmarks.load_client.clients.ours URL STREAMS PROMPT_TOKENS OUTPUT_TOKENS FILE``
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_client.clients import Load, RequestTiming

__all__ = ["Ours", "measure_ours"]

_RESULT = "ours.json"


def measure_ours(url: str, streams: int, output_tokens: int, prompt_tokens: int = 32) -> list[RequestTiming]:
    """Offer ``streams`` requests at once and return what pytest-llmperf makes of each.

    To be filled in with ``pytest_llmperf.engines.openai.engine.OpenAIEngine``: open it, let it carry a batch, and turn
    each ``RequestTrace`` into ``RequestTiming(received_ns[0] - due_ns, gaps of received_ns)``, in seconds, with the
    request id that was sent, so that requests are matched one by one.

    Raises:
        NotImplementedError: as long as it is not filled in.
    """
    raise NotImplementedError(f"not wired: {url}, {streams} streams, {prompt_tokens} + {output_tokens} tokens")


@dataclass(frozen=True)
class Ours:
    """The client of this repository."""

    name: str = "pytest-llmperf"
    mean_only: bool = False

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, or ``None``."""
        try:
            found = importlib.util.find_spec("pytest_llmperf.engines.openai.engine")
        except ModuleNotFoundError:
            found = None
        return "pytest_llmperf.engines.openai is not there" if found is None else None

    def version(self) -> str:
        """As the package says, or that it runs from the source tree."""
        try:
            return f"pytest-llmperf {importlib.metadata.version('pytest-llmperf')}"
        except importlib.metadata.PackageNotFoundError:
            return "pytest-llmperf (source tree)"

    def command(self, load: Load) -> list[str]:
        """This module with the interpreter that runs the harness."""
        return [
            sys.executable, "-m", "benchmarks.load_client.clients.ours",
            load.url, str(load.streams), str(load.prompt_tokens), str(load.output_tokens), str(load.folder / _RESULT),
        ]  # fmt: skip

    def read(self, load: Load) -> list[RequestTiming]:
        """What :func:`measure_ours` returned."""
        return [RequestTiming(*row) for row in json.loads((load.folder / _RESULT).read_text())]


if __name__ == "__main__":
    address, streams, prompt, output, target = sys.argv[1:]
    timings = measure_ours(address, int(streams), int(output), int(prompt))
    Path(target).write_text(json.dumps(timings, allow_nan=False))
