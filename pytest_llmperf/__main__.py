"""``python -m pytest_llmperf``: what can be done without measuring."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_llmperf.errors import LlmperfError

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 on success, 1 on an error of ours (one sentence on stderr), 2 on wrong usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["model"]:
        from pytest_llmperf.arithmetic import cli

        return cli.main(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        if options.command == "schema":
            from pytest_llmperf.report.results import json_schema

            print(json_schema(), end="")
            return 0
        return _report(options.folder, options.template)
    except LlmperfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_llmperf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report", help="make the report again: after a killed run from its journal, or with another template"
    )
    report.add_argument("folder", type=Path, help="the report folder of a run")
    report.add_argument("--template", type=Path, help="a jinja2 template instead of the shipped one")
    commands.add_parser("schema", help="print the JSON Schema of results.json")
    commands.add_parser("model", help="what a model needs of a GPU, from its config.json", add_help=False)
    return parser


def _report(folder: Path, template: Path | None) -> int:
    from pytest_llmperf.report.terminal import table
    from pytest_llmperf.report.write import load_run, write_report

    results = load_run(folder)
    write_report(results, folder, template)
    for line, _ in table(results, 100):
        print(line)
    print(f"report: {folder / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
