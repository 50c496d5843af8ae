"""What a run found out about the stored baselines as a whole: merged from its processes, and said in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_llmperf.report.commands import command_lines, saving
from pytest_llmperf.report.units import shortened
from pytest_llmperf.results import BaselinesRecord

__all__ = ["merged", "sentences", "wrapped"]

#: Tests that are named in the terminal; results.json has them all.
_NAMED = 5


def merged(accounts: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The record of what the processes of a run have found; ``None`` when none of them was to gate.

    Args:
        accounts: One of each process: the baselines that are ``stale``, the tests whose one is ``missing``, those that
            it ``sought`` and those that lay ``idle`` (another process may have sought these).
    """
    accounts = list(accounts)
    if not accounts:
        return None
    sought = {test for account in accounts for test in account["sought"]}
    stale = {entry["path"]: entry for account in accounts for entry in account["stale"] if entry["test"] not in sought}
    known = sought | {entry["test"] for entry in stale.values()}
    return {
        "stale": [stale[path] for path in sorted(stale)],
        "missing": sorted({test for account in accounts for test in account["missing"]}),
        "not_run": len({test for account in accounts for test in account["idle"]} - known),
    }


def sentences(baselines: BaselinesRecord | None, command: str | None = None) -> list[str]:
    """What is wrong with the baselines as a whole, and what to do about it.

    Args:
        baselines: Of the run.
        command: That of the run, so that what is recommended is what the user would type.
    """
    if baselines is None:
        return []
    missing, stale = _missing(baselines), _stale(baselines)
    return [*([f"{missing} {saving(command)}"] if missing else []), *([stale] if stale else [])]


def _missing(baselines: BaselinesRecord) -> str | None:
    """Which tests have none; the command that stores them is to follow."""
    if not (count := len(baselines.missing)):
        return None
    names = _named([shortened(name) for name in baselines.missing])
    return (
        f"{count} test{'s have' if count > 1 else ' has'} no baseline: {names}; store "
        f"{'them' if count > 1 else 'it'} with:"
    )


def _stale(baselines: BaselinesRecord) -> str | None:
    """Which baselines have no test."""
    if not (count := len(baselines.stale)):
        return None
    return (
        f"{count} stale baseline{'s' if count > 1 else ''}, with which no test compares any more: "
        f"{_named([f'{shortened(entry.test)} in {entry.path}' for entry in baselines.stale])}; delete "
        f"{'the files, or rename them with their tests' if count > 1 else 'the file, or rename it with its test'}"
    )


def _named(names: Sequence[str]) -> str:
    shown = [_printable(name) for name in names[:_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def wrapped(baselines: BaselinesRecord | None, width: int, command: str | None = None) -> list[str]:
    """The sentences as lines of at most ``width`` columns, but for long paths; a command that can be copied."""
    if baselines is None:
        return []
    # A path that is cut in two cannot be copied.
    wrap = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    lines: list[str] = []
    if (missing := _missing(baselines)) is not None:
        lines += [*wrap.wrap(missing), *map(_printable, command_lines(saving(command), width))]
    if (stale := _stale(baselines)) is not None:
        lines += wrap.wrap(stale)
    if baselines.not_run:
        lines.append(f"baselines: {baselines.not_run} stored for tests that did not run")
    return lines
