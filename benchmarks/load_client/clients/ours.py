"""The client of pytest-llmperf, run as a command of its own so that it is confined like the others.

Usage: ``python -m benchmarks.load_client.clients.ours URL STREAMS PROMPT_TOKENS OUTPUT_TOKENS FILE``
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_client.clients import Load, RequestTiming
from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.openai.engine import OpenAIEngine, request_name
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import choose, specify
from pytest_llmperf.metrics import request_chunk_gaps, request_ttft

__all__ = ["Ours", "measure_ours"]

_RESULT = "ours.json"


def measure_ours(url: str, streams: int, output_tokens: int, prompt_tokens: int = 32) -> list[RequestTiming]:
    """Offer ``streams`` requests at once, as a test with ``batch=streams`` does, after one small warm-up."""
    return asyncio.run(_measure(url, streams, output_tokens, prompt_tokens))


async def _measure(url: str, streams: int, output_tokens: int, prompt_tokens: int) -> list[RequestTiming]:
    spec = specify(choose(f"{url},calibrate=false,workers=1", gpus=[], gate_needs_gpu=False), None, {})
    engine = OpenAIEngine(spec, Site())
    try:
        await engine.open()
        requests = [
            Request(f"{n}", tuple(range(1000 + n, 1000 + n + prompt_tokens)), output_tokens) for n in range(streams)
        ]
        await engine.prepare(requests, streams)
        traces = await engine.carry(Offer(tuple(requests)))
        return [
            RequestTiming(request_ttft(t), list(request_chunk_gaps(t)), request_name(r.request_id))
            for r, t in zip(requests, traces, strict=True)
            if t.error is None
        ]
    finally:
        await engine.close()


@dataclass(frozen=True)
class Ours:
    """The client of this repository."""

    name: str = "pytest-llmperf"
    mean_only: bool = False

    def unavailable(self) -> str | None:
        """Nothing: it is the package that this file belongs to."""
        return None

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
