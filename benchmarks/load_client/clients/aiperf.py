"""AIPerf: worker processes with asyncio and aiohttp, and processes that parse records, joined by ZeroMQ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load_client.clients import Load, RequestTiming, installed_version

__all__ = ["AiPerf"]


@dataclass(frozen=True)
class AiPerf:
    """AIPerf with a concurrency that lets every request go at once."""

    environment: Path | None
    name: str = "AIPerf"
    mean_only: bool = False

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, or ``None``."""
        if self.environment is None:
            return "no --aiperf given"
        program = self.environment / "bin" / "aiperf"
        return None if program.exists() else f"{program} does not exist"

    def version(self) -> str:
        """As its package says."""
        assert self.environment is not None
        return installed_version(self.environment / "bin" / "python", "aiperf")

    def command(self, load: Load) -> list[str]:
        """Synthetic prompts, one per stream, per-request records exported."""
        assert self.environment is not None
        return [
            # Offline it looks for tokenizers only in the hub's cache, and a folder is none of its entries.
            "env", "-u", "HF_HUB_OFFLINE", "-u", "TRANSFORMERS_OFFLINE",
            str(self.environment / "bin" / "aiperf"), "profile",
            "--model", "reference", "--url", load.url, "--endpoint-type", "completions", "--streaming",
            "--tokenizer", str(load.tokenizer), "--use-server-token-count", "--use-legacy-max-tokens",
            "--isl", str(load.prompt_tokens), "--isl-stddev", "0",
            "--osl", str(load.output_tokens), "--osl-stddev", "0",
            "--concurrency", str(load.streams), "--request-count", str(load.streams),
            "--num-dataset-entries", str(load.streams), "--random-seed", "0",
            "--export-level", "records", "--artifact-dir", str(load.folder),
            "--ui-type", "none", "--no-server-metrics", "--no-gpu-telemetry",
        ]  # fmt: skip

    def read(self, load: Load) -> list[RequestTiming]:
        """From the records file; a record holds the ``X-Request-ID`` that was sent."""
        lines = next(iter(load.folder.rglob("profile_export.jsonl"))).read_text().splitlines()
        return [_timing(r) for r in map(json.loads, lines) if not r.get("error")]


def _timing(record: dict[str, Any]) -> RequestTiming:
    metrics = record["metrics"]
    gaps = metrics.get("inter_chunk_latency")
    return RequestTiming(
        _seconds(metrics["time_to_first_token"]),
        [] if gaps is None else [value * _UNIT[gaps["unit"]] for value in gaps["value"]],
        record["metadata"]["x_request_id"],
    )


_UNIT = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def _seconds(metric: dict[str, Any]) -> float:
    return float(metric["value"]) * _UNIT[metric["unit"]]
