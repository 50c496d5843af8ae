"""``python -m pytest_llmperf model CONFIG``: what a model needs and a GPU allows, before one is rented."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from pytest_llmperf.arithmetic.architecture import Architecture
from pytest_llmperf.arithmetic.energy import energy_split
from pytest_llmperf.arithmetic.hardware import Hardware
from pytest_llmperf.arithmetic.roofline import (
    critical_batch,
    decode_time,
    peak_matmul_flops,
    prefill_time,
)
from pytest_llmperf.errors import LlmperfError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments, without the program's name; by default the process's.

    Returns:
        0, or 1 when the config or the GPU is not known (the message goes to standard error). Wrong
        arguments exit with 2, as argparse does.
    """
    options = _parser().parse_args(argv)
    try:
        report = describe(options)
    except LlmperfError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2, allow_nan=False) if options.json else render(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf model",
        description="What a model needs and a GPU allows: parameters, bytes, FLOPs and the roofline.",
    )
    parser.add_argument("config", help="a folder with a config.json, or the file")
    parser.add_argument("--gpu", metavar="NAME", help="as nvidia-smi names it, or in short: h200")
    parser.add_argument("--gpus", type=_whole, default=1, metavar="N", help="tensor-parallel size (1)")
    parser.add_argument("--batch", type=_whole, nargs="+", default=[1, 16], metavar="N", help="sequences (1 16)")
    parser.add_argument(
        "--context",
        type=_whole,
        nargs="+",
        default=[1024],
        metavar="N",
        help="tokens of each sequence (1024)",
    )
    parser.add_argument("--dtype", default="auto", help="what the engine serves in (auto: as the config says)")
    parser.add_argument("--quantization", metavar="NAME", help="what the engine quantises to while loading: fp8, ...")
    parser.add_argument("--kv-dtype", metavar="DTYPE", help="of the KV cache (as the model)")
    parser.add_argument("--sm-clock", type=_positive, metavar="MHZ", help="a locked SM clock; scales the FLOPs only")
    parser.add_argument("--bandwidth", type=_positive, metavar="GB/S", help="a measured bandwidth")
    parser.add_argument("--json", action="store_true", help="print JSON, in SI units")
    return parser


