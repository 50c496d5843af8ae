"""The measuring step of the action: its inputs, handed over as environment variables, become one pytest command."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

#: Time that pytest has after the interrupt to shut the engine down and restore the clock.
GRACE = "2m"


def command(environment: Mapping[str, str]) -> list[str]:
    """The command line, each input one word of it whatever it contains.

    Raises:
        ValueError: an input makes no sense; names it.
    """
    given = {name: environment.get(f"LLMPERF_{name}", "").strip() for name in INPUTS}
    for name in ("TIMEOUT_MINUTES", "GPU_CLOCK"):
        if given[name] and not (given[name].isascii() and given[name].isdigit() and int(given[name]) > 0):
            raise ValueError(f"{_input(name)} is a whole number above 0, not {given[name]!r}")
    for name in ("SUITES", "ENGINE", "REPORT", "TIMEOUT_MINUTES"):
        if not given[name]:
            raise ValueError(f"{_input(name)} is empty")
    if given["SUITES"].startswith("-"):
        raise ValueError(f"suites is a path, not {given['SUITES']!r}; further options go into extra-args")
    if given["SAVE"] not in ("true", "false", ""):
        raise ValueError(f"save is true or false, not {given['SAVE']!r}")
    try:
        extra = shlex.split(given["EXTRA_ARGS"])
    except ValueError as error:
        raise ValueError(f"extra-args: {error}") from None
    return [
        *("timeout", "--signal=INT", f"--kill-after={GRACE}", f"{given['TIMEOUT_MINUTES']}m"),
        *(sys.executable, "-m", "pytest", given["SUITES"]),
        f"--llmperf-engine={given['ENGINE']}",
        f"--llmperf-report={given['REPORT']}",
        *([f"--llmperf-model={given['MODEL']}"] if given["MODEL"] else []),
        *([f"--gpu-clock={given['GPU_CLOCK']}"] if given["GPU_CLOCK"] else []),
        *(["--llmperf-save"] if given["SAVE"] == "true" else []),
        *extra,
    ]


INPUTS = ("SUITES", "ENGINE", "MODEL", "GPU_CLOCK", "SAVE", "EXTRA_ARGS", "REPORT", "TIMEOUT_MINUTES")


def _input(name: str) -> str:
    return name.lower().replace("_", "-")


def main() -> None:
    """Become the command, so that a signal to this process reaches pytest."""
    try:
        words = command(os.environ)
    except ValueError as error:
        sys.exit(f"llmperf action: {error}")
    report = Path(os.environ["LLMPERF_REPORT"].strip())
    if report.exists():
        sys.exit(f"llmperf action: the report folder {report} exists already; give another with the input report")
    print(shlex.join(words), flush=True)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
