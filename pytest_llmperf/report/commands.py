"""The command that stores what a run has measured, made of the command of the run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = ["command_lines", "item_of", "saving"]

#: Options that say where a run's outputs go, or how it ends or prints, and not what is measured; with a value.
_OF_THE_RUN = (
    "--llmperf-report", "--llmperf-inconclusive", "--llmperf-launches", "--junitxml", "--junit-xml", "--benchmark-json",
    "--maxfail", "--tb", "--color", "--durations", "-n", "--numprocesses", "-r",
)  # fmt: skip
_FLAGS = ("-x", "-q", "-v", "-s", "-qq", "-vv", "--exitfirst", "--quiet", "--verbose", "--llmperf-save", "--lf", "--ff")
#: Other options with a value: the word that follows is not a path.
_WITH_VALUE = (
    "-k", "-m", "-p", "-c", "-o", "-W", "--rootdir", "--confcutdir", "--dist", "--deselect", "--ignore",
    "--override-ini", "--import-mode", "--llmperf-engine", "--llmperf-model", "--llmperf-repeats",
    "--llmperf-baselines", "--gpu-clock", "--gpu-memory-clock", "--gpu-clock-mode",
)  # fmt: skip
#: Of these the value may be a path.
_PATHS = ("--llmperf-model", "--llmperf-baselines")


def item_of(nodeid: str) -> str:
    """The pytest id of a record: without the name of a named measurement, and with a # within parameters."""
    head, bracket, tail = nodeid.rpartition("]")
    return head + bracket + tail.partition("#")[0]


def saving(command: str | None, tests: Sequence[str] = ()) -> str:
    """The command that stores baselines of what ``command`` measures: same engine, clock, model and paths.

    Args:
        command: As results.json keeps it; ``None`` when it is not known.
        tests: Only these tests, where the paths can be told from the options; else all that the command runs.
    """
    try:
        words = shlex.split(command or "pytest")
    except ValueError:
        words = ["pytest"]
    kept: list[tuple[str, bool]] = []  # a word, and whether it is a path
    certain = True
    rest = iter(words[1:])
    for word in rest:
        name, equals, _ = word.partition("=")
        if word in _FLAGS or (equals and name in _OF_THE_RUN):
            continue
        if word in _OF_THE_RUN:
            next(rest, None)
        elif word in _WITH_VALUE:
            value = next(rest, None)
            if value is not None and word in _PATHS:
                # With its value as a word of its own, pytest may take the path for its root directory.
                kept.append((f"{word}={value}", False))
            else:
                kept += [(word, False), *([] if value is None else [(value, False)])]
        else:
            kept.append((word, not word.startswith("-")))
            # What follows an option that is not known here may be its value.
            certain = certain and (bool(equals) or not word.startswith("--"))
    options = [word for word, is_path in kept if not (is_path and tests and certain)]
    return shlex.join([*(words[:1] or ["pytest"]), *(tests if certain else ()), *options, "--llmperf-save"])


def command_lines(command: str, width: int, indent: str = "    ") -> list[str]:
    """A command as lines of at most ``width`` columns that a shell takes as one, but for words that are longer.

    Args:
        command: As a shell reads it.
        width: Of the terminal.
        indent: Before every line; those after the first are indented twice.
    """
    words = [shlex.quote(word) for word in shlex.split(command)]
    lines = [indent + (words[0] if words else "")]
    for word in words[1:]:
        # Every line but the last one ends in a backslash.
        if len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(indent * 2 + word)
    return lines