def _whole(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 10^9")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 10**9:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that the command prints, in SI units."""
    stored = Architecture.from_config(options.config)
    model = stored.served_as(options.dtype, options.quantization)
    if options.kv_dtype is not None:
        model.kv_bytes_per_token(options.kv_dtype)  # refuses an unknown dtype before anything is printed
    report: dict[str, Any] = {
        "config": options.config,
        "model_type": model.model_type,
        "quantization": model.quantization.method if model.quantization is not None else None,
        "dtype": model.compute_dtype,
        "kv_dtype": options.kv_dtype or model.compute_dtype,
        "total_params": model.total_params,
        "active_params": model.active_params,
        "stored_weight_bytes": stored.weight_bytes(),
        "weight_bytes": model.weight_bytes(),
        "kv_bytes_per_token": model.kv_bytes_per_token(options.kv_dtype, tensor_parallel=options.gpus),
        "weight_flops_per_token": model.weight_flops_per_token,
        "gpus": options.gpus,
        "notes": list(model.notes),
        "decode": [
            {
                "batch": batch,
                "context": context,
                "kv_bytes": batch * model.kv_bytes(context, options.kv_dtype, tensor_parallel=options.gpus),
                "read_bytes": model.decode_read_bytes(
                    batch, context, kv_dtype=options.kv_dtype, tensor_parallel=options.gpus
                ),
                "flops": batch * model.flops_per_token(context),
            }
            for context in options.context
            for batch in options.batch
        ],
        "prefill": [{"prompt": context, "flops": model.prefill_flops(context)} for context in options.context],
    }
    if options.gpu is not None:
        hardware = Hardware.matching(options.gpu)
        if options.bandwidth is not None:
            hardware = hardware.with_measured(bandwidth=options.bandwidth * 1e9)
        _add_roofline(report, model, hardware, options)
    return report


def _add_roofline(report: dict[str, Any], model: Architecture, hardware: Hardware, options: argparse.Namespace) -> None:
    clock = options.sm_clock * 1e6 if options.sm_clock is not None else None
    peak = peak_matmul_flops(model, hardware, sm_clock_hz=clock)
    report["gpu"] = {
        "name": hardware.name,
        "peak_flops": peak,
        "peak_bandwidth": hardware.peak_bandwidth,
        "machine_balance": peak / hardware.peak_bandwidth,
        "memory_bytes": hardware.memory_bytes,
        "power_limit_w": hardware.power_limit_w,
        "sm_clock_hz": clock if clock is not None else hardware.sm_clock_hz,
        "source": hardware.source,
    }
    shared = {"gpus": options.gpus, "kv_dtype": options.kv_dtype, "sm_clock_hz": clock}
    for row in report["decode"]:
        allowed = decode_time(model, hardware, batch=row["batch"], input_len=row["context"], **shared)
        split = energy_split(
            1.0,
            weight_bytes=model.decode_weight_bytes(row["batch"]),
            kv_bytes=row["kv_bytes"],
            activation_bytes=model.activation_bytes(row["batch"]),
        )
        row.update(
            tpot_s=allowed.seconds,
            bound=allowed.bound,
            tokens_per_second=row["batch"] / allowed.seconds,
            fits=model.weight_bytes() + row["kv_bytes"] <= options.gpus * hardware.memory_bytes,
            energy_split={
                "weight": split.weight_j,
                "kv": split.kv_j,
                "activation": split.activation_j,
            },
        )
    for row in report["prefill"]:
        allowed = prefill_time(model, hardware, prompt_len=row["prompt"], **shared)
        row.update(ttft_s=allowed.seconds, bound=allowed.bound)
    report["critical_batch"] = {
        "without_kv": critical_batch(model, hardware, **shared),
        "by_context": [
            {"context": context, "batch": critical_batch(model, hardware, context_len=context, **shared)}
            for context in options.context
        ],
    }


def render(report: dict[str, Any]) -> str:
    """The report as a table of at most 80 columns."""
    experts = "" if report["active_params"] == report["total_params"] else ", of which a token uses "
    if experts:
        experts += si(report["active_params"])
    served = report["dtype"] + (f", {report['quantization']}" if report["quantization"] else "")
    lines = [
        f"model        {shorten(str(report['config']), 48)} ({report['model_type']})",
        f"parameters   {si(report['total_params'])}{experts}",
        f"weights      {si(report['weight_bytes'], 'B')} as served ({served})",
        *(
            [f"             {si(report['stored_weight_bytes'], 'B')} as stored"]
            if report["stored_weight_bytes"] != report["weight_bytes"]
            else []
        ),
        f"KV cache     {si(report['kv_bytes_per_token'], 'B')} per token of a sequence ({report['kv_dtype']})",
        f"computing    {si(report['weight_flops_per_token'], 'FLOP')} per token, and attention",
        *wrap("note         ", report["notes"]),
    ]
    gpu = report.get("gpu")
    if gpu is not None:
        lines += [
            "",
            f"GPU          {report['gpus']} x {gpu['name']}, {si(gpu['memory_bytes'], 'B')},"
            f" {gpu['power_limit_w']:.0f} W",
            f"peaks        {si(gpu['peak_flops'], 'FLOP/s')} at {gpu['sm_clock_hz'] / 1e6:.0f} MHz,"
            f" {si(gpu['peak_bandwidth'], 'B/s')} each",
            f"balance      {gpu['machine_balance']:.1f} FLOP/B",
            *wrap("source       ", [gpu["source"]]),
        ]
    return "\n".join([*lines, "", *_decode_table(report), "", *_prefill_table(report), *_critical(report)])


def _decode_table(report: dict[str, Any]) -> list[str]:
    header = f"{'decode step':>11}{'context':>11}{'KV cache':>11}{'read':>11}"
    if "gpu" in report:
        header += f"{'least TPOT':>11}{'at most':>13}{'bound':>9}"
    rows = [header]
    for row in report["decode"]:
        line = (
            f"{'batch ' + format(row['batch'], 'd'):>11}{row['context']:>7} tok"
            f"{si(row['kv_bytes'], 'B'):>11}{si(row['read_bytes'], 'B'):>11}"
        )
        if "gpu" in report:
            line += f"{si(row['tpot_s'], 's'):>11}{si(row['tokens_per_second'], 'tok/s'):>13}"
            line += f"{row['bound'] if row['fits'] else 'too big':>9}"
        rows.append(line)
    if "gpu" in report:
        first, last = report["decode"][0], report["decode"][-1]
        rows.append("")
        rows.append("energy by bytes moved (modelled)")
        rows += [_split_line(row) for row in ([first, last] if first is not last else [first])]
    return rows


def _split_line(row: dict[str, Any]) -> str:
    split = row["energy_split"]
    parts = ", ".join(
        f"{name} {split[key]:.1%}"
        for name, key in (("weights", "weight"), ("KV cache", "kv"), ("activations", "activation"))
    )
    return f"  batch {row['batch']}, {row['context']} tok: {parts}"


def _prefill_table(report: dict[str, Any]) -> list[str]:
    header = f"{'prefill':>11}{'computed':>14}"
    if "gpu" in report:
        header += f"{'least TTFT':>12}{'bound':>9}"
    rows = [header]
    for row in report["prefill"]:
        line = f"{row['prompt']:>7} tok{si(row['flops'], 'FLOP'):>14}"
        if "gpu" in report:
            line += f"{si(row['ttft_s'], 's'):>12}{row['bound']:>9}"
        rows.append(line)
    return rows


def _critical(report: dict[str, Any]) -> list[str]:
    critical = report.get("critical_batch")
    if critical is None:
        return []
    lines = ["", "decode turns compute-bound at", f"  {_batch(critical['without_kv'])} without KV traffic"]
    lines += [f"  {_batch(row['batch'])} with {row['context']} tok of context" for row in critical["by_context"]]
    return lines


def _batch(value: float | None) -> str:
    return "no batch" if value is None else f"batch {value:.1f}"


_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
)


def si(value: float, unit: str = "") -> str:
    """A number to four digits with its unit; parameters (no unit) in thousands, millions and billions."""
    rounded = float(f"{value:.4g}")  # first, so that 999,999 is 1 M and not 1000 k
    if rounded == 0:
        return f"0 {unit}".rstrip()
    scale, prefix = next((pair for pair in _PREFIXES if abs(rounded) >= pair[0]), _PREFIXES[-1])
    if not unit and prefix == "G":
        prefix = "B"
    return f"{rounded / scale:.4g} {prefix}{unit}".rstrip()


def shorten(text: str, width: int) -> str:
    """The end of a text that is too long."""
    return text if len(text) <= width else "..." + text[-(width - 3) :]


def wrap(label: str, texts: Sequence[str]) -> list[str]:
    """Texts under a label, in lines of at most 80 columns."""
    lines: list[str] = []
    for text in texts:
        lines += textwrap.wrap(
            text,
            width=80,
            initial_indent=label if not lines else " " * len(label),
            subsequent_indent=" " * len(label),
        )
    return lines
