"""``python -m pytest_llmperf``: what can be done without measuring."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_llmperf.errors import LlmperfError

__all__ = ["main"]

_PIPE_CLOSED = 128 + 13


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 on success, 1 on an error of ours (one sentence on stderr), 2 on wrong usage; of ``explain`` and ``compare``,
        which have something to say with 1, an error of ours is 2 as well; 141, as of other programs that end by
        SIGPIPE, when nobody reads the output to its end.
    """
    try:
        try:
            with _notes():
                return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


@contextmanager
def _notes() -> Iterator[None]:
    """Print what is to be noted of a file that is read as one line on stderr."""
    with warnings.catch_warnings():
        # By its words: its class would import what most commands do without.
        warnings.filterwarnings("always", r"[\s\S]* holds fields that this version does not know")
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__name__ == "UnknownFieldsWarning":
                print(f"note: {message}", file=sys.stderr)
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["model"]:
        from pytest_llmperf.arithmetic import cli
        from pytest_llmperf.models import shape_folder

        # A shipped shape goes by its name here as it does for --llmperf-model.
        return cli.main([shape_folder(word) or word for word in arguments[1:]])
    if arguments[:1] == ["baselines"]:
        from pytest_llmperf.baselines import cli as of_baselines

        return of_baselines.main(arguments[1:])
    if arguments[:1] == ["calibrate"]:
        from pytest_llmperf.calibration import cli as calibration
        from pytest_llmperf.options import GATE_LAUNCHES, SAVE_LAUNCHES

        return calibration.main(arguments[1:], save_launches=SAVE_LAUNCHES, gate_launches=GATE_LAUNCHES)
    options = _parser().parse_args(arguments)
    if options.command in ("explain", "compare"):
        return _read_again(options)
    try:
        if options.command == "schema":
            from pytest_llmperf.results import json_schema

            print(json_schema(), end="")
            return 0
        if options.command == "peaks":
            return _peaks(on_cpu=options.cpu, as_json=options.json)
        return _report(options.folder, options.template)
    except LlmperfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _read_again(options: argparse.Namespace) -> int:
    from pytest_llmperf.explanation import cli

    try:
        if options.command == "explain":
            return cli.explain(options.report, options.test, as_json=options.json)
        return cli.compare(options.a, options.b, as_json=options.json)
    except LlmperfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_llmperf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report", help="make the report again: after a killed run from its journal, or with another template"
    )
    report.add_argument("folder", type=Path, help="the report folder of a run")
    report.add_argument("--template", type=Path, help="a jinja2 template instead of the shipped one")
    explain = commands.add_parser(
        "explain", help="derive the verdicts of a run again from its record alone, and say what moved with them"
    )
    explain.add_argument("report", type=Path, help="the report folder of a run, or its results.json")
    explain.add_argument("test", nargs="?", help="a test's id, or a part of it; all tests without it")
    explain.add_argument("--json", action="store_true", help="for scripts")
    compare = commands.add_parser("compare", help="put two runs, or two machines, side by side")
    compare.add_argument("a", type=Path, help="the report folder of a run, or its results.json")
    compare.add_argument("b", type=Path, help="that of another one")
    compare.add_argument("--json", action="store_true", help="for scripts")
    commands.add_parser("schema", help="print the JSON Schema of results.json")
    peaks = commands.add_parser("peaks", help="measure how fast this machine copies and multiplies at best")
    peaks.add_argument("--cpu", action="store_true", help="the processor's memory, also where GPUs are")
    peaks.add_argument("--json", action="store_true", help="SI units, for scripts")
    commands.add_parser("baselines", help="list stored baselines and their problems; migrate, pin", add_help=False)
    commands.add_parser(
        "calibrate", help="how often the gate is wrong here: divide launches of one engine in every way", add_help=False
    )
    commands.add_parser("model", help="what a model needs of a GPU, from its config.json", add_help=False)
    return parser


def _report(folder: Path, template: Path | None) -> int:
    from pytest_llmperf.findings import with_findings
    from pytest_llmperf.report.terminal import table, verdict_lines
    from pytest_llmperf.report.write import load_run, write_report

    results = with_findings(load_run(folder))
    write_report(results, folder, template)
    width = shutil.get_terminal_size().columns
    for line, _ in (*table(results, width), *verdict_lines(results, width)):
        print(line)
    print(f"report: {folder / 'report.html'}")
    return 0


def _peaks(*, on_cpu: bool, as_json: bool) -> int:
    from pytest_llmperf import peaks
    from pytest_llmperf.gpu.nvml import visible_boards
    from pytest_llmperf.report.units import format_value

    found = [peaks.cpu_peaks()] if on_cpu or not visible_boards() else peaks.gpu_peaks()
    if as_json:
        print(peaks.as_json(found))
        return 0
    for index, one in enumerate(found):
        print(f"{index}: {one.device}")
        rates = {"copy": one.copy_bandwidth, "host to device": one.host_to_device, "device to host": one.device_to_host}
        rates |= {f"to GPU {other}": rate for other, rate in one.peer_to_peer.items()}
        for name, rate in rates.items():
            if rate is not None:
                print(f"   {name:<16} {format_value(rate, 'B')}/s")
        for dtype, rate in one.matmul_flops.items():
            print(f"   {dtype + ' product':<16} {rate / 1e12:.1f} TFLOP/s")
        print(f"   ({one.method})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
