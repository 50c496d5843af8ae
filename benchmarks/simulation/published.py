"""Ratios that were published, beside what the simulation makes of the same work.

    python -m benchmarks.simulation.published                # a table
    python -m benchmarks.simulation.published --markdown FILE

All are ratios between two runs, of other hardware than the H200 that the simulation is fitted to, and of the engines of
2023. Those launched each kernel of a step by itself; vLLM replays a step of decodes from one CUDA graph. Where a step
is short on the GPU (a small model, many GPUs, one sequence) that decides what a ratio comes to. So every claim is
simulated twice: as vLLM is today, and with an engine that launches layer by layer. Claims come without some of their
conditions; those that are simulated stand in each row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.simulation.trial import Point, simulate
from pytest_llmperf.arithmetic import Architecture, Hardware, mbu
from pytest_llmperf.engines.simulated.deployment import deploy
from pytest_llmperf.engines.simulated.settings import Arguments
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.workload import Workload

__all__ = ["CLAIMS", "Claim", "Era", "gpus_needed"]

#: A guess at what an engine of 2023 took to launch one layer: some fifteen kernels of 10 us, from Python or C++.
_LAYER_LAUNCH_S = 0.15e-3


@dataclass(frozen=True)
class Era:
    """How steps are launched.

    Attributes:
        name: For the table.
        layer_launch_s: Seconds of each layer in every step; ``None``: decodes are replayed from a CUDA graph.
    """

    name: str
    layer_launch_s: float | None = None

    def figures(self, board: str, model: str, workload: Workload, **arguments: Any) -> Mapping[str, float]:
        """What is measured on a board, of a shipped shape."""
        return _figures(self, board, model, workload, tuple(sorted(arguments.items())))

    def latency(
        self, board: str, model: str, batch: int = 1, gpus: int = 1, lengths: tuple[int, int] = (512, 64)
    ) -> float:
        """Seconds of whole requests, ``batch`` of them at once."""
        figures = self.figures(board, model, Workload(*lengths, batch=batch), tensor_parallel_size=gpus)
        return figures["ttft"] + (lengths[1] - 1) * (figures["tpot"] or 0.0)

    def tpot(self, board: str, model: str, batch: int = 1, gpus: int = 1, **arguments: Any) -> float:
        """Seconds of an output token."""
        work = Workload(512, 64, batch=batch)
        return self.figures(board, model, work, tensor_parallel_size=gpus, **arguments)["tpot"]

    def mbu(self, board: str, model: str, gpus: int) -> float:
        """At batch 1."""
        read, data_sheet = _architecture(model), BoardModel.named(board).hardware
        cached = read.kv_bytes(512 + 32, None, tensor_parallel=gpus)
        tpot = self.tpot(board, model, gpus=gpus)
        return mbu(read.weight_bytes(), cached, tpot, data_sheet.peak_bandwidth, gpus=gpus)


TODAY = Era("vLLM today")
LAYER_BY_LAYER = Era("launched layer by layer", _LAYER_LAUNCH_S)
ERAS = (TODAY, LAYER_BY_LAYER)


@cache
def _figures(era: Era, board: str, model: str, workload: Workload, arguments: tuple[Any, ...]) -> Mapping[str, float]:
    found, asked = BoardModel.named(board), dict(arguments)
    if era.layer_launch_s is not None:
        found = replace(found, host=replace(found.host, eager_layer_launch_s=era.layer_launch_s))
        asked["enforce_eager"] = True
    figures = simulate(Point("", "", "", model, asked, workload, {}), found)
    return {name: value or 0.0 for name, value in figures.items()}


def _architecture(model: str) -> Architecture:
    return Architecture.from_config(resolve(model).config or {})


def gpus_needed(board: str, model: str, quantization: str | None = None) -> int:
    """The fewest GPUs that hold a model and one sequence of 2048 tokens.

    Raises:
        EngineError: Eight do not.
    """
    for gpus in (1, 2, 4, 8):
        asked = Arguments(tensor_parallel_size=gpus, quantization=quantization, max_model_len=2048)
        try:
            deploy(_architecture(model), 4096, asked, BoardModel.named(board))
        except EngineError:
            if gpus == 8:
                raise
        else:
            return gpus
    raise AssertionError


def _batching(era: Era) -> float:
    """A shared service that is offered more than it can serve: continuous batching over dynamic batching.

    Lengths differ from request to request as on a service for all. A dynamic batch is as large as an engine without
    paged KV caches can reserve memory for, and ends with its longest request.
    """
    load: dict[str, Any] = {"rate": 20, "requests": 600, "warmup": 0}
    prompts, answers = {"lognormal": [256, 0.8, 16, 1024]}, {"lognormal": [128, 1.0, 4, 1024]}
    dynamic, continuous = (
        era.figures("a100-40gb", "mpt-7b", Workload(prompts, answers, **load, **policy), max_num_seqs=256)["throughput"]
        for policy in ({"policy": "dynamic", "max_batch": 8, "max_wait": 0.1}, {})
    )
    return continuous / dynamic


@dataclass(frozen=True)
class Claim:
    """One published ratio.

    Attributes:
        key: Short name.
        text: What is claimed.
        published: The ratio, or both ends of a range.
        simulated: The same of the simulation.
        conditions: What is simulated.
        source: Where it is from.
    """

    key: str
    text: str
    published: tuple[float, ...]
    simulated: Callable[[Era], float]
    conditions: str
    source: str = "published for other hardware (MosaicML/Databricks on LLM inference, 2023)"

    def error(self, simulated: float) -> float:
        """Relative to the published figure; 0 within a range."""
        nearest = min(max(simulated, min(self.published)), max(self.published))
        return simulated / nearest - 1


def _split(batch: int) -> Callable[[Era], float]:
    return lambda era: era.latency("a100-40gb", "mpt-7b", batch, 4) / era.latency("a100-40gb", "mpt-7b", batch, 2)


def _boards(batch: int) -> Callable[[Era], float]:
    return lambda era: era.latency("h100", "llama-2-70b", batch, 4) / era.latency("a100-40gb", "llama-2-70b", batch, 4)


_SPLIT = "MPT-7B, 512 in, 64 out, A100 40 GB, latency"
_OTHER = "Llama-2-70B, 512 in, 64 out, 4 GPUs, latency"
CLAIMS = (
    Claim(
        "mpt-size", "MPT-30B has 2.5 times the latency of MPT-7B (4.5 times the weights)", (2.5,),
        lambda era: era.latency("a100-40gb", "mpt-30b", 1, 4) / era.latency("a100-40gb", "mpt-7b", 1, 4),
        "512 in, 64 out, batch 1, 4 GPUs A100 40 GB",
    ),
    Claim(
        "llama-size", "Llama-2-70B has twice the latency of 13B (5.3 times the weights)", (2.0,),
        lambda era: era.latency("a100-40gb", "llama-2-70b", 1, 4) / era.latency("a100-40gb", "llama-2-13b", 1, 4),
        "512 in, 64 out, batch 1, 4 GPUs A100 40 GB",
    ),
    Claim(
        "batch-latency", "Batch 64 on an A100: latency x 4", (4.0,),
        lambda era: era.latency("a100-40gb", "mpt-7b", 64) / era.latency("a100-40gb", "mpt-7b", 1),
        "MPT-7B, 512 in, 64 out, A100 40 GB, batch 64 over batch 1",
    ),
    Claim(
        "batch-throughput", "Batch 64 on an A100: throughput x 14", (14.0,),
        lambda era: (
            era.figures("a100-40gb", "mpt-7b", Workload(512, 64, batch=64), tensor_parallel_size=1)["throughput"]
            / era.figures("a100-40gb", "mpt-7b", Workload(512, 64, batch=1), tensor_parallel_size=1)["throughput"]
        ),
        "MPT-7B, 512 in, 64 out, A100 40 GB, batch 64 over batch 1",
    ),
    Claim("split-1", "MPT-7B, tensor parallel 2 to 4, batch 1: -12 %", (0.88,), _split(1), _SPLIT),
    Claim("split-16", "MPT-7B, tensor parallel 2 to 4, batch 16: -33 %", (0.67,), _split(16), _SPLIT),
    Claim("boards-1", "H100 against A100 40 GB (bandwidth 2.15 x), batch 1: -36 %", (0.64,), _boards(1), _OTHER),
    Claim("boards-16", "H100 against A100 40 GB (bandwidth 2.15 x), batch 16: -52 %", (0.48,), _boards(16), _OTHER),
    Claim(
        "mbu-h100", "MBU at batch 1: 60 % on 2 H100", (0.60,), lambda era: era.mbu("h100", "llama-2-70b", 2),
        "Llama-2-70B, 512 in, 64 out",
    ),
    Claim(
        "mbu-a100", "MBU at batch 1: 55 % on 4 A100 40 GB", (0.55,), lambda era: era.mbu("a100-40gb", "llama-2-70b", 4),
        "Llama-2-70B, 512 in, 64 out",
    ),
    Claim(
        "prompt-tokens", "512 more prompt tokens cost less time than 8 more output tokens", (0.0, 1.0),
        lambda era: (
            (era.latency("a100-40gb", "mpt-7b", lengths=(1024, 64)) - era.latency("a100-40gb", "mpt-7b"))
            / (era.latency("a100-40gb", "mpt-7b", lengths=(512, 72)) - era.latency("a100-40gb", "mpt-7b"))
        ),
        "MPT-7B, from 512 in and 64 out, batch 1, A100 40 GB: time of the one over time of the other",
    ),
    Claim(
        "batching", "Continuous batching has 10 to 20 times the throughput of dynamic batching on a shared service",
        (10.0, 20.0), _batching,
        "MPT-7B, A100 40 GB; 20 requests/s, 256 in and 128 out in the median, log-normal; dynamic: at most 8, 0.1 s",
    ),
    Claim(
        "8-bit-gpus", "16 to 8 bit weights halve the GPUs needed", (0.5,),
        lambda _: gpus_needed("a100-40gb", "llama-2-70b", "fp8") / gpus_needed("a100-40gb", "llama-2-70b"),
        "Llama-2-70B, GPUs A100 40 GB that hold it",
    ),
    Claim(
        "8-bit-speed", "... at the same speed, where memory bounds it", (1.0,),
        lambda era: (
            era.tpot("a100-40gb", "llama-2-70b", gpus=2, quantization="fp8")
            / era.tpot("a100-40gb", "llama-2-70b", gpus=4)
        ),
        "Llama-2-70B, A100 40 GB, TPOT at batch 1: 2 GPUs with 8 bits over 4 with 16",
    ),
    Claim(
        "balance", "Machine balance of a V100 by the measured copy: 173", (173.0,),
        lambda _: _balance(BoardModel.named("v100").memory.copy_bandwidth),
        "data sheet's FLOPs over the file's copy bandwidth", "measured on a V100",
    ),
    Claim(
        "balance-sheet", "... by the data sheet: 139", (139.0,), lambda _: _balance(None), "data sheet",
        "NVIDIA's data sheet",
    ),
)  # fmt: skip


def _balance(bandwidth: float | None) -> float:
    return Hardware.named("Tesla V100-SXM2-32GB").machine_balance("float16", bandwidth)


def table() -> list[str]:
    """Markdown, a row a claim."""
    columns = ["claim", "published", *(cell for era in ERAS for cell in (era.name, "error")), "simulated", "source"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|" + "---:|---:|" * len(ERAS) + "---|---|"]
    for claim in CLAIMS:
        cells = [claim.text, " to ".join(f"{end:.3g}" for end in claim.published)]
        for era in ERAS:
            found = claim.simulated(era)
            cells += [f"{found:.3g}", f"{claim.error(found):+.0%}"]
        lines.append("| " + " | ".join([*cells, claim.conditions, claim.source]) + " |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    text = "\n".join(table()) + "\n"
    print(text)
    if asked.markdown:
        asked.markdown.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
