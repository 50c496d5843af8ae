"""GuideLLM: worker processes with asyncio and httpx.

It keeps the times of the first and the last token of a request, not of those between: its inter-token time is a mean.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load_client.clients import Load, RequestTiming, installed_version

__all__ = ["GuideLlm"]

_RESULT = "benchmarks.json"


@dataclass(frozen=True)
class GuideLlm:
    """GuideLLM with its throughput profile: everything at once."""

    environment: Path | None
    name: str = "GuideLLM"
    mean_only: bool = True

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, or ``None``."""
        if self.environment is None:
            return "no --guidellm given"
        program = self.environment / "bin" / "guidellm"
        return None if program.exists() else f"{program} does not exist"

    def version(self) -> str:
        """As its package says."""
        assert self.environment is not None
        return installed_version(self.environment / "bin" / "python", "guidellm")

    def command(self, load: Load) -> list[str]:
        """Synthetic prompts, at most ``streams`` requests, all of them allowed in flight."""
        assert self.environment is not None
        return [
            str(self.environment / "bin" / "guidellm"), "run",
            "--backend", json.dumps({
                "kind": "openai_http", "target": load.url, "model": "reference", "request_format": "/v1/completions",
                "http2": False,
            }),
            "--profile", f"kind=throughput,max_concurrency={load.streams}",
            "--constraint", f"kind=max_requests,count={load.streams}",
            "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": str(load.tokenizer)}),
            "--data", f"kind=synthetic_text,prompt_tokens={load.prompt_tokens},output_tokens={load.output_tokens}",
            "--output", f"kind=json,path={load.folder / _RESULT}",
            "--disable-console",
        ]  # fmt: skip

    def read(self, load: Load) -> list[RequestTiming]:
        """From each successful request's record; its response id holds the server's number of the request."""
        report = json.loads((load.folder / _RESULT).read_text())
        return [_timing(r) for b in report["benchmarks"] for r in b["requests"]["successful"]]


def _timing(record: dict[str, Any]) -> RequestTiming:
    mean_ms = record["inter_token_latency_ms"]
    response_id = record.get("response_id")
    return RequestTiming(
        record["time_to_first_token_ms"] / 1e3,
        [] if mean_ms is None else [mean_ms / 1e3],
        response_id.removeprefix("cmpl-") if response_id else None,
    )
